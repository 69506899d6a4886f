"""The working state: every step can be taken back exactly, and counts kept step by step are those counted anew."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.domain import Gang, GpuRequest, Node, Pod, PodStatus, Policy, Queue, Snapshot, flat_gang
from kai_solver.errors import InternalError
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import Placer
from kai_solver.planstate.state import State
from kai_solver.problem import build_problem
from kai_solver.problem.rules import Ledger, RuleFacts
from kai_solver.units import MILLI, ResourceSchema

GIB = 2**30
REQUESTS = (
    GpuRequest(0),
    GpuRequest(1),
    GpuRequest(2),
    GpuRequest(1, 500),
    GpuRequest(1, 250),
    GpuRequest(2, 500),
    GpuRequest(1, 0, 30),
)
SPEED = settings(max_examples=60, deadline=None)


@st.composite
def states(draw: st.DrawFn) -> State:
    """Nodes with mixed devices; some pods run, some are leaving, some wait."""
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4]), min_size=1, max_size=4))
    memories = draw(st.lists(st.sampled_from([60, 100]), min_size=len(sizes), max_size=len(sizes)))
    nodes = [
        Node(f"n{i}", (4000, 8 * GIB, gpus * MILLI, 6), gpus=gpus, gpu_memory_mib=memory)
        for i, (gpus, memory) in enumerate(zip(sizes, memories, strict=True))
    ]
    free = {node.name: [MILLI] * node.gpus for node in nodes}
    gangs = []
    for number in range(draw(st.integers(1, 8))):
        gpu, cpu = draw(st.sampled_from(REQUESTS)), draw(st.sampled_from([100, 900]))
        pod = Pod("ns", f"p{number}", (cpu, GIB, 0, 1), gpu, order=(0, float(number), ""))
        origin = draw(st.sampled_from(nodes))
        seats = [d for d, left in enumerate(free[origin.name]) if left >= gpu.milli_on(origin.gpu_memory_mib)]
        if draw(st.booleans()) and len(seats) >= gpu.devices:
            for seat in seats[: gpu.devices]:
                free[origin.name][seat] -= gpu.milli_on(origin.gpu_memory_mib)
            status = draw(st.sampled_from([PodStatus.RUNNING, PodStatus.RUNNING, PodStatus.RELEASING]))
            pod = replace(pod, node=origin.name, devices=tuple(seats[: gpu.devices]), status=status)
        preemptible = draw(st.booleans())
        gangs.append(Gang("ns", f"g{number}", "leaf", flat_gang(1), (pod,), preemptible=preemptible))
    queues = (Queue("root"), Queue("leaf", "root"))
    policy = Policy(gpu_sharing_placement=draw(st.sampled_from(["binpack", "spread"])))
    return State(build_problem(Snapshot(0.0, ResourceSchema(), tuple(nodes), queues, tuple(gangs), policy=policy)))


def picture(state: State) -> Mapping[str, object]:
    """All that a rollback has to bring back; the order of active pods carries no meaning."""
    arrays = {
        name: getattr(state, name).tolist()
        for name in ("idle", "future", "device_idle", "device_future", "whole_now", "whole_later", "gpu_free")
    }
    gangs = [([sorted(pods) for pods in gang.active], gang.pending) for gang in state.gangs]
    ledgers = (state.allocated, state.allocated_fixed)
    return {**arrays, "ledgers": repr(ledgers), "places": dict(state.places), "gone": set(state.gone), "g": repr(gangs)}


def steps(state: State, fits: FitTable) -> list[Callable[[], object]]:
    """Every step that is allowed now."""
    found: list[Callable[[], object]] = []
    problem = state.problem
    for pod, shape in enumerate(problem.pod_shape):
        active = problem.pods[pod].status is PodStatus.RUNNING
        if pod in state.places:
            found.append(lambda pod=pod: state.lift(pod))  # type: ignore[misc]
        elif active and pod not in state.gone:
            found.append(lambda pod=pod: state.evict(pod))  # type: ignore[misc]
        elif active or problem.pods[pod].status is PodStatus.PENDING:
            now, later = fits.counts(shape)
            for node in np.flatnonzero(later).tolist():
                found.append(lambda pod=pod, node=node: state.put(pod, node, now=False))  # type: ignore[misc]
                if now[node] and not active:
                    found.append(lambda pod=pod, node=node: state.put(pod, node, now=True))  # type: ignore[misc]
            if active:
                found.append(lambda pod=pod: state.returns_to_origin([pod]))  # type: ignore[misc]
    return found


def walk(state: State, data: st.DataObject, length: int) -> None:
    for _ in range(length):
        choices = steps(state, FitTable(state))
        if not choices:
            return
        choices[data.draw(st.integers(0, len(choices) - 1))]()


@pytest.mark.slow
@given(state=states(), data=st.data())
@SPEED
def test_a_rollback_brings_everything_back(state: State, data: st.DataObject) -> None:
    walk(state, data, 3)
    before, mark = picture(state), state.mark()
    walk(state, data, 8)
    state.rollback(mark)
    assert picture(state) == before
    state.rollback(0)
    assert picture(state) == picture(State(state.problem))


@given(state=states(), data=st.data())
@SPEED
def test_counts_kept_step_by_step_are_those_counted_anew(state: State, data: st.DataObject) -> None:
    kept = FitTable(state)
    marks = [state.mark()]
    for _ in range(6):
        walk(state, data, 1)
        if data.draw(st.integers(0, 4)) == 0:
            state.rollback(data.draw(st.sampled_from(marks)))
            marks = [mark for mark in marks if mark <= state.mark()]
        marks.append(state.mark())
        anew = FitTable(state)
        for shape in range(len(state.problem.shapes.shapes)):
            for one, other in zip(kept.counts(shape), anew.counts(shape), strict=True):
                assert one.tolist() == other.tolist()
            assert kept.has_room(shape) == bool(anew.counts(shape)[1].any())


@given(state=states())
@SPEED
def test_one_less_fits_after_a_pod_took_its_place(state: State) -> None:
    """`took` is a shortcut for counting anew."""
    kept = FitTable(state)
    for pod, shape in enumerate(state.problem.pod_shape):
        if state.problem.pods[pod].status is not PodStatus.PENDING:
            continue
        choice = kept.choose(shape)
        if choice is None:
            continue
        state.put(pod, choice[0], now=choice[1])
        kept.took(shape, choice[0], now=choice[1])
        for one, other in zip(kept.counts(shape), FitTable(state).counts(shape), strict=True):
            assert one.tolist() == other.tolist()
        assert kept.has_room(shape) == bool(kept.counts(shape)[1].any())


@given(state=states(), data=st.data())
@SPEED
def test_nothing_is_promised_twice(state: State, data: st.DataObject) -> None:
    """What fits, fits: however pods are put, no resource and no device is below zero in the future."""
    walk(state, data, 8)
    assert (state.future >= 0).all()
    assert (state.device_future >= 0).all()
    assert (state.device_idle >= 0).all()


@given(state=states(), data=st.data())
@SPEED
def test_queues_pay_for_what_is_there(state: State, data: st.DataObject) -> None:
    walk(state, data, 8)
    tree, problem = state.problem.queues, state.problem
    total = [0, 0, 0]
    for pod, whose in enumerate(problem.pod_gang):
        stays = problem.pods[pod].status is PodStatus.RUNNING and pod not in state.gone
        cost = state.places[pod].charge if pod in state.places else problem.charges[pod]
        if whose >= 0 and (stays or pod in state.places):
            total = [t + c for t, c in zip(total, cost, strict=True)]
    assert state.allocated[tree.index["leaf"]] == total
    assert state.allocated[tree.index["root"]] == total


def one_node(*gangs: Gang, gpus: int = 2, policy: Policy | None = None) -> State:
    node = Node("n0", (8000, 8 * GIB, gpus * MILLI, 10), gpus=gpus, gpu_memory_mib=100)
    return State(
        build_problem(Snapshot(0.0, ResourceSchema(), (node,), (Queue("q"),), gangs, policy=policy or Policy()))
    )


def lone(name: str, gpu: GpuRequest) -> Gang:
    return Gang("ns", name, "q", flat_gang(1), (Pod("ns", name, (100, GIB, 0, 1), gpu),))


@pytest.mark.parametrize(("strategy", "expected"), [("binpack", (0,)), ("spread", (1,))])
def test_shares_join_a_shared_device_or_spread_over_devices(strategy: str, expected: tuple[int, ...]) -> None:
    gangs = [lone(f"g{i}", GpuRequest(1, 250)) for i in range(2)]
    policy = Policy(gpu_sharing_placement=strategy)  # type: ignore[arg-type]
    state = one_node(*gangs, policy=policy)
    assert state.put(0, 0, now=True).devices == (0,)
    assert state.put(1, 0, now=True).devices == expected


def test_shares_of_one_pod_are_on_devices_of_their_own() -> None:
    state = one_node(lone("g0", GpuRequest(2, 500)))
    assert state.put(0, 0, now=True).devices == (0, 1)


def test_a_place_without_free_devices_is_a_broken_promise() -> None:
    state = one_node(lone("g0", GpuRequest(2)), lone("g1", GpuRequest(1)))
    state.put(0, 0, now=True)
    with pytest.raises(InternalError, match="do not fit node n0"):
        state.put(1, 0, now=True)


def test_what_is_leaving_is_free_later_and_not_now() -> None:
    leaving = lone("g0", GpuRequest(2))
    pod = replace(leaving.pods[0], node="n0", devices=(0, 1), status=PodStatus.RELEASING)
    state = one_node(replace(leaving, pods=(pod,)), lone("g1", GpuRequest(2)))
    fits = FitTable(state)
    now, later = fits.counts(state.problem.pod_shape[1])
    assert (now.tolist(), later.tolist()) == ([0], [1])
    assert fits.choose(state.problem.pod_shape[1]) == (0, False)


def test_pods_stuck_in_releasing_hold_their_place() -> None:
    stuck = lone("g0", GpuRequest(2))
    pod = replace(stuck.pods[0], node="n0", devices=(0, 1), status=PodStatus.STUCK_IN_RELEASING)
    state = one_node(replace(stuck, pods=(pod,)), lone("g1", GpuRequest(1)))
    assert FitTable(state).choose(state.problem.pod_shape[1]) is None


class Counting(Ledger):
    """Pods by node as its steps say, for pods that are placed many at once."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.pods = [state.problem.pod_node.count(node) for node in range(len(state.problem.nodes))]

    def counts_alike(self, shape: int, /) -> bool:
        return True

    def place(self, shape: int, pod: int, node: int, count: int, sign: int, *, now: bool) -> None:
        self.pods[node] += sign * count

    def leave(self, shape: int, pod: int, node: int, count: int, sign: int, /) -> None:
        self.pods[node] -= sign * count

    def is_right(self) -> bool:
        at = [place.node for place in self.state.places.values()]
        at += [n for pod, n in enumerate(self.state.problem.pod_node) if pod not in self.state.gone]
        return self.pods == [at.count(node) for node in range(len(self.pods))]


