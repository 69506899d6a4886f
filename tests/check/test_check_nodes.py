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
    Plan,
    Pod,
    PodStatus,
    Queue,
    Snapshot,
)
from tests.check.support import bind, broken, plan
from tests.support.builders import FREE, GIB, a_cluster, a_gang, a_node, a_pod

# --- form and foreign ------------------------------------------------------------------------------------------------


def test_an_empty_plan_holds() -> None:
    assert broken(a_cluster([a_node("n1", 2)], [a_gang("g")]), Plan()) == []


def test_a_bind_on_free_devices_holds() -> None:
    assert (
        broken(a_cluster([a_node("n1", 2)], [a_gang("g", pods=2)]), plan(bind("g", 0, "n1", 0), bind("g", 1, "n1", 1)))
        == []
    )


@pytest.mark.parametrize(
    "asked", [GpuRequest(10**12 - 1, 0, 80_000), GpuRequest(10**12 - 1, 500), GpuRequest(10**12 - 1)]
)
def test_a_pod_may_ask_for_any_number_of_devices(asked: GpuRequest) -> None:
    """Whether it waits, or has a node that its creator chose; on that node no GPU is known to be free."""
    nodes = [a_node("n1", 2), a_node("n2", 2)]
    waits = a_cluster(nodes, [a_gang("g"), *[a_gang(f"huge{number}", asked) for number in range(5)]])
    assert broken(waits, plan(bind("g", 0, "n1", 0))) == []
    runs = a_cluster(nodes, [a_gang("g")], foreign=(a_pod("huge", asked, on="n2"),))
    assert broken(runs, plan(bind("g", 0, "n1", 0))) == []
    assert "capacity" in broken(runs, plan(bind("g", 0, "n2", 0)))


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(Bind("ns/nobody", "ns/g", "n1", (Device(0, 1000),)), id="unknown pod"),
        pytest.param(Bind("ns/g-0", "ns/nobody", "n1", (Device(0, 1000),)), id="unknown gang"),
        pytest.param(Bind("ns/g-0", "ns/g", "nowhere", (Device(0, 1000),)), id="unknown node"),
        pytest.param(Bind("ns/g-0", "ns/r", "n1", (Device(0, 1000),)), id="pod of another gang"),
        pytest.param(Bind("ns/r-0", "ns/r", "n2", (Device(0, 1000),)), id="running pod"),
    ],
)
def test_a_bind_that_names_the_wrong_thing_breaks_the_form(entry: Bind) -> None:
    here = a_cluster([a_node("n1", 2), a_node("n2", 2)], [a_gang("g"), a_gang("r", on=["n1"])])
    assert set(broken(here, replace(plan(entry), admitted=(("ns/g", Action.ALLOCATE),)))) == {"form"}


def test_a_pod_bound_twice_breaks_the_form() -> None:
    assert broken(a_cluster([a_node("n1", 2)], [a_gang("g")]), plan(bind("g", 0, "n1", 0), bind("g", 0, "n1", 1))) == [
        "form"
    ]


def test_moving_a_pod_to_where_it_is_breaks_the_form() -> None:
    here = a_cluster([a_node("n1", 2)], [a_gang("g"), a_gang("r", on=["n1"])])
    move = Move("ns/r-0", "ns/r", "n1", "n1", (Device(1, 1000),), ("ns/g",))
    assert broken(here, plan(bind("g", 0, "n1", 0), moves=(move,))) == ["form"]


def test_a_move_must_start_where_the_pod_runs() -> None:
    here = a_cluster([a_node("n1", 2), a_node("n2", 2), a_node("n3", 2)], [a_gang("g"), a_gang("r", on=["n1"])])
    move = Move("ns/r-0", "ns/r", "n2", "n3", (Device(1, 1000),), ("ns/g",))
    assert broken(here, plan(bind("g", 0, "n1", 0), moves=(move,))) == ["form"]


def test_a_move_must_start_on_a_node_of_the_cluster() -> None:
    here = a_cluster([a_node("n1", 2), a_node("n2", 2)], [a_gang("g"), a_gang("r", on=["gone"])])
    move = Move("ns/r-0", "ns/r", "gone", "n2", (Device(1, 1000),), ("ns/g",))
    assert broken(here, plan(bind("g", 0, "n1", 0), moves=(move,))) == ["form"]


def test_evicting_a_pending_pod_breaks_the_form() -> None:
    here = a_cluster([a_node("n1", 2)], [a_gang("g"), a_gang("h")])
    eviction = Eviction("ns/h-0", "ns/h", "n1", "preempt", ("ns/g",))
    assert broken(here, plan(bind("g", 0, "n1", 0), evictions=(eviction,))) == ["form"]


