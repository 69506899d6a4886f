"""NUMA zones end to end: each policy and scope, victims that free a zone, and random nodes against brute force."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations, permutations, product
from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import (
    Container,
    Gang,
    GpuRequest,
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
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from kai_solver.units import GPU, ResourceSchema
from tests.engine.conftest import Engines

GIB = 2**30
MODELS = pytest.mark.parametrize("model", ["greedy-only", "default"])
CPU_ONLY = (0,)


def in_zones(
    zones: Sequence[tuple[int, int]],
    policy: NumaPolicy = "single-numa-node",
    scope: NumaScope = "pod",
    resources: tuple[int, ...] = (0, GPU),
    name: str = "n",
) -> Node:
    """A node that has plenty in all, and in its zones so many (cores, GPUs)."""
    made = tuple(NumaZone(f"node-{i}", (c * 1000, 0, g * 1000, 0)) for i, (c, g) in enumerate(zones))
    gpus = sum(g for _, g in zones)
    numa = NumaTopology(policy, scope, made, resources)
    return Node(name, (999_000, 999 * GIB, gpus * 1000, 110), gpus=gpus, gpu_memory_mib=100, numa=numa)


def a_pod(name: str, cores: int = 0, gpus: int = 0, guaranteed: bool = True, **more: Any) -> Pod:
    gpu = GpuRequest(gpus) if gpus else GpuRequest()
    return Pod("ns", name, (cores * 1000, GIB, 0, 1), gpu, guaranteed=guaranteed, order=(0, 0.0, name), **more)


def running(pod: Pod, node: str, *shares: tuple[str, int, int]) -> Pod:
    zones = tuple(ZoneShare(zone, (("cpu", c * 1000), ("gpu", g * 1000))) for zone, c, g in shares)
    return replace(pod, status=PodStatus.RUNNING, node=node, zones=zones)


def a_gang(name: str, *pods: Pod, **more: Any) -> Gang:
    start_s = 10.0 if any(pod.node for pod in pods) else None
    return Gang("ns", name, "q", flat_gang(len(pods)), pods, last_start_s=start_s, **more)


def a_cluster(nodes: Iterable[Node], *gangs: Gang) -> Snapshot:
    free = (-1, -1, -1)
    return Snapshot(100.0, ResourceSchema(), tuple(nodes), (Queue("q", quota=free, limit=free),), gangs)


def zones_of(plan: Plan) -> dict[str, list[str]]:
    return {bind.pod.removeprefix("ns/"): [share.zone for share in bind.zones] for bind in plan.binds}


@pytest.fixture
def plan_of(engines: Engines) -> Any:
    def decide(snapshot: Snapshot, model: str = "default") -> Plan:
        spec = load_model(model)
        plan = cycle(snapshot, spec, budget_s=10.0, seed=0, child=engines[model].child)
        assert check_plan(snapshot, plan) == ()
        assert not any("refused" in note for note in plan.notes), plan.notes
        return plan

    return decide


def containers(*cores: int) -> tuple[Container, ...]:
    return tuple(Container((count * 1000, 0, 0, 0)) for count in cores)


# -- policies and scopes -------------------------------------------------------------------------------------------


@MODELS
@pytest.mark.parametrize(
    ("policy", "scope", "pod", "zones"),
    [
        ("single-numa-node", "pod", a_pod("p", 4), ["node-1"]),
        ("single-numa-node", "pod", a_pod("p", 5), None),
        ("single-numa-node", "pod", a_pod("p", 4, containers=containers(2, 2)), ["node-1"]),
        ("single-numa-node", "container", a_pod("p", 4, containers=containers(2, 2)), ["node-0", "node-1"]),
        ("single-numa-node", "container", a_pod("p", 7, containers=containers(2, 5)), None),
        ("restricted", "pod", a_pod("p", 4), ["node-1"]),
        ("restricted", "pod", a_pod("p", 6), ["node-0", "node-1"]),
        ("restricted", "pod", a_pod("p", 8), None),
        ("restricted", "pod", a_pod("p", 5, 1), None),
        ("restricted", "pod", a_pod("p", 6, 2), ["node-0", "node-1"]),
        ("best-effort", "pod", a_pod("p", 4), ["node-1"]),
        ("best-effort", "pod", a_pod("p", 6), ["node-0", "node-1"]),
        ("best-effort", "pod", a_pod("p", 99), []),
        ("none", "pod", a_pod("p", 99), []),
        ("single-numa-node", "pod", a_pod("p", 99, guaranteed=False), []),
        ("single-numa-node", "pod", a_pod("p", 99, 1, guaranteed=False), ["node-0"]),
        ("single-numa-node", "pod", replace(a_pod("p"), request=(99_500, GIB, 0, 1)), []),
    ],
)
def test_what_a_policy_allows(
    plan_of: Any, model: str, policy: NumaPolicy, scope: NumaScope, pod: Pod, zones: list[str] | None
) -> None:
    """Zones of 4 cores and a GPU; one holds 2 cores already, so 6 are free, 4 of them in one place."""
    node = in_zones([(4, 1), (4, 1)], policy, scope)
    tenant = a_gang("t", running(a_pod("t", 2), "n", ("node-0", 2, 0)), preemptible=False)
    plan = plan_of(a_cluster([node], tenant, a_gang("w", pod)), model)
    assert zones_of(plan) == ({} if zones is None else {"p": zones})
    if zones is None:
        assert "cannot NUMA-align" in plan.pending[0].message


@MODELS
def test_the_node_with_fewer_zones_to_span_is_taken(plan_of: Any, model: str) -> None:
    halves = in_zones([(2, 0), (2, 0)], "best-effort", name="a")
    whole = in_zones([(4, 0)], "best-effort", name="b")
    plan = plan_of(a_cluster([halves, whole], a_gang("w", a_pod("p", 4))), model)
    assert plan.binds[0].node == "b"


@MODELS
def test_an_init_container_has_to_fit_too(plan_of: Any, model: str) -> None:
    def asking(cores: int) -> Gang:
        parts = (Container((cores * 1000, 0, 0, 0), "init"), *containers(1, 1))
        return a_gang("w", a_pod("p", cores, containers=parts))

    node = in_zones([(4, 0), (4, 0)], scope="container")
    assert zones_of(plan_of(a_cluster([node], asking(4)), model)) == {"p": ["node-0"]}
    assert zones_of(plan_of(a_cluster([node], asking(5)), model)) == {}


def test_what_is_reported_free_holds_where_it_is_given(plan_of: Any) -> None:
    node = in_zones([(4, 0)])
    assert node.numa is not None
    stale = replace(node.numa.zones[0], available=(3000, 0, 0, 0))
    node = replace(node, numa=replace(node.numa, zones=(stale,)))
    assert zones_of(plan_of(a_cluster([node], a_gang("w", a_pod("p", 4))))) == {}
    assert zones_of(plan_of(a_cluster([node], a_gang("w", a_pod("p", 3))))) == {"p": ["node-0"]}


def test_what_is_leaving_holds_its_zone_until_it_has_left(plan_of: Any) -> None:
    gone = replace(running(a_pod("t", 4), "n", ("node-0", 4, 0)), status=PodStatus.RELEASING)
    plan = plan_of(a_cluster([in_zones([(4, 0)])], a_gang("t", gone), a_gang("w", a_pod("p", 4))))
    assert [(bind.nominated, bind.zones[0].zone) for bind in plan.binds] == [(True, "node-0")]


# -- victims and moves ---------------------------------------------------------------------------------------------


@MODELS
def test_the_victim_is_the_one_whose_zone_serves(plan_of: Any, model: str) -> None:
    """The cheapest victim sits where its leaving frees too little."""
    node = in_zones([(4, 0), (8, 0)])
    small = a_gang("small", running(a_pod("small", 1), "n", ("node-0", 1, 0)), priority=40)
    large = a_gang("large", running(a_pod("large", 6), "n", ("node-1", 6, 0)), priority=45)
    plan = plan_of(a_cluster([node], small, large, a_gang("w", a_pod("p", 8), priority=60)), model)
    assert [eviction.pod for eviction in plan.evictions] == ["ns/large"]
    assert zones_of(plan) == {"p": ["node-1"]}


@MODELS
def test_nothing_leaves_for_a_zone_that_stays_too_small(plan_of: Any, model: str) -> None:
    node = in_zones([(4, 0), (4, 0)])
    tenants = [a_gang(f"t{i}", running(a_pod(f"t{i}", 3), "n", (f"node-{i}", 3, 0)), priority=40) for i in range(2)]
    plan = plan_of(a_cluster([node], *tenants, a_gang("w", a_pod("p", 5), priority=60)), model)
    assert (plan.binds, plan.evictions) == ((), ())


@MODELS
def test_whose_zone_is_not_known_frees_none(plan_of: Any, model: str) -> None:
    node = in_zones([(4, 0)])
    known = a_gang("known", running(a_pod("known", 3), "n", ("node-0", 3, 0)), priority=45)
    unknown = a_gang("unknown", running(a_pod("unknown", 3), "n"), priority=40)
    plan = plan_of(a_cluster([node], known, unknown, a_gang("w", a_pod("p", 4), priority=60)), model)
    assert [eviction.pod for eviction in plan.evictions] == ["ns/known"]


@MODELS
def test_a_pod_moves_to_another_zone_of_its_node(plan_of: Any, model: str) -> None:
    node = in_zones([(4, 0), (4, 0)])
    tenants = [a_gang(f"t{i}", running(a_pod(f"t{i}", 2), "n", (f"node-{i}", 2, 0))) for i in range(2)]
    plan = plan_of(a_cluster([node], *tenants, a_gang("w", a_pod("p", 4))), model)
    assert len(plan.binds) == len(plan.moves) == 1
    assert plan.evictions == ()
    assert plan.moves[0].source == plan.moves[0].target == "n"


def test_only_the_solver_packs_zones(plan_of: Any) -> None:
    """Cores 5, 4, 3, 3, 3, 2 into two zones of 10: largest first ends with 5+4 and 3+3+3, and no zone for 2."""
    pods = [a_pod(f"p{i}", cores) for i, cores in enumerate((5, 4, 3, 3, 3, 2))]
    cluster = a_cluster([in_zones([(10, 0), (10, 0)])], a_gang("w", *pods))
    assert (plan_of(cluster, "greedy-only").binds, len(plan_of(cluster).binds)) == ((), len(pods))


def test_binds_come_in_an_order_in_which_the_kubelet_fills_the_zones_so(plan_of: Any) -> None:
    pods = [a_pod(f"p{i}", cores) for i, cores in enumerate((5, 4, 3, 3, 3, 2))]
    plan = plan_of(a_cluster([in_zones([(10, 0), (10, 0)])], a_gang("w", *pods)))
    left = [10_000, 10_000]
    for bind in plan.binds:
        cores = dict(bind.zones[0].amounts)["cpu"]
        zone = next(z for z in range(2) if left[z] >= cores)
        left[zone] -= cores
        assert bind.zones[0].zone == f"node-{zone}"


# -- against brute force -------------------------------------------------------------------------------------------


def fewest(capacity: Sequence[int], amount: int) -> int:
    """Zones that hold ``amount`` on the empty node; more than there are where none do."""
    largest = sorted(capacity, reverse=True)
    return next((n for n in range(1, len(largest) + 1) if sum(largest[:n]) >= amount), len(largest) + 1)


def sets_of(unit: tuple[int, int], capacity: list[tuple[int, int]], policy: str) -> list[tuple[int, ...]]:
    """Sets of zones that the policy allows one unit (cores, GPUs)."""
    asked = [r for r in range(2) if unit[r]]
    if not asked:
        return [()]
    widths = {fewest([zone[r] for zone in capacity], unit[r]) for r in asked}
    width = 1 if policy == "single-numa-node" else widths.pop() if len(widths) == 1 else len(capacity) + 1
    return list(combinations(range(len(capacity)), width))


def packs(units: list[tuple[int, int]], chosen: Sequence[tuple[int, ...]], free: list[tuple[int, int]]) -> bool:
    """Hall's condition: every group of units finds room in the zones that any of them may use."""
    for size in range(1, len(units) + 1):
        for group in combinations(range(len(units)), size):
            reach = {zone for u in group for zone in chosen[u]}
            if any(sum(units[u][r] for u in group) > sum(free[z][r] for z in reach) for r in range(2)):
                return False
    return True


