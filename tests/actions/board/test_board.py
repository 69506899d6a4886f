"""The board says what the working state says: order, rights and costs; and what its turns decide is in both."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from kai_solver.actions import Actions
from kai_solver.actions.board.arrays import (
    ADMITTED,
    ALLOCATE,
    ASK,
    BOUNDLESS,
    CONSOLIDATE,
    HOME,
    IMPOSSIBLE,
    MADE_ROOM,
    MOVES,
    NONE,
    OTHER,
    OUT,
    PLACED,
    PLAIN,
    PODS,
    PREEMPT,
    RECLAIM,
    STAMP,
    TURNS,
    VICTIMS,
    WISHING,
    Arrays,
    BoolArray,
    IntArray,
)
from kai_solver.actions.board.board import Board
from kai_solver.actions.board.costs import cheapest_domain, domain_cost, estimate_domains, know_least, look_at_domain
from kai_solver.actions.board.hopeless import is_hopeless
from kai_solver.actions.board.leaving import bound_at, cost_at, suffices
from kai_solver.actions.board.order import look_at_all, look_at_path, next_gang
from kai_solver.actions.board.rights import may_reclaim, may_take, open_queues
from kai_solver.actions.board.turns import begin_turns, has_way, has_whole, take_turns
from kai_solver.actions.gang_order import GangOrder
from kai_solver.actions.room.node import NodeRoom
from kai_solver.check import WASTE, check_plan
from kai_solver.domain import Action, GpuRequest, NumaTopology, NumaZone, Snapshot, Taint
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from kai_solver.planstate.allocation_units import GangUnitsOf
from kai_solver.planstate.eligibility import Eligibility, Preemptor, refuses_reclaim
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.units.shares import WHOLE
from tests.support.builders import GIB, a_cluster, a_gang, a_node, a_queue
from tests.support.loaded import a_loaded_cluster, a_real_cluster
from tests.support.oracles import Unasked

COMPARE = Path(__file__).parent / "alike" / "compare.py"
SEEDS = range(1, 7)
ACTIONS = (Action.ALLOCATE, Action.CONSOLIDATION, Action.RECLAIM, Action.PREEMPT)


class Scene:
    """A working state, and the board of it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.problem = replace(build_problem(snapshot), fabric=None)
        self.state = State(self.problem)
        self.units = GangUnitsOf(self.state)
        self.waiting = [gang.index for gang in self.problem.gangs if self.units[gang.index].waits()]
        self.board = Board(self.state, self.units, self.waiting)
        self.pool = VictimPool.of_running(self.state)
        self.board.with_units(self.pool)
        self.arrays = self.board.arrays

    def preemptor(self, gang: int) -> Preemptor:
        unit = self.units[gang].next()
        assert unit is not None
        return Preemptor.of(self.problem, unit)


@pytest.fixture(params=SEEDS, scope="module")
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(a_loaded_cluster(request.param))


@pytest.fixture(params=SEEDS[:3], scope="module")
def real_scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(a_real_cluster(request.param))


def test_all_gangs_of_a_loaded_cluster_are_plain(scene: Scene) -> None:
    assert set(scene.board.standing.values()) == {PLAIN}
    assert not scene.board.is_partial


def test_gangs_are_plain_even_if_they_share_gpus_or_prefer_their_own_company_and_wish_if_they_prefer_that_of_others(
    real_scene: Scene,
) -> None:
    problem, standing, kinds = real_scene.problem, real_scene.board.standing, Counter[tuple[bool, bool]]()
    for gang in standing:
        pods = [pod for leaf in problem.gangs[gang].leaves for pod in leaf.pending]
        others = [pod for number, pod in enumerate(problem.pods) if problem.pod_gang[number] != gang]
        terms = [term for pod in pods for _, term in problem.pods[pod].constraints.preferred_pods]
        labels = {(asked.key, asked.values[0]) for term in terms for asked in term.selector}
        is_outward = any(pod.labels.get(key) == value for key, value in labels for pod in others)
        assert standing[gang] == (WISHING if is_outward else PLAIN)
        kinds[problem.pods[pods[0]].gpu.is_shared, is_outward] += 1
    assert kinds[True, False] > 0
    assert kinds[False, True] > 0
    assert kinds[True, False] + kinds[False, False] > 0.8 * len(standing)
    assert problem.related > problem.outward


