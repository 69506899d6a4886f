"""Topology spread as a rule with a family of its own; `kai_solver.rules.pod_relations` counts for it."""

from collections.abc import Mapping

from kai_solver.model.variables import Variables
from kai_solver.problem import Problem
from kai_solver.problem.rules import Rule, RuleFacts
from kai_solver.rules.pod_relations import spread_rows


class TopologySpreadFacts(RuleFacts):
    """Rows alone."""

    name = kind = spread_rows.FAMILY
    ties = False
    """Pods of which a rule speaks have `Shape.affinity_labels`: these tie them."""

    def add_rows(self, variables: Variables, /) -> None:
        spread_rows.add(variables)

    def may_block(self, problem: Problem, needed: Mapping[int, int], /) -> bool:
        return False  # As for affinity.


class TopologySpreadRule(Rule):
    """Prepared where any pod has a topology spread constraint that it requires."""

    name = kind = spread_rows.FAMILY

    def prepare(self, problem: Problem, /) -> TopologySpreadFacts | None:
        has_any = bool(problem.ruled) and any(shape.constraints.spread for shape in problem.shapes.shapes)
        return TopologySpreadFacts() if has_any else None


RULE = TopologySpreadRule()
