"""``kube-default`` against examples computed by hand."""

from collections.abc import Callable
from typing import Any

from kai_solver.domain import Gang, GpuRequest, Node, Plan, Pod, PodStatus, Queue, Snapshot, flat_gang
from kai_solver.lab.simulate import KubeDefault, Result, Scenario, summarize
from kai_solver.units import MILLI, ResourceSchema

SCHEMA = ResourceSchema()
GIB = 2**30


def node(name: str, gpus: int = 8, cpu: int = 64, gib: int = 256, **more: Any) -> Node:
    amounts = {"cpu": cpu * MILLI, "memory": gib * GIB, "gpu": gpus * MILLI, "pods": 110}
    return Node(name, SCHEMA.vector(amounts), gpus, **more)


def gang(name: str, gpus: float, *, pods: int = 1, cpu: int = 4, priority: int = 50, on: str = "", **more: Any) -> Gang:
    request = SCHEMA.vector({"cpu": cpu * MILLI, "memory": cpu * GIB, "pods": 1})
    gpu = GpuRequest(max(1, int(gpus)), MILLI if gpus >= 1 else round(gpus * MILLI)) if gpus else GpuRequest()
    state: dict[str, Any] = {"status": PodStatus.RUNNING, "node": on, "devices": tuple(range(int(gpus)))} if on else {}
    made = tuple(Pod("t", f"{name}-{i}", request, gpu, **state) for i in range(pods))
    return Gang("t", name, "q", flat_gang(pods), made, priority=priority, **more)


def decide(nodes: list[Node], *gangs: Gang) -> Plan:
    return KubeDefault().decide(Snapshot(0.0, SCHEMA, tuple(nodes), (Queue("q"),), gangs))


def test_half_a_gang_is_bound_where_only_half_fits() -> None:
    plan = decide([node("a")], gang("g", 8, pods=2))
    assert [(bind.pod, bind.node) for bind in plan.binds] == [("t/g-0", "a")]
    assert [device.index for device in plan.binds[0].devices] == list(range(8))


def test_the_emptier_node_is_taken_and_ties_go_to_the_first_name() -> None:
    plan = decide([node("b"), node("a"), node("c", cpu=128, gib=512)], gang("g", 1, pods=3))
    # c has twice the CPU and memory: 96 free of 100 twice, then a and b at 93 beat its 93 by name.
    assert [bind.node for bind in plan.binds] == ["c", "a", "b"]


def test_balance_of_cpu_and_memory_counts() -> None:
    lopsided = node("a", cpu=64, gib=64)
    even = node("b", cpu=64, gib=256)
    eater = gang("e", 0, cpu=32, on="b")
    # a: least allocated 93, balanced 100; b: (43 + 85) // 2 = 64 and 79.
    assert [bind.node for bind in decide([lopsided, even], eater, gang("g", 1)).binds] == ["a"]


def test_queues_do_not_count_and_priority_does() -> None:
    first = gang("first", 8, created_s=1.0)
    second = gang("second", 8, priority=75, created_s=2.0)
    assert [bind.gang for bind in decide([node("a")], first, second).binds] == ["t/second"]


def test_of_one_priority_the_older_comes_first() -> None:
    old, new = gang("z-old", 8, created_s=1.0), gang("a-new", 8, created_s=2.0)
    assert [bind.gang for bind in decide([node("a")], new, old).binds] == ["t/z-old"]


def test_a_share_of_a_gpu_takes_a_whole_device() -> None:
    plan = decide([node("a", gpus=1)], gang("g", 0.5, pods=2))
    assert [(bind.pod, bind.devices[0].milli) for bind in plan.binds] == [("t/g-0", 500)]


def test_cordoned_nodes_take_no_pod() -> None:
    assert decide([node("a", schedulable=False)], gang("g", 1)).binds == ()


def test_a_higher_priority_preempts_the_fewest_of_the_lowest() -> None:
    running = [gang("x", 4, priority=60, on="a"), gang("y", 8, priority=50, on="b"), gang("z", 2, priority=40, on="c")]
    plan = decide([node("a", gpus=4), node("b"), node("c", gpus=2)], *running, gang("g", 4, priority=75))
    # c is too small even when empty; of a (60) and b (50), b has the lower victim.
    assert [(out.pod, out.node, out.helps) for out in plan.evictions] == [("t/y-0", "b", ("t/g",))]
    assert [(bind.pod, bind.node, bind.nominated) for bind in plan.binds] == [("t/g-0", "b", True)]


def test_what_need_not_go_is_reprieved() -> None:
    request = SCHEMA.vector({"cpu": 1000, "memory": GIB, "pods": 1})
    pods = [
        Pod("t", f"r{i}-0", request, GpuRequest(2), PodStatus.RUNNING, node="a", devices=(2 * i, 2 * i + 1))
        for i in range(4)
    ]
    gangs = [
        Gang("t", f"r{i}", "q", flat_gang(1), (pod,), priority=40 + i, last_start_s=float(i))
        for i, pod in enumerate(pods)
    ]
    plan = decide([node("a")], *gangs, gang("g", 4, priority=75))
    assert [out.pod for out in plan.evictions] == ["t/r1-0", "t/r0-0"]


def test_equal_and_never_preempting_priorities_evict_no_pod() -> None:
    running = gang("x", 8, on="a")
    assert decide([node("a")], running, gang("g", 8)).evictions == ()
    assert decide([node("a")], running, gang("g", 8, priority=75, never_preempts=True)).evictions == ()


def test_what_victims_leave_over_is_not_there_before_they_left() -> None:
    running = gang("x", 8, on="a")
    plan = decide([node("a")], running, gang("g", 2, priority=75), gang("h", 2, priority=60))
    assert [bind.pod for bind in plan.binds if not bind.nominated] == []
    assert len(plan.evictions) == 1


def test_half_a_gang_holds_gpus_idle_until_the_other_half_fits(
    make: Callable[..., Scenario], run: Callable[..., Result], job: Callable[..., dict[str, Any]]
) -> None:
    """Two gangs of four pods on six places: the second holds two of them for as long as the first runs."""
    one = {"nodes": [{"name": "n-{i}", "count": 6, "gpus": 8}], "queues": [{"name": "a"}]}
    left = job("left", pods=3), job("right", pods=3)
    blocked = [entry | {"pods": 4, "gpus": 8} for entry in left]
    # Arrivals at one moment are told apart by name: left takes four places, right two.
    scenario = make(*blocked, cluster=one, duration=400, gpuHourPrice=3600)
    kube, ours = run(scenario, "kube-default"), run(scenario)
    assert [found.end_s for found in kube.jobs] == [100.0, 200.0]
    assert summarize(kube).gpu_hours["idle"] * 3600 == 2 * 8 * 100
    assert summarize(kube).idle_price == 2 * 8 * 100
    assert summarize(ours).gpu_hours["idle"] == 0
