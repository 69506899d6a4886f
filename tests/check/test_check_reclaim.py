from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import (
    Action,
    Bind,
    Device,
    Eviction,
    Gang,
    GpuRequest,
    Move,
    Node,
    Plan,
    Policy,
    Snapshot,
)
from tests.check import support
from tests.check.support import bind, broken, plan
from tests.support.builders import a_cluster, a_gang, a_node, a_queue


def snapshot(nodes: Sequence[Node], gangs: Sequence[Gang], **fields: Any) -> Snapshot:
    """Queues, unless given: ``a`` and ``b``, each with a quota of two GPUs."""
    queues = fields.pop("queues", (a_queue("a", quota=2, weight=0.0), a_queue("b", quota=2, weight=0.0)))
    return a_cluster(nodes, gangs, queues, **fields)


def evict(name: str, index: int, source: str, *helps: str) -> Eviction:
    return support.evict(name, index, source, *helps, reason="reclaim")


def reclaim(*devices: int, name: str = "g", index: int = 0, target: str = "n1") -> Bind:
    return bind(name, index, target, *devices, nominated=True, action=Action.RECLAIM)


def singles(queue: str, *targets: str, **fields: Any) -> list[Gang]:
    """One gang of one GPU on each node, named after the queue."""
    return [a_gang(f"{queue}{i}", on=[target], queue=queue, **fields) for i, target in enumerate(targets)]


FULL = ("n1",) * 4


def test_a_queue_takes_back_its_fair_share() -> None:
    here = snapshot([a_node("n1", 4)], [a_gang("g", gpus=2, queue="a"), *singles("b", *FULL)])
    evictions = (evict("b0", 0, "n1", "g"), evict("b1", 0, "n1", "g"))
    assert broken(here, plan(reclaim(0, 1), evictions=evictions)) == []


def test_nothing_reclaims_beyond_its_fair_share() -> None:
    here = snapshot([a_node("n1", 4)], [a_gang("g", gpus=3, queue="a"), *singles("b", *FULL)])
    evictions = tuple(evict(f"b{i}", 0, "n1", "g") for i in range(3))
    found = check_plan(here, plan(reclaim(0, 1, 2), evictions=evictions))
    assert [violation.rule for violation in found] == ["entitlement"]
    assert "above its fair share of gpu" in found[0].text


def test_non_preemptible_work_reclaims_within_its_quota_only() -> None:
    queues = (a_queue("a", quota=1, weight=1.0), a_queue("b", quota=1, weight=0.0))
    claimant = a_gang("g", gpus=2, queue="a")
    evictions = (evict("b0", 0, "n1", "g"), evict("b1", 0, "n1", "g"))
    one = plan(reclaim(0, 1), evictions=evictions)
    here = snapshot([a_node("n1", 4)], [claimant, *singles("b", *FULL)], queues=queues)
    assert broken(here, one) == []
    fixed = replace(here, gangs=(replace(claimant, preemptible=False), *here.gangs[1:]))
    assert set(broken(fixed, one)) == {"quota", "entitlement"}


def test_reclaim_takes_from_other_queues_only() -> None:
    here = snapshot([a_node("n1", 1)], [a_gang("g", queue="a"), *singles("a", "n1", priority=10)])
    assert broken(here, plan(reclaim(0), evictions=(evict("a0", 0, "n1", "g"),))) == ["entitlement"]


def test_reclaim_spares_non_preemptible_work() -> None:
    here = snapshot([a_node("n1", 4)], [a_gang("g", queue="a"), *singles("b", *FULL, preemptible=False)])
    assert broken(here, plan(reclaim(0), evictions=(evict("b0", 0, "n1", "g"),))) == ["entitlement"]


@pytest.mark.parametrize(("victims", "rules"), [(("b0", "c0"), []), (("b0", "b1"), ["entitlement"])])
def test_each_queue_keeps_its_quota_before_the_last_victim(victims: tuple[str, str], rules: list[str]) -> None:
    queues = (a_queue("a", quota=2, weight=0.0), a_queue("b", quota=1, weight=0.0), a_queue("c", quota=1, weight=0.0))
    gangs = [a_gang("g", gpus=2, queue="a"), *singles("b", "n1", "n1"), *singles("c", "n1", "n1")]
    here = snapshot([a_node("n1", 4)], gangs, queues=queues)
    evictions = tuple(evict(name, 0, "n1", "g") for name in victims)
    assert broken(here, plan(reclaim(0, 1), evictions=evictions)) == rules


def test_the_last_victim_may_be_a_whole_gang() -> None:
    here = snapshot([a_node("n1", 4)], [a_gang("g", gpus=2, queue="a"), a_gang("v", pods=4, on=FULL, queue="b")])
    evictions = tuple(evict("v", i, "n1", "g") for i in range(4))
    assert broken(here, plan(reclaim(0, 1), evictions=evictions)) == []


