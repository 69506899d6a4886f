"""Reclaim against a place that consolidation made in the same cycle: nobody runs there yet."""

from dataclasses import replace

from kai_solver.check import check_plan
from kai_solver.domain import (
    Gang,
    GpuRequest,
    Node,
    Plan,
    Pod,
    PodStatus,
    Queue,
    QueueVector,
    Rung,
    Snapshot,
    flat_gang,
)
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from kai_solver.units import MILLI, UNLIMITED, ResourceSchema

GIB = 2**30
LADDER = (Rung.ALLOCATE, Rung.CONSOLIDATION, Rung.RECLAIM)
GREEDY = replace(load_model("greedy-only"), ladder=LADDER)


def a_node(name: str, gpus: int) -> Node:
    return Node(name, (64_000, 512 * GIB, gpus * MILLI, 110), gpus=gpus, gpu_memory_mib=100)


def a_queue(name: str, gpus: int) -> Queue:
    quota: QueueVector = (UNLIMITED, UNLIMITED, gpus * MILLI)
    return Queue(name, quota=quota)


def a_gang(name: str, queue: str, gpus: int, *, node: str = "", born: float = 0.0, priority: int = 50) -> Gang:
    status = PodStatus.RUNNING if node else PodStatus.PENDING
    pod = Pod("ns", name, (100, GIB, 0, 1), GpuRequest(gpus), status, node=node)
    start_s = 940.0 if node else None
    return Gang("ns", name, queue, flat_gang(1), (pod,), priority=priority, created_s=born, last_start_s=start_s)


def contested(*, priority: int = 50) -> Snapshot:
    """Owners' gang of three finds room when r1 moves; then others, owed half of all, ask for a whole node."""
    gangs = (
        a_gang("r0", "owners", 2, node="n0", born=1.0),
        a_gang("r1", "owners", 2, node="n1", born=2.0),
        a_gang("r2", "owners", 1, node="n1", born=3.0),
        a_gang("late", "owners", 3, born=4.0, priority=priority),
        a_gang("whole", "others", 4, born=5.0),
    )
    queues = (a_queue("owners", 4), a_queue("others", 4))
    return Snapshot(1000.0, ResourceSchema(), (a_node("n0", 4), a_node("n1", 4)), queues, gangs)


def evicted(plan: Plan) -> set[str]:
    return {e.gang for e in plan.evictions}


def placed(plan: Plan) -> set[str]:
    return {b.gang for b in plan.binds}


def test_consolidation_alone_makes_the_place() -> None:
    plan = cycle(contested(), replace(GREEDY, ladder=LADDER[:2]))
    assert placed(plan) == {"ns/late"}
    assert len(plan.moves) == 1


def test_what_was_given_is_taken_back_before_running_work() -> None:
    snapshot = contested()
    plan = cycle(snapshot, GREEDY)
    assert placed(plan) == {"ns/whole"}
    assert len(evicted(plan)) == 1
    assert not check_plan(snapshot, plan, ladder=LADDER)
    (waiting,) = plan.pending
    assert waiting.gang == "ns/late"
    assert waiting.proof.state == "unknown"


def test_but_not_from_a_gang_of_higher_priority_than_the_victims() -> None:
    snapshot = contested(priority=60)
    plan = cycle(snapshot, GREEDY)
    assert placed(plan) == {"ns/late", "ns/whole"}
    assert len(evicted(plan)) == 2
    assert not check_plan(snapshot, plan, ladder=LADDER)
