from dataclasses import replace
from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import (
    Action,
    Bind,
    Device,
    Gang,
    GpuRequest,
    Move,
    Plan,
    PodSet,
    PodStatus,
    Policy,
    Snapshot,
    SubGroup,
    flat_gang,
)
from tests.check.support import bind, broken, evict, plan
from tests.support.builders import a_cluster, a_gang, a_node, a_queue


def move(name: str, index: int, source: str, target: str, device: int, *helps: str, **fields: Any) -> Move:
    helped = tuple(f"ns/{one}" for one in helps)
    return Move(f"ns/{name}-{index}", f"ns/{name}", source, target, (Device(device, 1000),), helped, **fields)


def waiting(name: str, index: int, target: str, *devices: int, action: Action = Action.PREEMPT) -> Bind:
    return bind(name, index, target, *devices, nominated=True, action=action)


# --- limit and quota -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "rules"), [(2, []), (1, ["limit"]), (0, ["limit"])])
def test_a_queue_stays_within_its_limit(limit: int, rules: list[str]) -> None:
    here = a_cluster([a_node("n1", 2)], [a_gang("g", pods=2, queue="a")], queues=[a_queue("a", limit=limit)])
    assert broken(here, plan(bind("g", 0, "n1", 0), bind("g", 1, "n1", 1))) == rules


def test_the_limit_of_every_ancestor_holds() -> None:
    queues = [a_queue("top", limit=1), a_queue("a", parent="top"), a_queue("b", parent="top")]
    here = a_cluster([a_node("n1", 2)], [a_gang("g", queue="a"), a_gang("r", on=["n1"], queue="b")], queues=queues)
    found = check_plan(here, plan(bind("g", 0, "n1", 0)))
    assert [(violation.rule, violation.object) for violation in found] == [("limit", "top")]
    assert found[0].text == "queue top: 2 GPUs would be allocated, its limit is 1 GPU"


def test_a_queue_above_its_limit_may_exchange_but_not_grow() -> None:
    queues = [a_queue("a", limit=1)]
    here = a_cluster(
        [a_node("n1", 3)],
        [a_gang("g", queue="a"), a_gang("r", pods=2, on=["n1", "n1"], priority=10, queue="a")],
        queues=queues,
    )
    assert broken(here, plan(bind("g", 0, "n1", 2))) == ["limit"]
    evictions = (evict("r", 0, "n1", "g"), evict("r", 1, "n1", "g"))
    assert broken(here, plan(waiting("g", 0, "n1", 0), evictions=evictions)) == []


def test_nothing_comes_to_a_queue_that_stays_above_its_limit() -> None:
    """One for two is less than before, and still more than the queue may have; what it does not ask for may stay."""
    runs = a_gang("r", pods=3, on=["n1"] * 3, priority=10, queue="a")
    here = a_cluster(
        [a_node("n1", 3)], [a_gang("g", queue="a"), replace(runs, root=flat_gang(1))], queues=[a_queue("a", limit=1)]
    )
    two = (evict("r", 1, "n1", "g"), evict("r", 2, "n1", "g"))
    assert broken(here, plan(waiting("g", 0, "n1", 1), evictions=two)) == ["limit"]
    waits = a_gang("g", gpus=0, queue="a")
    assert broken(replace(here, gangs=(waits, here.gangs[1])), plan(bind("g", 0, "n1"))) == []


def test_mig_slices_count_toward_the_limit() -> None:
    one = a_gang("g", gpus=0, queue="a")
    sliced = replace(one, pods=(replace(one.pods[0], quota_gpu_milli=2000),))
    assert broken(a_cluster([a_node("n1", 2)], [sliced], queues=[a_queue("a", limit=1)]), plan(bind("g", 0, "n1"))) == [
        "limit"
    ]


@pytest.mark.parametrize(("preemptible", "rules"), [(True, []), (False, ["quota"])])
def test_only_non_preemptible_work_is_held_to_the_quota(preemptible: bool, rules: list[str]) -> None:
    here = a_cluster(
        [a_node("n1", 2)], [a_gang("g", pods=2, preemptible=preemptible, queue="a")], queues=[a_queue("a", quota=1)]
    )
    assert broken(here, plan(bind("g", 0, "n1", 0), bind("g", 1, "n1", 1))) == rules


def test_preemptible_work_takes_nothing_of_the_quota_of_non_preemptible_work() -> None:
    gangs = [a_gang("g", preemptible=False, queue="a"), a_gang("r", on=["n1"], queue="a")]
    here = a_cluster([a_node("n1", 2)], gangs, queues=[a_queue("a", quota=1)])
    assert broken(here, plan(bind("g", 0, "n1", 0))) == []