def test_a_queue_within_its_quota_pays_nothing() -> None:
    queues = (a_queue("a", quota=2, weight=0.0), a_queue("b", quota=3, weight=0.0), a_queue("c", quota=0, weight=0.0))
    gangs = [a_gang("g", queue="a"), *singles("b", "n1"), *singles("c", "n1", "n1")]
    here = snapshot([a_node("n1", 3)], gangs, queues=queues)
    assert broken(here, plan(reclaim(0), evictions=(evict("c0", 0, "n1", "g"),))) == []
    assert broken(here, plan(reclaim(0), evictions=(evict("b0", 0, "n1", "g"),))) == ["entitlement"]


def test_beyond_its_quota_a_queue_takes_only_from_those_above_their_fair_share() -> None:
    queues = (a_queue("a", quota=0, weight=1.0), a_queue("b", quota=0, weight=1.0), a_queue("c", quota=0, weight=1.0))
    gangs = [a_gang("g", queue="a"), *singles("b", "n1"), *singles("c", "n1", "n1")]
    here = snapshot([a_node("n1", 3)], gangs, queues=queues)
    assert broken(here, plan(reclaim(0), evictions=(evict("c0", 0, "n1", "g"),))) == []
    assert broken(here, plan(reclaim(0), evictions=(evict("b0", 0, "n1", "g"),))) == ["entitlement"]


def test_claims_are_judged_in_the_order_of_admission() -> None:
    queues = (a_queue("a", quota=1, weight=0.0), a_queue("b", quota=2, weight=0.0), a_queue("c", quota=1, weight=0.0))
    gangs = [a_gang("g", queue="a"), a_gang("h", queue="c"), *singles("b", *FULL)]
    here = snapshot([a_node("n1", 4)], gangs, queues=queues)
    both = (reclaim(0), reclaim(1, name="h"))
    fair = (evict("b0", 0, "n1", "g"), evict("b1", 0, "n1", "h"))
    assert broken(here, plan(*both, evictions=fair)) == []
    shared = (evict("b0", 0, "n1", "g", "h"), evict("b1", 0, "n1", "g", "h"))
    assert broken(here, plan(*both, evictions=shared)) == []
    tight = replace(here, queues=(queues[0], a_queue("b", quota=3, weight=0.0), queues[2]))
    assert broken(tight, plan(*both, evictions=fair)) == ["entitlement"]


@pytest.mark.parametrize(("consolidating", "rules"), [(True, []), (False, ["entitlement"])])
def test_victims_with_another_place_are_free_where_policy_says_so(consolidating: bool, rules: list[str]) -> None:
    gangs = [a_gang("g", gpus=2, queue="a"), *singles("b", "n1", "n2")]
    here = snapshot([a_node("n1", 2), a_node("n2", 2)], gangs, policy=Policy(consolidating_reclaim=consolidating))
    moved = Move("ns/b0-0", "ns/b0", "n1", "n2", (Device(0, 1000),), ("ns/g",), Action.RECLAIM)
    assert broken(here, plan(reclaim(0, 1), moves=(moved,))) == rules


@pytest.mark.parametrize(("resolve", "rules"), [("lca", []), ("queue", ["runtime"])])
def test_the_least_run_time_is_looked_up_as_policy_says(resolve: Any, rules: list[str]) -> None:
    queues = (
        a_queue("a", quota=2, weight=0.0),
        a_queue("top", quota=2, reclaim_min_runtime_s=10.0, weight=0.0),
        a_queue("b", parent="top", quota=2, reclaim_min_runtime_s=500.0, weight=0.0),
    )
    gangs = [a_gang("g", queue="a"), *singles("b", *FULL, last_start_s=900.0)]
    here = snapshot([a_node("n1", 4)], gangs, queues=queues, policy=Policy(reclaim_resolve=resolve))
    assert broken(here, plan(reclaim(0), evictions=(evict("b0", 0, "n1", "g"),))) == rules


@pytest.mark.parametrize(
    ("elsewhere", "multiplier", "rules"), [(3, 1.0, []), (3, 1.2, ["entitlement"]), (1, 1.0, ["entitlement"])]
)
def test_a_queue_beyond_its_share_stays_less_full_than_those_that_pay(
    elsewhere: int, multiplier: float, rules: list[str]
) -> None:
    """Two departments share 8 GPUs, 4 each; more of b runs on a cordoned node, which is not shared out."""
    queues = (
        a_queue("first", quota=2, weight=1.0),
        a_queue("a", parent="first", quota=1, weight=0.0),
        a_queue("x", parent="first", quota=1, weight=0.0),
        a_queue("second", quota=2, weight=1.0),
        a_queue("b", parent="second", quota=2, weight=0.0),
    )
    gangs = [a_gang("g", queue="a"), *singles("x", *FULL), *singles("b", *FULL, *("old",) * elsewhere)]
    nodes = [a_node("n1", 8), a_node("old", 3, schedulable=False)]
    here = snapshot(nodes, gangs, queues=queues, policy=Policy(saturation_multiplier=multiplier))
    assert broken(here, plan(reclaim(0), evictions=(evict("b0", 0, "n1", "g"),))) == rules


