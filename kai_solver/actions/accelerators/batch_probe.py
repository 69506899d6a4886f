"""Runs of identical gangs for which only the solver finds a way: asked for together, 2, 4, 8, ... at a time.

Source: docs/how-a-cycle-decides.md#oracle.

Only those that follow each other, in the order that holds if each is served. After a "no" the half is asked:
where m of them can be served and m + 1 cannot, asking one by one comes to the same m, since every admitted gang keeps
its right to run and not its place. In actions that evict the order depends on the victims: there it is one by one.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from kai_solver.actions.accelerators.predicted_order import foresee
from kai_solver.actions.context import Context
from kai_solver.actions.gang_order import GangOrder, NextGang, SizeOrder
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action
from kai_solver.fairness import over_limit, over_quota
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eviction_units import least_charge_of
from kai_solver.planstate.signature import Signature

LONGEST = 64
"""Gangs asked for in one question at most."""

_KEEPING = (Action.ALLOCATE, Action.CONSOLIDATION)
"""Actions in which nothing running loses what it holds."""


class BatchProbe:
    """One action of one cycle. ``may_ask``: False for an allocation unit that a rule keeps from the action."""

    def __init__(
        self,
        context: Context,
        action: Action,
        victim_search: VictimSearch | None = None,
        may_ask: Callable[[AllocationUnit], bool] = lambda _: True,
    ) -> None:
        self.context = context
        self.state = context.state
        self.action = action
        self.victim_search = victim_search
        self.may_ask = may_ask
        self._given_up: set[Signature] = set()

    def after(self, gang_order: GangOrder | SizeOrder, allocation_unit: AllocationUnit) -> None:
        """``allocation_unit`` was admitted: if it was by the solver, ask for those like it that come next."""
        last = self.context.outcome.admissions[-1]
        if not (
            last.by_solver
            and last.allocation_unit is allocation_unit
            and isinstance(gang_order, GangOrder)
            and self._is_open()
        ):
            return
        signature = self.context.signature(allocation_unit)
        next_gang = gang_order.peek()
        if signature in self._given_up or next_gang is None or not self._is_identical(next_gang, signature):
            return
        served = self._admit(self._line(gang_order, signature), signature)
        if served:
            gang_order.were_served(served)

    def _is_open(self) -> bool:
        """Is the order foreseeable, and a question for many as good as one for each?"""
        if self.action not in _KEEPING or self.state.by_memory:
            return False
        moves = self.state.problem.policy.max_consolidation_gangs
        none_left = all(admission.action in _KEEPING for admission in self.context.outcome.admissions)
        return none_left and (self.action is Action.ALLOCATE or moves < 0)

    def _is_identical(self, next_gang: NextGang, signature: Signature) -> bool:
        """Whether the gang asks for the same, for all that it waits for, and may."""
        allocation_unit, pending = next_gang.allocation_unit, self.state.gangs[next_gang.gang].pending
        is_all = len(allocation_unit.pods) == sum(map(len, pending)) and not allocation_unit.is_choice
        return is_all and self.context.signature(allocation_unit) == signature and self.may_ask(allocation_unit)

    def _line(self, gang_order: GangOrder, signature: Signature) -> list[AllocationUnit]:
        """Allocation units that come next, all identical, as far as their queues may pay for all of them."""
        lines = {leaf: list(line) for leaf, line in gang_order.lines()}
        ahead = foresee(self.state, {leaf: line for leaf, line in lines.items() if line})
        identical = takewhile(lambda next_gang: self._is_identical(next_gang, signature), ahead)
        return [next_gang.allocation_unit for next_gang in self._payable(identical)]

    def _payable(self, line: Iterator[NextGang]) -> Iterator[NextGang]:
        """Gangs of ``line`` up to the first that would pass a limit or a quota beside those before it."""
        problem = self.state.problem
        tree = problem.queues
        held, fixed = ([list(row) for row in table] for table in (self.state.allocated, self.state.allocated_fixed))
        for next_gang in line:
            gang, least = problem.gangs[next_gang.gang], least_charge_of(problem, next_gang.allocation_unit.pods)
            is_free = gang.gang.preemptible
            is_over_quota = not is_free and over_quota(tree, fixed, gang.queue, least) is not None
            if is_over_quota or over_limit(tree, held, gang.queue, least) is not None:
                return
            for queue in tree.path[gang.queue]:
                for table in (held,) if is_free else (held, fixed):
                    table[queue] = [have + more for have, more in zip(table[queue], next_gang.charge, strict=True)]
            yield next_gang

    def _admit(self, line: Sequence[AllocationUnit], signature: Signature) -> set[int]:
        """Admit as many from the front of ``line`` as there is a way for; the gangs that were."""
        served: set[int] = set()
        step, refused = 2, 0  # ``refused``: so many, from the front of what is left, cannot all be served.
        while line and refused != 1 and not self.context.is_over():
            together = line[: refused // 2 or min(step, LONGEST)]
            answer = self.context.ask_together(together, self.action, self.victim_search)
            if answer.verdict == "yes":
                served.update(allocation_unit.gang for allocation_unit in together)
                line, step = line[len(together) :], 2 * step
                refused -= len(together) if refused else 0
            elif answer.proof.state == "proven":
                refused = len(together)
            else:
                self._given_up.add(signature)
                break
        return served
