"""Alike takers served in one batch get what they would get one by one; alike refusals are those of one by one."""

from unittest.mock import patch

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kai_solver.actions import Actions, disruption, refused, swaps
from kai_solver.actions.returning import could_return
from kai_solver.domain import (
    Action,
    Gang,
    GpuRequest,
    Node,
    Placement,
    Pod,
    PodStatus,
    Policy,
    Queue,
    Snapshot,
    flat_gang,
)
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.problem import Problem, build_problem
from kai_solver.search.oracle import SolverActions
from kai_solver.units import MILLI, ResourceSchema
from tests.actions.support import GIB, a_gang, a_node, a_queue, a_snapshot

RUNGS = (Action.ALLOCATE, Action.CONSOLIDATION, Action.RECLAIM, Action.PREEMPT)


def ran(
    problem: Problem, *, at_once: bool, actions: tuple[Action, ...] = RUNGS, played: int = 0
) -> tuple[Outcome, int]:
    """What a climb decides, and how many swaps were made in batches; all batches, also of refusals, are worth while.

    ``played``: waiting gangs up to which the next allocate is played through.
    """
    swap, serve, refuse = State.swap, swaps.Swaps.serve, refused.Refused.refuse_rest
    made: list[int] = []

    def noted(state: State, victim: int, pod: int) -> None:
        made.append(pod)
        swap(state, victim, pod)

    greedy = Actions(problem, actions, SolverActions(None))
    with (
        patch.object(State, "swap", noted),
        patch.object(swaps, "FEW", 1),
        patch.object(swaps, "MOST_WAITING", played),
        patch.object(disruption, "MOST_WAITING", played),
        patch.object(swaps.Swaps, "serve", serve if at_once else lambda *_: False),
        patch.object(refused, "FIRST_LOOK", 1),
        patch.object(refused.Refused, "refuse_rest", refuse if at_once else lambda *_: False),
    ):
        return greedy.run(), len(made)


def decided(outcome: Outcome) -> list[object]:
    """All that an outcome says."""
    state = outcome.state
    arrays = (state.idle, state.future, state.device_idle, state.device_future, state.whole_now, state.whole_later)
    books = (
        state.allocated,
        state.allocated_fixed,
        state.gpu_free.tolist(),
        state.journal,
        sorted(state.gone),
        state.is_gone.tolist(),
    )
    said = (outcome.admissions, outcome.refusals, outcome.asked, sorted(state.places.items()), state.gangs)
    return [*(array.tolist() for array in arrays), *books, *said]


def some_queue(draw: st.DrawFn, name: str, parent: str, gpus: int) -> Queue:
    return Queue(
        name,
        parent,
        priority=draw(st.sampled_from([100, 100, 101])),
        quota=(draw(st.sampled_from([-1, -1, 1000])), -1, gpus * MILLI if gpus >= 0 else -1),
        limit=(-1, -1, draw(st.sampled_from([-1, -1, -1, 6 * MILLI]))),
        weight=(1.0, 1.0, float(draw(st.integers(0, 2)))),
        reclaim_min_runtime_s=draw(st.sampled_from([None, None, None, 50.0])),
    )


@st.composite
def some_queues(draw: st.DrawFn) -> tuple[Queue, ...]:
    """One or two parents; the first leaves are owed little, the last much."""
    found = []
    for parent in "ab"[: draw(st.integers(1, 2))]:
        found.append(some_queue(draw, parent, "", draw(st.sampled_from([-1, -1, 4]))))
        found += [some_queue(draw, parent + child, parent, draw(st.sampled_from([0, 0, 1, 2]))) for child in "xy"]
        for child in "pq"[: draw(st.integers(1, 2))]:
            found.append(some_queue(draw, parent + child, parent, draw(st.sampled_from([2, 6, 20]))))
    return tuple(found)


