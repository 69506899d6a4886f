"""Identical takers served in one batch get what they would get one by one.

Where a node has NUMA zones, takers are served one by one.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kai_solver.actions import Actions
from kai_solver.actions.accelerators.returning import could_return
from kai_solver.domain import (
    ACTIONS,
    Action,
    Gang,
    GpuRequest,
    Node,
    NumaTopology,
    NumaZone,
    Placement,
    Pod,
    PodStatus,
    Policy,
    Queue,
    Snapshot,
    flat_gang,
)
from kai_solver.engine import Engine
from kai_solver.planstate.state import State
from kai_solver.problem import build_problem
from kai_solver.search.oracle import SolverActions
from kai_solver.units import MILLI, ResourceSchema
from tests.support.builders import GIB, a_cluster, a_gang, a_node, a_queue
from tests.support.clusters import seeds
from tests.support.engines import PATIENT_S, patient_engine

MANY = 210
"""Takers of which most are served in batches: each batch begins after some that were served alone."""


@pytest.fixture(scope="module")
def greedy() -> Iterator[Engine]:
    with patient_engine("greedy-only") as engine:
        yield engine


def planned(engine: Engine, snapshot: Snapshot) -> list[object]:
    """What a cycle does, and why the others wait."""
    plan = engine.cycle(snapshot, budget_s=PATIENT_S)
    assert not plan.notes
    places = [(bind.pod, bind.node, bind.nominated) for bind in plan.binds]
    leaving = [(eviction.pod, eviction.reason) for eviction in plan.evictions]
    waiting = [(pending.gang, pending.reason, pending.proof.state) for pending in plan.pending]
    return [places, plan.moves, leaving, plan.admitted, waiting]


def beside_zones(snapshot: Snapshot) -> Snapshot:
    """The same cluster beside a node with NUMA zones on which nothing fits: takers are then served one by one."""
    zones = tuple(NumaZone(f"node-{i}", (0, 0, 0, 0)) for i in range(2))
    zoned = a_node("zoned", 0, cpu=0, memory=0, slots=0, numa=NumaTopology("single-numa-node", "pod", zones, (0,)))
    return replace(snapshot, nodes=(*snapshot.nodes, zoned))


def some_queue(dice: random.Random, name: str, parent: str, gpus: int) -> Queue:
    return Queue(
        name,
        parent,
        priority=dice.choice([100, 100, 101]),
        quota=(dice.choice([-1, -1, 1000]), -1, gpus * MILLI if gpus >= 0 else -1),
        limit=(-1, -1, dice.choice([-1, -1, -1, 60 * MILLI])),
        weight=(1.0, 1.0, float(dice.randint(0, 2))),
        reclaim_min_runtime_s=dice.choice([None, None, None, 50.0]),
    )


def some_queues(dice: random.Random) -> tuple[Queue, ...]:
    """One or two parents; the first leaves are owed little, the last much."""
    found = []
    for parent in "ab"[: dice.randint(1, 2)]:
        found.append(some_queue(dice, parent, "", dice.choice([-1, -1, 40])))
        found += [some_queue(dice, parent + child, parent, dice.choice([0, 0, 1, 2])) for child in "xy"]
        for child in "pq"[: dice.randint(1, 2)]:
            found.append(some_queue(dice, parent + child, parent, dice.choice([20, 60, 200])))
    return tuple(found)


def some_gang(dice: random.Random, name: str, leaf: str, gpus: int, node: str = "", *, is_odd: bool = False) -> Gang:
    """A gang of one pod; an odd one has another size, request, right or rule than most."""
    odd = dice.randint(1, 7) if is_odd else 0
    gpu = GpuRequest(1, 500) if odd == 1 and gpus else GpuRequest(gpus)
    status = PodStatus.RUNNING if node else PodStatus.PENDING
    request = (50 if odd == 2 else 100, GIB, 0, 1)
    size = 2 if odd in (3, 4) else 1
    pods = [Pod("ns", f"{name}-{i}", request, gpu, status, node=node, order=(0, float(i), "")) for i in range(size)]
    return Gang(
        "ns",
        name,
        leaf,
        flat_gang(2 if odd == 3 else 1),
        tuple(pods),
        priority=60 if odd == 5 else 50,
        preemptible=odd != 6,
        created_s=float(dice.randint(0, 2)),
        last_start_s=dice.choice([0.0, 0.0, 80.0]) if node else None,
        placement=Placement(nodes="spread") if odd == 7 else Placement(),
    )


def random_cluster(seed: int) -> Snapshot:
    """Full nodes, of pods that mostly ask for the same, and gangs of one pod that wait for the like."""
    dice = random.Random(seed)
    made = some_queues(dice)
    poor = [queue.name for queue in made if queue.name[1:] in ("x", "y")]
    rich = [queue.name for queue in made if queue.name[1:] in ("p", "q")]
    width, odd_one_of = dice.choice([1, 1, 1, 2, 0]), dice.choice([1000, 1000, 12, 4])

    def made_of(name: str, leaves: list[str], node: str = "") -> Gang:
        is_odd = dice.randint(1, odd_one_of) == 1
        return some_gang(dice, name, dice.choice(leaves), width, node, is_odd=is_odd)

    nodes, gangs = [], []
    for index in range(dice.randint(20, 40)):
        seats, name = dice.randint(1, 4), f"n{index}"
        nodes.append(Node(name, (seats * 100, 64 * GIB, seats * width * MILLI, 60), gpus=seats * width))
        taken = seats if dice.randint(0, 5) else seats - 1
        gangs += [made_of(f"r{index}-{seat}", poor + rich[:1] * dice.randint(0, 1), name) for seat in range(taken)]
    gangs += [made_of(f"w{number}", rich + poor[:1]) for number in range(dice.randint(205, 260))]
    policy = Policy(saturation_multiplier=dice.choice([1.0, 1.0, 2.0]), consolidating_reclaim=dice.random() < 0.5)
    return Snapshot(100.0, ResourceSchema(), tuple(nodes), made, tuple(gangs), policy=policy)


@pytest.mark.parametrize("seed", seeds(15, campaign=300))
def test_a_batch_gets_what_its_takers_would_get_one_by_one(greedy: Engine, seed: int) -> None:
    snapshot = random_cluster(seed)
    assert planned(greedy, snapshot) == planned(greedy, beside_zones(snapshot))


@pytest.mark.parametrize("seed", seeds(5, campaign=300))
def test_pods_that_could_not_return_by_sums_do_not_fit_where_they_were(seed: int) -> None:
    state = Actions(build_problem(random_cluster(seed)), ACTIONS, SolverActions(None)).run().state
    gone = sorted(state.gone)
    assert could_return(state, []) == []
    could = zip(gone, could_return(state, gone), strict=True)
    assert not any(state.fits_origin(pod) for pod, may_return in could if not may_return)


def two_queues(
    takers: int, victims: int, *, owed: int = 1000, action: Action = Action.RECLAIM, limit: int = -1
) -> Snapshot:
    """Full nodes of four GPUs; takers of a queue that is owed so many GPUs, in preempt of the victims' own."""
    nodes = [a_node(f"n{index:02}") for index in range(-(-victims // 4))]
    mine, priority = ("mine", 50) if action is Action.RECLAIM else ("theirs", 60)
    gangs = [a_gang(f"old-{index}", on=nodes[index // 4].name, queue="theirs") for index in range(victims)]
    gangs += [a_gang(f"new-{index}", queue=mine, created_s=1.0, priority=priority) for index in range(takers)]
    return a_cluster(nodes, gangs, [a_queue("mine", owed, limit), a_queue("theirs", 0)])


@pytest.mark.parametrize("action", [Action.RECLAIM, Action.PREEMPT])
def test_all_takers_are_served(greedy: Engine, action: Action) -> None:
    snapshot = two_queues(MANY, MANY + 2, action=action)
    plan = greedy.cycle(snapshot, budget_s=PATIENT_S)
    assert [admitted for _, admitted in plan.admitted] == [action] * MANY
    assert len(plan.evictions) == MANY
    assert planned(greedy, snapshot) == planned(greedy, beside_zones(snapshot))


def test_a_batch_ends_with_what_its_queue_is_owed(greedy: Engine) -> None:
    plan = greedy.cycle(two_queues(MANY, MANY + 2, owed=70), budget_s=PATIENT_S)
    assert len(plan.admitted) == len(plan.evictions) == 70
    assert len(plan.pending) == MANY - 70


def test_a_batch_ends_with_its_queues_limit(greedy: Engine) -> None:
    assert len(greedy.cycle(two_queues(MANY, MANY + 2, limit=50), budget_s=PATIENT_S).admitted) == 50


def test_a_batch_ends_with_the_victims(greedy: Engine) -> None:
    assert len(greedy.cycle(two_queues(MANY, 80), budget_s=PATIENT_S).admitted) == 80


def test_a_batch_can_be_taken_back() -> None:
    problem = build_problem(two_queues(MANY, MANY + 2))
    state = Actions(problem, ACTIONS, SolverActions(None)).run().state
    assert len(state.gone) == MANY
    assert not any(could_return(state, sorted(state.gone)))
    before = State(problem)
    state.rollback(0)
    assert (state.allocated, state.gangs, state.places, state.gone) == (before.allocated, before.gangs, {}, set())
    assert state.future.tolist() == before.future.tolist()
    assert state.device_future.tolist() == before.device_future.tolist()
