"""Who could be placed anew is counted before anybody leaves: it spares attempts, and changes no outcome."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.actions.accelerators.resettling import Resettling
from kai_solver.actions.room.evictor import Evictor
from kai_solver.domain import (
    Action,
    Gang,
    GpuRequest,
    Node,
    OneTenant,
    Pod,
    PodSet,
    PodStatus,
    Queue,
    Snapshot,
    SpareNodes,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
)
from kai_solver.placement.fit import FitTable
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.units import MILLI, ResourceSchema
from tests.support.builders import a_cluster, a_gang, a_node

GIB = 2**30
HALF, TWO_HALVES = GpuRequest(1, MILLI // 2), GpuRequest(2, MILLI // 2)
IN_ONE_RACK = TopologyConstraint("dc", required="rack")
DC = Topology("dc", (TopologyLevel("zone"), TopologyLevel("rack")))
ONE_TENANT = replace(DC, one_tenant=OneTenant("rack", "namespace"))
RULES = [DC, ONE_TENANT, *(replace(DC, spares=SpareNodes(level, 1)) for level in ("rack", "zone"))]


def in_segments(
    name: str,
    segments: Sequence[Sequence[str]],
    *,
    gpus: int = 2,
    topology: TopologyConstraint | None = IN_ONE_RACK,
    whole: TopologyConstraint | None = None,
    namespace: str = "ns",
) -> Gang:
    """A gang whose segments, lists of nodes ("" waits), keep to a rack each, and all of it to ``whole``."""
    leaves = tuple(PodSet(f"s{i}", len(nodes), topology) for i, nodes in enumerate(segments))
    pods = tuple(
        Pod(
            namespace,
            f"{name}-{i}-{j}",
            (100, GIB, 0, 1),
            GpuRequest(gpus),
            PodStatus.RUNNING if node else PodStatus.PENDING,
            podset=f"s{i}",
            node=node,
            order=(0, float(j), ""),
        )
        for i, nodes in enumerate(segments)
        for j, node in enumerate(nodes)
    )
    start_s = 0.0 if segments[0][0] else None
    return Gang(namespace, name, "q", SubGroup(topology=whole, children=leaves), pods, last_start_s=start_s)


def a_state(racks: Sequence[int], gangs: Iterable[Gang], topology: Topology = DC) -> State:
    """Racks of so many nodes of two GPUs, called by rack and number; two racks are a zone."""
    nodes = tuple(
        Node(
            f"{rack}{tray}",
            (32_000, 64 * GIB, 2 * MILLI, 20),
            gpus=2,
            gpu_memory_mib=100,
            labels={"zone": str(rack // 2), "rack": str(rack)},
        )
        for rack, trays in enumerate(racks)
        for tray in range(trays)
    )
    queue = Queue("q", quota=(-1, -1, -1))
    return State(
        build_problem(
            Snapshot(1000.0, ResourceSchema(), nodes, (queue,), tuple(gangs), topologies=(topology,), name="racks")
        )
    )


def asked_by_last(state: State) -> AllocationUnit:
    gang = state.problem.gangs[-1]
    allocation_unit = AllocationUnits(gang, state.gangs[gang.index]).next()
    assert allocation_unit is not None
    return allocation_unit


class Hopeful(Resettling):
    """Tries everybody."""

    def is_hopeless(self, units: list[int], pod: int, node: int) -> bool:
        return False

    def lacks_room(self, units: list[int]) -> bool:
        return False

    def lacks_devices(self, units: list[int], pod: int, node: int) -> bool:
        return False


def made_room(state: State, counts: type[Resettling]) -> tuple[list[int] | None, dict[int, int]]:
    """Who moves for the last gang, and where all pods are then; the state as it was after."""
    pool = VictimPool.of_running(state)
    evictor = Evictor(pool, FitTable(state), Action.CONSOLIDATION, np.ones(len(pool.units), dtype=np.bool_))
    evictor.resettling = counts(pool, evictor.fits)
    mark = state.mark()
    units = evictor.make_room(asked_by_last(state))
    places = {pod: place.node for pod, place in state.places.items()}
    state.rollback(mark)
    return units, places


@st.composite
def racks_in_use(draw: st.DrawFn) -> State:
    """Up to four racks, gangs in segments where there is room, some not bound or of one GPU, and one that waits.

    Racks may be one tenant's at a time, or keep nodes free.
    """
    racks = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    free = {(rack, tray): 2 for rack, trays in enumerate(racks) for tray in range(trays)}
    gangs = []
    for number in range(draw(st.integers(1, 5))):
        gpus, topology = draw(st.sampled_from([1, 2, 2, 2])), draw(st.sampled_from([IN_ONE_RACK, IN_ONE_RACK, None]))
        segments = []
        for _ in range(draw(st.integers(1, 2))):
            rack, pods = draw(st.integers(0, len(racks) - 1)), draw(st.integers(1, 3))
            origins = [at for at, left in free.items() if at[0] == rack and left >= gpus][:pods]
            for at in origins:
                free[at] -= gpus
            if origins:
                segments.append([f"{rack}{tray}" for rack, tray in origins])
        if segments:
            namespace = draw(st.sampled_from(["ns", "ns", "more"]))
            gangs.append(in_segments(f"g{number}", segments, gpus=gpus, topology=topology, namespace=namespace))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    whole = draw(st.sampled_from([None, TopologyConstraint("dc", required="zone")]))
    waiting = in_segments("w", [[""] * size for size in sizes], gpus=draw(st.integers(1, 2)), whole=whole)
    return a_state(racks, [*gangs, waiting], draw(st.sampled_from(RULES)))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(state=racks_in_use())
def test_the_count_changes_no_outcome(state: State) -> None:
    assert made_room(state, Resettling) == made_room(state, Hopeful)


@st.composite
def shared_devices(draw: st.DrawFn) -> State:
    """Nodes of four GPUs, some cordoned, with pods of whole and half devices, surplus among them; a gang waits."""
    nodes = [a_node(f"n{i}", schedulable=draw(st.integers(0, 3)) > 0) for i in range(draw(st.integers(2, 4)))]
    free = [8] * len(nodes)
    gangs = []
    for number in range(draw(st.integers(2, 8))):
        halves = draw(st.sampled_from([1, 1, 2, 2, 4, 6]))
        request = GpuRequest(1, MILLI // 2) if halves == 1 else halves // 2
        at = draw(st.integers(0, len(nodes) - 1))
        homes = [i for i in (at, *range(len(nodes))) if free[i] >= halves + free[i] % 2][: draw(st.integers(1, 2))]
        for home in homes:
            free[home] -= halves
        if homes:
            pods = len(homes) + draw(st.integers(0, 1))
            on = " ".join(f"n{home}" for home in homes) + (" " if len(homes) == 1 else "")
            gangs.append(
                a_gang(f"g{number}", pods=pods, gpus=request, on=on.split(), need=draw(st.integers(1, len(homes))))
            )
    shares = [GpuRequest(devices, part) for devices in (1, 2) for part in (MILLI // 4, MILLI // 2)]
    asked = st.one_of(st.integers(1, 4), st.sampled_from(shares))
    waiting = a_gang("w", *draw(st.lists(asked, min_size=1, max_size=2)))
    return State(build_problem(a_cluster(nodes, [*gangs, waiting])))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(state=shared_devices())
def test_counting_devices_changes_no_outcome(state: State) -> None:
    assert made_room(state, Resettling) == made_room(state, Hopeful)


@pytest.mark.parametrize(
    ("is_open", "beside", "asked", "lacks"),
    [
        (False, 1, 1, True),
        (True, 1, 1, False),
        (False, HALF, 1, False),
        (False, 1, HALF, True),
        (False, HALF, HALF, False),
        (False, 1, TWO_HALVES, True),
        (False, TWO_HALVES, TWO_HALVES, False),
    ],
    ids=["cordoned", "open", "shares", "opens", "joins", "opens-two", "joins-two"],
)
def test_free_devices_that_nothing_may_use_are_not_counted(
    is_open: bool, beside: int | GpuRequest, asked: int | GpuRequest, lacks: bool
) -> None:
    """Node n0 is full, n1 has four GPUs free. A pod with half a device might join another one."""
    nodes = [a_node("n0"), a_node("n1", schedulable=is_open)]
    gangs = [a_gang("a", 2 if beside == TWO_HALVES else 3, on="n0"), a_gang("b", beside, on="n0"), a_gang("w", asked)]
    state = State(build_problem(a_cluster(nodes, gangs)))
    pool = VictimPool.of_running(state)
    [pod] = asked_by_last(state).pods
    assert Resettling(pool, FitTable(state)).lacks_devices([1], pod, 0) is lacks


@pytest.mark.parametrize(
    ("racks", "hopeless"), [((2, 1, 1), True), ((2, 2, 1), False), ((3, 1, 1), False), ((2, 1, 2), False)]
)
def test_a_segment_needs_one_rack_with_room_for_all_of_it(racks: tuple[int, ...], hopeless: bool) -> None:
    """Two pods on rack 0 keep together; who comes takes one of their nodes."""
    state = a_state(racks, [in_segments("runs", [["00", "01"]]), in_segments("waits", [[""]])])
    pool = VictimPool.of_running(state)
    [pod] = asked_by_last(state).pods
    assert Resettling(pool, FitTable(state)).is_hopeless([0], pod, 0) is hopeless


def test_all_segments_need_room_at_once() -> None:
    """Each of two segments would find room in rack 1, not both."""
    runs = in_segments("runs", [["00", "01"], ["02", "03"]])
    pool = VictimPool.of_running(a_state((4, 2), [runs, in_segments("waits", [["", ""]])]))
    [first, _] = asked_by_last(pool.state).pods
    counts = Resettling(pool, FitTable(pool.state))
    assert not counts.is_hopeless([0], first, 0)  # one segment in each rack
    pool = VictimPool.of_running(a_state((4, 1), [runs, in_segments("waits", [[""]])]))
    [pod] = asked_by_last(pool.state).pods
    assert Resettling(pool, FitTable(pool.state)).is_hopeless([0], pod, 0)


def test_pods_of_several_shapes_are_not_counted() -> None:
    one, two = in_segments("one", [["00"]], gpus=1), in_segments("two", [["10"]], gpus=2)
    pool = VictimPool.of_running(a_state((1, 1), [one, two, in_segments("waits", [[""]])]))
    [pod] = asked_by_last(pool.state).pods
    counts = Resettling(pool, FitTable(pool.state))
    assert counts.is_hopeless([1], pod, 1)
    assert not counts.is_hopeless([0, 1], pod, 1)


def test_what_is_bound_to_no_domain_is_not_counted() -> None:
    free = in_segments("free", [["00"]], topology=None)
    pool = VictimPool.of_running(a_state((1,), [free, in_segments("waits", [[""]])]))
    [pod] = asked_by_last(pool.state).pods
    assert not Resettling(pool, FitTable(pool.state)).is_hopeless([0], pod, 0)


def left(state: State, *units: int) -> Resettling:
    """The counts once ``units`` have left."""
    pool = VictimPool.of_running(state)
    for unit in units:
        pool.leave(unit)
    return Resettling(pool, FitTable(state))


@pytest.mark.parametrize(
    ("topology", "lacks"), [(DC, False), (ONE_TENANT, True), (RULES[2], True)], ids=["plain", "tenants", "spares"]
)
def test_room_that_a_rule_keeps_is_no_room(topology: Topology, lacks: bool) -> None:
    """Somebody came to rack 0; of rack 1's three nodes one is in use, by another tenant, and one may be kept free."""
    runs = in_segments("runs", [["00", "01"]])
    beside, waits = in_segments("beside", [["10"]], namespace="nt"), in_segments("waits", [["", ""]], namespace="nu")
    state = a_state((2, 3), [runs, beside, waits], topology)
    counts = left(state, 0)
    for pod, node in zip(asked_by_last(state).pods, (0, 1), strict=True):
        state.put(pod, node, now=False)
    assert counts.lacks_room([0]) is lacks


