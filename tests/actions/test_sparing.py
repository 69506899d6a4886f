"""A minimum is held by whoever stays: of an elastic gang only the pod in the way goes."""

from kai_solver.actions.reclaim_replay import reclaims_hold
from kai_solver.actions.sparing import spare
from kai_solver.check import check_plan
from kai_solver.domain import Action, Gang, Plan, Snapshot, flat_gang
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from kai_solver.planstate.allocation_units import AllocationUnits
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from tests.support.builders import a_cluster, a_gang, a_node, a_pod, a_queue

GREEDY = load_model("greedy-only")


def elastic_victim(*, need: int) -> Snapshot:
    """Node large is held by the first pod of an elastic gang; others, owed as much, ask for it whole."""
    nodes = [a_node(name, 3) for name in ("large", "s")]
    seats = (("large", 3), ("s", 1), ("s", 1), ("s", 1))
    pods = tuple(a_pod(f"e-{i}", gpus, node, order=i) for i, (node, gpus) in enumerate(seats))
    elastic = Gang("ns", "e", "v", flat_gang(need), pods, last_start_s=500.0)
    queues = [a_queue(name, 3, weight=0.0) for name in ("v", "r")]
    return a_cluster(nodes, [elastic, a_gang("new", queue="r", gpus=3)], queues)


def evicted(plan: Plan) -> list[str]:
    return sorted(e.pod for e in plan.evictions)


def stage(plan: Plan, name: str) -> float:
    return next(s.value for s in plan.stages if s.name == name)


def test_the_others_of_an_elastic_gang_stay_above_its_minimum() -> None:
    snapshot = elastic_victim(need=2)
    plan = cycle(snapshot, GREEDY)
    assert evicted(plan) == ["ns/e-0"]
    assert not check_plan(snapshot, plan)
    assert (stage(plan, "evicted-pods"), stage(plan, "gangs-broken")) == (1, 0)


def test_a_gang_below_its_minimum_goes_whole() -> None:
    snapshot = elastic_victim(need=4)
    plan = cycle(snapshot, GREEDY)
    assert evicted(plan) == ["ns/e-0", "ns/e-1", "ns/e-2", "ns/e-3"]
    assert not check_plan(snapshot, plan)
    assert stage(plan, "gangs-broken") == 1


def test_what_was_evicted_as_stale_is_not_brought_back() -> None:
    snapshot = elastic_victim(need=4)
    elastic, new = snapshot.gangs
    short = Gang("ns", "e", "v", flat_gang(9), elastic.pods, last_start_s=500.0, stale_since_s=0.0)
    alone = Snapshot(1000.0, snapshot.schema, snapshot.nodes, snapshot.queues, (short, new))
    plan = cycle(alone, GREEDY)
    assert {e.reason for e in plan.evictions if e.gang == "ns/e"} <= {"stale", "reclaim"}
    assert len([e for e in plan.evictions if e.gang == "ns/e"]) == 4
    assert ("ns/new", Action.RECLAIM) in plan.admitted or any(e.reason == "stale" for e in plan.evictions)


def an_outcome_with_a_move(*, newcomer: bool) -> Outcome:
    """The first pod has moved from large to s; the second may have come in its stead."""
    gangs = [a_gang("old", queue="v", gpus=3, on="large"), a_gang("new", queue="v", gpus=3)]
    problem = build_problem(a_cluster([a_node(name, 3) for name in ("large", "s")], gangs, [a_queue("v", 9)]))
    outcome = Outcome(State(problem))
    old, new = (next(p for p, pod in enumerate(problem.pods) if pod.key == f"ns/{name}-0") for name in ("old", "new"))
    outcome.state.evict(old)
    outcome.state.put(old, 1, now=False)
    if newcomer:
        outcome.state.put(new, 0, now=False)
    return outcome


def test_a_move_for_nothing_is_taken_back() -> None:
    outcome = an_outcome_with_a_move(newcomer=False)
    spare(outcome)
    assert not outcome.state.gone
    assert not outcome.state.places


def test_a_move_that_made_room_stays() -> None:
    outcome = an_outcome_with_a_move(newcomer=True)
    spare(outcome)
    assert len(outcome.state.gone) == 1
    assert len(outcome.state.places) == 2


def test_what_was_evicted_for_a_move_stays_once_that_is_taken_back() -> None:
    gangs = [a_gang(name, queue="v", gpus=3, on=node) for name, node in (("old", "large"), ("gone", "s"))]
    problem = build_problem(a_cluster([a_node(name, 3) for name in ("large", "s")], gangs, [a_queue("v", 9)]))
    outcome = Outcome(State(problem))
    old, gone = (next(p for p, pod in enumerate(problem.pods) if pod.key == f"ns/{name}-0") for name in ("old", "gone"))
    outcome.state.evict(gone)
    outcome.state.evict(old)
    outcome.state.put(old, 1, now=False)
    spare(outcome)
    assert not outcome.state.gone


