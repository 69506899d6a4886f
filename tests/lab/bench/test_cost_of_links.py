"""What links cost a cycle: the same cluster with and without them, in turn."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kai_solver.domain import Snapshot
from kai_solver.engine import cycle
from kai_solver.errors import InputError
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.lab.bench import in_pairs, jobs_of, measure_here, read_set, with_links
from kai_solver.lab.bench.linked import LEAST_PAIRS
from kai_solver.lab.runs import Generated
from kai_solver.modelfiles import load_model

LINKS = Path(__file__).parents[3] / "instances" / "bench" / "sets" / "links.yaml"
DGX1 = "dgx1-v100-8"


def held(name: str, node: str, gpus: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "queue": "q", "pods": [{"gpus": gpus, "status": "Running", "node": node} | more]}


CLUSTER = snapshot_from_native(
    {
        "format": "kai-solver/v1",
        "nodes": [{"name": "n0", "gpus": 8}, {"name": "n1", "gpus": 8}, {"name": "small", "gpus": 4}],
        "queues": [{"name": "q", "quota": 20}],
        "gangs": [
            held("a", "n0", 2),
            held("b", "n0", 3, devices=[1, 4, 6]),
            held("c", "n0", 1),
            held("d", "n1", 0.5),
            held("e", "small", 4),
            {"name": "new", "queue": "q", "pods": [{"gpus": 1}]},
        ],
    }
)


def devices(snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
    return {gang.name: gang.pods[0].devices for gang in snapshot.gangs}


def test_nodes_of_that_size_are_the_product_and_what_holds_what_is_known() -> None:
    linked = with_links(CLUSTER, DGX1, 1)
    assert [node.gpu_topology for node in linked.nodes] == [DGX1, DGX1, ""]
    told = devices(linked)
    assert told["b"] == (1, 4, 6)
    assert {len(told["a"]), len(told["c"])} == {2, 1}
    assert len({*told["a"], *told["b"], *told["c"]}) == 6
    assert told["d"] == told["e"] == told["new"] == ()


def test_the_same_seed_draws_the_same_gpus() -> None:
    draws = [devices(with_links(CLUSTER, DGX1, seed)) for seed in (*range(20), 0)]
    assert draws[0] == draws[-1]
    assert len({draw["a"] for draw in draws}) > 5


def test_what_is_measured_is_a_cycle_that_chooses_by_links() -> None:
    model = load_model("greedy-only")
    links = [cycle(each, model, budget_s=5.0).binds[0].link for each in (CLUSTER, with_links(CLUSTER, DGX1, 1))]
    assert links[0] is None
    assert links[1] is not None


def test_an_unknown_product_is_an_error() -> None:
    with pytest.raises(InputError, match="dgx9"):
        with_links(CLUSTER, "dgx9", 1)


def test_both_are_run_in_turn_and_either_may_come_first() -> None:
    linked, order = with_links(CLUSTER, DGX1, 1), list[Snapshot]()
    seconds = defaultdict(lambda: 2.0, {id(CLUSTER): 1.0})

    def cpu_s(snapshot: Snapshot) -> float:
        order.append(snapshot)
        return seconds[id(snapshot)]

    pairs = in_pairs(cpu_s, CLUSTER, linked)
    assert pairs == ((1.0, 2.0),) * LEAST_PAIRS
    turns = [order[at] is linked for at in range(2, len(order), 2)]
    assert turns == [number % 2 == 0 for number in range(LEAST_PAIRS)]
    assert all(one is not other for one, other in zip(order[2::2], order[3::2], strict=True))


@pytest.mark.slow
def test_a_set_measures_it(tmp_path: Path) -> None:
    path = tmp_path / "set.yaml"
    path.write_text(
        "format: kai-bench/v1\nname: tiny\ncycles: 1\nentries:\n"
        "  - {name: small, generate: {kind: quiet, nodes: 4}, product: hgx-a100-4,\n"
        "     checks: [{figure: link-growth, model: greedy-only, limit: 9}]}\n"
    )
    [job] = jobs_of(read_set(path))
    [run] = measure_here(job)
    assert len(run.pairs) >= LEAST_PAIRS
    assert all(plain > 0 and linked > 0 for plain, linked in run.pairs)


def test_the_set_of_links_asks_of_every_instance_what_they_cost() -> None:
    links = read_set(LINKS)
    assert all(entry.product for entry in links.doc.entries)
    assert all(job.product == DGX1 for job in jobs_of(links))
    assert all(isinstance(job.source, Generated) or job.source.path.is_file() for job in jobs_of(links))
