"""GPUs in a row that are not there: what blocks, what is said of each node, and what was tried out."""

from typing import Any

import pytest

from kai_solver.domain import Blocker, Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.explaining import Cure, cures, eased, explain_gang
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model

ALIGNED, CONTIGUOUS = "aligned-required", "contiguous-required"
EVER = "even if nothing else ran"


def cluster(gpus: int, row: str, *nodes: dict[str, Any], gangs: tuple[dict[str, Any], ...] = ()) -> Snapshot:
    """Nodes of eight GPUs with pods that stay on ``held`` ones, of unknown GPUs for a number; ``w`` wants a row."""
    running = []
    for node in nodes:
        held = node.pop("held", ())
        pod = {"gpus": held, "node": node["name"]} if isinstance(held, int) else {"gpus": len(held), "devices": [*held]}
        pod |= {"status": "Running", "node": node["name"]}
        if held:
            running.append({"name": f"on-{node['name']}", "queue": "q", "preemptible": False, "pods": [pod]})
    waiting = {"name": "w", "queue": "q", "pods": [{"gpus": gpus, "gpuRow": row}]}
    return snapshot_from_native(
        {
            "format": "kai-solver/v1",
            "nodes": [{"gpus": 8} | node for node in nodes],
            "queues": [{"name": "q", "quota": 64}],
            "gangs": [*running, *gangs, waiting],
        }
    )


def planned(snapshot: Snapshot) -> Plan:
    return cycle(snapshot, load_model("greedy-only"))


def blocking(snapshot: Snapshot) -> list[Blocker]:
    (pending,) = planned(snapshot).pending
    assert pending.proof.state == "proven"
    assert pending.proof.minimal
    return list(pending.proof.blocking)


def the_row(snapshot: Snapshot) -> Blocker:
    (found,) = (blocker for blocker in blocking(snapshot) if blocker.kind in ("row", "resource"))
    assert found.kind == "row"
    return found


def test_a_row_is_what_blocks_and_the_largest_is_named() -> None:
    """Both nodes have GPUs enough."""
    snapshot = cluster(4, CONTIGUOUS, {"name": "a", "held": (2, 5)}, {"name": "b", "held": (1, 5)})
    row = the_row(snapshot)
    assert (row.name, row.need) == ("gpu", "1 pod of 4 GPUs in a row")
    assert row.have == "none; the largest free row is 3 on node b"


def test_where_gpus_are_short_they_are_told_and_no_row() -> None:
    kinds = [blocker.kind for blocker in blocking(cluster(4, CONTIGUOUS, {"name": "a", "held": (0, 1, 2, 3, 4)}))]
    assert "resource" in kinds
    assert "row" not in kinds


def test_a_row_that_begins_elsewhere_is_none() -> None:
    row = the_row(cluster(4, ALIGNED, {"name": "a", "held": (1, 6)}))
    assert row.need == "1 pod of 4 GPUs in a row and aligned"
    assert row.have == "none; the largest free row is 4 on node a, and none of 4 begins at a multiple of 4"


def test_what_is_not_known_is_told_as_such() -> None:
    """One GPU failed on a node, a pod of unknown GPUs stays on another."""
    row = the_row(cluster(2, CONTIGUOUS, {"name": "failed", "allocatableGpus": 7}, {"name": "dim", "held": 1}))
    assert row.have == (
        "none; no row is known to be free; GPUs of node failed failed, and it is unknown which; "
        "it is unknown which are free on node dim"
    )
    failed = {"name": "x", "allocatableGpus": 7}, {"name": "y", "allocatableGpus": 6}
    row = the_row(cluster(2, CONTIGUOUS, {"name": "c", "held": (1, 2, 3, 4, 5, 6)}, *failed))
    assert row.have == "none; the largest free row is 1 on node c; GPUs of 2 nodes failed, and it is unknown which"


def test_what_no_empty_cluster_has_is_told_alone() -> None:
    (row,) = blocking(cluster(2, CONTIGUOUS, {"name": "failed", "allocatableGpus": 7}))
    assert row.have == f"none {EVER}; no row is known to be free; GPUs of node failed failed, and it is unknown which"
    (gpus,) = blocking(cluster(5, ALIGNED, {"name": "a", "gpus": 4, "held": (0,)}, {"name": "b", "gpus": 4}))
    assert (gpus.kind, gpus.name) == ("rule", "largest node")


@pytest.mark.parametrize("row", [CONTIGUOUS, ALIGNED])
def test_any_gpus_cure_it_and_so_does_another_node(row: str) -> None:
    snapshot = cluster(4, row, {"name": "a", "held": (2, 5)}, {"name": "b", "held": (1, 5)})
    tried = cures(snapshot, "default/w", blocking(snapshot), planned)
    assert Cure("any GPUs, in a row or not", runs=True) in tried
    assert Cure("1 more node like b", runs=True) in tried


def test_eased_for_others_where_the_gang_asks_for_none() -> None:
    snapshot = cluster(2, CONTIGUOUS, {"name": "a"}, gangs=({"name": "v", "queue": "q", "pods": [{"gpus": 1}]},))
    row = Blocker("row", "gpu", "", "")
    mine, theirs = (eased(snapshot, f"default/{name}", row) for name in "wv")
    assert mine is not None
    assert mine == theirs
    assert not any(pod.gpu.row for gang in mine.gangs for pod in gang.pods)


def test_explain_says_it_of_every_node() -> None:
    snapshot = cluster(
        4, CONTIGUOUS, {"name": "a", "held": (2, 5)}, {"name": "b", "allocatableGpus": 7}, {"name": "c", "held": 1}
    )
    plan = planned(snapshot)
    told = explain_gang(snapshot, plan, "default/w")
    (fit,) = told.fits
    assert (fit.request.startswith("4 GPUs in a row"), fit.fitting_nodes, fit.room) == (True, 0, 0)
    assert {reason.kai for reason in fit.reasons} == {
        "node(s) had no 4 GPUs in a row, 6 of 8 free",
        "node(s) had no 4 GPUs in a row, 7 of 8 free, 1 failed, and it is unknown which",
        "node(s) had no 4 GPUs in a row, 7 of 8 free, it is unknown which",
    }
