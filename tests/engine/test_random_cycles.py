"""Random clusters through whole cycles: plans hold, the solver is never worse than greedy, nothing swings back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import (
    ACTIONS,
    Gang,
    GpuRequest,
    Node,
    Plan,
    Pod,
    PodSet,
    PodStatus,
    Queue,
    Snapshot,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
)
from kai_solver.engine import Engine, cycle
from kai_solver.lab.conformance.rounds import settle
from kai_solver.modelfiles import load_model
from kai_solver.units import MILLI, ResourceSchema
from tests.engine.conftest import Engines
from tests.support.clusters import WHOLE, some

GIB = 2**30
FREE = -1
RACKS = Topology("dc", (TopologyLevel("zone"), TopologyLevel("rack")))

REQUESTS = (
    GpuRequest(1),
    GpuRequest(1),
    GpuRequest(2),
    GpuRequest(3),
    GpuRequest(1, 500),
    GpuRequest(1, 250),
    GpuRequest(2, 500),
    GpuRequest(1, 0, 20_000),
    GpuRequest(0),
)


# -- clusters ------------------------------------------------------------------------------------------------------


@dataclass
class Seats:
    """What is free on the nodes while running pods are seated."""

    nodes: Sequence[Node]
    cpu: dict[str, int] = field(default_factory=dict)
    devices: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cpu = self.cpu or {node.name: node.allocatable[0] for node in self.nodes}
        self.devices = self.devices or {node.name: [MILLI] * node.gpus for node in self.nodes}

    def seat(self, pod: Pod, node: Node) -> Pod | None:
        milli = pod.gpu.milli_on(node.gpu_memory_mib)
        fitting = [d for d, free in enumerate(self.devices[node.name]) if free >= milli]
        if self.cpu[node.name] < pod.request[0] or (pod.gpu.devices and len(fitting) < pod.gpu.devices):
            return None
        chosen = tuple(fitting[: pod.gpu.devices])
        for device in chosen:
            self.devices[node.name][device] -= milli
        self.cpu[node.name] -= pod.request[0]
        return replace(pod, status=PodStatus.RUNNING, node=node.name, devices=chosen)


@st.composite
def queue_trees(draw: st.DrawFn) -> tuple[Queue, ...]:
    """Queues of depth 1 to 3; leaves are those without children."""
    gpus = st.sampled_from([0, 1, 2, 3, 4, FREE])
    found: list[Queue] = []

    def grow(parent: str, depth: int) -> None:
        for index in range(draw(st.integers(1, 2 + (depth == 1)))):
            name = f"{parent}{'abc'[index]}"
            quota = draw(gpus)
            limit = draw(st.sampled_from([FREE, FREE, FREE, FREE, 2, 5]))
            found.append(
                Queue(
                    name,
                    parent,
                    priority=draw(st.sampled_from([100, 100, 101])),
                    created_s=float(len(found)),
                    quota=(FREE, FREE, quota * MILLI if quota != FREE else FREE),
                    limit=(FREE, FREE, limit * MILLI if limit != FREE else FREE),
                    weight=(0.0, 0.0, float(draw(st.sampled_from([0, 1, 1, 2, 3])))),
                )
            )
            if depth < 3 and draw(st.integers(0, 3)) == 0:
                grow(name, depth + 1)

    grow("", 1)
    return tuple(found)


@st.composite
def trees(draw: st.DrawFn) -> tuple[SubGroup, dict[str, int]]:
    """A gang's tree, and how many pods each podset has."""
    level = st.sampled_from([None, None, None, "rack", "zone"])

    def constraint() -> TopologyConstraint | None:
        required = draw(level)
        return TopologyConstraint("dc", required) if required else None

    if draw(st.integers(0, 3)):
        size = draw(st.integers(1, 4))
        least = draw(st.integers(1, size)) if draw(st.integers(0, 2)) == 0 else size
        return flat_gang(least, constraint()), {"default": size}
    sizes = {f"s{i}": draw(st.integers(1, 2)) for i in range(draw(st.integers(2, 3)))}
    least_groups = draw(st.sampled_from([None, None, 1, 2]))
    sets = tuple(PodSet(name, draw(st.integers(1, size)), constraint()) for name, size in sizes.items())
    return SubGroup(children=sets, min_subgroups=least_groups, topology=constraint()), sizes


