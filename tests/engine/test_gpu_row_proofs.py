"""GPUs in a row: every proof, and every plan, against a search through all places of small clusters.

The search knows devices one by one: who stays on his node keeps his own, and beside a pod whose devices nobody knows no
row is given.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Action, Gang, GpuRequest, Node, Pod, PodStatus, Queue, Snapshot, flat_gang
from kai_solver.engine import Engine
from kai_solver.units import CPU, MILLI, UNLIMITED, ResourceSchema
from tests.engine.conftest import Engines
from tests.engine.test_blocking_sets import is_needed
from tests.engine.test_proofs import GIB, RUNGS, Rules
from tests.support.clusters import some

ASKED = (
    GpuRequest(1),
    GpuRequest(2),
    GpuRequest(1, 500),
    GpuRequest(2, row="contiguous-required"),
    GpuRequest(2, row="aligned-required"),
    GpuRequest(3, row="contiguous-required"),
    GpuRequest(3, row="aligned-required"),
    GpuRequest(4, row="aligned-required"),
    GpuRequest(2, row="contiguous-preferred"),
)


# -- small clusters ------------------------------------------------------------------------------------------------


@st.composite
def clusters_with_rows(draw: st.DrawFn) -> Snapshot:
    """Up to three nodes of up to six GPUs, pods that hold any of them, some unknown, and a gang that wants a row."""
    sizes = draw(st.lists(st.sampled_from([2, 4, 5, 6]), min_size=1, max_size=3))
    nodes = tuple(
        Node(f"n{i}", (8000, 64 * GIB, gpus * MILLI, 20), gpus=gpus, gpu_memory_mib=100, labels={"rack": "r"})
        for i, gpus in enumerate(sizes)
    )
    endless = (UNLIMITED, UNLIMITED, UNLIMITED)
    quotas = [(UNLIMITED, UNLIMITED, draw(st.sampled_from([0, 3, 6])) * MILLI) for _ in "ab"]
    queues = tuple(Queue(name, quota=quota, limit=endless) for name, quota in zip("ab", quotas, strict=True))
    free = {node.name: set(range(node.gpus)) for node in nodes}
    running = [_running(draw, f"r{i}", free) for i in range(draw(st.integers(1, 5)))]
    wants = [draw(st.sampled_from(ASKED)) for _ in range(draw(st.integers(0, 2)))]
    wants.append(draw(st.sampled_from([gpu for gpu in ASKED if gpu.row.endswith("required")])))
    pods = tuple(_pod(f"w-{i}", gpu, i) for i, gpu in enumerate(wants))
    priority = draw(st.sampled_from([50, 60, 100]))
    gang = _gang("w", draw(st.sampled_from("ab")), pods, priority)
    return Snapshot(1000.0, ResourceSchema(), nodes, queues, (*filter(None, running), gang))


def _pod(name: str, gpu: GpuRequest, order: int) -> Pod:
    return Pod("ns", name, (500, GIB, 0, 1), gpu, order=(0, float(order), ""))


def _gang(name: str, queue: str, pods: tuple[Pod, ...], priority: int) -> Gang:
    preemptible = priority < 100
    return Gang("ns", name, queue, flat_gang(len(pods)), pods, priority, preemptible, last_start_s=100.0)


def _running(draw: st.DrawFn, name: str, free: dict[str, set[int]]) -> Gang | None:
    """One or two pods that run, each on GPUs that are free; which ones may not be known."""
    pods = []
    for number in range(draw(st.sampled_from([1, 1, 2]))):
        node = draw(st.sampled_from(sorted(free)))
        gpu = draw(st.sampled_from(ASKED))
        given_by_kubelet = draw(st.integers(0, 3)) == 0  # It knows no rows.
        sets = list(_sets(replace(gpu, row="") if given_by_kubelet else gpu, 6, free[node]))
        if not sets:
            continue
        devices = draw(st.sampled_from(sets))
        free[node] -= set(devices)
        known = draw(st.integers(0, 5)) > 0
        pod = _pod(f"{name}-{number}", gpu, number)
        pods.append(replace(pod, status=PodStatus.RUNNING, node=node, devices=devices if known else ()))
    priority = draw(st.sampled_from([50, 50, 60, 100]))
    return _gang(name, draw(st.sampled_from("ab")), tuple(pods), priority) if pods else None


def _sets(gpu: GpuRequest, gpus: int, free: set[int]) -> Iterator[tuple[int, ...]]:
    """Sets of devices that a pod may be given."""
    if not gpu.row.endswith("required"):
        yield from (found for found in combinations(range(gpus), gpu.devices) if free.issuperset(found))
        return
    step = gpu.devices if gpu.row.startswith("aligned") else 1
    for first in range(0, gpus - gpu.devices + 1, step):
        row = tuple(range(first, first + gpu.devices))
        if free.issuperset(row):
            yield row


# -- the exhaustive search -----------------------------------------------------------------------------------------

Free = tuple[tuple[int, ...], ...]
"""By node: CPU, then thousandths of each device."""


class RowPuzzle:
    """Places for pods on nodes and devices, by backtracking over everything. ``seats``: devices by running pod."""

    def __init__(self, snapshot: Snapshot, seats: dict[str, tuple[int, ...]], unidentified: set[str]) -> None:
        self.nodes = snapshot.nodes
        self.index = {node.name: i for i, node in enumerate(snapshot.nodes)}
        self.seats = seats
        self.unidentified = unidentified

    def fits(self, fixed: Sequence[Gang], loose: Sequence[Gang]) -> bool:
        """Is there a place for every pod of ``loose`` beside ``fixed``, who stay on their devices?"""
        free: Free = tuple((node.allocatable[CPU], *[MILLI] * node.gpus) for node in self.nodes)
        unclear: frozenset[int] = frozenset()
        for pod in (pod for gang in fixed for pod in gang.pods):
            free, unclear = self._take(free, self.index[pod.node], pod, self.seats[pod.key]), self._dim(unclear, pod)
        pods = sorted((pod for gang in loose for pod in gang.pods), key=lambda p: (not p.node, -p.gpu.devices))
        return self._place(pods, free, unclear, frozenset(), set())

    def _take(self, free: Free, node: int, pod: Pod, devices: Sequence[int]) -> Free:
        row = list(free[node])
        row[0] -= pod.request[CPU]
        for device in devices:
            row[1 + device] -= pod.gpu.milli
        return (*free[:node], tuple(row), *free[node + 1 :])

    def _dim(self, unclear: frozenset[int], pod: Pod) -> frozenset[int]:
        return unclear | {self.index[pod.node]} if pod.key in self.unidentified else unclear

    def _place(
        self,
        pods: Sequence[Pod],
        free: Free,
        unclear: frozenset[int],
        rowed: frozenset[int],
        dead: set[tuple[object, ...]],
    ) -> bool:
        if not pods:
            return True
        key = (len(pods), free, unclear, rowed)
        if key not in dead and any(self._place(pods[1:], *step, dead) for step in self._steps(pods[0], *key[1:])):
            return True
        dead.add(key)
        return False

    def _steps(
        self, pod: Pod, free: Free, unclear: frozenset[int], rowed: frozenset[int]
    ) -> Iterator[tuple[Free, frozenset[int], frozenset[int]]]:
        """Every place of a pod: where it runs, on its own devices if these are whole or unknown; else on any."""
        is_row = pod.gpu.row.endswith("required")
        for node in range(len(self.nodes)):
            if free[node][0] < pod.request[CPU]:
                continue
            own = {device for device, milli in enumerate(free[node][1:]) if milli >= pod.gpu.milli}
            if pod.node and node == self.index[pod.node]:
                dimmed = self._dim(unclear, pod)
                if own.issuperset(self.seats[pod.key]) and rowed.isdisjoint(dimmed):
                    yield self._take(free, node, pod, self.seats[pod.key]), dimmed, rowed
                if pod.gpu.is_whole or pod.key in self.unidentified:
                    continue
            if not (is_row and node in unclear):
                for devices in _sets(pod.gpu, self.nodes[node].gpus, own):
                    yield self._take(free, node, pod, devices), unclear, rowed | {node} if is_row else rowed


def rules_of(cluster: Snapshot) -> Rules:
    rules = Rules(cluster, cluster.gangs[-1])
    problem = rules.problem
    seats = {pod.key: problem.held_devices.get(number, ()) for number, pod in enumerate(problem.pods)}
    unidentified = {pod.key for pod in problem.pods if pod.node and not pod.devices and pod.gpu.devices}
    rules.puzzle = RowPuzzle(cluster, seats, unidentified)  # type: ignore[assignment]
    return rules


# -- tests ---------------------------------------------------------------------------------------------------------


def check_rows(engine: Engine, cluster: Snapshot) -> str:
    """What is proven is true, each element of what blocks counts, and what is admitted can be; what came out."""
    plan = engine.cycle(cluster)
    assert not any("refused" in note for note in plan.notes), plan.notes
    assert check_plan(cluster, plan) == ()
    rules = rules_of(cluster)
    possible = {action for action in RUNGS if rules.can(action)}
    assert {action for _, action in plan.admitted} <= possible
    for pending in plan.pending:
        assert pending.proof.state != "proven" or not possible, (pending, possible)
        if pending.proof.state == "proven":
            assert pending.proof.blocking
            gang = cluster.gangs[-1]
            assert all(is_needed(engine, cluster, gang, pending, b) for b in pending.proof.blocking), pending.proof
        return f"{pending.proof.state} {bool(possible)}"
    return "admitted"


@given(cluster=clusters_with_rows())
@some(100, campaign=1500)
def test_no_false_proof_where_rows_are_asked_for(engines: Engines, cluster: Snapshot) -> None:
    check_rows(engines["deterministic"], cluster)


@given(cluster=clusters_with_rows())
@some(60, campaign=1500)
def test_no_false_proof_by_bounds_alone(engines: Engines, cluster: Snapshot) -> None:
    check_rows(engines["greedy-only"], cluster)


def test_the_search_knows_rungs() -> None:
    """The searcher itself, by hand: a row that only a move makes, and one that a stranger keeps away."""
    nodes = tuple(
        Node(f"n{i}", (8000, 64 * GIB, n * MILLI, 20), gpus=n, labels={"rack": "r"}) for i, n in enumerate((3, 1))
    )
    middle = _pod("r-0", GpuRequest(1), 0)
    running = _gang("r", "a", (replace(middle, status=PodStatus.RUNNING, node="n0", devices=(1,)),), 50)
    waiting = _gang("w", "a", (_pod("w-0", ASKED[3], 0),), 50)
    queues = (Queue("a", quota=(-1, -1, -1), limit=(-1, -1, -1)),)
    cluster = Snapshot(1000.0, ResourceSchema(), nodes, queues, (running, waiting))
    assert [rules_of(cluster).can(action) for action in RUNGS] == [False, True, False, False]
    unknown = replace(running, pods=(replace(running.pods[0], devices=()),), preemptible=False)
    assert not any(rules_of(replace(cluster, gangs=(unknown, waiting))).can(action) for action in RUNGS)
    assert Action.CONSOLIDATION in RUNGS
