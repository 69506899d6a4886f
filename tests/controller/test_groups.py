"""A plan's devices are the cluster's groups."""

import itertools

from kai_solver.controller.groups import Groups
from kai_solver.domain import Bind, Device, Node, Pod, PodStatus, Snapshot, gpus_asked
from kai_solver.units import ResourceSchema

SCHEMA = ResourceSchema.with_extended(())
HALF = gpus_asked(1, 500)


def pod(name: str, *groups: str, node: str = "", devices: tuple[int, ...] = (), whole: bool = False) -> Pod:
    return Pod(
        namespace="n",
        name=name,
        request=SCHEMA.vector({"pods": 1}),
        gpu=gpus_asked(1) if whole else HALF,
        status=PodStatus.RUNNING if node else PodStatus.PENDING,
        node=node,
        devices=devices,
        gpu_groups=groups,
    )


def groups(*pods: Pod) -> Groups:
    node = Node("a", SCHEMA.vector({"gpu": 4000, "pods": 100}), gpus=4)
    names = (f"new{number}" for number in itertools.count())
    snapshot = Snapshot(now_s=0.0, schema=SCHEMA, nodes=(node,), queues=(), gangs=(), foreign=pods)
    return Groups(snapshot, new=lambda: next(names))


def bind(*devices: int, node: str = "a") -> Bind:
    return Bind("n/p", "n/p", node, tuple(Device(device, 500) for device in devices))


def test_whole_devices_have_no_group() -> None:
    assert groups().of(bind(0), pod("p", whole=True)) == ()


def test_a_device_that_nothing_shares_gets_one_new_name_for_all_of_a_plan() -> None:
    found = groups()
    first, second = found.of(bind(2), pod("p")), found.of(bind(2), pod("q"))
    assert first == second
    assert found.of(bind(3), pod("r")) != first


def test_a_device_that_is_known_keeps_its_name() -> None:
    found = groups(pod("old", "g", node="a", devices=(3,)))
    assert found.of(bind(3), pod("p")) == ("g",)
    assert found.of(bind(3, 1), pod("p"))[0] == "g"


def test_devices_that_nothing_told_yet_are_those_that_the_plan_was_made_with() -> None:
    pods = pod("old", "g", node="a"), pod("other", "h", node="a"), pod("w", node="a", whole=True)
    one, two = groups(*pods), groups(*reversed(pods))
    names = [one.of(bind(device), pod("p")) for device in range(2)]
    assert names == [two.of(bind(device), pod("p")) for device in range(2)]
    assert {name for (name,) in names} == {"g", "h"}