@pytest.mark.parametrize("action", [ALLOCATE, CONSOLIDATE, RECLAIM, PREEMPT])
def test_of_a_gang_that_prefers_some_nodes_is_said_whether_there_is_room_and_nothing_changes(
    scene: Scene, action: int
) -> None:
    board, said = scene.board, Counter[bool]()
    for gang in lined_up(scene, action):
        plain, wishing = deepcopy(scene.arrays), deepcopy(scene.arrays)
        wishing.gangs.standing[board.row_of[gang]] = WISHING
        take_turns(plain, action, 1, BOUNDLESS, False)
        ended = take_turns(wishing, action, 1, BOUNDLESS, False)
        has_room = int(plain.record.turn[0, 1]) in (PLACED, MADE_ROOM)
        assert has_room == (ended == ASK)
        assert int(wishing.record.numbers[TURNS]) == (not has_room)
        assert is_same(scene.arrays, wishing)
        said[has_room] += 1
    assert said[False]
    assert said[True] or action == PREEMPT


@pytest.mark.parametrize("action", [ALLOCATE, CONSOLIDATE, RECLAIM, PREEMPT])
def test_of_a_gang_that_stands_in_no_line_is_said_whether_its_turn_would_find_places_and_nothing_changes(
    scene: Scene, action: int
) -> None:
    said = Counter[bool]()
    for gang in lined_up(scene, action):
        turn, asked, row = deepcopy(scene.arrays), deepcopy(scene.arrays), scene.board.row_of[gang]
        take_turns(turn, action, 1, BOUNDLESS, False)
        asked.gangs.standing[row] = OUT
        asked.scratch.refused[asked.gangs.kind[row]] = asked.record.numbers[ADMITTED]
        found = has_way(asked, row, action)
        assert found == (int(turn.record.turn[0, 1]) in (PLACED, MADE_ROOM))
        assert asked.gangs.standing[row] == OUT
        assert asked.scratch.refused[asked.gangs.kind[row]] == asked.record.numbers[ADMITTED]
        assert is_same(scene.arrays, asked)
        said[found] += 1
    assert said[False]
    assert said[True] or action == PREEMPT


def lined_up(scene: Scene, action: int) -> Iterator[int]:
    """Each gang that waits, when it alone stands in line for ``action`` and no turn was taken."""
    scene.board.price(moves=action == CONSOLIDATE)
    for gang in scene.waiting:
        scene.board.line_up([gang])
        begin_turns(scene.arrays)
        yield gang


def is_same(one: Arrays, other: Arrays) -> bool:
    return all((before == after).all() for before, after in zip(_lasting(one), _lasting(other), strict=True))


def _lasting(arrays: Arrays) -> list[IntArray | BoolArray]:
    """What is so until a turn changes it."""
    nodes, units, queues = arrays.nodes, arrays.units, arrays.queues
    return [
        *(nodes.later, nodes.now, nodes.whole_later, nodes.whole_now, nodes.gpu_free, nodes.block_whole),
        *(units.where, queues.held, queues.fixed, arrays.domains.free),
        *(arrays.record.numbers[[PODS, VICTIMS, MOVES]], arrays.zones.later, arrays.zones.now),
    ]