def test_units_that_find_room_alone_may_lack_it_together() -> None:
    state = a_state((2, 2, 2), [in_segments("a", [["00", "01"]]), in_segments("b", [["10", "11"]])])
    counts = left(state, 0, 1)
    assert not counts.lacks_room([0, 1])
    state = a_state((2, 2, 1), [in_segments("a", [["00", "01"]]), in_segments("b", [["10"]]), in_segments("w", [[""]])])
    counts = left(state, 0, 1)
    [pod] = asked_by_last(state).pods
    assert not counts.lacks_room([0, 1])
    state.put(pod, 0, now=False)
    assert not counts.lacks_room([0])
    assert not counts.lacks_room([1])
    state.put(state.problem.gangs[1].leaves[0].active[0], 2, now=False)
    assert counts.lacks_room([0])


def test_parts_of_every_size_need_room() -> None:
    """Three nodes of a rack, and a pair: room for a pair twice, not for a pair and a segment of three."""
    large, small = in_segments("l", [["00", "01", "02"]]), in_segments("s", [["10", "11"]])
    state = a_state((3, 2), [large, small, in_segments("w", [[""]])])
    counts = left(state, 0, 1)
    assert not counts.lacks_room([0, 1])
    [pod] = asked_by_last(state).pods
    state.put(pod, 0, now=False)
    assert counts.lacks_room([0, 1])
