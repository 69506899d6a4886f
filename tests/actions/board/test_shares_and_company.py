"""Gangs that share GPUs, and those that prefer company: the arrays answer as the rules do one by one."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from kai_solver.actions import Actions
from kai_solver.actions.board.arrays import PLAIN, WISHING, BoolArray
from kai_solver.actions.board.board import Board
from kai_solver.actions.board.room import empty, fill, room_at, room_now
from kai_solver.domain import Action, Constraints, Gang, GpuRequest, Node, PodAffinityTerm, PodStatus, Requirement
from kai_solver.placement.fit import FitTable
from kai_solver.planstate.allocation_units import GangUnitsOf
from kai_solver.planstate.state import State
from kai_solver.problem import Problem, build_problem
from kai_solver.units.shares import WHOLE
from tests.support.builders import a_cluster, a_gang, a_node, a_pod, a_queue
from tests.support.oracles import Unasked

HOST = "kubernetes.io/hostname"
SHARES = (200, 300, 500, 700)


def a_shared_cluster(seed: int) -> Problem:
    """Nodes with few pod slots, on which pods share GPUs, some of which leave; gangs wait for whole GPUs and shares."""
    draw = Random(seed)
    nodes = [a_node(f"n{at}", gpus=draw.randint(1, 4), slots=draw.randint(2, 12)) for at in range(draw.randint(2, 6))]
    gangs = list(_running(nodes, draw))
    for number in range(draw.randint(4, 14)):
        gpu = GpuRequest(1, draw.choice((*SHARES, 1000)))
        pods = draw.randint(1, 4)
        gangs.append(a_gang(f"wait-{number:02}", gpus=gpu, pods=pods, queue=draw.choice("ab"), created_s=float(number)))
    return build_problem(a_cluster(nodes, gangs, [a_queue("a"), a_queue("b")]))


def _running(nodes: list[Node], draw: Random) -> list[Gang]:
    found = []
    for node in nodes:
        slots = node.allocatable[3]
        for device in range(node.gpus):
            left = 1000 if draw.random() < 0.7 and slots > 2 else 0
            slots -= 1
            while left and slots > 0 and draw.random() < 0.8:
                milli = draw.choice([share for share in SHARES if share <= left] or [left])
                status = PodStatus.RELEASING if draw.random() < 0.2 else PodStatus.RUNNING
                name = f"run-{node.name}-{device}-{left}"
                pod = a_pod(name, 1, node.name, milli=milli, devices=(device,), status=status, podset="default")
                found.append(a_gang(name, pod, queue="a"))
                left, slots = left - milli, slots - 1
    return found


def a_board(problem: Problem) -> Board:
    state = State(problem)
    units = GangUnitsOf(state)
    return Board(state, units, [gang.index for gang in problem.gangs if units[gang.index].waits()])


def promised(state: State) -> BoolArray:
    """(N,) nodes with a device that is free whole once others have left: of it the arrays do not say what is free now.

    A share of it that could start now may have to wait then.
    """
    found: BoolArray = ((state.device_future == WHOLE) & (state.device_idle != WHOLE)).any(axis=1)
    return found


@pytest.mark.parametrize("seed", range(80))
def test_as_many_shares_fit_a_node_as_the_working_state_counts(seed: int) -> None:
    problem = a_shared_cluster(seed)
    board, state = a_board(problem), State(problem)
    fits = FitTable(state)
    is_promised = promised(state)
    for row, shape in enumerate(board.plainness.shapes):
        now, later = fits.counts(shape)
        for node in range(len(problem.nodes)):
            assert room_at(board.arrays, row, node) == later[node]
            present = min(room_now(board.arrays, row, node), later[node])
            assert present <= now[node] if is_promised[node] else present == now[node]


@pytest.mark.parametrize("seed", range(80))
def test_shares_that_are_taken_and_given_back_leave_the_arrays_as_they_were(seed: int) -> None:
    board = a_board(a_shared_cluster(seed))
    arrays, record = board.arrays, board.arrays.record
    for row in range(len(board.plainness.shapes)):
        kept = [np.copy(table) for table in arrays.nodes[:9]]
        done = fill(arrays, row, 20, -1, -1, record.node, arrays.zones.placed, 0, False)
        empty(arrays, row, done, record.node, arrays.zones.placed, 0, False)
        assert all((old == new).all() for old, new in zip(kept, arrays.nodes[:9], strict=True))


@pytest.mark.parametrize("seed", range(80))
def test_gangs_that_share_gpus_get_the_places_that_they_get_one_by_one(seed: int) -> None:
    problem = a_shared_cluster(seed)
    one_by_one, on_the_board = (allocated(problem, by_board=by_board) for by_board in (False, True))
    if promised(State(problem)).any():
        assert on_the_board.total() >= 0.7 * one_by_one.total()
    else:
        assert on_the_board == one_by_one


def allocated(problem: Problem, *, by_board: bool) -> Counter[tuple[int, int, bool]]:
    """Of each gang, how many pods got places on which nodes, and whether they start now."""
    actions = Actions(problem, (Action.ALLOCATE,), Unasked(), by_board=by_board)
    places = actions.run().state.places
    assert (actions.context.board is not None) is by_board
    return Counter((problem.pod_gang[pod], place.node, place.now) for pod, place in places.items())


def a_wish(value: str, weight: int = 100, key: str = HOST) -> dict[str, object]:
    """Fields of a pod that prefers the company of pods with the same label."""
    near = PodAffinityTerm((Requirement("app", "In", (value,)),), key)
    return {"labels": {"app": value}, "constraints": Constraints(preferred_pods=((weight, near),))}


def a_cluster_of_companies(seed: int) -> Problem:
    """Nodes in partial use; gangs whose pods prefer each other, and others, wait."""
    draw = Random(seed)
    names = [f"n{at}" for at in range(draw.randint(3, 8))]
    nodes = [a_node(name, gpus=draw.choice((2, 4, 8)), labels={HOST: name}) for name in names]
    running = [a_gang(f"run-{name}", on=name, queue="a") for name in names if draw.random() < 0.6]
    waiting = [
        a_gang(
            name := f"wait-{number:02}",
            gpus=draw.choice((1, 1, 2)),
            pods=draw.randint(2, 5),
            each=a_wish(name) if draw.random() < 0.6 else {},
            created_s=float(number),
        )
        for number in range(draw.randint(3, 8))
    ]
    return build_problem(a_cluster(nodes, [*running, *waiting], [a_queue("a"), a_queue("q")]))


@pytest.mark.parametrize("seed", range(60))
def test_gangs_whose_pods_prefer_each_other_get_the_places_that_they_get_one_by_one(seed: int) -> None:
    problem = a_cluster_of_companies(seed)
    board = a_board(problem)
    assert set(board.standing.values()) == {PLAIN}
    assert allocated(problem, by_board=True) == allocated(problem, by_board=False)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (a_wish("own"), PLAIN),
        (a_wish("own", weight=-100), WISHING),
        (a_wish("own", key="rack"), WISHING),
        (a_wish("theirs"), WISHING),
    ],
    ids=["of its own on a node", "none of its own", "of its own in a rack", "of others"],
)
def test_only_who_prefers_its_own_company_on_a_node_is_plain(wish: dict[str, object], said: int) -> None:
    nodes = [a_node(f"n{at}", rack="r", labels={HOST: f"n{at}"}) for at in range(2)]
    other = a_gang("other", each={"labels": {"app": "theirs"}})
    problem = build_problem(a_cluster(nodes, [a_gang("gang", pods=2, each=wish), other]))
    standing = {problem.gangs[gang].gang.name: how for gang, how in a_board(problem).standing.items()}
    is_own = wish["labels"] == {"app": "own"}
    assert standing == {"gang": said, "other": PLAIN if is_own else WISHING}
    assert (problem.related > problem.outward) == is_own