@pytest.mark.parametrize(("pods", "moves"), [(1, True), (2, False)])
def test_consolidation_counts_whole_devices_on_nodes_that_pods_may_be_on(pods: int, moves: bool) -> None:
    """One GPU is free on each of two nodes, and four on one with a taint. Each pod that waits asks for two GPUs."""
    nodes = [a_node("a", 2), a_node("b", 2), a_node("tainted", 4, taints=(Taint("maintenance"),))]
    running = [a_gang(f"run-{on}", gpus=1, on=on) for on in ("a", "b")]
    scene = Scene(a_cluster(nodes, [*running, a_gang("wait", gpus=2, pods=pods)], [a_queue("q", 8)]))
    gang = scene.board.row_of[scene.waiting[0]]
    assert has_whole(scene.arrays, gang) is moves
    scene.board.price(moves=True)
    scene.board.line_up(scene.waiting)
    begin_turns(scene.arrays)
    take_turns(scene.arrays, CONSOLIDATE, 1, BOUNDLESS, False)
    assert (int(scene.arrays.record.turn[0, 1]) == MADE_ROOM) is moves


def test_units_with_a_share_may_leave_where_their_gpus_are_free_then(real_scene: Scene) -> None:
    units, pool, state = real_scene.arrays.units, real_scene.pool, real_scene.state
    held, node = real_scene.problem.held_devices, real_scene.problem.pod_node
    shared = [unit for unit in pool.units if pool.shares[unit.index]]
    assert shared
    for unit in shared:
        own = Counter((node[pod], device) for pod in unit.pods for device in held[pod])
        alone = all(state.sharers_later[place] == count for place, count in own.items())
        assert (units.where[unit.index] == HOME) == alone


def test_room_on_nodes_with_zones_can_be_made_where_a_close_look_says_so(real_scene: Scene) -> None:
    """Of all victims that the arrays show. Both choose by heuristics, so that the victims may differ."""
    arrays, pool = real_scene.arrays, real_scene.pool
    here = arrays.units.where == HOME
    zoned = np.flatnonzero(arrays.zones.row >= 0).tolist()
    assert zoned
    for row, shape in enumerate(real_scene.board.plainness.shapes):
        room = NodeRoom(pool, shape, pool.cost)
        for node in zoned[::3]:
            assert (cost_at(arrays, row, node, NONE) < 1e300) == (room.find(node, here) is not None)


def test_gangs_come_in_the_order_of_the_queues(scene: Scene) -> None:
    scene.board.line_up(scene.waiting)
    arrays = scene.arrays
    look_at_all(arrays)
    order, found, wanted = GangOrder(scene.state, scene.units, scene.waiting), [], []
    while (row := next_gang(arrays.queues)) != NONE:
        found.append(scene.board.gang(row))
        arrays.gangs.standing[row] = OUT
        look_at_path(arrays.queues, arrays.gangs, arrays.gangs.queue[row])
    while (next_one := order.pop()) is not None:
        wanted.append(next_one.gang)
    assert found == wanted


def test_which_gangs_may_reclaim_and_from_which_queues_is_as_the_rule_says(scene: Scene) -> None:
    arrays, eligibility = scene.arrays, Eligibility(scene.state, scene.pool)
    with_units = set(scene.pool.queue_of.tolist())
    for gang in scene.waiting:
        row, preemptor = scene.board.row_of[gang], scene.preemptor(gang)
        assert may_reclaim(arrays, row) == (refuses_reclaim(scene.state, preemptor) is None)
        arrays.record.numbers[STAMP] += 1
        open_queues(arrays, row)
        stamp = arrays.record.numbers[STAMP]
        opened = {q for q in np.flatnonzero(arrays.scratch.open_queue == stamp).tolist() if q in with_units}
        assert opened == set(eligibility.reclaim_queues(preemptor))


def test_room_costs_on_each_node_what_a_close_look_says(scene: Scene) -> None:
    """Of the same victims: without a limit on what may be taken."""
    arrays, pool = scene.arrays, scene.pool
    every = np.ones(len(pool.units), dtype=np.bool_)
    for row, shape in enumerate(scene.board.plainness.shapes):
        room = NodeRoom(pool, shape, pool.cost)
        for node in range(0, len(scene.problem.nodes), 7):
            found = room.find(node, every)
            cost = cost_at(arrays, row, node, NONE)
            if found is None:
                assert cost >= 1e300
            else:
                assert cost == pytest.approx(room.price(found))


