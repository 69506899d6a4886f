"""Runs of alike gangs for whom only the solver finds a way: asked for together, 2, 4, 8, ... at a time.

Source: docs/how-a-cycle-decides.md#oracle.

Only those whose turns follow each other, in the order that holds if each is served. After a "no" the half is asked:
where m of them can be served and m + 1 cannot, asking one by one comes to the same m, since everybody admitted keeps
his right to run and not his place. On rungs that evict the order depends on who leaves, so there it is one by one.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from kai_solver.actions.context import Context
from kai_solver.actions.disruption import Disruption
from kai_solver.actions.gang_order import GangOrder, SizeOrder, Turn
from kai_solver.actions.predicted_order import foresee
from kai_solver.domain import Action
from kai_solver.fairness import over_limit, over_quota
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eviction_units import least_charge_of
from kai_solver.planstate.signature import Signature

LONGEST = 64
"""Gangs asked for in one question at the most."""

_KEEPING = (Action.ALLOCATE, Action.CONSOLIDATION)
"""Rungs on which nobody loses what he holds."""


class BatchProbe:
    """One rung of one climb. ``may_ask``: False for a chunk that a rule keeps from the rung."""

    def __init__(
        self,
        context: Context,
        action: Action,
        disruption: Disruption | None = None,
        may_ask: Callable[[AllocationUnit], bool] = lambda _: True,
    ) -> None:
        self.context = context
        self.state = context.state
        self.action = action
        self.disruption = disruption
        self.may_ask = may_ask
        self._given_up: set[Signature] = set()

    def after(self, turns: GangOrder | SizeOrder, chunk: AllocationUnit) -> None:
        """``chunk`` was admitted: where it was by the solver, ask for those like it who come next."""
        last = self.context.outcome.admissions[-1]
        if not (last.by_solver and last.chunk is chunk and isinstance(turns, GangOrder) and self._is_open()):
            return
        signature = self.context.signature(chunk)
        turn = turns.peek()
        if signature in self._given_up or turn is None or not self._is_identical(turn, signature):
            return
        served = self._admit(self._line(turns, signature), signature)
        if served:
            turns.were_served(served)

    def _is_open(self) -> bool:
        """Is the order foreseeable, and a question for many as good as one for each?"""
        if self.action not in _KEEPING or self.state.by_memory:
            return False
        moves = self.state.problem.policy.max_consolidation_gangs
        nobody_left = all(admission.action in _KEEPING for admission in self.context.outcome.admissions)
        return nobody_left and (self.action is Action.ALLOCATE or moves < 0)

    def _is_identical(self, turn: Turn, signature: Signature) -> bool:
        """Does the turn ask for the same, for all that its gang waits for, and may it?"""
        chunk, pending = turn.chunk, self.state.gangs[turn.gang].pending
        is_all = len(chunk.pods) == sum(map(len, pending)) and not chunk.is_choice
        return is_all and self.context.signature(chunk) == signature and self.may_ask(chunk)

    def _line(self, turns: GangOrder, signature: Signature) -> list[AllocationUnit]:
        """Chunks that come next, all alike, as far as their queues may pay for all of them."""
        lines = {leaf: list(line) for leaf, line in turns.lines()}
        ahead = foresee(self.state, {leaf: line for leaf, line in lines.items() if line})
        identical = takewhile(lambda turn: self._is_identical(turn, signature), ahead)
        return [turn.chunk for turn in self._payable(identical)]

    def _payable(self, line: Iterator[Turn]) -> Iterator[Turn]:
        """Turns of ``line`` up to the first that would pass a limit or a quota beside those before it."""
        problem = self.state.problem
        tree = problem.queues
        held, fixed = ([list(row) for row in table] for table in (self.state.allocated, self.state.allocated_fixed))
        for turn in line:
            gang, least = problem.gangs[turn.gang], least_charge_of(problem, turn.chunk.pods)
            is_free = gang.gang.preemptible
            is_over_quota = not is_free and over_quota(tree, fixed, gang.queue, least) is not None
            if is_over_quota or over_limit(tree, held, gang.queue, least) is not None:
                return
            for queue in tree.path[gang.queue]:
                for table in (held,) if is_free else (held, fixed):
                    table[queue] = [have + more for have, more in zip(table[queue], turn.charge, strict=True)]
            yield turn

    def _admit(self, line: Sequence[AllocationUnit], signature: Signature) -> set[int]:
        """Admit as many from the front of ``line`` as there is a way for; the gangs that were."""
        served: set[int] = set()
        step, refused = 2, 0  # ``refused``: so many, from the front of what is left, cannot all be served.
        while line and refused != 1 and not self.context.is_over():
            together = line[: refused // 2 or min(step, LONGEST)]
            answer = self.context.ask_together(together, self.action, self.disruption)
            if answer.verdict == "yes":
                served.update(chunk.gang for chunk in together)
                line, step = line[len(together) :], 2 * step
                refused -= len(together) if refused else 0
            elif answer.proof.state == "proven":
                refused = len(together)
            else:
                self._given_up.add(signature)
                break
        return served
