"""Elastic gangs of which a pod cannot leave, such as one that is being moved: the others keep it company."""

import math
from collections.abc import Iterator, Sequence

import pytest

from kai_solver.domain import Snapshot
from kai_solver.model.build import Formulation, formulate
from kai_solver.model.spec import Term
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.search.child import SolverChild
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.parameters import SolverParameters
from tests.support.builders import a_cluster, a_gang, a_node


@pytest.fixture(scope="module")
def child() -> Iterator[SolverChild]:
    with SolverChild() as child:
        yield child


def an_elastic_gang(pods: int, need: int) -> Snapshot:
    nodes = [a_node(f"n{i}", 1) for i in range(pods)]
    return a_cluster(nodes, [a_gang("v", pods=pods, need=need, on=" ".join(node.name for node in nodes))])


def most_evicted(child: SolverChild, pods: int, need: int, stuck: Sequence[int], gone: Sequence[int]) -> int:
    """Pods of the gang that may leave together, if the units ``stuck`` cannot, and ``gone`` have left before."""
    state = State(build_problem(an_elastic_gang(pods, need)))
    pool = VictimPool.of_running(state)
    units = frozenset(unit.index for unit in pool.units) - {*stuck, *gone}
    joint = JointModelInput(Outcome(state, pool)).join(
        [], units, units, frozenset(), (), may_move=False, gone=frozenset(gone)
    )
    form = formulate(joint, ("units", "entitlement"), ())
    form.spec.minimize(_evictions(form))
    answer = child.solve(form.spec, SolverParameters(workers=1, presolve="none"), math.inf)
    assert answer.status == "optimal"
    assert answer.objective is not None
    return -round(answer.objective)


def _evictions(form: Formulation) -> list[Term]:
    """To be minimised: pods that leave, negative."""
    terms: list[Term] = [(-len(unit.mover.origin), unit.out_reclaim) for unit in form.variables.units]
    return terms + [(-1, group.out_reclaim) for group in form.variables.classes]


@pytest.mark.parametrize(
    ("pods", "need", "stuck", "gone", "expected"),
    [
        (5, 3, (), (), 5),
        (5, 3, (0,), (), 1),
        (5, 3, (), (0,), 4),
        (5, 2, (0,), (), 3),
        (5, 1, (0,), (), 4),
        (3, 3, (), (), 3),
    ],
    ids=[
        "all leave",
        "one stays, and two with it",
        "one has left before",
        "one stays, and one with it",
        "one stays alone",
        "without surplus",
    ],
)
def test_what_stays_has_its_minimum(
    child: SolverChild, pods: int, need: int, stuck: Sequence[int], gone: Sequence[int], expected: int
) -> None:
    assert most_evicted(child, pods, need, stuck, gone) == expected