@pytest.mark.parametrize("seed", range(40))
def test_no_units_that_make_room_on_a_node_cost_less_than_its_lower_bound(seed: int) -> None:
    """Of all sets of units; 0 is the bound only where there is room. GPUs, CPU and memory are short in turn."""
    draw, nodes = np.random.default_rng(seed), [a_node(f"n{at}", 4, cpu=8_000, memory=32 * GIB) for at in range(4)]
    running = [
        a_gang(f"run-{at}", gpus=int(draw.integers(0, 2)), on=f"n{at % 4}", last_start_s=float(draw.integers(1, 1000)),
               each={"cpu": int(draw.integers(1, 12)) * 200, "memory": int(draw.integers(1, 10)) * GIB})
        for at in range(20)
    ]  # fmt: skip
    waiting = [
        a_gang(f"wait-{at}", gpus=at % 4, each={"cpu": int(draw.integers(4, 50)) * 100, "memory": 8 * at * GIB})
        for at in range(5)
    ]
    scene = Scene(a_cluster(nodes, [*running, *waiting], [a_queue("q", 8)]))
    arrays = scene.arrays
    scene.board.price(moves=False)
    for shape in range(len(arrays.shapes.devices)):
        for node in range(4):
            bound, costs = bound_at(arrays, shape, node), _costs_of_room(arrays, shape, node)
            assert bound <= min(costs) * (1 + 1e-12)
            assert (bound == 0.0) == (costs[0] == 0.0)


def _costs_of_room(arrays: Arrays, shape: int, node: int) -> list[float]:
    """What each set of units that run on a node costs, `IMPOSSIBLE` where it makes no room; that of none is first."""
    picks, units = arrays.scratch.picks, arrays.units
    rows = range(int(units.first_on[node]), int(units.first_on[node + 1]))
    need, costs = int(arrays.shapes.devices[shape] - arrays.nodes.whole_later[node]), []
    for count in range(len(rows) + 1):
        for chosen in combinations(rows, count):
            picks[0], picks[1 : 1 + count] = count, chosen
            is_room = sum(int(units.whole[row]) for row in chosen) >= need and suffices(arrays, shape, node)
            cost = sum(float(units.cost[units.unit[row]]) for row in chosen)
            costs.append(cost if is_room else IMPOSSIBLE)
    return costs


def test_units_behind_many_without_gpus_are_found() -> None:
    """A hundred pods without GPUs run on a node, and then one with a GPU."""
    small = [a_gang(f"a-{at:03}", gpus=0, on="n") for at in range(100)]
    gangs = [*small, a_gang("b", gpus=1, on="n"), a_gang("wait", gpus=1)]
    scene = Scene(a_cluster([a_node("n", 1)], gangs, [a_queue("q", 8)]))
    scene.board.price(moves=False)
    shape = int(scene.arrays.gangs.shape[scene.board.row_of[scene.waiting[0]]])
    assert bound_at(scene.arrays, shape, 0) == cost_at(scene.arrays, shape, 0, NONE) < IMPOSSIBLE
    assert scene.arrays.scratch.picks[0] == 1


@pytest.mark.parametrize("times", [1, 3, 30])
def test_a_gang_is_hopeless_where_no_domain_has_the_devices_with_all_gone_that_may_leave(
    scene: Scene, times: int
) -> None:
    arrays, said = deepcopy(scene.arrays), Counter[bool]()
    for gang in scene.waiting:
        row = scene.board.row_of[gang]
        arrays.gangs.pods[row] *= times
        arrays.record.numbers[STAMP] += 1
        open_queues(arrays, row)
        shape, level = int(arrays.gangs.shape[row]), int(arrays.gangs.level[row])
        devices, hosts = int(arrays.shapes.devices[shape]), Counter[int]()
        for node in range(len(scene.problem.nodes)):
            domain = 0 if level == NONE else int(arrays.domains.of_node[level, node])
            if domain != NONE and arrays.shapes.allowed[shape, node] and arrays.nodes.devices[node] >= devices > 0:
                hosts[domain] += _devices_if_all_leave(arrays, scene.pool, node) // devices
        is_short = devices > 0 and max(hosts.values(), default=0) < int(arrays.gangs.pods[row])
        assert is_hopeless(arrays, row, BOUNDLESS) is is_short
        said[is_short] += 1
    assert said[times == 30]


