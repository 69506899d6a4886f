"""From a snapshot to integers: seats on devices, shapes, gangs, what queues hold and what there is to share."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.domain import (
    Constraints,
    Gang,
    GpuRequest,
    Node,
    Pod,
    PodAffinityTerm,
    PodSet,
    PodStatus,
    Queue,
    Requirement,
    Snapshot,
    SpreadConstraint,
    SubGroup,
    Toleration,
    flat_gang,
)
from kai_solver.problem import Problem, build_problem
from kai_solver.problem.devices import assign_running
from kai_solver.units import MILLI, ResourceSchema
from kai_solver.units.shares import PARTS_OF_MILLI, WHOLE

GIB = 2**30
RUNNING = PodStatus.RUNNING


def a_node(name: str = "n0", gpus: int = 4, **more: object) -> Node:
    node = Node(name, (8000, 32 * GIB, gpus * MILLI, 20), gpus=gpus, gpu_memory_mib=100)
    return replace(node, **more)  # type: ignore[arg-type]


def a_pod(name: str, gpu: GpuRequest | int = 1, **more: object) -> Pod:
    request = gpu if isinstance(gpu, GpuRequest) else GpuRequest(gpu)
    return replace(Pod("ns", name, (1000, GIB, 0, 1), request), **more)  # type: ignore[arg-type]


def a_gang(name: str, *pods: Pod, queue: str = "leaf", **more: object) -> Gang:
    return replace(Gang("ns", name, queue, flat_gang(len(pods)), pods), **more)  # type: ignore[arg-type]


def a_problem(*gangs: Gang, nodes: Sequence[Node] = (), foreign: Sequence[Pod] = ()) -> Problem:
    queues = (Queue("root"), Queue("leaf", "root"), Queue("other", "root"))
    return build_problem(
        Snapshot(0.0, ResourceSchema(), tuple(nodes) or (a_node(),), queues, gangs, foreign=tuple(foreign))
    )


# -- seats ---------------------------------------------------------------------------------------------------------


def seats(*pods: Pod, gpus: int = 4) -> tuple[dict[int, tuple[int, ...]], list[int]]:
    """Devices by pod, and thousandths that are free of each device."""
    found, free = assign_running(a_node(gpus=gpus), list(enumerate(pods)))
    return found, [parts // PARTS_OF_MILLI for parts in free]


def test_pods_sit_where_they_say() -> None:
    assert seats(a_pod("a", 2, devices=(1, 3)), a_pod("b"))[0] == {0: (1, 3), 1: (0,)}


def test_a_pod_without_a_free_device_waits_for_the_one_that_is_left() -> None:
    leaving = a_pod("l", devices=(3,), status=PodStatus.RELEASING)
    found, _ = seats(a_pod("a", 3, devices=(0, 1, 2)), leaving, a_pod("b"))
    assert found == {0: (0, 1, 2), 1: (3,), 2: (3,)}


def test_pods_of_one_group_share_a_device() -> None:
    half = GpuRequest(1, 500)
    found, free = seats(
        a_pod("a", half, gpu_groups=("x",)), a_pod("b", half, gpu_groups=("y",)), a_pod("c", half, gpu_groups=("x",))
    )
    assert found[0] == found[2] != found[1]
    assert sorted(free) == [0, 500, 1000, 1000]


def test_a_pod_with_two_groups_sits_on_two_devices() -> None:
    found, _ = seats(a_pod("a", GpuRequest(2, 500), gpu_groups=("x", "y")))
    assert len(set(found[0])) == 2


def test_shares_of_unknown_devices_are_packed() -> None:
    _, free = seats(*(a_pod(f"p{i}", GpuRequest(1, 250)) for i in range(4)))
    assert sorted(free) == [0, 1000, 1000, 1000]


def test_whole_gpus_keep_off_shared_ones() -> None:
    found, free = seats(a_pod("share", GpuRequest(1, 500), gpu_groups=("x",)), a_pod("whole", 3))
    assert set(found[0]).isdisjoint(found[1])
    assert sorted(free) == [0, 0, 0, 500]


def test_an_over_committed_node_shows_it() -> None:
    _, free = seats(a_pod("a", 2), a_pod("b", 1), gpus=2)
    assert sum(free) == -MILLI


def test_a_node_without_devices_seats_no_pod() -> None:
    assert seats(a_pod("a", 1), gpus=0) == ({0: ()}, [])


@given(st.lists(st.sampled_from([(1, 1000), (2, 1000), (1, 500), (1, 250), (2, 500)]), max_size=6), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_what_is_free_is_what_nothing_holds(requests: list[tuple[int, int]], gpus: int) -> None:
    pods = [
        a_pod(f"p{i}", GpuRequest(devices, milli)) for i, (devices, milli) in enumerate(requests) if devices <= gpus
    ]
    found, free = seats(*pods, gpus=gpus)
    held = [0] * gpus
    for index, pod in enumerate(pods):
        assert len(set(found[index])) == pod.gpu.devices
        for device in found[index]:
            held[device] += pod.gpu.milli
    assert free == [MILLI - amount for amount in held]


# -- shapes --------------------------------------------------------------------------------------------------------


def test_pods_alike_are_one_shape() -> None:
    problem = a_problem(a_gang("g", a_pod("a"), a_pod("b"), a_pod("c", 2)))
    assert problem.pod_shape[0] == problem.pod_shape[1] != problem.pod_shape[2]


def test_equal_constraints_are_one_shape_though_they_are_two_objects() -> None:
    def picky() -> Constraints:
        return Constraints(node_terms=(((Requirement("zone", "In", ("a",)),),),))

    problem = a_problem(a_gang("g", a_pod("a", constraints=picky()), a_pod("b", constraints=picky()), a_pod("c")))
    assert problem.pod_shape[0] == problem.pod_shape[1] != problem.pod_shape[2]


def test_a_shape_knows_the_nodes_that_admit_it() -> None:
    zone = Constraints(node_terms=(((Requirement("zone", "In", ("a",)),),),))
    nodes = (a_node("n0", labels={"zone": "a"}), a_node("n1"), a_node("n2", labels={"zone": "a"}, schedulable=False))
    problem = a_problem(a_gang("g", a_pod("a", constraints=zone)), nodes=nodes)
    assert problem.shapes.mask(problem.pod_shape[0]).tolist() == [True, False, False]


def test_a_blocked_pod_fits_no_node() -> None:
    problem = a_problem(a_gang("g", a_pod("a", constraints=Constraints(blocked=("no claim",)))))
    assert not problem.shapes.mask(problem.pod_shape[0]).any()


def test_a_request_by_memory_takes_what_the_node_makes_of_it() -> None:
    nodes = (a_node("n0", gpu_memory_mib=100), a_node("n1", gpu_memory_mib=200), a_node("n2", gpu_memory_mib=30))
    problem = a_problem(a_gang("g", a_pod("a", GpuRequest(1, 0, 50))), nodes=nodes)
    assert problem.shapes.milli(problem.pod_shape[0]).tolist() == [500, 250, 1670]


# -- gangs ---------------------------------------------------------------------------------------------------------


def test_pods_are_in_task_order_by_podset_and_status() -> None:
    pods = (
        a_pod("late", podset="w", order=(0, 2.0, "")),
        a_pod("early", podset="w", order=(0, 1.0, "")),
        a_pod("gated", podset="w", status=PodStatus.GATED),
        a_pod("on", podset="m", status=RUNNING, node="n0"),
        a_pod("done", podset="m", status=PodStatus.SUCCEEDED),
    )
    root = SubGroup(children=(PodSet("m", 1), PodSet("w", 2)))
    problem = a_problem(a_gang("g", *pods, root=root))
    names = [problem.pods[i].name for i in problem.gangs[0].pending]
    assert names == ["early", "late"]
    assert [problem.pods[i].name for i in problem.gangs[0].active] == ["on"]
    assert [leaf.gated for leaf in problem.gangs[0].leaves] == [0, 1]


def _in_order(problem: Problem) -> list[str]:
    return [problem.pods[pod].key for gang in problem.gangs for pod in gang.pending]


def test_the_order_of_the_input_carries_no_meaning() -> None:
    gangs = [a_gang(name, a_pod(f"{name}-0"), a_pod(f"{name}-1", 2)) for name in "abc"]
    nodes = [a_node(f"n{i}", i + 1) for i in range(3)]
    one = a_problem(*gangs, nodes=nodes)
    shuffled = [replace(gang, pods=gang.pods[::-1]) for gang in gangs[::-1]]
    other = a_problem(*shuffled, nodes=nodes[::-1])
    assert _in_order(one) == _in_order(other)
    assert [shape.gpu for shape in one.shapes.shapes] == [shape.gpu for shape in other.shapes.shapes]
    assert one.nodes == other.nodes


@pytest.mark.parametrize(
    ("queue", "set_aside", "words"),
    [("nowhere", "", "does not exist"), ("root", "", "not a leaf"), ("leaf", "broken tree", "broken tree")],
)
def test_gangs_that_take_no_part_are_outside_and_their_load_stays(queue: str, set_aside: str, words: str) -> None:
    gang = a_gang("g", a_pod("a", status=RUNNING, node="n0", devices=(0,)), queue=queue, set_aside=set_aside)
    problem = a_problem(gang)
    assert len(problem.gangs) == 0
    assert words in problem.outside["ns/g"][1]
    assert problem.device_free[0].tolist() == [0, WHOLE, WHOLE, WHOLE]
    assert problem.pod_gang == [-1]


# -- loads and totals ----------------------------------------------------------------------------------------------


def test_what_pods_hold_and_what_is_leaving() -> None:
    gang = a_gang(
        "g",
        a_pod("a", 2, status=RUNNING, node="n0", devices=(0, 1)),
        a_pod("b", 1, status=PodStatus.RELEASING, node="n0", devices=(2,)),
        a_pod("c", 1, status=PodStatus.STUCK_IN_RELEASING, node="n0", devices=(3,)),
        a_pod("d", 1, status=PodStatus.SUCCEEDED, node="n0"),
    )
    problem = a_problem(gang)
    assert problem.held[0].tolist() == [3000]
    assert problem.releasing[0].tolist() == [1000]
    assert problem.device_free[0].tolist() == [0, 0, 0, 0]
    assert problem.device_releasing[0].tolist() == [0, 0, WHOLE, 0]


def test_queues_pay_for_active_pods_and_ask_for_pending_ones_too() -> None:
    active = a_gang("on", a_pod("a", 2, status=RUNNING, node="n0"), a_pod("z", status=PodStatus.RELEASING, node="n0"))
    fixed = a_gang("fixed", a_pod("b", 1, status=RUNNING, node="n0"), queue="other", preemptible=False)
    waiting = a_gang("waits", a_pod("c", 3), a_pod("g", status=PodStatus.GATED))
    problem = a_problem(active, fixed, waiting)
    index = problem.queues.index
    assert problem.allocated[index["leaf"]] == [1000, GIB, 2000]
    assert problem.allocated[index["root"]] == [2000, 2 * GIB, 3000]
    assert problem.allocated_fixed[index["root"]] == [1000, GIB, 1000]
    assert problem.allocated_fixed[index["leaf"]] == [0, 0, 0]
    assert problem.request[index["leaf"]].tolist() == [2000, 2 * GIB, 5000]


def test_foreign_load_and_unschedulable_nodes_are_taken_off_what_is_shared() -> None:
    nodes = (a_node("n0"), a_node("n1", schedulable=False))
    foreign = [a_pod("f", 1, status=RUNNING, node="n0"), a_pod("g", 1, status=RUNNING, node="n1")]
    assert a_problem(nodes=nodes, foreign=foreign).total == (7000, 31 * GIB, 3000)


def test_slices_of_gpus_count_by_their_size() -> None:
    schema = ResourceSchema.with_extended(["nvidia.com/mig-2g.10gb"])
    node = Node("n0", (8000, 32 * GIB, 0, 20, 3), gpus=0)
    snapshot = Snapshot(0.0, schema, (node,), (Queue("q"),), ())
    assert build_problem(snapshot).total[2] == 6 * MILLI


def test_a_pod_by_memory_pays_by_its_node_or_by_the_smallest_device() -> None:
    nodes = (a_node("n0", gpu_memory_mib=100), a_node("n1", gpu_memory_mib=200))
    ask = GpuRequest(1, 0, 50)
    problem = a_problem(a_gang("g", a_pod("a", ask, status=RUNNING, node="n1"), a_pod("b", ask)), nodes=nodes)
    assert [charge[2] for charge in problem.charges] == [250, 500]


def test_shapes_that_differ_in_wishes_alone_stand_for_each_other() -> None:
    web = PodAffinityTerm((Requirement("app", "In", ("web",)),), "host")
    wishes = [
        Constraints(),
        Constraints(preferred_pods=((9, web),)),
        Constraints(preferred=((1, (Requirement("zone", "In", ("a",)),)),)),
        Constraints(preferred_spread=(SpreadConstraint((Requirement("app", "In", ("web",)),), "host"),)),
    ]
    rules = [
        Constraints(anti_affinity=(web,)),
        Constraints(host_ports=("80/TCP",)),
        Constraints(tolerations=(Toleration("key", "Exists"),)),
    ]
    pods = [a_pod(f"p{number}", constraints=said) for number, said in enumerate([*wishes, *rules])]
    problem = a_problem(a_gang("g", *pods))
    standing = [problem.shapes.without_wishes(shape) for shape in problem.pod_shape]
    assert len(set(problem.pod_shape)) == len(pods)
    assert len(set(standing[: len(wishes)])) == 1
    assert len(set(standing[len(wishes) - 1 :])) == 1 + len(rules)