@st.composite
def gangs(draw: st.DrawFn, name: str, queues: Sequence[Queue], most: int) -> Gang:
    root, sizes = draw(trees())
    shared = draw(st.sampled_from(REQUESTS))
    identical = draw(st.integers(0, 3)) > 0
    pods: list[Pod] = []
    for podset, size in sizes.items():
        for _ in range(size):
            gpu = shared if identical else draw(st.sampled_from(REQUESTS))
            gpu = replace(gpu, devices=min(gpu.devices, most))
            number = len(pods)
            cpu = draw(st.sampled_from([500, 500, 500, 4000]))
            order = (0, float(number), "")
            pods.append(Pod("ns", f"{name}-{number}", (cpu, GIB, 0, 1), gpu, podset=podset, order=order))
    priority = draw(st.sampled_from([50, 50, 60, 100]))
    parents = {queue.parent for queue in queues}
    leaf = draw(st.sampled_from([queue.name for queue in queues if queue.name not in parents]))
    return Gang(
        "ns",
        name,
        leaf,
        root,
        tuple(pods),
        priority=priority,
        preemptible=priority < 100,
        created_s=float(draw(st.integers(0, 100))),
    )


def seated(gang: Gang, seats: Seats, start: int) -> Gang:
    """The gang running as one would run it that fills nodes from ``start`` on; as it was where it does not fit.

    A gang with any topology runs on one node, which keeps every level together.
    """
    constrained = gang.root.topology is not None or any(podset.topology for podset in gang.root.podsets())
    order = [*seats.nodes[start:], *seats.nodes[:start]]
    for candidates in [[node] for node in order] if constrained else [order]:
        trial = Seats(seats.nodes, dict(seats.cpu), {name: list(free) for name, free in seats.devices.items()})
        pods: list[Pod] = []
        for pod in gang.pods:
            placed = next(filter(None, (trial.seat(pod, node) for node in candidates)), None)
            if placed is None:
                break
            pods.append(placed)
        if len(pods) == len(gang.pods):
            seats.cpu, seats.devices = trial.cpu, trial.devices
            return replace(gang, pods=tuple(pods), last_start_s=500.0 + start)
    return gang


@st.composite
def clusters(draw: st.DrawFn, most_nodes: int = 6, most_running: int = 8, most_waiting: int = 5) -> Snapshot:
    nodes = []
    for index in range(draw(st.integers(1, most_nodes))):
        gpus = draw(st.sampled_from([1, 2, 2, 3, 4, 4]))
        rack = draw(st.integers(0, 2))
        labels = {"zone": f"z{rack // 2}", "rack": f"r{rack}"}
        memory = draw(st.sampled_from([40_000, 80_000]))
        nodes.append(
            Node(f"n{index}", (16_000, 64 * GIB, gpus * MILLI, 20), gpus=gpus, gpu_memory_mib=memory, labels=labels)
        )
    most = max(node.gpus for node in nodes)
    queues = draw(queue_trees())
    seats = Seats(nodes)
    everybody: list[Gang] = []
    for index in range(draw(st.integers(0, most_running))):
        start = draw(st.integers(0, len(nodes) - 1))
        everybody.append(seated(draw(gangs(f"r{index}", queues, most)), seats, start))
    everybody += [draw(gangs(f"w{index}", queues, most)) for index in range(draw(st.integers(1, most_waiting)))]
    return Snapshot(1000.0, ResourceSchema(), tuple(nodes), queues, tuple(everybody), (RACKS,))


# -- what a plan comes to ------------------------------------------------------------------------------------------


def refused(plan: Plan) -> list[str]:
    return [note for note in plan.notes if "refused" in note]


def lost(plan: Plan) -> list[str]:
    """Notes of a cycle in which nothing was done: a refused answer of the solver must leave greedy's plan at least."""
    return [note for note in plan.notes if "nothing is done" in note]


def disruption(plan: Plan) -> list[tuple[int, float]]:
    """Stages that weigh disruption, most important first, as (rank, value); what is absent is zero."""
    found: list[tuple[int, float]] = []
    after = {"gangs-broken": 1, "evicted-pods": 2, "moved-pods": 3}
    for stage in plan.stages:
        name, _, stratum = stage.name.partition("/")
        if name == "evicted-work":
            found.append((-int(stratum), stage.value))
        elif name in after:
            found.append((after[name], stage.value))
    return found