def _devices_if_all_leave(arrays: Arrays, pool: VictimPool, node: int) -> int:
    """Whole devices of a node once all units that are open have left."""
    origins = pool.origins
    rows = [row for row in np.flatnonzero(origins.node == node) if may_take(arrays, int(origins.unit[row]), BOUNDLESS)]
    return int(arrays.nodes.whole_later[node]) + int(arrays.units.whole[rows].sum())


def test_the_cheapest_domain_is_found_without_a_look_at_all_nodes(scene: Scene) -> None:
    arrays, scratch, domains, chosen = scene.arrays, scene.arrays.scratch, scene.arrays.domains, 0
    for gang in scene.waiting:
        row = scene.board.row_of[gang]
        shape, level, count = (
            int(column[row]) for column in (arrays.gangs.shape, arrays.gangs.level, arrays.gangs.pods)
        )
        if level == NONE:
            continue
        arrays.record.numbers[STAMP] += 1
        open_queues(arrays, row)
        know_least(arrays, shape)
        estimate_domains(arrays, shape, count, level, BOUNDLESS)
        found = cheapest_domain(arrays, row, BOUNDLESS)
        costs = []
        for domain in range(int(domains.number[level])):
            look_at_domain(arrays, shape, level, domain, BOUNDLESS)
            costs.append(domain_cost(arrays, shape, count, level, domain))
        assert found == (NONE if min(costs) >= 1e300 else int(np.argmin(costs)))
        if found != NONE:
            assert scratch.domain_cost[found] == pytest.approx(min(costs))
            chosen += 1
    assert chosen


