"""Rule numa: plans whose pods the kubelet would turn away, each for one reason."""

from dataclasses import replace
from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import (
    Action,
    Bind,
    Container,
    Device,
    Gang,
    GpuRequest,
    Move,
    Node,
    NumaPolicy,
    NumaScope,
    NumaTopology,
    NumaZone,
    Plan,
    Pod,
    PodStatus,
    Queue,
    Snapshot,
    ZoneShare,
    flat_gang,
)
from kai_solver.units import ResourceSchema

GIB = 2**30
FREE = (-1, -1, -1)


def a_node(policy: NumaPolicy = "single-numa-node", scope: NumaScope = "pod", cores: int = 4) -> Node:
    zones = tuple(NumaZone(f"node-{i}", (cores * 1000, 0, 2000, 0)) for i in range(2))
    numa = NumaTopology(policy, scope, zones, (0, 2))
    return Node("n", (99_000, 99 * GIB, 4000, 110), gpus=4, gpu_memory_mib=100, numa=numa)


def a_pod(name: str = "p", cores: int = 3, gpus: int = 0, **more: Any) -> Pod:
    gpu = GpuRequest(gpus) if gpus else GpuRequest()
    return Pod("ns", name, (cores * 1000, GIB, 0, 1), gpu, guaranteed=True, **more)


def share(zone: int, cores: int = 0, gpus: int = 0) -> ZoneShare:
    amounts = [("cpu", cores * 1000), ("gpu", gpus * 1000)]
    return ZoneShare(f"node-{zone}", tuple((name, amount) for name, amount in amounts if amount))


def running(pod: Pod, *shares: ZoneShare) -> Pod:
    return replace(pod, status=PodStatus.RUNNING, node="n", zones=shares)


def a_gang(pod: Pod, **more: Any) -> Gang:
    return Gang("ns", pod.name, "q", flat_gang(1), (pod,), last_start_s=1.0 if pod.node else None, **more)


def judged(node: Node, pods: list[Pod], plan: Plan) -> set[str]:
    gangs = tuple(a_gang(pod) for pod in pods)
    snapshot = Snapshot(100.0, ResourceSchema(), (node,), (Queue("q", quota=FREE, limit=FREE),), gangs)
    return {violation.rule for violation in check_plan(snapshot, plan)}


def bound(*zones: ZoneShare, gpus: int = 0, nominated: bool = False) -> Plan:
    devices = tuple(Device(i, 1000) for i in range(gpus))
    bind = Bind("ns/p", "ns/p", "n", devices, nominated, zones=zones)
    return Plan(binds=(bind,), admitted=(("ns/p", Action.ALLOCATE),))


@pytest.mark.parametrize(
    ("node", "pod", "zones", "holds"),
    [
        (a_node(), a_pod(), (share(1, 3),), True),
        (a_node(), a_pod(), (), False),
        (a_node(), a_pod(), (share(0, 2),), False),
        (a_node(), a_pod(), (share(0, 2), share(1, 1)), False),
        (a_node(), a_pod(), (share(2, 3),), False),
        (a_node(), a_pod(), (share(0, 1), share(0, 2)), False),
        (a_node(), a_pod(cores=5), (share(0, 5),), False),
        (a_node("restricted"), a_pod(cores=5), (share(0, 4), share(1, 1)), True),
        (a_node("restricted"), a_pod(cores=3), (share(0, 2), share(1, 1)), False),
        (a_node("restricted"), a_pod(cores=9), (share(0, 5), share(1, 4)), False),
        (a_node("best-effort"), a_pod(cores=9), (), True),
        (a_node("none"), a_pod(cores=9), (), True),
        (a_node(), replace(a_pod(cores=9), guaranteed=False), (), True),
        (a_node(), replace(a_pod(cores=9), request=(3500, GIB, 0, 1)), (), True),
    ],
)
def test_one_pod(node: Node, pod: Pod, zones: tuple[ZoneShare, ...], holds: bool) -> None:
    assert judged(node, [pod], bound(*zones)) == (set() if holds else {"numa"})


