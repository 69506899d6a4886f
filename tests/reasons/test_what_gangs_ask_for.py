"""Allocation units, readiness, capacity and staleness: what a gang asks for next, and its refusal if it may not."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kai_solver.actions import Actions
from kai_solver.actions.stale import stale_gangs
from kai_solver.domain import (
    ACTIONS,
    Action,
    Blocker,
    Constraints,
    Gang,
    GpuRequest,
    Node,
    Pod,
    PodSet,
    PodStatus,
    Queue,
    Reason,
    Snapshot,
    SubGroup,
    TopologyConstraint,
    flat_gang,
)
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.problem import build_problem
from kai_solver.reasons.refusals import not_ready
from kai_solver.units import MILLI, ResourceSchema
from tests.support.oracles import Unasked

GIB = 2**30
R, P, G = PodStatus.RUNNING, PodStatus.PENDING, PodStatus.GATED


def a_gang(root: SubGroup, pods: Sequence[tuple[str, PodStatus]], **more: object) -> Gang:
    """Pods of one GPU by (podset, status), in task order; those that run are on ``n0``."""
    made = tuple(
        Pod(
            "ns",
            f"g-{i}",
            (100, GIB, 0, 1),
            GpuRequest(1),
            status=status,
            podset=podset,
            node="n0" if status.holds_resources else "",
            order=(0, float(i), ""),
        )
        for i, (podset, status) in enumerate(pods)
    )
    return replace(Gang("ns", "g", "q", root, made), **more)  # type: ignore[arg-type]


def a_state(*gangs: Gang, queue: Queue | None = None, now_s: float = 1000.0) -> State:
    node = Node("n0", (64_000, 64 * GIB, 8 * MILLI, 30), gpus=8, gpu_memory_mib=100)
    queues = (queue or Queue("q", quota=(-1, -1, -1)),)
    return State(build_problem(Snapshot(now_s, ResourceSchema(), (node,), queues, gangs)))


def gang_units_of(gang: Gang) -> AllocationUnits:
    state = a_state(gang)
    return AllocationUnits(state.problem.gangs[0], state.gangs[0])


def next_unit(gang: Gang) -> AllocationUnit | None:
    return gang_units_of(gang).next()


def run_actions(*gangs: Gang, queue: Queue | None = None) -> Outcome:
    return Actions(a_state(*gangs, queue=queue).problem, ACTIONS, Unasked()).run()


# -- allocation units ------------------------------------------------------------------------------------------------


THREE = SubGroup("", (PodSet("a", 1), PodSet("b", 1), PodSet("c", 1)), 2)


def sized(gang: Gang, *gpus: int) -> Gang:
    return replace(gang, pods=tuple(replace(p, gpu=GpuRequest(n)) for p, n in zip(gang.pods, gpus, strict=True)))


def test_subgroups_to_be_avoided_are_not_asked_for() -> None:
    units_of_gang = gang_units_of(a_gang(THREE, [("a", P), ("b", P), ("c", P)]))
    asked = [units_of_gang.next(frozenset(avoided)) for avoided in ("", "a", "b", "ab")]
    assert [allocation_unit and allocation_unit.pods for allocation_unit in asked] == [(0, 1), (1, 2), (0, 2), None]
    assert units_of_gang.next() == asked[0]


def test_surplus_of_a_podset_to_be_avoided_is_not_asked_for() -> None:
    units_of_gang = gang_units_of(
        a_gang(SubGroup("", (PodSet("a", 1), PodSet("b", 1))), [("a", R), ("b", R), ("a", P), ("b", P)])
    )
    asked = [units_of_gang.next(frozenset(avoided)) for avoided in ("", "a", "ab")]
    assert [allocation_unit and allocation_unit.pods for allocation_unit in asked] == [(2,), (3,), None]


@pytest.mark.parametrize(
    ("gpus", "served"),
    [
        ((9, 1, 1), {"ns/g-1", "ns/g-2"}),  # the first is too large for any node
        ((9, 9, 1), set()),  # one is not enough
        ((5, 5, 3), {"ns/g-0", "ns/g-2"}),  # each of the first two fits alone, not both
        ((1, 1, 9), {"ns/g-0", "ns/g-1"}),  # the first choice will do, the rest is surplus that fits nowhere
    ],
)
def test_other_subgroups_are_tried_where_the_first_choice_does_not_fit(gpus: Sequence[int], served: set[str]) -> None:
    outcome = run_actions(sized(a_gang(THREE, [("a", P), ("b", P), ("c", P)]), *gpus))
    pods = outcome.state.problem.pods
    assert {pods[i].key for i in outcome.state.places} == served


def test_the_minimum_comes_first_and_whole() -> None:
    allocation_unit = next_unit(a_gang(flat_gang(2), [("default", P)] * 3))
    assert allocation_unit is not None
    assert (allocation_unit.pods, allocation_unit.is_core) == ((0, 1), True)


def test_only_what_lacks_of_the_minimum_is_asked_for() -> None:
    allocation_unit = next_unit(a_gang(flat_gang(3), [("default", R), ("default", P), ("default", P), ("default", P)]))
    assert allocation_unit is not None
    assert (allocation_unit.pods, allocation_unit.is_core) == ((1, 2), True)
    assert allocation_unit.root.parts[0].anchors == (0,)


def test_surplus_comes_one_pod_at_a_time() -> None:
    allocation_unit = next_unit(a_gang(flat_gang(1), [("default", R), ("default", P), ("default", P)]))
    assert allocation_unit is not None
    assert (allocation_unit.pods, allocation_unit.is_core) == ((1,), False)


def test_a_gang_of_minimum_zero_is_all_surplus() -> None:
    allocation_unit = next_unit(a_gang(flat_gang(0), [("default", P), ("default", P)]))
    assert allocation_unit is not None
    assert (allocation_unit.pods, allocation_unit.is_core) == ((0,), False)


@pytest.mark.parametrize("pods", [[("default", R)], [("default", P)], [("default", P), ("default", G)]])
def test_nothing_is_asked_for_where_nothing_waits_or_too_few_exist(pods: list[tuple[str, PodStatus]]) -> None:
    assert next_unit(a_gang(flat_gang(2 if pods[0][1] is P else 1), pods)) is None


TWO = SubGroup(children=(PodSet("master", 1), PodSet("worker", 2)))


def test_every_podset_of_a_tree_gives_its_minimum() -> None:
    allocation_unit = next_unit(a_gang(TWO, [("worker", P), ("master", P), ("worker", P), ("worker", P)]))
    assert allocation_unit is not None
    assert sorted(allocation_unit.pods) == [0, 1, 2]
    assert {part.name: part.pods for part in allocation_unit.root.parts} == {"master": (1,), "worker": (0, 2)}


ANY_TWO = SubGroup(children=tuple(PodSet(name, 2) for name in "abc"), min_subgroups=2)


def test_min_subgroups_asks_for_that_many_of_them() -> None:
    allocation_unit = next_unit(a_gang(ANY_TWO, [(name, P) for name in "aabbcc"]))
    assert allocation_unit is not None
    assert (allocation_unit.pods, allocation_unit.is_core) == ((0, 1, 2, 3), True)


def test_a_subgroup_that_cannot_be_complete_is_passed_over() -> None:
    allocation_unit = next_unit(a_gang(ANY_TWO, [(name, P) for name in "abbcc"]))
    assert allocation_unit is not None
    assert allocation_unit.pods == (1, 2, 3, 4)


def test_an_optional_subgroup_comes_whole_and_is_no_core() -> None:
    allocation_unit = next_unit(a_gang(ANY_TWO, [("a", R), ("a", R), ("b", R), ("b", R), ("c", P), ("c", P)]))
    assert allocation_unit is not None
    assert (allocation_unit.pods, allocation_unit.is_core) == ((4, 5), False)


def test_surplus_goes_to_the_subgroup_with_the_smaller_ratio() -> None:
    root = SubGroup(children=(PodSet("a", 1), PodSet("b", 2)))
    pods = [("a", R), ("a", R), ("b", R), ("b", R), ("a", P), ("b", P)]
    allocation_unit = next_unit(a_gang(root, pods))
    assert allocation_unit is not None
    assert allocation_unit.pods == (5,)  # a has twice its minimum, b just has it


NESTED = SubGroup(
    children=(
        SubGroup("left", (PodSet("l0", 1), PodSet("l1", 1))),
        SubGroup("right", (PodSet("r0", 1), PodSet("r1", 1))),
    ),
    min_subgroups=1,
)


def test_a_nested_tree_needs_one_branch_whole() -> None:
    allocation_unit = next_unit(a_gang(NESTED, [(name, P) for name in ("l0", "r0", "r1")]))
    assert allocation_unit is not None
    assert (allocation_unit.pods, allocation_unit.is_core) == ((1, 2), True)


def test_reachable_and_satisfied_count_every_level() -> None:
    gang = a_gang(NESTED, [("l0", R), ("l1", R), ("r0", P)])
    units_of_gang = gang_units_of(gang)
    root = units_of_gang.shape.root
    assert units_of_gang.is_satisfied(root)
    assert units_of_gang.is_reachable(root.children[0])
    assert not units_of_gang.is_reachable(root.children[1])
    assert units_of_gang.next() is None  # the right branch can never be complete


# -- readiness -----------------------------------------------------------------------------------------------------


def readiness(gang: Gang) -> tuple[Reason, str, tuple[Blocker, ...]] | None:
    state = a_state(gang)
    refusal = not_ready(state.problem, state.problem.gangs[0], AllocationUnits(state.problem.gangs[0], state.gangs[0]))
    return None if refusal is None else (refusal.reason, refusal.message, refusal.proof.blocking)


def test_a_complete_gang_is_ready() -> None:
    assert readiness(a_gang(flat_gang(2), [("default", P)] * 2)) is None


def test_a_gang_waits_for_its_members_in_kais_words() -> None:
    found = readiness(a_gang(flat_gang(4), [("default", P), ("default", R), ("default", G)]))
    assert found is not None
    assert found[:2] == (
        Reason.NOT_READY,
        (
            "Job is not ready for scheduling. Waiting for 4 pods, currently 3 exist, 1 are gated. "
            "Gang waiting for members: 2 of 4 are ready"
        ),
    )
    assert found[2] == (Blocker("pods", "default", "4", "2"),)


def test_a_gang_with_subgroups_names_the_one_that_lacks_pods() -> None:
    found = readiness(a_gang(TWO, [("master", P), ("worker", P)]))
    assert found is not None
    assert "Waiting for 2 pods for SubGroup worker, currently 1 exist, 0 are gated" in found[1]


def test_a_missing_topology_is_named() -> None:
    root = flat_gang(1, TopologyConstraint("nowhere", "rack"))
    assert readiness(a_gang(root, [("default", P)])) == (
        Reason.TOPOLOGY,
        "Requested topology nowhere does not exist",
        (Blocker("topology", "Requested topology nowhere does not exist", "exists", "missing"),),
    )


def test_a_preferred_level_of_a_missing_topology_holds_nothing_back() -> None:
    root = flat_gang(1, TopologyConstraint("nowhere", preferred="rack"))
    assert readiness(a_gang(root, [("default", P)])) is None


def test_a_pod_that_waits_for_something_outside_holds_back_its_gang() -> None:
    gang = a_gang(flat_gang(1), [("default", P)])
    blocked = replace(gang.pods[0], constraints=Constraints(blocked=("claim data is missing",)))
    found = readiness(replace(gang, pods=(blocked,)))
    assert found is not None
    assert found[0] is Reason.POD_SCHEDULING_ERRORS
    assert found[1] == "Scheduling conditions were not met for pod ns/g-0:\nclaim data is missing"


def test_what_is_not_ready_is_refused_on_every_rung_with_proof() -> None:
    outcome = run_actions(a_gang(flat_gang(3), [("default", P)]))
    assert set(outcome.refusals[0]) == set(ACTIONS)
    assert {refusal.proof.state for refusal in outcome.refusals[0].values()} == {"proven"}


# -- capacity of queues --------------------------------------------------------------------------------------------


def test_over_its_limit_a_queue_is_told_so() -> None:
    queue = Queue("q", display_name="Research", quota=(-1, -1, -1), limit=(-1, -1, 2 * MILLI))
    outcome = run_actions(a_gang(flat_gang(3), [("default", P)] * 3), queue=queue)
    refusal = outcome.refusals[0][Action.ALLOCATE]
    assert refusal.reason is Reason.OVER_LIMIT
    assert refusal.message == (
        "Research quota has reached the allowable limit of GPUs. Limit is 2 GPUs, "
        "currently 0 GPUs allocated and workload requested 3 GPUs"
    )
    assert outcome.admissions == []


def test_up_to_its_limit_a_queue_is_served() -> None:
    queue = Queue("q", quota=(-1, -1, -1), limit=(-1, -1, 3 * MILLI))
    assert len(run_actions(a_gang(flat_gang(3), [("default", P)] * 3), queue=queue).admissions) == 1


def test_non_preemptible_work_stays_within_quota() -> None:
    queue = Queue("q", quota=(-1, -1, MILLI))
    gang = a_gang(flat_gang(2), [("default", P)] * 2, preemptible=False)
    refusal = run_actions(gang, queue=queue).refusals[0][Action.ALLOCATE]
    assert refusal.reason is Reason.NON_PREEMPTIBLE_OVER_QUOTA
    assert refusal.message.startswith("Non-preemptible workload is over quota. Workload requested 2 GPUs, but q quota")
    assert refusal.proof.state == "proven"
    assert len(run_actions(replace(gang, preemptible=True), queue=queue).admissions) == 1


def test_surplus_stops_at_the_limit() -> None:
    queue = Queue("q", quota=(-1, -1, -1), limit=(-1, -1, 2 * MILLI))
    outcome = run_actions(a_gang(flat_gang(1), [("default", P)] * 4), queue=queue)
    assert [admission.allocation_unit.pods for admission in outcome.admissions] == [(0,), (1,)]


# -- staleness -----------------------------------------------------------------------------------------------------


def stale(gang: Gang) -> list[int]:
    state = a_state(gang)
    return list(stale_gangs(state, [AllocationUnits(state.problem.gangs[0], state.gangs[0])]))


def half(**more: object) -> Gang:
    return a_gang(flat_gang(2), [("default", R)], stale_since_s=900.0, **more)


def test_a_gang_below_its_minimum_beyond_the_grace_is_stale() -> None:
    assert stale(half()) == [0]
    assert run_actions(half()).stale == [0]


@pytest.mark.parametrize(
    "more",
    [{"stale_since_s": 950.0}, {"stale_since_s": None}, {"staleness_grace_s": -1.0}, {"staleness_grace_s": 200.0}],
)
def test_within_its_grace_it_is_not(more: dict[str, object]) -> None:
    assert stale(replace(half(), **more)) == []  # type: ignore[arg-type]


def test_a_gang_with_a_finished_pod_is_never_stale() -> None:
    gang = a_gang(flat_gang(2), [("default", R), ("default", PodStatus.SUCCEEDED)], stale_since_s=0.0)
    assert stale(gang) == []


def test_pods_that_are_leaving_still_count() -> None:
    gang = a_gang(flat_gang(2), [("default", R), ("default", PodStatus.RELEASING)], stale_since_s=0.0)
    assert stale(gang) == []


def test_k_of_n_subgroups_are_enough() -> None:
    assert stale(a_gang(ANY_TWO, [(name, R) for name in "aabb"], stale_since_s=0.0)) == []
    assert stale(a_gang(ANY_TWO, [(name, R) for name in "aab"], stale_since_s=0.0)) == [0]


def test_a_gang_that_gets_what_it_lacks_in_this_cycle_is_not_evicted() -> None:
    outcome = run_actions(a_gang(flat_gang(2), [("default", R), ("default", P)], stale_since_s=0.0))
    assert outcome.stale == []
    assert [admission.allocation_unit.pods for admission in outcome.admissions] == [(1,)]