@pytest.mark.parametrize("action", [RECLAIM, PREEMPT])
@pytest.mark.parametrize(("few", "wasted"), [(0, 256), (10**9, 1), (10**9, 8), (10**9, 10**9)])
def test_turns_are_the_same_however_many_nodes_are_looked_at_first(
    scene: Scene, action: int, few: int, wasted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``few``, ``wasted``: at once those with units that may leave; these after so many looks in vain; all nodes."""
    scene.board.price(moves=False)
    scene.board.line_up(scene.waiting)
    begin_turns(scene.arrays)
    usual, other = deepcopy(scene.arrays), deepcopy(scene.arrays)
    take_turns(usual, action, 64, 0, False)
    monkeypatch.setattr("kai_solver.actions.board.costs.FEW", few)
    monkeypatch.setattr("kai_solver.actions.board.costs.MOST_WASTED", wasted)
    take_turns(other, action, 64, 0, False)
    count = int(usual.record.numbers[TURNS])
    assert count
    assert (usual.record.turn[:count] == other.record.turn[:count]).all()
    assert is_same(usual, other)


@pytest.fixture
def on_the_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reclaims are taken by kernels, however few gangs wait."""
    monkeypatch.setattr("kai_solver.actions.context.MOST_WAITING", 0)


CLUSTERS = [*(a_loaded_cluster(seed) for seed in SEEDS), *(a_real_cluster(seed) for seed in SEEDS)]


@pytest.mark.usefixtures("on_the_board")
@pytest.mark.parametrize("snapshot", CLUSTERS, ids=lambda snapshot: snapshot.name)
def test_the_board_and_the_working_state_say_the_same_after_all_turns(snapshot: Snapshot) -> None:
    problem = replace(build_problem(snapshot), fabric=None)
    actions = Actions(problem, ACTIONS, Unasked(), by_board=True)
    outcome = actions.run()
    assert sum(bool(admission.units) for admission in outcome.admissions) > 0
    state, board = actions.state, actions.context.board
    assert board is not None
    board.catch_up()
    nodes, queues, units = board.arrays.nodes, board.arrays.queues, board.arrays.units
    assert (nodes.later == state.future.T).all()
    assert (nodes.whole_later == state.whole_later).all()
    assert (nodes.gpu_free == state.gpu_free).all()
    is_part = (state.device_future > 0) & (state.device_future < WHOLE)
    assert (nodes.parts[:, : is_part.shape[1]] == np.where(is_part, state.device_future, 0)).all()
    assert (nodes.parts[:, is_part.shape[1] :] == 0).all()
    assert queues.held.tolist() == state.allocated
    assert queues.fixed.tolist() == state.allocated_fixed
    for unit in np.flatnonzero(units.where == HOME).tolist():
        assert not actions.outcome.pool.is_disturbed(unit)  # type: ignore[union-attr]
    for rule in state.rules:
        parts = rule.compartments()
        if parts is not None:
            assert (board.arrays.zones.later == parts.later).all()
    for row in range(len(board.arrays.domains.of_node)):
        domain = board.arrays.domains.of_node[row]
        inside, width = domain >= 0, board.arrays.domains.free.shape[1]
        free = np.bincount(domain[inside], weights=nodes.gpu_free[inside], minlength=width)
        assert (board.arrays.domains.free[row] == free).all()


@pytest.mark.usefixtures("on_the_board")
@pytest.mark.parametrize(
    "numa", [None, NumaTopology("restricted", "pod", (NumaZone("z", (64_000, 0, 8_000, 0)),), (2,))]
)
def test_a_cluster_in_which_all_pods_ask_for_gpu_memory_has_no_plain_gang(numa: NumaTopology | None) -> None:
    half = GpuRequest(1, 0, memory_mib=40_000)
    running = [a_gang(f"run-{number}", pods=2, gpus=half, on=f"n{number}", queue="a") for number in range(4)]
    waiting = [a_gang(f"wait-{number}", pods=1 + number % 2, gpus=half, queue="b") for number in range(6)]
    nodes = [a_node(f"n{number}", gpus=1, numa=numa) for number in range(4)]
    queues = [a_queue("a", quota=0), a_queue("b", quota=4)]
    actions = Actions(build_problem(a_cluster(nodes, [*running, *waiting], queues)), ACTIONS, Unasked(), by_board=True)
    outcome = actions.run()
    assert actions.context.board is not None
    assert set(actions.context.board.standing.values()) == {OTHER}
    assert outcome.admissions


def test_jobs_that_are_nearly_all_alike_are_served_in_batches() -> None:
    jobs = [a_gang(f"job-{number:02}") for number in range(40)]
    others = [a_gang(f"other-{number}", pods=2) for number in range(3)]
    for gangs, by_board in ((jobs, False), ([*jobs, *others], True)):
        actions = Actions(build_problem(a_cluster([a_node("n", gpus=8)], gangs)), ACTIONS, Unasked(), by_board=True)
        outcome = actions.run()
        assert (actions.context.board is not None) is by_board
        assert sum(len(admission.allocation_unit.pods) for admission in outcome.admissions) == 8


@pytest.mark.slow
@pytest.mark.usefixtures("on_the_board")
@pytest.mark.parametrize("snapshot", CLUSTERS, ids=lambda snapshot: snapshot.name)
def test_the_checker_accepts_plans_of_the_board_and_they_serve_as_many(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model("greedy-only")
    one_by_one = cycle(snapshot, model, budget_s=600)
    monkeypatch.setattr("kai_solver.compiled.LARGE_NODES", 1)
    monkeypatch.setattr("kai_solver.compiled.is_loaded", lambda: True)
    plan = cycle(snapshot, model, budget_s=600)
    found = check_plan(snapshot, plan, actions=model.actions)
    assert [violation for violation in found if violation.rule not in WASTE] == []
    assert not any("refused" in note for note in plan.notes)
    # Both are heuristics: other victims leave, and one large gang may take the room of several later ones.
    assert len(plan.admitted) >= 0.85 * len(one_by_one.admitted)


@pytest.mark.slow
def test_compiled_and_uncompiled_turns_decide_the_same() -> None:
    process = subprocess.run([sys.executable, str(COMPARE), "3"], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert found["compiled"]
    assert found["victims"] > 10
    assert found["different"] == []
