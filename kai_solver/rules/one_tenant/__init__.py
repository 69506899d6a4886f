"""One tenant at a time: where a topology says so, each domain of a level is used by one tenant (docs/domains.md).

The rule is one between pods (`Constraints.alone`), so two parts lie with those of all such rules:

- `problem/tenancy.py` writes it from topologies to pods and nodes, before there is a problem;
- `search/components.py` does not part gangs with such pods, as it parts none that speak of other pods.

All else is here.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.blocking import ElementWords
from kai_solver.domain import Blocker, Snapshot
from kai_solver.model.variables import Variables
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import Problem
from kai_solver.problem.rules import ClearedDomains, Rule, RuleFacts
from kai_solver.rules.one_tenant import rows, words
from kai_solver.rules.one_tenant.bound import Users
from kai_solver.rules.one_tenant.clearing import clearings
from kai_solver.rules.one_tenant.ledger import TenantLedger
from kai_solver.rules.one_tenant.problem import NAME, TenantPods, Tenants, has_tenants

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class OneTenantFacts(RuleFacts):
    """Where tenants are in this cycle, read when it is first asked for."""

    name = kind = NAME
    ties = False
    """Pods with a tenant have `Shape.affinity_labels`: these tie them."""

    def __init__(self) -> None:
        self._tenants: Tenants | None = None
        self._running: TenantPods | None = None

    def tenants(self, problem: Problem) -> Tenants:
        """Where tenants are."""
        if self._tenants is None:
            self._tenants = Tenants(problem)
        return self._tenants

    def ledger(self, state: State, /) -> TenantLedger:
        return TenantLedger(state, self.tenants(state.problem))

    def add_rows(self, variables: Variables, /) -> None:
        rows.add(variables)

    def bound(self, problem: Problem, gone: IntArray, /) -> Users:
        return Users(self.tenants(problem), gone)

    def tolerated(self, problem: Problem, /) -> BoolArray:
        """Pods that run beside another tenant may stay."""
        return self.tenants(problem).mixed()

    def may_block(self, problem: Problem, needed: Mapping[int, int], /) -> bool:
        return any(problem.shapes.shapes[shape].constraints.alone for shape in needed)

    def clearings(self, pool: VictimPool, eligible: BoolArray, unit: AllocationUnit, /) -> Iterator[ClearedDomains]:
        [ledger] = (rule for rule in pool.state.rules if isinstance(rule, TenantLedger))
        return clearings(pool, ledger.later, eligible, unit)

    def refusals(self, after: Problem, pod: int, /) -> Mapping[int, str]:
        shape, tenants = after.pod_shape[pod], self.tenants(after)
        if not tenants.alone(shape):
            return {}
        if self._running is None:
            self._running = tenants.pods(after, leaving=True)
        return words.texts_by_node(self._running, shape)

    def element(self, words_: ElementWords, /) -> Blocker:
        return words.element(self.tenants(words_.problem), words_)


class OneTenantRule(Rule):
    """Prepared where any pod has a tenant."""

    name = kind = NAME
    cure = words.CURE

    def prepare(self, problem: Problem, /) -> OneTenantFacts | None:
        return OneTenantFacts() if has_tenants(problem) else None

    def eased(self, snapshot: Snapshot, gang: str, blocker: Blocker, /) -> Snapshot:
        return words.without(snapshot)


RULE = OneTenantRule()