# --- preempt ---------------------------------------------------------------------------------------------------------


def preemption(victim: Gang, **claimant: Any) -> list[str]:
    here = a_cluster(
        [a_node("n1", 1)], [a_gang("g", **{"queue": "a", **claimant}), victim], queues=[a_queue("a"), a_queue("b")]
    )
    return broken(here, plan(waiting("g", 0, "n1", 0), evictions=(evict("v", 0, "n1", "g"),)))


def test_preempt_takes_from_lower_priority_in_the_same_queue() -> None:
    assert preemption(a_gang("v", on=["n1"], priority=10, queue="a")) == []


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"priority": 50}, id="same priority"),
        pytest.param({"priority": 10, "queue": "b"}, id="other queue"),
        pytest.param({"priority": 10, "preemptible": False}, id="not preemptible"),
    ],
)
def test_preempt_does_not_take_from(fields: dict[str, Any]) -> None:
    assert preemption(a_gang("v", on=["n1"], **{"queue": "a", **fields})) == ["priority"]


def test_a_gang_that_never_preempts_has_no_victims() -> None:
    assert preemption(a_gang("v", on=["n1"], priority=10, queue="a"), never_preempts=True) == ["priority"]


def test_a_gang_within_its_delay_disturbs_nothing() -> None:
    victim = a_gang("v", on=["n1"], priority=10, queue="a")
    assert preemption(victim, created_s=990.0, preemption_delay_s=60.0) == ["delay"]
    assert preemption(victim, created_s=900.0, preemption_delay_s=60.0) == []
    assert preemption(victim, created_s=900.0, last_eviction_s=990.0, preemption_delay_s=60.0) == ["delay"]


@pytest.mark.parametrize(("started_s", "rules"), [(None, []), (899.0, []), (950.0, ["runtime"])])
def test_a_victim_runs_its_least_time(started_s: float | None, rules: list[str]) -> None:
    victim = a_gang("v", on=["n1"], priority=10, last_start_s=started_s, queue="a")
    queues = [a_queue("a", parent="top"), a_queue("top", preempt_min_runtime_s=100.0)]
    here = a_cluster([a_node("n1", 1)], [a_gang("g", queue="a"), victim], queues=queues)
    assert broken(here, plan(waiting("g", 0, "n1", 0), evictions=(evict("v", 0, "n1", "g"),))) == rules


def test_a_protected_elastic_gang_may_lose_its_surplus() -> None:
    victim = a_gang("v", pods=2, on=["n1", "n1"], need=1, priority=10, last_start_s=999.0, queue="a")
    here = a_cluster([a_node("n1", 2)], [a_gang("g", queue="a"), victim], policy=Policy(preempt_min_runtime_s=100.0))
    assert broken(here, plan(waiting("g", 0, "n1", 0), evictions=(evict("v", 1, "n1", "g"),))) == []


# --- units -----------------------------------------------------------------------------------------------------------


def test_a_core_goes_whole() -> None:
    victim = a_gang("v", pods=2, on=["n1", "n1"], priority=10, queue="a")
    here = a_cluster([a_node("n1", 2)], [a_gang("g", queue="a"), a_gang("h", queue="a"), victim])
    both = (evict("v", 0, "n1", "g"), evict("v", 1, "n1", "g"))
    one = plan(waiting("g", 0, "n1", 0))
    assert broken(here, replace(one, evictions=both)) == []
    assert broken(here, replace(one, evictions=both[:1])) == ["units"]


def test_an_optional_subgroup_goes_whole() -> None:
    root = SubGroup(children=(PodSet("x", 1), PodSet("y", 2)), min_subgroups=1)
    pods = a_gang("v", pods=3, on=["n1", "n1", "n1"], priority=10, queue="a").pods
    placed = tuple(replace(pod, podset=podset) for pod, podset in zip(pods, "xyy", strict=True))
    victim = replace(a_gang("v", priority=10, queue="a"), root=root, pods=placed)
    here = a_cluster([a_node("n1", 3)], [a_gang("g", gpus=2, queue="a"), victim])
    one = plan(waiting("g", 0, "n1", 0, 1))
    both = (evict("v", 1, "n1", "g"), evict("v", 2, "n1", "g"))
    assert broken(here, replace(one, evictions=both)) == []
    smaller = a_cluster([a_node("n1", 3)], [a_gang("g", queue="a"), victim])
    assert broken(smaller, plan(waiting("g", 0, "n1", 0), evictions=both[:1])) == ["units"]


