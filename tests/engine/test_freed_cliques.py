"""A whole NVLink domain is freed for a gang with the least work lost, and that is proven.

Segments of 4, 8 and 16 pods in racks of 16 trays fit exactly where their sum does, as each size divides the next. So
who must go is a knapsack over whole gangs, which a table answers without any model of ours.
"""

from dataclasses import replace

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import QueueVector, Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io.bench_schema import CliquesDoc
from kai_solver.lab.bench import generated
from kai_solver.modelfiles import load_model
from kai_solver.units import UNLIMITED

SIZES = {4: 0.3, 8: 0.4, 16: 0.3}


def full_racks(racks: int, seed: int) -> Snapshot:
    """Racks in full use by teams that are owed nothing; a gang of 16 trays is owed a rack."""
    doc = CliquesDoc(kind="cliques", racks=racks, trays=16, running=1.0, clique_pods=16, segments=SIZES)
    snapshot = generated(doc, seed)
    nothing: QueueVector = (UNLIMITED, UNLIMITED, 0)
    queues = (replace(queue, quota=nothing) if queue.name != "urgent" else queue for queue in snapshot.queues)
    return replace(snapshot, queues=tuple(queues))


def least_loss(snapshot: Snapshot) -> float:
    """GPU-seconds of the cheapest gangs that hold the trays that are short."""
    running = [gang for gang in snapshot.gangs if gang.last_start_s is not None]
    short = 16 - (len(snapshot.nodes) - sum(len(gang.pods) for gang in running))
    best = [0.0, *[float("inf")] * short]
    for gang in running:
        cost = 4 * len(gang.pods) * (snapshot.now_s - (gang.last_start_s or 0.0))
        for trays in range(short, 0, -1):
            best[trays] = min(best[trays], best[max(0, trays - len(gang.pods))] + cost)
    return best[short]


@pytest.mark.parametrize("seed", range(1, 5))
def test_the_cheapest_gangs_leave_and_no_cheaper_ones_would_do(seed: int) -> None:
    snapshot = full_racks(6, seed)
    plan = cycle(snapshot, load_model("deterministic"))
    [work] = [stage for stage in plan.stages if stage.name.startswith("evicted-work")]
    assert [gang for gang, _ in plan.admitted] == ["default/wants-a-clique"]
    assert work.value == pytest.approx(least_loss(snapshot), rel=1e-6)
    assert work.optimal
    clique = {node.name: node.labels["nvidia.com/gpu.clique"] for node in snapshot.nodes}
    assert len({clique[bind.node] for bind in plan.binds}) == 1
    assert check_plan(snapshot, plan) == ()