def exists(
    units: list[tuple[int, int]], capacity: list[tuple[int, int]], free: list[tuple[int, int]], policy: str
) -> bool:
    return any(packs(units, chosen, free) for chosen in product(*(sets_of(u, capacity, policy) for u in units)))


def kubelet(
    pods: Sequence[Sequence[tuple[int, int]]], capacity: list[tuple[int, int]], free: list[tuple[int, int]]
) -> bool:
    """Does the kubelet take the pods in this order, container after container, each into the first zone?"""
    left = [list(zone) for zone in free]
    for unit in (unit for pod in pods for unit in pod):
        zone = next((z for z in range(len(left)) if all(left[z][r] >= unit[r] for r in range(2))), None)
        if any(unit) and zone is None:
            return False
        for r in range(2):
            left[zone or 0][r] -= unit[r]
    return True


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
def test_pods_of_random_gangs_find_zones_exactly_where_there_are_some(
    plan_of: Any, policy: NumaPolicy, seed: int
) -> None:
    rng = random.Random(seed)
    capacity = [(rng.randint(2, 6), rng.choice([0, 2, 2])) for _ in range(rng.randint(1, 3))]
    held = [(rng.randint(0, c // 2), rng.randint(0, g)) for c, g in capacity]
    units = [(rng.randint(0, 6), rng.choice([0, 0, 1, 2])) for _ in range(rng.randint(1, 4))]
    free = [(c - hc, g - hg) for (c, g), (hc, hg) in zip(capacity, held, strict=True)]
    tenants = [running(a_pod(f"t{i}", c, g), "n", (f"node-{i}", c, g)) for i, (c, g) in enumerate(held) if c or g]
    gangs = [a_gang("t", *tenants, preemptible=False)] if tenants else []
    waiting = a_gang("w", *(a_pod(f"p{i}", c, g) for i, (c, g) in enumerate(units)))
    plan = plan_of(a_cluster([in_zones(capacity, policy)], *gangs, waiting))
    possible = exists(units, capacity, free, policy)
    assert bool(plan.binds) == possible, (capacity, held, units)
    if not possible:
        assert plan.pending[0].proof.state == "proven"


@pytest.mark.parametrize("seed", range(20))
def test_containers_of_random_gangs_are_judged_as_the_kubelet_does(plan_of: Any, seed: int) -> None:
    rng = random.Random(seed)
    capacity = [(rng.randint(2, 5), 0) for _ in range(2)]
    pods = [[(rng.randint(1, 3), 0) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 3))]
    waiting = a_gang(
        "w",
        *(
            a_pod(f"p{i}", sum(c for c, _ in parts), containers=containers(*(c for c, _ in parts)))
            for i, parts in enumerate(pods)
        ),
    )
    plan = plan_of(a_cluster([in_zones(capacity, scope="container")], waiting))
    taken = any(kubelet(order, capacity, capacity) for order in permutations(pods))
    if plan.binds:
        assert taken
    elif plan.pending[0].proof.state == "proven":
        assert not taken