def test_a_victim_that_could_stay_is_needless() -> None:
    victim = a_gang("v", on=["n1"], priority=10, queue="a")
    here = a_cluster([a_node("n1", 2)], [a_gang("g", queue="a"), victim])
    found = check_plan(here, plan(waiting("g", 0, "n1", 0), evictions=(evict("v", 0, "n1", "g"),)))
    assert [violation.rule for violation in found] == ["needless"]
    assert "needless" in found[0].text


def test_a_surplus_pod_that_could_stay_is_needless() -> None:
    victim = a_gang("v", pods=3, on=["n1", "n1", "n2"], need=1, priority=10, queue="a")
    here = a_cluster([a_node("n1", 2), a_node("n2", 1)], [a_gang("g", queue="a"), victim])
    one = plan(waiting("g", 0, "n1", 0))
    assert broken(here, replace(one, evictions=(evict("v", 1, "n1", "g"),))) == []
    assert broken(here, replace(one, evictions=(evict("v", 1, "n1", "g"), evict("v", 2, "n2", "g")))) == ["needless"]


def test_a_victim_that_makes_room_under_a_limit_is_not_needless() -> None:
    victim = a_gang("v", on=["n1"], priority=10, queue="a")
    here = a_cluster([a_node("n1", 2)], [a_gang("g", queue="a"), victim], queues=[a_queue("a", limit=1)])
    assert broken(here, plan(waiting("g", 0, "n1", 0), evictions=(evict("v", 0, "n1", "g"),))) == []


def test_a_gang_that_gets_its_minimum_may_yield_its_surplus_in_the_same_plan() -> None:
    root = SubGroup(children=(PodSet("x", 1), PodSet("y", 1)))
    pods = a_gang("v", pods=3, on=["n1", "n1"], queue="a").pods
    placed = tuple(replace(pod, podset=podset) for pod, podset in zip(pods, "xxy", strict=True))
    victim = replace(a_gang("v", priority=10, queue="a"), root=root, pods=placed)
    here = a_cluster([a_node("n1", 3)], [a_gang("g", queue="a"), victim])
    completing = bind("v", 2, "n1", 2)
    one = plan(waiting("g", 0, "n1", 0), completing, evictions=(evict("v", 1, "n1", "g"),))
    assert broken(here, one) == []
    assert broken(here, plan(waiting("g", 0, "n1", 0), evictions=one.evictions)) == ["units"]


# --- moves and order -------------------------------------------------------------------------------------------------


def consolidation(**policy: Any) -> Snapshot:
    """Two nodes half full; only a move makes room for two GPUs on one node."""
    gangs = [a_gang("g", gpus=2, queue="a"), a_gang("r", on=["n1"], queue="a"), a_gang("s", on=["n2"], queue="a")]
    return a_cluster([a_node("n1", 2), a_node("n2", 2)], gangs, policy=Policy(**policy))


def one_move(**fields: Any) -> Plan:
    return replace(
        plan(waiting("g", 0, "n1", 0, 1, action=Action.CONSOLIDATION), moves=(move("r", 0, "n1", "n2", 0, "g"),)),
        **fields,
    )


def test_consolidation_moves_and_nominates() -> None:
    assert broken(consolidation(), one_move()) == []


def test_a_moved_pod_needs_room_where_it_goes() -> None:
    here = consolidation()
    full = replace(here, gangs=(*here.gangs, a_gang("t", on=["n2"], queue="a")))
    assert set(broken(full, one_move())) == {"capacity", "devices"}


def test_non_preemptible_gangs_are_not_moved() -> None:
    here = consolidation()
    fixed = replace(here, gangs=tuple(replace(one, preemptible=one.name != "r") for one in here.gangs))
    assert broken(fixed, one_move()) == ["moves"]


def test_nothing_is_moved_for_a_non_preemptible_gang() -> None:
    here = consolidation()
    fixed = replace(here, gangs=tuple(replace(one, preemptible=one.name != "g") for one in here.gangs))
    assert broken(fixed, one_move()) == ["moves"]


def test_only_so_many_gangs_are_moved_for_one() -> None:
    assert broken(consolidation(max_consolidation_gangs=1), one_move()) == []
    assert broken(consolidation(max_consolidation_gangs=0), one_move()) == ["moves"]


def test_consolidation_evicts_no_pod() -> None:
    evicting = one_move(moves=(), evictions=(evict("r", 0, "n1", "g", reason="reclaim"),))
    assert broken(consolidation(), evicting) == ["moves"]


def test_gangs_admitted_by_allocate_move_no_pod() -> None:
    allocated = one_move(
        binds=(waiting("g", 0, "n1", 0, 1, action=Action.ALLOCATE),), admitted=(("ns/g", Action.ALLOCATE),)
    )
    assert broken(consolidation(), allocated) == ["moves"]