def some_gang(draw: st.DrawFn, name: str, leaf: str, gpus: int, node: str = "", *, is_odd: bool = False) -> Gang:
    """A gang of one pod; an odd one has another size, request, right or rule than most."""
    odd = draw(st.integers(1, 7)) if is_odd else 0
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
        created_s=float(draw(st.integers(0, 2))),
        last_start_s=draw(st.sampled_from([0.0, 0.0, 80.0])) if node else None,
        placement=Placement(nodes="spread") if odd == 7 else Placement(),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Full nodes, of pods that mostly ask for the same, and gangs of one pod that wait for the like."""
    made = draw(some_queues())
    poor = [queue.name for queue in made if queue.name[1:] in ("x", "y")]
    rich = [queue.name for queue in made if queue.name[1:] in ("p", "q")]
    width, odd_one_of = draw(st.sampled_from([1, 1, 1, 2, 0])), draw(st.sampled_from([1000, 1000, 12, 4]))

    def some(name: str, leaves: list[str], node: str = "") -> Gang:
        is_odd = draw(st.integers(1, odd_one_of)) == 1
        return some_gang(draw, name, draw(st.sampled_from(leaves)), width, node, is_odd=is_odd)

    nodes, gangs = [], []
    for index in range(draw(st.integers(1, 5))):
        seats, name = draw(st.integers(1, 4)), f"n{index}"
        nodes.append(Node(name, (seats * 100, 64 * GIB, seats * width * MILLI, 60), gpus=seats * width))
        taken = seats if draw(st.integers(0, 5)) else seats - 1
        gangs += [some(f"r{index}-{seat}", poor + rich[:1] * draw(st.integers(0, 1)), name) for seat in range(taken)]
    gangs += [some(f"w{number}", rich + poor[:1]) for number in range(draw(st.integers(2, 12)))]
    policy = Policy(
        saturation_multiplier=draw(st.sampled_from([1.0, 1.0, 2.0])), consolidating_reclaim=draw(st.booleans())
    )
    return Snapshot(100.0, ResourceSchema(), tuple(nodes), made, tuple(gangs), policy=policy)


@given(snapshot=clusters())
@settings(max_examples=100, deadline=None)
def test_a_batch_gets_what_its_takers_would_get_one_by_one(snapshot: Snapshot) -> None:
    problem = build_problem(snapshot)
    fast, made = ran(problem, at_once=True)
    slow, none = ran(problem, at_once=False)
    assert not none
    event(f"swaps in batches: {min(made, 4)}")
    assert decided(fast) == decided(slow)


@given(snapshot=clusters())
@settings(max_examples=50, deadline=None)
def test_who_could_not_return_by_sums_does_not_fit_at_home(snapshot: Snapshot) -> None:
    state = ran(build_problem(snapshot), at_once=True)[0].state
    gone = sorted(state.gone)
    assert could_return(state, []) == []
    assert not any(
        state.fits_origin(pod) for pod, could in zip(gone, could_return(state, gone), strict=True) if not could
    )


def two_queues(
    takers: int, victims: int, *, owed: int = 100, action: Action = Action.RECLAIM, limit: int = -1
) -> Problem:
    """Full nodes of four GPUs; takers of a queue that is owed so many GPUs, in preempt of the victims' own."""
    nodes = [a_node(f"n{index:02}", 4) for index in range(-(-victims // 4))]
    mine = Queue("mine", "", quota=(-1, -1, owed * MILLI), limit=(-1, -1, limit))
    queue, priority = ("mine", 50) if action is Action.RECLAIM else ("theirs", 60)
    gangs = [a_gang(f"old-{index}", "theirs", node=nodes[index // 4].name) for index in range(victims)]
    gangs += [a_gang(f"new-{index}", queue, born=1.0, priority=priority) for index in range(takers)]
    return build_problem(a_snapshot(nodes, [mine, a_queue("theirs", 0)], gangs))


@pytest.mark.parametrize("action", [Action.RECLAIM, Action.PREEMPT])
def test_all_but_the_first_are_served_in_batches(action: Action) -> None:
    problem = two_queues(20, 24, action=action)
    outcome, made = ran(problem, at_once=True, actions=(action,))
    assert made == 19
    assert decided(outcome) == decided(ran(problem, at_once=False, actions=(action,))[0])


def test_a_batch_ends_with_what_its_queue_is_owed() -> None:
    problem = two_queues(20, 24, owed=7)
    outcome, made = ran(problem, at_once=True, actions=(Action.RECLAIM,))
    assert made == 6
    assert len(outcome.admissions) == 7
    assert {refusals[Action.RECLAIM].proof.method for refusals in outcome.refusals.values()} == {"fair-share"}


def test_a_batch_ends_with_its_queues_limit() -> None:
    outcome, made = ran(two_queues(20, 24, limit=5 * MILLI), at_once=True, actions=(Action.RECLAIM,))
    assert (made, len(outcome.admissions)) == (4, 5)


def test_a_batch_ends_with_the_victims() -> None:
    outcome, made = ran(two_queues(20, 8), at_once=True, actions=(Action.RECLAIM,))
    assert (made, len(outcome.admissions)) == (7, 8)


def test_the_next_allocate_is_played_through_for_each_alone() -> None:
    assert ran(two_queues(20, 24), at_once=True, actions=(Action.RECLAIM,), played=20)[1] == 0
    assert ran(two_queues(20, 24), at_once=True, actions=(Action.RECLAIM,), played=19)[1] == 19


def test_a_batch_can_be_taken_back() -> None:
    problem = two_queues(20, 24)
    state = ran(problem, at_once=True)[0].state
    assert not any(could_return(state, sorted(state.gone)))
    before = State(problem)
    state.rollback(0)
    assert (state.allocated, state.gangs, state.places, state.gone) == (before.allocated, before.gangs, {}, set())
    assert state.future.tolist() == before.future.tolist()
    assert state.device_future.tolist() == before.device_future.tolist()