def test_a_gang_of_an_inner_queue_gets_nothing() -> None:
    queues = (Queue("a", quota=FREE), Queue("leaf", "a", quota=FREE))
    here = a_cluster([a_node("n1", 2)], [a_gang("g")], queues=queues)
    assert broken(here, plan(bind("g", 0, "n1", 0))) == ["form"]


def test_pods_of_other_schedulers_are_not_touched() -> None:
    stranger = Pod("sys", "s", (0, 0, 0, 1), GpuRequest(1), PodStatus.RUNNING, node="n1")
    here = a_cluster([a_node("n1", 2)], [a_gang("g")], foreign=(stranger,))
    eviction = Eviction("sys/s", "ns/g", "n1", "preempt", ("ns/g",))
    assert broken(here, plan(bind("g", 0, "n1", 0), evictions=(eviction,))) == ["foreign"]


def test_gangs_that_are_set_aside_are_not_touched() -> None:
    here = a_cluster([a_node("n1", 2)], [a_gang("g", set_aside="two sizes in one job")])
    assert broken(here, plan(bind("g", 0, "n1", 0))) == ["foreign"]


# --- capacity --------------------------------------------------------------------------------------------------------


def test_a_node_without_enough_cpu_is_over_capacity() -> None:
    small = replace(a_node("n1", 2), allocatable=(150, 512 * GIB, 2000, 110))
    here = a_cluster([small], [a_gang("g", pods=2)])
    found = check_plan(here, plan(bind("g", 0, "n1", 0), bind("g", 1, "n1", 1)))
    assert [violation.text for violation in found] == ["node n1: cpu 200m used of 150m"]


def test_gpus_over_capacity_are_counted_in_gpus() -> None:
    here = a_cluster([a_node("n1", 1)], [a_gang("g", gpus=2)])
    found = check_plan(here, plan(bind("g", 0, "n1", 0, 1)))
    assert "node n1: 2 GPUs used of 1" in [violation.text for violation in found]


def test_pods_of_other_schedulers_hold_capacity() -> None:
    stranger = Pod("sys", "s", (64_000, 0, 0, 1), status=PodStatus.RUNNING, node="n1")
    here = a_cluster([a_node("n1", 2)], [a_gang("g")], foreign=(stranger,))
    assert broken(here, plan(bind("g", 0, "n1", 0))) == ["capacity"]


def releasing(status: PodStatus) -> Snapshot:
    old = a_gang("old", gpus=2, on=["n1"])
    old = replace(old, pods=(replace(old.pods[0], status=status),))
    return a_cluster([a_node("n1", 2)], [a_gang("g"), old])


def test_a_bind_at_once_may_not_use_what_is_still_being_released() -> None:
    assert set(broken(releasing(PodStatus.RELEASING), plan(bind("g", 0, "n1", 0)))) == {"capacity", "devices"}


def test_a_nominated_bind_may_use_what_is_being_released() -> None:
    assert broken(releasing(PodStatus.RELEASING), plan(bind("g", 0, "n1", 0, nominated=True))) == []


def test_nothing_may_use_what_a_stuck_pod_holds() -> None:
    found = broken(releasing(PodStatus.STUCK_IN_RELEASING), plan(bind("g", 0, "n1", 0, nominated=True)))
    assert set(found) == {"capacity", "devices"}


def test_an_over_committed_node_may_stay_so_but_gets_nothing_more_of_that() -> None:
    shrunk = replace(a_node("n1", 2), allocatable=(50, 512 * GIB, 2000, 110))
    running = a_gang("r", on=["n1"])
    assert broken(a_cluster([shrunk], [a_gang("g"), running]), plan(bind("g", 0, "n1", 0))) == ["capacity"]
    frugal = a_gang("g", gpus=0)
    frugal = replace(frugal, pods=(replace(frugal.pods[0], request=(0, GIB, 0, 1)),))
    assert broken(a_cluster([shrunk], [frugal, running]), plan(bind("g", 0, "n1"))) == []


# --- devices ---------------------------------------------------------------------------------------------------------


def share(name: str, milli: int, devices: int = 1, **fields: Any) -> Gang:
    one = a_gang(name)
    return replace(one, pods=(replace(one.pods[0], gpu=GpuRequest(devices, milli), **fields),))


def give(name: str, milli: int, *devices: int) -> Bind:
    return Bind(f"ns/{name}-0", f"ns/{name}", "n1", tuple(Device(device, milli) for device in devices))


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(bind("g", 0, "n1", 0), id="too few"),
        pytest.param(bind("g", 0, "n1", 0, 0), id="one twice"),
        pytest.param(bind("g", 0, "n1", 0, 2), id="no such GPU"),
        pytest.param(replace(bind("g", 0, "n1"), devices=(Device(0, 500), Device(1, 1000))), id="part of a GPU"),
    ],
)
def test_devices_must_match_the_request(entry: Bind) -> None:
    assert broken(a_cluster([a_node("n1", 2)], [a_gang("g", gpus=2)]), plan(entry)) == ["devices"]


