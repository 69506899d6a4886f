"""Pod affinity and topology spread: which pods a pod requires, forbids or prefers beside it.

One index of pods by selector and domain serves both, for rules and for preferences (`PodAffinityIndex`). So topology
spread (`kai_solver.rules.pod_relations.spread`), a rule for itself only that a model file may name its family, has its
rows alone; all else of it is here. Of which pods rules and preferences speak is in the problem: `Problem.ruled`,
`Problem.related`, `Shape.affinity_labels`; parts that place many pods at once, or part the model, ask that.
"""

from collections.abc import Mapping

from kai_solver.model.variables import Variables
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.problem.rules import Rule, RuleFacts
from kai_solver.rules.pod_relations import affinity_rows
from kai_solver.rules.pod_relations.index import PodAffinityIndex
from kai_solver.rules.pod_relations.ledger import NAME, PodRelations, running_pods


class PodRelationsFacts(RuleFacts):
    """Running pods of this cycle, counted when they are first asked for."""

    name = kind = NAME
    ties = False
    """Pods of which a rule speaks have `Shape.affinity_labels`: these tie them."""

    def __init__(self) -> None:
        self._running: PodAffinityIndex | None = None

    def ledger(self, state: State, /) -> PodRelations:
        return PodRelations(state)

    def is_crossed(self, problem: Problem, /) -> bool:
        return running_pods(problem, leaving=False).is_crossed()

    def add_rows(self, variables: Variables, /) -> None:
        affinity_rows.add(variables)

    def may_block(self, problem: Problem, needed: Mapping[int, int], /) -> bool:
        return False  # No blocking set names it: no count knows of other pods.

    def refusals(self, after: Problem, pod: int, /) -> Mapping[int, str]:
        if pod not in after.ruled:
            return {}
        if self._running is None:
            self._running = running_pods(after, leaving=True)
        return self._running.reason_by_node(after.pods[pod])


class PodRelationsRule(Rule):
    """Prepared where any pod says something of other pods."""

    name = kind = NAME

    def prepare(self, problem: Problem, /) -> PodRelationsFacts | None:
        if not problem.related:
            return None
        every = (shape.constraints for shape in problem.shapes.shapes)
        is_used = any(
            c.affinity or c.anti_affinity or c.spread or c.preferred_pods or c.preferred_spread for c in every
        )
        return PodRelationsFacts() if is_used else None


RULE = PodRelationsRule()
