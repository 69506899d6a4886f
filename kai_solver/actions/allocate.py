"""The allocate action: allocation unit by allocation unit onto what is free, without disturbing anything."""

from collections.abc import Sequence
from typing import Protocol

from kai_solver.actions.accelerators.refused import Refused
from kai_solver.actions.accelerators.runs import Runs
from kai_solver.actions.board.serving import BoardLine
from kai_solver.actions.caps import costs_too_much, over_capacity
from kai_solver.actions.context import Context, of_choice
from kai_solver.actions.promises import keep_promises
from kai_solver.domain import Action, Proof
from kai_solver.placement.placing import TimeIsUp
from kai_solver.planstate.allocation_units import AllocationUnit, Part
from kai_solver.planstate.outcome import Admission, Outcome, Refusal
from kai_solver.planstate.signature import Signature
from kai_solver.reasons.refusals import SHARE_ENDED, shortage

MOST_CHOICES = 16
"""Subgroups of a gang that are left out in turn where the first choice of subgroups finds no places."""


class Admitter(Protocol):
    """Chooses again what the allocate action admits."""

    def improve(self, outcome: Outcome, waiting: Sequence[AllocationUnit]) -> Proof:
        """Change ``outcome`` in place for the better, if it can; what is then proven of those left waiting."""
        ...


