"""Whose turn it is, against sorting everything anew; who has to leave, against trying without each."""

from dataclasses import replace
from functools import cmp_to_key
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.actions.gang_order import GangOrder, gang_key
from kai_solver.actions.room.evictor import Evictor
from kai_solver.actions.room.node import NodeRoom
from kai_solver.actions.room.table import RoomTable
from kai_solver.domain import Action, Gang, GpuRequest, Node, Pod, PodStatus, Queue, Snapshot, flat_gang
from kai_solver.fairness import compare_queues, queue_key
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import Placer
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits
from kai_solver.planstate.eviction_units import charge_of
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import IMPOSSIBLE, VictimPool
from kai_solver.problem import build_problem
from kai_solver.units import MILLI, ResourceSchema

GIB = 2**30
SPEED = settings(max_examples=60, deadline=None)


def a_node(index: int, gpus: int, cpu: int = 8000) -> Node:
    return Node(f"n{index}", (cpu, 64 * GIB, gpus * MILLI, 20), gpus=gpus, gpu_memory_mib=100)


# -- turns ---------------------------------------------------------------------------------------------------------


@st.composite
def waiting_rooms(draw: st.DrawFn) -> State:
    """Queues of two levels, and gangs that wait, some with surplus."""
    queues: list[Queue] = []
    for parent in "ab"[: draw(st.integers(1, 2))]:
        queues.append(draw(some_queue(parent, "", len(queues))))
        for child in "xyz"[: draw(st.integers(0, 3))]:
            queues.append(draw(some_queue(parent + child, parent, len(queues))))
    parents = {queue.parent for queue in queues}
    leaves = [queue.name for queue in queues if queue.name not in parents]
    gangs: list[Gang] = []
    for number in range(draw(st.integers(1, 8))):
        size = draw(st.integers(1, 3))
        gpu, cpu = GpuRequest(draw(st.integers(0, 2))), draw(st.sampled_from([100, 1000]))
        pods = tuple(Pod("ns", f"g{number}-{i}", (cpu, GIB, 0, 1), gpu, order=(0, float(i), "")) for i in range(size))
        gangs.append(
            Gang(
                "ns",
                f"g{number}",
                draw(st.sampled_from(leaves)),
                flat_gang(draw(st.integers(1, size))),
                pods,
                priority=draw(st.sampled_from([50, 60])),
                created_s=float(draw(st.integers(0, 2))),
            )
        )
    nodes = tuple(a_node(i, 3) for i in range(2))
    return State(build_problem(Snapshot(10.0, ResourceSchema(), nodes, tuple(queues), tuple(gangs))))