def is_no_worse(one: Plan, other: Plan) -> bool:
    """Is ``one``'s disruption lexicographically at most ``other``'s?"""
    mine, theirs = dict(disruption(one)), dict(disruption(other))
    ranks = sorted({*mine, *theirs})
    return [mine.get(rank, 0.0) for rank in ranks] <= [theirs.get(rank, 0.0) for rank in ranks]


def first_difference(better: Plan, greedy: Plan) -> str:
    """What is wrong with the order of admissions: the first difference must be one that only ``better`` admits."""
    for index, (gang, action) in enumerate(greedy.admitted):
        if index == len(better.admitted):
            return f"{gang} is admitted by greedy alone"
        if better.admitted[index] != (gang, action):
            other, its_action = better.admitted[index]
            if ACTIONS.index(its_action) > ACTIONS.index(action) or (other, its_action) in greedy.admitted[index:]:
                return f"{gang} by {action.value} is passed over for {other} by {its_action.value}"
            return ""
    return ""


def places(snapshot: Snapshot) -> frozenset[tuple[str, str, tuple[int, ...]]]:
    return frozenset((pod.key, pod.node, pod.devices) for gang in snapshot.gangs for pod in gang.pods if pod.node)


def values(plan: Plan) -> tuple[object, ...]:
    """What a plan is worth: who is admitted, how, and every stage's value and bound."""
    return plan.admitted, [(stage.name, stage.value, stage.bound, stage.optimal) for stage in plan.stages]


def is_settled(plan: Plan) -> bool:
    """Nothing is left open: every refusal is proven, and every stage at its bound."""
    return all(stage.optimal for stage in plan.stages) and all(p.proof.state == "proven" for p in plan.pending)


def renamed(snapshot: Snapshot, names: Mapping[str, str]) -> Snapshot:
    """The same cluster with other names of nodes."""

    def of_pod(pod: Pod) -> Pod:
        return replace(pod, node=names.get(pod.node, ""))

    return replace(
        snapshot,
        nodes=tuple(replace(node, name=names[node.name]) for node in snapshot.nodes),
        gangs=tuple(replace(gang, pods=tuple(map(of_pod, gang.pods))) for gang in snapshot.gangs),
    )


# -- properties ----------------------------------------------------------------------------------------------------


def check_one_cycle(engines: Engines, cluster: Snapshot) -> None:
    greedy = engines["greedy-only"].cycle(cluster)
    assert not refused(greedy), greedy.notes
    assert check_plan(cluster, greedy) == ()
    for model in ("default", "deterministic"):
        plan = engines[model].cycle(cluster)
        assert not lost(plan), plan.notes
        assert check_plan(cluster, plan) == ()
        assert first_difference(plan, greedy) == ""
        if plan.admitted == greedy.admitted:
            assert is_no_worse(plan, greedy), (disruption(plan), disruption(greedy))


@given(cluster=clusters())
@some(40, campaign=200)
def test_plans_hold_and_the_solver_is_no_worse_than_greedy(engines: Engines, cluster: Snapshot) -> None:
    check_one_cycle(engines, cluster)


@pytest.mark.parametrize("model", ["default", "deterministic"])
def test_fewer_parts_of_gangs_that_are_more_pods_are_not_moved(engines: Engines, model: str) -> None:
    """The five pods of a gang are its minimum, moved whole, and one beside: three would move, where two will do."""
    nodes = (Node("n0", (16_000, 64 * GIB, 2000, 20), 2), Node("n1", (16_000, 64 * GIB, 1000, 20), 1))
    seats = (("s0", 0), ("s0", 0), ("s1", 0), ("s1", 0), ("s2", 1))
    quarters = tuple(
        replace(
            Pod("ns", f"r-{i}", (500, GIB, 0, 1), GpuRequest(1, 250), PodStatus.RUNNING, podset, "n0", (device,)),
            order=(0, float(i), ""),
        )
        for i, (podset, device) in enumerate(seats)
    )
    root = SubGroup(children=(PodSet("s0", 2), PodSet("s1", 1), PodSet("s2", 1)))
    halves = Pod("ns", "w-0", (500, GIB, 0, 1), GpuRequest(2, 500))
    gangs = (Gang("ns", "r", "q", root, quarters), Gang("ns", "w", "q", flat_gang(1), (halves,)))
    cluster = Snapshot(1000.0, ResourceSchema(), nodes, (Queue("q", quota=(-1, -1, -1), limit=(-1, -1, -1)),), gangs)
    assert len(engines["greedy-only"].cycle(cluster).moves) == 2
    assert len(engines[model].cycle(cluster).moves) == 2