@pytest.mark.parametrize(
    ("other", "zones", "blamed"),
    [
        (a_node("restricted"), (share(0, 4), share(1, 1)), []),
        (a_node("restricted"), (share(0, 4),), ["ns/q"]),
        (a_node(), (share(0, 4), share(1, 1)), ["ns/q"]),
    ],
    ids=["all alike", "other zones", "another topology"],
)
def test_what_holds_for_a_pod_holds_for_those_like_it(
    other: Node, zones: tuple[ZoneShare, ...], blamed: list[str]
) -> None:
    nodes = (a_node("restricted"), replace(other, name="m"))
    gangs = tuple(a_gang(a_pod(name, cores=5)) for name in "pq")
    snapshot = Snapshot(100.0, ResourceSchema(), nodes, (Queue("q", quota=FREE, limit=FREE),), gangs)
    binds = (
        Bind("ns/p", "ns/p", "n", zones=(share(0, 4), share(1, 1))),
        Bind("ns/q", "ns/q", "m", zones=zones),
    )
    plan = Plan(binds=binds, admitted=tuple((bind.gang, Action.ALLOCATE) for bind in binds))
    assert [violation.object for violation in check_plan(snapshot, plan)] == blamed


def test_devices_are_aligned_for_every_pod() -> None:
    pod = replace(a_pod(cores=9, gpus=2), guaranteed=False)
    assert judged(a_node(), [pod], bound(share(0, gpus=2), gpus=2)) == set()
    assert judged(a_node(), [pod], bound(share(0, gpus=1), share(1, gpus=1), gpus=2)) == {"numa"}


def parts(*cores: int, role: Any = "app") -> tuple[Container, ...]:
    return tuple(Container((count * 1000, 0, 0, 0), role) for count in cores)


@pytest.mark.parametrize(
    ("containers", "zones", "holds"),
    [
        (parts(3, 3), (share(0, 3), share(1, 3)), True),
        (parts(3, 3), (share(0, 4), share(1, 2)), False),
        (parts(2, 1), (share(0, 3),), True),
        ((*parts(4, role="init"), *parts(1)), (share(0, 1),), True),
        ((*parts(5, role="init"), *parts(1)), (share(0, 1),), False),
        ((*parts(2, role="sidecar"), *parts(2)), (share(0, 4),), True),
    ],
)
def test_containers_lie_in_zones_of_their_own(
    containers: tuple[Container, ...], zones: tuple[ZoneShare, ...], holds: bool
) -> None:
    pod = a_pod(cores=6, containers=containers)
    assert judged(a_node(scope="container"), [pod], bound(*zones)) == (set() if holds else {"numa"})


def test_the_kubelet_takes_containers_in_turn() -> None:
    """Two cores first, which go to the first zone, and then four find none, though the other way round they would."""
    zones = (NumaZone("node-0", (4000, 0, 0, 0)), NumaZone("node-1", (3000, 0, 0, 0)))
    node = replace(a_node(scope="container"), numa=NumaTopology("single-numa-node", "container", zones, (0,)))
    shares = (ZoneShare("node-0", (("cpu", 4000),)), ZoneShare("node-1", (("cpu", 2000),)))
    plan = bound(*shares)
    assert judged(node, [a_pod(cores=6, containers=parts(2, 4))], plan) == {"numa"}
    assert judged(node, [a_pod(cores=6, containers=parts(4, 2))], plan) == set()


def test_a_zone_is_not_given_twice() -> None:
    tenant = running(a_pod("t"), share(0, 3))
    assert judged(a_node(), [tenant, a_pod()], bound(share(0, 3))) == {"numa"}
    assert judged(a_node(), [tenant, a_pod()], bound(share(1, 3))) == set()


def test_what_is_leaving_holds_its_zone_still() -> None:
    tenant = replace(running(a_pod("t"), share(0, 3)), status=PodStatus.RELEASING)
    assert judged(a_node(), [tenant, a_pod()], bound(share(0, 3))) == {"numa"}
    assert judged(a_node(), [tenant, a_pod()], bound(share(0, 3), nominated=True)) == set()


def test_what_was_reported_free_is_what_there_is() -> None:
    node = a_node()
    assert node.numa is not None
    zones = tuple(replace(zone, available=(2000, 0, 0, 0)) for zone in node.numa.zones)
    assert judged(replace(node, numa=replace(node.numa, zones=zones)), [a_pod()], bound(share(0, 3))) == {"numa"}


def test_a_move_to_another_zone_of_the_node_is_one_and_to_its_own_is_none() -> None:
    tenant = running(a_pod("t", cores=2), share(0, 2))
    bind = Bind("ns/p", "ns/p", "n", nominated=True, action=Action.CONSOLIDATION, zones=(share(0, 4),))
    move = Move("ns/t", "ns/t", "n", "n", helps=("ns/p",), zones=(share(1, 2),))
    plan = Plan(binds=(bind,), moves=(move,), admitted=(("ns/p", Action.CONSOLIDATION),))
    pods = [tenant, a_pod(cores=4)]
    assert judged(a_node(), pods, plan) == set()
    stays = replace(plan, moves=(replace(move, zones=(share(0, 2),)),))
    assert judged(a_node(), pods, stays) == {"form"}