@pytest.mark.parametrize("helps", [(), ("nobody",), ("s",)])
def test_a_move_helps_admitted_gangs(helps: tuple[str, ...]) -> None:
    assert broken(consolidation(), one_move(moves=(move("r", 0, "n1", "n2", 0, *helps),))) == ["moves"]


def test_a_shared_gpu_may_be_left_for_another_of_the_same_node() -> None:
    halves = [a_gang(name, on=["n1"], each={"devices": (i,)}, queue="a") for i, name in enumerate("rs")]
    shared = [replace(one, pods=(replace(one.pods[0], gpu=GpuRequest(1, 500)),)) for one in halves]
    here = a_cluster([a_node("n1", 2)], [a_gang("g", queue="a"), *shared])
    entry = waiting("g", 0, "n1", 0, action=Action.CONSOLIDATION)
    moved = Move("ns/r-0", "ns/r", "n1", "n1", (Device(1, 500),), ("ns/g",))
    assert broken(here, plan(entry, moves=(moved,))) == []
    stayed = replace(moved, devices=(Device(0, 500),))
    assert broken(here, plan(entry, moves=(stayed,))) == ["form"]


def test_a_move_that_nothing_needs_is_needless() -> None:
    here = consolidation()
    roomy = replace(here, nodes=(a_node("n1", 3), a_node("n2", 2)))
    assert broken(roomy, one_move()) == ["needless"]


def test_every_gang_that_gets_pods_is_listed_as_admitted() -> None:
    here = a_cluster([a_node("n1", 2)], [a_gang("g", queue="a"), a_gang("h", queue="a")])
    good = plan(bind("g", 0, "n1", 0))
    assert broken(here, replace(good, admitted=())) == ["order"]
    assert broken(here, replace(good, admitted=(*good.admitted, ("ns/h", Action.ALLOCATE)))) == ["order"]
    assert broken(here, replace(good, admitted=(("ns/g", Action.RECLAIM),))) == ["order"]


def test_a_rung_that_the_model_does_not_climb_admits_no_pod() -> None:
    violations = check_plan(consolidation(), one_move(), actions=(Action.ALLOCATE,))
    assert [violation.rule for violation in violations] == ["order"]


# --- stale -----------------------------------------------------------------------------------------------------------


def stale(**fields: Any) -> list[str]:
    one = a_gang("v", pods=2, on=["n1"], **{"stale_since_s": 900.0, **fields}, queue="a")
    here = a_cluster([a_node("n1", 2)], [one])
    return broken(here, Plan(evictions=(evict("v", 0, "n1", reason="stale"),)))


def test_a_gang_stale_beyond_its_grace_is_evicted() -> None:
    assert stale() == []


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"stale_since_s": 950.0}, id="within the grace"),
        pytest.param({"stale_since_s": None}, id="seen for the first time"),
        pytest.param({"staleness_grace_s": 200.0}, id="within a grace of its own"),
        pytest.param({"staleness_grace_s": -1.0}, id="never"),
        pytest.param({"need": 1}, id="has its minimum"),
    ],
)
def test_a_gang_that_is_not_stale_long_enough_stays(fields: dict[str, Any]) -> None:
    assert stale(**fields) == ["stale"]


def test_a_gang_that_runs_k_of_n_subgroups_is_not_stale() -> None:
    root = SubGroup(children=(PodSet("default", 1), PodSet("more", 1)), min_subgroups=1)
    assert stale(root=root) == ["stale"]


def test_a_gang_with_succeeded_pods_is_not_stale() -> None:
    one = a_gang("v", pods=2, on=["n1"], stale_since_s=900.0, queue="a")
    ended = replace(one, pods=(one.pods[0], replace(one.pods[1], status=PodStatus.SUCCEEDED)))
    here = a_cluster([a_node("n1", 2)], [ended])
    assert broken(here, Plan(evictions=(evict("v", 0, "n1", reason="stale"),))) == ["stale"]


def test_a_stale_gang_goes_whole_and_for_no_other() -> None:
    one = a_gang("v", pods=3, on=["n1", "n1"], stale_since_s=900.0, queue="a")
    here = a_cluster([a_node("n1", 2)], [one])
    half = Plan(evictions=(evict("v", 0, "n1", reason="stale"),))
    assert broken(here, half) == ["stale"]
    whole = replace(half, evictions=(*half.evictions, evict("v", 1, "n1", reason="stale")))
    assert broken(here, whole) == []
    helping = replace(whole, evictions=(*half.evictions, evict("v", 1, "n1", "v", reason="stale")))
    assert broken(here, helping) == ["stale"]
    assert [v.rule for v in check_plan(here, whole, actions=(Action.ALLOCATE,))] == ["stale"]