class CountingFacts(RuleFacts):
    def ledger(self, state: State, /) -> Ledger:
        return Counting(state)


def counting(*gangs: dict[str, object], nodes: int = 1) -> tuple[State, Counting]:
    """A state of nodes with eight GPUs, and the ledger of its rule."""
    document = {
        "format": "kai-solver/v1",
        "nodes": [{"name": f"n{number}", "gpus": 8} for number in range(nodes)],
        "queues": [{"name": "q", "quota": 8}],
        "gangs": [{"queue": "q", **gang} for gang in gangs],
    }
    state = State(replace(build_problem(snapshot_from_native(document)), rules=(CountingFacts(),)))
    [ledger] = state.rules
    assert isinstance(ledger, Counting)
    return state, ledger


def test_a_rule_counts_a_victim_and_the_pod_that_replaces_it_and_their_return() -> None:
    state, ledger = counting(
        {"name": "a", "pods": [{"gpus": 8, "running": {"n0": 1}}]}, {"name": "b", "pods": [{"gpus": 8}]}
    )
    victim, pod = (next(p for p, one in enumerate(state.problem.pods) if one.name.startswith(name)) for name in "ab")
    mark = state.mark()
    state.swap(victim, pod)
    assert ledger.pods == [1]
    assert ledger.is_right()
    state.rollback(mark)
    assert ledger.pods == [1]
    assert ledger.is_right()


def test_a_rule_counts_pods_that_are_placed_at_once_and_one_by_one_alike() -> None:
    state, ledger = counting({"name": "a", "pods": [{"gpus": 2, "replicas": 6}]}, nodes=2)
    mark = state.mark()
    assert Placer(state).fill(range(6))
    assert sorted(ledger.pods) == [2, 4]
    assert ledger.is_right()
    state.lift(0)
    assert ledger.is_right()
    state.rollback(mark)
    assert ledger.pods == [0, 0]