@st.composite
def some_queue(draw: st.DrawFn, name: str, parent: str, number: int) -> Queue:
    return Queue(
        name,
        parent,
        priority=draw(st.sampled_from([100, 101])),
        created_s=float(draw(st.integers(0, 1)) + number // 4),
        quota=(draw(st.sampled_from([-1, 0, 2000])), -1, draw(st.sampled_from([-1, 0, 1, 2])) * MILLI),
        weight=(1.0, 1.0, float(draw(st.integers(0, 2)))),
    )


class SlowTurns:
    """The same rules, with every key computed and every level sorted anew at each turn."""

    def __init__(self, state: State, gang_units: list[AllocationUnits]) -> None:
        self.state = state
        self.gang_units = gang_units
        self.waiting = {gang for gang, units_of_gang in enumerate(gang_units) if units_of_gang.next() is not None}

    def pop(self) -> int | None:
        best = self._best(self.state.problem.queues.roots)
        if best is not None:
            self.waiting.remove(best)
        return best

    def again(self, gang: int) -> None:
        if self.gang_units[gang].next() is not None:
            self.waiting.add(gang)

    def _best(self, siblings: tuple[int, ...]) -> int | None:
        problem = self.state.problem
        tree = problem.queues
        best: dict[int, int] = {}
        for queue in siblings:
            mine = [gang for gang in self.waiting if problem.gangs[gang].queue == queue]
            below = self._best(tree.children[queue])
            gang = min(mine, key=lambda g: (gang_key(self.gang_units[g]), g)) if mine else below
            if gang is not None:
                best[queue] = gang

        def key(queue: int) -> tuple[bool, bool, int, bool, float, float]:
            allocation_unit = self.gang_units[best[queue]].next()
            assert allocation_unit is not None
            job = charge_of(problem, allocation_unit.pods)
            return queue_key(
                tree, problem.share, problem.allocatable, problem.total, queue, self.state.allocated[queue], job
            )

        def order(one: int, other: int) -> int:
            return compare_queues(tree, problem.allocatable, one, key(one), other, key(other))

        ranked = sorted(best, key=cmp_to_key(order))
        return best[ranked[0]] if ranked else None


@pytest.mark.slow
@given(state=waiting_rooms())
@SPEED
def test_turns_come_as_if_all_were_sorted_anew(state: State) -> None:
    gang_units = [AllocationUnits(gang, kept) for gang, kept in zip(state.problem.gangs, state.gangs, strict=True)]
    fast, slow = GangOrder(state, gang_units, range(len(gang_units))), SlowTurns(state, gang_units)
    placer = Placer(state)
    while True:
        next_gang, expected = fast.pop(), slow.pop()
        assert (next_gang[0] if next_gang is not None else None) == expected
        if next_gang is None:
            return
        gang, allocation_unit, _ = next_gang
        if placer.place_unit(allocation_unit):
            fast.again(gang)
            slow.again(gang)


@pytest.mark.slow
@given(state=waiting_rooms(), draws=st.data())
@SPEED
def test_turns_follow_what_other_queues_lose(state: State, draws: st.DataObject) -> None:
    gang_units = [AllocationUnits(gang, kept) for gang, kept in zip(state.problem.gangs, state.gangs, strict=True)]
    fast, slow = GangOrder(state, gang_units, range(len(gang_units))), SlowTurns(state, gang_units)
    tree = state.problem.queues
    leaves = [queue for queue in range(tree.size) if not tree.children[queue]]
    while True:
        next_gang, expected = fast.pop(), slow.pop()
        assert (next_gang[0] if next_gang is not None else None) == expected
        if next_gang is None:
            return
        for leaf, gpus in draws.draw(st.lists(st.tuples(st.sampled_from(leaves), st.integers(-1, 2)), max_size=2)):
            state.suppose(tree.path[leaf], (0, 0, gpus * MILLI))
        fast.refresh()


@pytest.mark.slow
@given(state=waiting_rooms())
@SPEED
def test_every_gang_that_waits_gets_a_turn(state: State) -> None:
    gang_units = [AllocationUnits(gang, kept) for gang, kept in zip(state.problem.gangs, state.gangs, strict=True)]
    gang_order = GangOrder(state, gang_units, range(len(gang_units)))
    seen = []
    while (next_gang := gang_order.pop()) is not None:
        seen.append(next_gang[0])
    assert sorted(seen) == [gang for gang, units_of_gang in enumerate(gang_units) if units_of_gang.next() is not None]


# -- victims -------------------------------------------------------------------------------------------------------


@st.composite
def crowded_states(draw: st.DrawFn) -> State:
    """Nodes full of single pods, which may all leave, and one gang that waits (the last)."""
    nodes = [
        a_node(i, gpus, cpu=3000) for i, gpus in enumerate(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    ]
    gangs: list[Gang] = []
    for node in nodes:
        free, cpu = [MILLI] * node.gpus, 3000
        for _ in range(draw(st.integers(0, 5))):
            gpu = draw(st.sampled_from([GpuRequest(0), GpuRequest(1), GpuRequest(2), GpuRequest(1, 500)]))
            need = draw(st.sampled_from([300, 1000]))
            seats = tuple(d for d, left in enumerate(free) if left >= gpu.milli)[: gpu.devices]
            if len(seats) < gpu.devices or need > cpu:
                continue
            cpu -= need
            for seat in seats:
                free[seat] -= gpu.milli
            name = f"r{len(gangs)}"
            pod = Pod("ns", name, (need, GIB, 0, 1), gpu, status=PodStatus.RUNNING, node=node.name, devices=seats)
            start = float(draw(st.integers(0, 900)))
            gangs.append(
                Gang("ns", name, "q", flat_gang(1), (pod,), priority=draw(st.integers(1, 3)), last_start_s=start)
            )
    size = draw(st.integers(1, 2))
    gpu = draw(st.sampled_from([GpuRequest(0), GpuRequest(1), GpuRequest(2), GpuRequest(1, 500), GpuRequest(2, 500)]))
    need = draw(st.sampled_from([300, 2000]))
    pods = tuple(Pod("ns", f"w-{i}", (need, GIB, 0, 1), gpu, order=(0, float(i), "")) for i in range(size))
    gangs.append(Gang("ns", "w", "q", flat_gang(size), pods, priority=9))
    queue = Queue("q", quota=(-1, -1, -1))
    return State(build_problem(Snapshot(1000.0, ResourceSchema(), tuple(nodes), (queue,), tuple(gangs))))


def fits_without(state: State, pool: VictimPool, units: list[int], shape: int, node: int) -> bool:
    mark = state.mark()
    for unit in units:
        pool.leave(unit)
    _, later = FitTable(state).counts(shape)
    state.rollback(mark)
    return bool(later[node] > 0)


def everybody(pool: VictimPool) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.ones(len(pool.units), dtype=np.bool_)


@pytest.mark.slow
@given(state=crowded_states())
@SPEED
def test_room_is_made_by_needed_victims_only(state: State) -> None:
    pool, fits = VictimPool.of_running(state), FitTable(state)
    shape = state.problem.pod_shape[state.problem.gangs[-1].pending[0]]
    room = NodeRoom(pool, shape, pool.cost)
    bound = RoomTable(pool, fits, shape, everybody(pool), Action.PREEMPT).update()
    for node in range(len(state.problem.nodes)):
        victims = room.find(node, everybody(pool))
        if victims is None:
            assert not fits_without(state, pool, pool.on(node), shape, node)
            continue
        assert not victims or bound[node] < IMPOSSIBLE
        assert fits_without(state, pool, victims, shape, node)
        assert (fits.counts(shape)[1][node] > 0) == (not victims)
        for kept in victims:
            assert not fits_without(state, pool, [unit for unit in victims if unit != kept], shape, node)


@pytest.mark.slow
@given(state=crowded_states())
@SPEED
def test_a_survey_never_asks_more_than_a_close_look(state: State) -> None:
    pool, fits = VictimPool.of_running(state), FitTable(state)
    shape = state.problem.pod_shape[state.problem.gangs[-1].pending[0]]
    room = NodeRoom(pool, shape, pool.cost)
    bound = RoomTable(pool, fits, shape, everybody(pool), Action.PREEMPT).update()
    for node in range(len(state.problem.nodes)):
        victims = room.find(node, everybody(pool))
        if victims:
            assert bound[node] <= room.price(pool.closure(victims)) * (1 + 1e-9)


class ListedRoom(NodeRoom):
    """Without the shortcut for one device."""

    def _single(self, free: object, milli: object, sitting: object) -> None:
        return None


@pytest.mark.slow
@given(state=crowded_states())
@SPEED
def test_the_shortcut_for_one_device_finds_the_same_victims(state: State) -> None:
    pool = VictimPool.of_running(state)
    for shape in range(len(state.problem.shapes.shapes)):
        quick, listed = NodeRoom(pool, shape, pool.cost), ListedRoom(pool, shape, pool.cost)
        for node in range(len(state.problem.nodes)):
            assert quick.find(node, everybody(pool)) == listed.find(node, everybody(pool))


@pytest.mark.slow
@given(state=crowded_states())
@SPEED
def test_whole_devices_are_freed_at_the_least_price(state: State) -> None:
    """Against all sets of units, where GPUs alone are short."""
    pool = VictimPool.of_running(state)
    shape = state.problem.pod_shape[state.problem.gangs[-1].pending[0]]
    if not state.problem.shapes.shapes[shape].gpu.is_whole or any(u.charge[2] % MILLI for u in pool.units):
        return
    room = NodeRoom(pool, shape, pool.cost)
    for node in range(len(state.problem.nodes)):
        if (state.future[0, node] < state.problem.shapes.shapes[shape].request[0]) or not room.find(
            node, everybody(pool)
        ):
            continue
        here = pool.on(node)
        sets = [c for size in range(1, len(here) + 1) for c in combinations(here, size)]
        prices = [room.price(c) for c in sets if fits_without(state, pool, list(c), shape, node)]
        assert room.price(room.find(node, everybody(pool)) or []) == pytest.approx(min(prices))


@pytest.mark.slow
@given(state=crowded_states())
@SPEED
def test_a_room_table_kept_is_one_made_anew(state: State) -> None:
    pool, fits = VictimPool.of_running(state), FitTable(state)
    shape = state.problem.pod_shape[state.problem.gangs[-1].pending[0]]
    kept = RoomTable(pool, fits, shape, everybody(pool), Action.PREEMPT)
    kept.update()
    for unit in range(0, len(pool.units), 2):
        pool.leave(unit)
        anew = RoomTable(pool, fits, shape, everybody(pool), Action.PREEMPT)
        assert cheapest(kept, state) == cheapest(anew, state)


@pytest.mark.slow
@given(state=crowded_states(), data=st.data())
@SPEED
def test_a_room_table_serves_others_as_one_made_for_them(state: State, data: st.DataObject) -> None:
    """Whoever may leave, whoever left meanwhile, and whatever nodes were asked about before."""
    pool, fits = VictimPool.of_running(state), FitTable(state)
    shape = state.problem.pod_shape[state.problem.gangs[-1].pending[0]]
    kept = RoomTable(pool, fits, shape, everybody(pool), Action.PREEMPT)
    mask = st.builds(np.array, st.lists(st.booleans(), min_size=len(pool.units), max_size=len(pool.units)))
    nodes = st.builds(np.array, st.lists(st.booleans(), min_size=len(state.problem.nodes), max_size=3))
    for unit in range(0, len(pool.units), 2):
        kept.update(data.draw(nodes)[: len(state.problem.nodes)])
        pool.leave(unit)
        eligible = data.draw(mask).astype(np.bool_)
        kept.serve(eligible)
        assert cheapest(kept, state) == cheapest(RoomTable(pool, fits, shape, eligible, Action.PREEMPT), state)


@pytest.mark.slow
@given(state=crowded_states(), data=st.data())
@SPEED
def test_no_room_can_be_made_where_that_is_said_to_be_hopeless(state: State, data: st.DataObject) -> None:
    pool = VictimPool.of_running(state)
    allowed = data.draw(st.lists(st.booleans(), min_size=len(pool.units), max_size=len(pool.units)))
    evictor = Evictor(pool, FitTable(state), Action.PREEMPT, np.array(allowed, dtype=np.bool_))
    allocation_unit = chunk_of_last(state)
    assert not evictor.is_hopeless(allocation_unit) or evictor.make_room(allocation_unit) is None


@pytest.mark.parametrize(("who", "says"), [((True, False), True), ((True, True), False)])
def test_too_few_that_may_leave_are_hopeless(who: tuple[bool, bool], says: bool) -> None:
    pods = [Pod("ns", f"r{i}", (100, GIB, 0, 1), GpuRequest(1)) for i in range(2)]
    gangs = [
        Gang("ns", f"r{i}", "q", flat_gang(1), (replace(pod, status=PodStatus.RUNNING, node="n0", devices=(i,)),))
        for i, pod in enumerate(pods)
    ]
    asks = Gang("ns", "w", "q", flat_gang(1), (Pod("ns", "w", (100, GIB, 0, 1), GpuRequest(2)),), priority=9)
    snapshot = Snapshot(1000.0, ResourceSchema(), (a_node(0, 2),), (Queue("q", quota=(-1, -1, -1)),), (*gangs, asks))
    state = State(build_problem(snapshot))
    evictor = Evictor(VictimPool.of_running(state), FitTable(state), Action.PREEMPT, np.array(who))
    assert evictor.is_hopeless(chunk_of_last(state)) is says


def cheapest(table: RoomTable, state: State) -> tuple[float, int] | None:
    """Price and number of those who leave where that costs least, of the nodes without room."""
    counts = FitTable(state).counts(table.shape)[1]
    cost, nodes = np.where(counts > 0, IMPOSSIBLE, table.update()), np.arange(len(counts))
    node = table.cheapest(nodes, cost)
    return None if node is None else (float(cost[node]), len(table.victims(node)))


@pytest.mark.slow
@given(state=crowded_states(), action=st.sampled_from([Action.PREEMPT, Action.CONSOLIDATION]))
@SPEED
def test_what_was_made_to_leave_could_not_stay(state: State, action: Action) -> None:
    pool = VictimPool.of_running(state)
    allocation_unit = chunk_of_last(state)
    before = state.mark()
    evictor = Evictor(pool, FitTable(state), action, np.ones(len(pool.units), dtype=np.bool_))
    found = evictor.make_room(allocation_unit)
    if found is None:
        assert state.mark() == before
        return
    assert all(pod in state.places for pod in allocation_unit.pods)
    disturbed = {unit.index for unit in pool.units if pool.has_left(unit.index) or pool.is_moved(unit.index)}
    assert set(found) == disturbed
    assert action is Action.PREEMPT or not any(pool.has_left(unit) for unit in found)
    for unit in found:
        if pool.has_left(unit):
            assert not state.returns_to_origin(pool.units[unit].pods)
    assert (state.future >= 0).all()
    assert (state.device_future >= 0).all()


def chunk_of_last(state: State) -> AllocationUnit:
    allocation_unit = AllocationUnits(state.problem.gangs[-1], state.gangs[-1]).next()
    assert allocation_unit is not None
    return allocation_unit


@pytest.mark.parametrize(("priorities", "victim"), [((1, 2), 0), ((2, 1), 1)])
def test_the_lower_priority_leaves(priorities: tuple[int, int], victim: int) -> None:
    gangs = [
        Gang(
            "ns",
            f"r{i}",
            "q",
            flat_gang(1),
            (
                Pod(
                    "ns", f"r{i}", (100, GIB, 0, 1), GpuRequest(1), status=PodStatus.RUNNING, node=f"n{i}", devices=(0,)
                ),
            ),
            priority=priority,
            last_start_s=0.0,
        )
        for i, priority in enumerate(priorities)
    ]
    waiting = Gang("ns", "w", "q", flat_gang(1), (Pod("ns", "w", (100, GIB, 0, 1), GpuRequest(1)),), priority=9)
    nodes = (a_node(0, 1), a_node(1, 1))
    snapshot = Snapshot(1000.0, ResourceSchema(), nodes, (Queue("q", quota=(-1, -1, -1)),), (*gangs, waiting))
    state = State(build_problem(snapshot))
    pool = VictimPool.of_running(state)
    found = Evictor(pool, FitTable(state), Action.PREEMPT, np.ones(2, dtype=np.bool_)).make_room(chunk_of_last(state))
    assert found == [victim]


def test_the_pool_holds_preemptible_gangs_that_run() -> None:
    pods = [Pod("ns", f"p{i}", (100, GIB, 0, 1), GpuRequest(1)) for i in range(3)]
    running = [replace(pod, status=PodStatus.RUNNING, node="n0", devices=(i,)) for i, pod in enumerate(pods)]
    gangs = (
        Gang("ns", "a", "q", flat_gang(1), (running[0],)),
        Gang("ns", "b", "q", flat_gang(1), (running[1],), preemptible=False),
        Gang("ns", "c", "q", flat_gang(1), (pods[2],)),
    )
    snapshot = Snapshot(0.0, ResourceSchema(), (a_node(0, 4),), (Queue("q"),), gangs)
    pool = VictimPool.of_running(State(build_problem(snapshot)))
    assert list(pool.of_gang) == [0]