class Allocate:
    """One run of the action."""

    def __init__(self, context: Context, admitter: Admitter | None) -> None:
        self.context = context
        self.problem = context.problem
        self.state = context.state
        self.outcome = context.outcome
        self.placer = context.placer
        self.admitter = admitter
        self.runs = Runs(context)
        self.postponed: list[AllocationUnit] = []

    def run(self, candidates: Sequence[int]) -> None:
        """Place the gangs ``candidates``; those with surplus come again and again."""
        keep_promises(self.context, candidates)
        failed: dict[Signature, Refusal] = {}
        line = self.context.line(Action.ALLOCATE, candidates) if self.admitter is None else None
        if line is not None:
            self._run_on_board(line, failed)
            return
        gang_order = self.context.gang_order(candidates)
        waiting: list[AllocationUnit] = []
        refused = Refused(self.context, Action.ALLOCATE)
        while not gang_order.is_over:
            if self.context.is_over():
                self.context.stop(Action.ALLOCATE, gang_order.rest())
                self._place_postponed(failed)
                return
            if self.runs.admit(gang_order) or (next_gang := gang_order.pop()) is None:
                refused.forget()
                continue
            gang, allocation_unit, _ = next_gang
            try:
                with self.context.timed_attempt(is_shared=True):
                    refusal = self._place(allocation_unit, failed)
            except TimeIsUp:
                self.postponed.append(allocation_unit)
                continue
            if refusal is None or (allocation_unit.is_choice and self._place_other(allocation_unit)):
                gang_order.again(gang)
                refused.forget()
                self.runs.row += 1
                continue
            self.outcome.refuse(gang, Action.ALLOCATE, of_choice(refusal, allocation_unit), allocation_unit.pods)
            waiting.append(allocation_unit)
            self.runs.row = 0
            refused.note(self.context.kind(gang), refusal)
            if self.admitter is None and refused.refuse_rest(gang_order):
                break
        self._place_postponed(failed)
        if self.admitter is not None and waiting:
            self._admit_again(self.admitter, waiting)

    def _run_on_board(self, line: BoardLine, failed: dict[Signature, Refusal]) -> None:
        """The same, with the turns of plain gangs taken by kernels."""
        known: dict[int, Refusal] = {}

        def refuse(unit: AllocationUnit, kind: int, is_same: bool) -> None:
            refusal = known.get(kind) if is_same else None
            if refusal is None:
                refusal = known[kind] = over_capacity(self.state, unit) or self.context.left_open
            self.outcome.refuse(unit.gang, Action.ALLOCATE, refusal, unit.pods)

        while True:
            if self.context.is_over():
                self.context.stop(Action.ALLOCATE, line.rest())
                break
            turns = line.serve(refuse)
            next_gang = line.pop()
            if next_gang is None:
                if not turns and not line.has_more:
                    break
                continue
            unit = next_gang.allocation_unit
            try:
                with self.context.timed_attempt(is_shared=True):
                    refusal = self._place(unit, failed)
            except TimeIsUp:
                self.postponed.append(unit)
                line.unchanged()
                continue
            if refusal is None or (unit.is_choice and self._place_other(unit)):
                line.again(next_gang.gang)
                continue
            self.outcome.refuse(next_gang.gang, Action.ALLOCATE, of_choice(refusal, unit), unit.pods)
            line.unchanged()
        self._place_postponed(failed)

    def _place_postponed(self, failed: dict[Signature, Refusal]) -> None:
        """Gangs that took more than their share have what time the others left."""
        for number, allocation_unit in enumerate(self.postponed):
            try:
                with self.context.timed_attempt(is_shared=number + 1 < len(self.postponed)):
                    refusal = self._place(allocation_unit, failed)
            except TimeIsUp:
                self.outcome.stopped = True
                refusal = SHARE_ENDED
            if refusal is not None:
                self.outcome.refuse(
                    allocation_unit.gang, Action.ALLOCATE, of_choice(refusal, allocation_unit), allocation_unit.pods
                )

    def _place(self, allocation_unit: AllocationUnit, failed: dict[Signature, Refusal]) -> Refusal | None:
        """Admit ``allocation_unit`` where it may and can run. ``failed``: the refusals of units like it."""
        refusal = over_capacity(self.state, allocation_unit)
        if refusal is not None:
            return refusal
        signature = self.context.signature(allocation_unit)
        refusal = failed.get(signature) or self._place_now(allocation_unit)
        if refusal is not None:
            failed[signature] = refusal
        return refusal

    def _place_now(self, allocation_unit: AllocationUnit) -> Refusal | None:
        mark = self.state.mark()
        if not self.placer.place_unit(allocation_unit):
            return self.context.ask(allocation_unit, Action.ALLOCATE, None)
        refusal = costs_too_much(self.state, allocation_unit)
        if refusal is not None:
            self.state.rollback(mark)
            return refusal
        self.outcome.admit(Admission(allocation_unit, Action.ALLOCATE))
        return None

    def _place_other(self, allocation_unit: AllocationUnit) -> bool:
        """Ask for other subgroups of the gang that would serve as well; true where they found places.

        First without those that fit nowhere even alone, then also without one more, the last first. KAI has one try.
        """
        if len(self.problem.gangs[allocation_unit.gang].leaves) < 2:
            return False
        leaves = tuple(allocation_unit.root.leaves())[:MOST_CHOICES]
        hopeless = frozenset(leaf.name for leaf in leaves if not self._fits_alone(leaf))
        tried = {allocation_unit.pods}
        for avoided in (hopeless, *(hopeless | {leaf.name} for leaf in reversed(leaves))):
            other = self.context.gang_units[allocation_unit.gang].next(avoided)
            if other is None or other.pods in tried:
                continue
            tried.add(other.pods)
            if over_capacity(self.state, other) is None and self.context.fits_free(other):
                self.outcome.admit(Admission(other, Action.ALLOCATE))
                return True
        return False

    def _fits_alone(self, part: Part) -> bool:
        mark = self.state.mark()
        fits = self.placer.place_part(part, None)
        self.state.rollback(mark)
        return fits

    def _admit_again(self, admitter: Admitter, waiting: list[AllocationUnit]) -> None:
        """Let the admitter choose among all; those it leaves out are refused, those it takes in no longer."""
        candidates = [*(a.allocation_unit for a in self.outcome.admissions), *waiting]
        proof = admitter.improve(self.outcome, waiting)
        served = {a.allocation_unit.pods for a in self.outcome.admissions}
        for allocation_unit in candidates:
            self.outcome.refusals.pop(allocation_unit.gang, None)
        for allocation_unit in candidates:
            if allocation_unit.pods not in served:
                refusal = over_capacity(self.state, allocation_unit)
                refusal = refusal or shortage(self.state, self.placer, allocation_unit, proof)
                self.outcome.refuse(allocation_unit.gang, Action.ALLOCATE, refusal, allocation_unit.pods)