def test_without_hierarchy_the_parent_has_no_say() -> None:
    """Its weight is 0: in the hierarchy it has no surplus to pass on."""
    queues = (a_queue("top", quota=0, weight=0.0), *(a_queue(name, parent="top", quota=0, weight=1.0) for name in "ab"))
    gangs = [a_gang("g", gpus=2, queue="a"), *singles("b", *FULL)]
    here = snapshot([a_node("n1", 4)], gangs, queues=queues, policy=Policy(full_hierarchy=False))
    evictions = (evict("b0", 0, "n1", "g"), evict("b1", 0, "n1", "g"))
    assert broken(here, plan(reclaim(0, 1), evictions=evictions)) == []
    assert broken(replace(here, policy=Policy()), plan(reclaim(0, 1), evictions=evictions)) == ["entitlement"]


@pytest.mark.parametrize(("consolidating", "rules"), [(True, []), (False, ["entitlement"])])
def test_a_queue_whose_pods_only_move_pays_nothing(consolidating: bool, rules: list[str]) -> None:
    """Two departments share 8 GPUs; the first goes beyond its half, while a pod of the second finds another node."""
    queues = (
        a_queue("first", quota=2, weight=1.0),
        a_queue("a", parent="first", quota=1, weight=0.0),
        a_queue("x", parent="first", quota=1, weight=0.0),
        a_queue("second", quota=2, weight=1.0),
        a_queue("b", parent="second", quota=2, weight=0.0),
    )
    gangs = [a_gang("g", queue="a"), *singles("x", *FULL), *singles("b", "n1", "n1", "n1", "old", "old")]
    nodes = [a_node("n1", 7), a_node("n2", 1), a_node("old", 3, schedulable=False)]
    here = snapshot(nodes, gangs, queues=queues, policy=Policy(consolidating_reclaim=consolidating))
    moved = Move("ns/b0-0", "ns/b0", "n1", "n2", (Device(0, 1000),), ("ns/g",), Action.RECLAIM)
    assert [rule for rule in broken(here, plan(reclaim(0), moves=(moved,))) if rule != "needless"] == rules


def by_memory(pods: int) -> Snapshot:
    """Four GPUs of 80 GB that ``b`` has, one of 40 GB that ``a`` has; pods of ``a`` wait for 30 GB each."""
    claimant = a_gang("g", pods=pods, queue="a")
    asked = tuple(replace(pod, gpu=GpuRequest(1, 0, 30_000)) for pod in claimant.pods)
    small = replace(a_node("n2", 1), gpu_memory_mib=40_000)
    gangs = [replace(claimant, pods=asked), *singles("b", *FULL), *singles("a", "n2")]
    return snapshot([a_node("n1", 4), small], gangs)


def seats_by_memory(pods: int) -> Plan:
    """The pods share the device of the first victim; each takes 0.38 of it."""
    shares = [reclaim(index=number) for number in range(pods)]
    binds = [replace(share, devices=(Device(0, 380),)) for share in shares]
    return plan(*binds, evictions=(evict("b0", 0, "n1", "g"),))


@pytest.mark.parametrize(("pods", "rules"), [(1, []), (2, ["entitlement"])])
def test_rights_are_asked_for_requests_by_memory_as_on_the_smallest_devices(pods: int, rules: list[str]) -> None:
    """0.75 of a small device each: one stays within the share of two GPUs, two do not, whatever they take at last."""
    assert broken(by_memory(pods), seats_by_memory(pods)) == rules


@pytest.mark.parametrize("both", [False, True])
def test_a_victim_without_which_its_own_queue_could_not_reclaim_is_not_needless(*, both: bool) -> None:
    """Queue a reclaims from b, and so b may reclaim from c. There is room for all that b had, too."""
    ran = [a_gang("v", queue="b", gpus=4, on="large"), *(a_gang(name, queue="c", gpus=2, on="s") for name in "yz")]
    came = [a_gang("first", queue="a", gpus=2), a_gang("second", queue="b", gpus=2)]
    queues = tuple(a_queue(name, quota=2, weight=0.0) for name in "abc")
    here = snapshot([a_node(name, 4) for name in ("large", "s", "t")], [*ran, *came], queues=queues)
    binds = (reclaim(0, 1, name="first", target="t"), reclaim(2, 3, name="second", target="s"))
    evictions = (evict("v", 0, "large", "first"), evict("z", 0, "s", "second"))
    count = 1 + both
    assert broken(here, plan(*binds[:count], evictions=evictions[:count])) == ([] if both else ["needless"])
