"""Pod affinity and topology spread: which pods a pod requires, forbids or prefers beside it.

One index of pods by selector and domain serves both, for rules and for preferences (`PodAffinityIndex`). So topology
spread (`kai_solver.rules.pod_relations.spread`), a rule for itself only that a model file may name its family, has its
rows alone; all else of it is here. Of which pods rules and preferences speak is in the problem: `Problem.ruled`,
`Problem.related`, `Shape.affinity_labels`; parts that place many pods at once, or part the model, ask that.
"""

from collections.abc import Mapping, Sequence

from kai_solver.domain import Pod
from kai_solver.model.variables import Variables
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.problem.rules import Rule, RuleFacts
from kai_solver.rules.pod_relations import affinity_rows
from kai_solver.rules.pod_relations.index import PodAffinityIndex
from kai_solver.rules.pod_relations.ledger import NAME, PodRelations, running_pods, with_leaving


class PodRelationsFacts(RuleFacts):
    """Running pods of this cycle, counted when they are first asked for."""

    name = kind = NAME
    ties = False
    """Pods of which a rule speaks have `Shape.affinity_labels`: these tie them."""

    def __init__(self) -> None:
        self._running: tuple[Sequence[Pod], PodAffinityIndex] | None = None
        self._with_leaving: PodAffinityIndex | None = None

    def _staying(self, problem: Problem) -> PodAffinityIndex:
        """Running pods without those that leave; not to be changed.

        Each state of a cycle needs two or three views of them: 12,911 pods are counted in 52 ms and copied in 5 ms
        (5,000 nodes, 2026-11-28).
        """
        if self._running is None or self._running[0] is not problem.pods:
            self._running = problem.pods, running_pods(problem)
        return self._running[1]

    def ledger(self, state: State, /) -> PodRelations:
        return PodRelations(state, self._staying(state.problem))

    def is_crossed(self, problem: Problem, /) -> bool:
        # Of a copy: it counts pods for each term, and arrays of all terms would be copied into each view.
        return self._staying(problem).copy().is_crossed()

    def add_rows(self, variables: Variables, /) -> None:
        affinity_rows.add(variables)

    def may_block(self, problem: Problem, needed: Mapping[int, int], /) -> bool:
        return False  # No blocking set names it: no count knows of other pods.

    def refusals(self, after: Problem, pod: int, /) -> Mapping[int, str]:
        if pod not in after.ruled:
            return {}
        if self._with_leaving is None:
            self._with_leaving = with_leaving(after, self._staying(after).copy())
        return self._with_leaving.reason_by_node(after.pods[pod])


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