def carried_out(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The next cycle's cluster, in which promised places are still promised."""
    promised = {bind.pod: bind.node for bind in plan.binds if bind.nominated}
    promised |= {move.pod: move.target for move in plan.moves}
    after = settle(snapshot, plan, delay_s=1.0)

    def of_pod(pod: Pod) -> Pod:
        return replace(pod, nominated_node=promised.get(pod.key, "")) if not pod.node else pod

    return replace(after, gangs=tuple(replace(g, pods=tuple(map(of_pod, g.pods))) for g in after.gangs))


def check_comes_to_rest(engine: Engine, cluster: Snapshot, cycles: int) -> None:
    """Carried out cycle after cycle, with nothing new arriving, plans never lead back to where the cluster was."""
    seen = {places(cluster)}
    for _ in range(cycles):
        plan = engine.cycle(cluster)
        assert not lost(plan), plan.notes
        if not (plan.binds or plan.moves or plan.evictions):
            return
        cluster = carried_out(cluster, plan)
        if plan.evictions or plan.moves:
            assert places(cluster) not in seen, "back where it was: somebody was disturbed for nothing"
        seen.add(places(cluster))


@given(cluster=clusters())
@some(30, campaign=200)
def test_nothing_swings_to_and_fro(engines: Engines, cluster: Snapshot) -> None:
    for model in ("greedy-only", "deterministic", *(["default"] if WHOLE else [])):
        check_comes_to_rest(engines[model], cluster, 6 if WHOLE else 4)


@pytest.mark.slow
@given(cluster=clusters(), data=st.data())
@some(25)
def test_deterministic_is_the_same_twice_and_in_any_order_of_the_input(
    engines: Engines, cluster: Snapshot, data: st.DataObject
) -> None:
    engine = engines["deterministic"]
    first = engine.cycle(cluster)
    assert values(engine.cycle(cluster)) == values(first)
    shuffled = replace(
        cluster,
        nodes=tuple(data.draw(st.permutations(cluster.nodes))),
        queues=tuple(data.draw(st.permutations(cluster.queues))),
        gangs=tuple(
            replace(gang, pods=tuple(data.draw(st.permutations(gang.pods))))
            for gang in data.draw(st.permutations(cluster.gangs))
        ),
    )
    assert values(engine.cycle(shuffled)) == values(first)


class RacingClock:
    """A twentieth of a second passes between two looks: a budget is over after forty."""

    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.05
        return self.now_s


@pytest.mark.slow
@given(cluster=clusters(most_nodes=12, most_running=20, most_waiting=12))
@some(15, campaign=200)
def test_no_clock_changes_what_a_deterministic_cycle_decides(engines: Engines, cluster: Snapshot) -> None:
    first = engines["deterministic"].cycle(cluster, budget_s=2.0)
    other = cycle(cluster, load_model("deterministic"), budget_s=2.0, clock=RacingClock())
    assert values(other) == values(first)
    assert (other.binds, other.evictions, other.moves) == (first.binds, first.evictions, first.moves)


@pytest.mark.slow
@given(cluster=clusters(), data=st.data())
@some(25)
def test_names_of_nodes_are_worth_nothing(engines: Engines, cluster: Snapshot, data: st.DataObject) -> None:
    """Where both cycles are settled, they come to the same; a longer name in the same order changes nothing at all."""
    engine = engines["deterministic"]
    names = [node.name for node in cluster.nodes]
    first = engine.cycle(cluster)
    identical = engine.cycle(renamed(cluster, {name: f"node-{name}" for name in names}))
    assert values(identical) == values(first)
    other = engine.cycle(renamed(cluster, dict(zip(names, data.draw(st.permutations(names)), strict=True))))
    if is_settled(first) and is_settled(other):
        assert sorted(other.admitted, key=str) == sorted(first.admitted, key=str)
        assert is_no_worse(other, first)
        assert is_no_worse(first, other)