def test_devices_that_entries_share_are_judged_for_each_of_them() -> None:
    given = (Device(2, 1000),)
    here = [
        replace(a_node("n1", 4), gpu_memory_mib=40_000),
        a_node("n2", 2),
        a_node("n3", 4),
        a_node("n4", 4),
    ]
    right, elsewhere, other = (replace(bind(name, 0, f"n{i}"), devices=given) for i, name in enumerate("ghi", start=1))
    gangs = [a_gang("g"), a_gang("h"), a_gang("i", gpus=2)]
    found = check_plan(a_cluster(here, gangs), plan(right, elsewhere, other))
    assert [(v.rule, v.object) for v in found] == [("devices", "ns/h-0"), ("devices", "ns/i-0")]
    by_memory = GpuRequest(1, 0, 40_000)  # A whole device of n1, half of one of n4.
    pods = [replace(one, pods=(replace(one.pods[0], gpu=by_memory),)) for one in (a_gang("g"), a_gang("h"))]
    first, second = (replace(bind(name, 0, to), devices=given) for name, to in (("g", "n1"), ("h", "n4")))
    assert broken(a_cluster(here, pods), plan(first)) == []
    found = check_plan(a_cluster(here, pods), plan(first, second))
    assert [(v.rule, v.object) for v in found] == [("devices", "ns/h-0")]


def test_a_device_is_given_once() -> None:
    here = a_cluster([a_node("n1", 2)], [a_gang("g", pods=2)])
    found = check_plan(here, plan(bind("g", 0, "n1", 1), bind("g", 1, "n1", 1)))
    assert [(violation.rule, violation.text) for violation in found] == [
        ("devices", "node n1: GPU 1 is given 2000m of 1000m")
    ]


def test_shares_of_one_device_fit_up_to_the_whole() -> None:
    here = a_cluster([a_node("n1", 2)], [share("g", 500), share("h", 500), share("i", 100)])
    assert broken(here, plan(give("g", 500, 0), give("h", 500, 0), give("i", 100, 1))) == []
    assert broken(here, plan(give("g", 500, 0), give("h", 500, 0), give("i", 100, 0))) == ["devices"]


def test_requests_by_memory_take_hundredths_of_the_nodes_gpu() -> None:
    one = a_gang("g")
    one = replace(one, pods=(replace(one.pods[0], gpu=GpuRequest(1, 0, 20_100)),))
    here = a_cluster([a_node("n1", 2)], [one])
    assert broken(here, plan(give("g", 260, 0))) == []
    assert broken(here, plan(give("g", 250, 0))) == ["devices"]


def test_pods_with_known_devices_keep_them() -> None:
    running = a_gang("r", on=["n1"], each={"devices": (0,)})
    here = a_cluster([a_node("n1", 2)], [a_gang("g"), running])
    assert broken(here, plan(bind("g", 0, "n1", 1))) == []
    assert broken(here, plan(bind("g", 0, "n1", 0))) == ["devices"]


def test_two_groups_of_shared_devices_are_two_devices() -> None:
    groups = [
        share(name, 300, gpu_groups=(group,), status=PodStatus.RUNNING, node="n1")
        for name, group in (("r", "x"), ("s", "y"))
    ]
    here = a_cluster([a_node("n1", 2)], [a_gang("g"), *groups])
    assert broken(here, plan(bind("g", 0, "n1", 0))) == ["devices"]
    same = [groups[0], replace(groups[1], pods=(replace(groups[1].pods[0], gpu_groups=("x",)),))]
    assert broken(a_cluster([a_node("n1", 2)], [a_gang("g"), *same]), plan(bind("g", 0, "n1", 0))) == []


def test_a_victims_device_is_taken_by_a_nominated_pod_only() -> None:
    victim = a_gang("v", on=["n1"], priority=10, each={"devices": (0,)})
    other = a_gang("r", on=["n1"], each={"devices": (1,)})
    here = a_cluster([a_node("n1", 2)], [a_gang("g"), victim, other])
    evictions = (Eviction("ns/v-0", "ns/v", "n1", "preempt", ("ns/g",)),)
    waiting = bind("g", 0, "n1", 0, nominated=True, action=Action.PREEMPT)
    assert broken(here, plan(waiting, evictions=evictions)) == []
    at_once = plan(replace(waiting, nominated=False), evictions=evictions)
    assert set(broken(here, at_once)) == {"capacity", "devices"}


def test_a_newly_shared_device_needs_a_second_pod_slot() -> None:
    assert broken(a_cluster([a_node("n1", slots=2, gpus=2)], [share("g", 500)]), plan(give("g", 500, 0))) == []
    assert broken(a_cluster([a_node("n1", slots=1, gpus=2)], [share("g", 500)]), plan(give("g", 500, 0))) == ["devices"]