def an_outcome_with_reclaims(*, both: bool) -> Outcome:
    """Queue a takes the four GPUs of queue b, which then may take two of queue c (``both``). Room for all is left."""
    ran = [
        a_gang("v", queue="b", gpus=4, on="large"),
        a_gang("z", queue="c", gpus=2, on="s"),
        a_gang("y", queue="c", gpus=2, on="s"),
    ]
    came = [a_gang("first", queue="a", gpus=2), a_gang("second", queue="b", gpus=2)]
    queues = [a_queue(name, 2, weight=0.0) for name in "abc"]
    problem = build_problem(a_cluster([a_node(name, 4) for name in ("large", "s", "t")], [*ran, *came], queues))
    state = State(problem)
    pool = VictimPool.of_running(state)
    outcome = Outcome(state, pool)
    number = {gang.gang.name: gang.index for gang in problem.gangs}
    for name, victim, node in (("first", "v", 2), ("second", "z", 1))[: 1 + both]:
        unit = pool.of_gang[number[victim]][0]
        state.evict(pool.units[unit].pods[0])
        asked = AllocationUnits(problem.gangs[number[name]], state.gangs[number[name]], problem.pod_shape).next()
        assert asked is not None
        state.put(asked.pods[0], node, now=False)
        outcome.admit(Admission(asked, Action.RECLAIM, (unit,)))
    return outcome


def test_what_is_not_in_the_way_returns_to_a_queue_that_reclaims_nothing() -> None:
    outcome = an_outcome_with_reclaims(both=False)
    spare(outcome)
    assert not outcome.state.gone


def test_work_whose_loss_lets_its_own_queue_reclaim_does_not_return() -> None:
    outcome = an_outcome_with_reclaims(both=True)
    gone = set(outcome.state.gone)
    assert reclaims_hold(outcome)
    spare(outcome)
    assert outcome.state.gone == gone
    assert reclaims_hold(outcome)


def test_a_victim_stays_where_newcomers_may_have_other_devices_than_its_own() -> None:
    """Node n has three GPUs. The newcomer got the one that the victim held, and two others are free."""
    gangs = [a_gang("old", queue="v", gpus=1, on="n"), a_gang("new", queue="v", gpus=1)]
    problem = build_problem(a_cluster([a_node("n", 3)], gangs, [a_queue("v", 9)]))
    outcome = Outcome(State(problem))
    old, new = (next(p for p, pod in enumerate(problem.pods) if pod.key == f"ns/{name}-0") for name in ("old", "new"))
    held = problem.held_devices[old]
    outcome.state.evict(old)
    assert outcome.state.put(new, 0, now=False, wanted=held).devices == held
    spare(outcome)
    assert not outcome.state.gone
    assert set(outcome.state.places[new].devices).isdisjoint(held)


def test_a_victim_whose_devices_are_needed_leaves() -> None:
    """As above, but the newcomer has all three."""
    gangs = [a_gang("old", queue="v", gpus=1, on="n"), a_gang("new", queue="v", gpus=3)]
    problem = build_problem(a_cluster([a_node("n", 3)], gangs, [a_queue("v", 9)]))
    outcome = Outcome(State(problem))
    old, new = (next(p for p, pod in enumerate(problem.pods) if pod.key == f"ns/{name}-0") for name in ("old", "new"))
    outcome.state.evict(old)
    outcome.state.put(new, 0, now=False)
    spare(outcome)
    assert outcome.state.gone == {old}
    assert len(outcome.state.places[new].devices) == 3


def test_a_moved_pod_stays_where_newcomers_may_have_other_devices_than_its_own() -> None:
    """Node n has three GPUs. The newcomer got the one that the moved pod held, and two others are free."""
    gangs = [a_gang("old", queue="v", gpus=1, on="n"), a_gang("new", queue="v", gpus=1)]
    problem = build_problem(a_cluster([a_node("n", 3), a_node("z", 3)], gangs, [a_queue("v", 9)]))
    outcome = Outcome(State(problem))
    old, new = (next(p for p, pod in enumerate(problem.pods) if pod.key == f"ns/{name}-0") for name in ("old", "new"))
    held = problem.held_devices[old]
    outcome.state.evict(old)
    outcome.state.put(old, 1, now=False)
    assert outcome.state.put(new, 0, now=False, wanted=held).devices == held
    spare(outcome)
    assert not outcome.state.gone
    assert outcome.state.places.keys() == {new}
    assert set(outcome.state.places[new].devices).isdisjoint(held)
