"""Bounds on the questions of a climb, asked before the greedy looks for victims and before CP-SAT is asked."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kai_solver.actions import Answer
from kai_solver.bounds import Allowance, Bounds, Demand, Domains, Evidence, Grown, Kept, Moment, Scope
from kai_solver.domain import Action, Proof
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.planstate.eviction_units import charge_of, least_charge_of
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.saving import free_milli, savings
from kai_solver.problem.charges import Charge, sum_of
from kai_solver.search.stamp import Stamp

CREDIT, DEEP_CREDIT, EARNED = 16, 3, 4
"""Bounds that may find nothing in one cycle, those by counts and those by flow, and what every proof adds.

On loaded clusters nearly all that counts prove is proven after the greedy's search as well: of 335 gangs on 1,000 nodes
none was refuted before it, for 1 ms each (2026-11-21). Flow took 20 ms each on 500 nodes, 17 times for nothing.
"""

NODE_QUESTIONS = 1_000_000
"""Nodes looked at in one cycle to find blocking sets: those of 37 gangs on 1,000 nodes, for 0.17 s of CPU (2026-11-21).
"""


Tables = tuple[list[list[int]], list[list[int]]]
"""By queue, what it holds, and of that what is not preemptible."""


class Refuter:
    """Asks the bounds about allocation units of one outcome. ``bounds``: gives those of its problem."""

    def __init__(self, outcome: Outcome, bounds: Callable[[], Bounds] | None = None) -> None:
        self.outcome = outcome
        self.state = outcome.state
        self.problem = outcome.state.problem
        self.bounds = bounds() if bounds is not None else Bounds(self.problem)
        self._allowance = Allowance(NODE_QUESTIONS)
        self._credit, self._deep_credit = CREDIT, DEEP_CREDIT
        self._silent: set[tuple[object, ...]] = set()
        self._seen = 0
        self._last: Admission | None = None
        self._disturbed: set[int] = set()
        self._beside: Counter[int] = Counter()
        self._grown: list[Grown] = []
        self._moment: tuple[Stamp, Moment] | None = None
        self._copies: Tables = ([], [])
        self._copy: tuple[Moment, Moment] | None = None
        self._scopes: dict[tuple[str, str], Scope | None] = {}
        claims = self.problem.snapshot.claims
        self.is_silent = claims is not None and claims.is_rough

    def refute(self, allocation_unit: AllocationUnit, action: Action) -> Answer | None:
        """What proves that ``action`` can do nothing for ``allocation_unit``, whatever is chosen; None if nothing does.

        Of equal questions, none is asked again after a silence: a bound costs 0.3 ms at 100 nodes (2026-11-21), which
        is wasted 800 times if 800 identical gangs are served one after the other.
        """
        if self.is_silent:
            return None  # What cannot be taken from claims here could be taken all the same.
        gang = self.problem.gangs[allocation_unit.gang]
        key = (action, gang.queue, gang.gang.priority, gang.gang.never_preempts, *self._shapes(allocation_unit))
        if key in self._silent or self._credit <= 0:
            return None
        demand, moment = self.demand(allocation_unit, action), self.moment()
        found = self.bounds.refute(demand, moment)
        self._credit += EARNED if found is not None else -1
        if found is None:
            self._silent.add(key)
            return None
        proof = Proof("proven", "count", (self.bounds.in_words(found),))
        return Answer("no", proof, evidence=self._evidence(demand, moment))

    def refute_deep(self, allocation_unit: AllocationUnit, action: Action) -> Answer | None:
        """As ``refute``, by flow too: asked once, before CP-SAT would be."""
        if self.is_silent or self._deep_credit <= 0:
            return None
        demand, moment = replace(self.demand(allocation_unit, action), deep=True), self.moment()
        found = self.bounds.refute(demand, moment)
        self._deep_credit += EARNED if found is not None else -1
        if found is None:
            return None
        method = "flow" if found.count is not None and found.count.kind == "flow" else "count"
        proof = Proof("proven", method, (self.bounds.in_words(found),))
        return Answer("no", proof, evidence=self._evidence(demand, moment))

    def evidence(self, allocation_unit: AllocationUnit, action: Action, kept: Kept) -> Evidence | None:
        """The question as it stands now, to be kept with a "no" that others gave; ``kept`` as `Demand` has it."""
        if self.is_silent:
            return None
        return self._evidence(self.demand(allocation_unit, action), self.moment(), kept)

    def _evidence(self, demand: Demand, moment: Moment, kept: Kept | None = None) -> Evidence:
        asked = replace(demand, beside=dict(demand.beside), kept=kept)
        return Evidence(self.bounds, asked, self._copied(moment), self._allowance)

    def _copied(self, moment: Moment) -> Moment:
        """``moment`` with tables that do not change; one copy serves as long as they are equal."""
        if self._copy is None or self._copy[0] is not moment:
            if self._copies != (moment.allocated, moment.fixed):
                self._copies = [list(row) for row in moment.allocated], [list(row) for row in moment.fixed]
            allocated, fixed = self._copies
            self._copy = moment, replace(moment, allocated=allocated, fixed=fixed)
        return self._copy[1]

    def _shapes(self, allocation_unit: AllocationUnit) -> tuple[int, ...]:
        return tuple(self.problem.modelled_shape(pod) for pod in allocation_unit.pods)

    def moment(self) -> Moment:
        """The numbers of now, worked out once until a step is taken."""
        self._catch_up()
        if self._moment is None or not self._moment[0].holds(self.outcome):
            self._moment = Stamp.of(self.outcome), self._find_moment()
        return self._moment[1]

    def _find_moment(self) -> Moment:
        saved, free = savings(self.state), free_milli(self.state)
        so_far = {rule.kind: rule.so_far() for rule in self.state.rules}
        disturbed = np.fromiter(self._disturbed, dtype=np.int64, count=len(self._disturbed))
        return Moment(
            allocated=self.state.allocated,
            fixed=self.state.allocated_fixed,
            free_milli=free.reached + saved.total,
            beyond_milli=free.beyond,
            disturbed=disturbed,
            savable=saved.by_queue,
            so_far=so_far,
        )

    # -- what is asked ---------------------------------------------------------------------------------------------

    def demand(self, allocation_unit: AllocationUnit, action: Action) -> Demand:
        """``allocation_unit`` beside all that was admitted; what this action may undo is not counted beside it."""
        self._catch_up()
        problem, gang = self.problem, self.problem.gangs[allocation_unit.gang]
        undone = self.outcome.consolidated if action is Action.RECLAIM else []
        pods = [pod for a in undone for pod in a.allocation_unit.pods]
        beside = self._beside - problem.by_shape(pods) if pods else self._beside
        preemptor = Preemptor.of(problem, allocation_unit)
        return Demand(
            action=action,
            gang=gang,
            charge=preemptor.charge,
            least=least_charge_of(problem, allocation_unit.pods),
            device_milli=preemptor.device_milli,
            needed=problem.by_shape(allocation_unit.pods),
            beside=beside,
            scope=self._scope(allocation_unit),
            spacings=self.state.spacings(allocation_unit.gang),
            grown=tuple(self._grown),
            spare_charge=self._held(pods),
            pods=allocation_unit.pods,
            undone=tuple(a.allocation_unit.gang for a in undone),
        )

    def _held(self, pods: list[int]) -> Charge:
        places = self.state.places
        return sum_of(places[pod].charge for pod in pods if pod in places)

    def _grown_of(self, admission: Admission) -> Grown:
        pods = admission.allocation_unit.pods
        return Grown(admission.allocation_unit.gang, self.problem.by_shape(pods), charge_of(self.problem, pods))

    def _catch_up(self) -> None:
        """Count what was admitted since the last question; all again if a gang lost what it got."""
        now, pool = self.outcome.admissions, self.outcome.pool
        if len(now) < self._seen or (self._seen and now[self._seen - 1] is not self._last):
            self._beside, self._grown, self._seen = Counter(), [], 0
        runs = self.bounds.residents.runs
        for admission in now[self._seen :]:
            if runs[admission.allocation_unit.gang]:
                self._grown.append(self._grown_of(admission))
            else:
                self._beside.update(self.problem.by_shape(admission.allocation_unit.pods))
            if pool is not None:
                self._disturbed.update(pool.units[unit].gang for unit in admission.units)
        self._seen, self._last = len(now), now[-1] if now else None

    def _scope(self, allocation_unit: AllocationUnit) -> Scope | None:
        """The innermost required level that all of the allocation unit is under."""
        part, found = allocation_unit.root, None
        while True:
            if part.topology is not None and part.topology.required:
                found = self._domains(part.topology.topology, part.topology.required) or found
            if part.pods or len(part.parts) != 1:
                return found
            part = part.parts[0]

    def _domains(self, topology: str, level: str) -> Scope | None:
        if (topology, level) not in self._scopes:
            tree = self.problem.domains.get(topology)
            index = tree.level_index(level) if tree is not None else None
            if tree is None or index is None:
                self._scopes[topology, level] = None
            else:
                names = tuple("/".join(name) for name in tree.names[index])
                self._scopes[topology, level] = Scope(level, names, Domains(tree.domain_of[index]))
        return self._scopes[topology, level]
