"""How the pods of one workload lie: at most so many of them (or of their GPUs) on a node, on at least so many nodes.

A workload that comes (or moves) takes a node of its own for every pod until it is on ``min_nodes`` nodes: with the
pods that stay on S nodes and a pods that come, they finally are on at least ``min(min_nodes, S + a)``. Nodes that
hold too much already (a rule that came later) get nothing more; pods that run there may stay. Where a workload only
prefers to be spread, its pods go to the nodes with the fewest of it.

Which gangs are of one workload, and what its placement is, the problem says: `GangShape.family`, and ``placement``.
"""

from collections.abc import Mapping

from kai_solver.domain import Blocker, Snapshot
from kai_solver.model.variables import Variables
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.problem.rules import Rule, RuleFacts
from kai_solver.rules.workload_spread import rows, words
from kai_solver.rules.workload_spread.ledger import WorkloadLedger
from kai_solver.rules.workload_spread.problem import NAME


class WorkloadSpreadFacts(RuleFacts):
    """Nothing beside what gangs say."""

    name = kind = NAME
    ties = False
    """Gangs of one workload have one `GangShape.family`, which ties them."""

    def ledger(self, state: State, /) -> WorkloadLedger:
        return WorkloadLedger(state)

    def add_rows(self, variables: Variables, /) -> None:
        rows.add(variables)

    def may_block(self, problem: Problem, needed: Mapping[int, int], /) -> bool:
        return False  # What it asks of a gang is a `Spacing`, which counts name by themselves.


class WorkloadSpreadRule(Rule):
    """Prepared where any workload has a rule, or prefers to be spread."""

    name = kind = NAME
    cure = words.CURE

    def prepare(self, problem: Problem, /) -> WorkloadSpreadFacts | None:
        return WorkloadSpreadFacts() if problem.gang_columns.has_families else None

    def eased(self, snapshot: Snapshot, gang: str, blocker: Blocker, /) -> Snapshot:
        return words.without(snapshot, gang)


RULE = WorkloadSpreadRule()
