"""The allocate rung: chunk by chunk onto what is free, without disturbing anybody."""

from collections.abc import Sequence
from typing import Protocol

from kai_solver.actions.batch_probe import BatchProbe
from kai_solver.actions.caps import costs_too_much, over_capacity
from kai_solver.actions.context import Context, of_choice
from kai_solver.actions.promised import keep_promises
from kai_solver.actions.refused import Refused
from kai_solver.actions.runs import Runs
from kai_solver.domain import Action, Proof
from kai_solver.placement.placing import TimeIsUp
from kai_solver.planstate.allocation_units import AllocationUnit, Part
from kai_solver.planstate.outcome import Admission, Outcome, Refusal
from kai_solver.planstate.signature import Signature
from kai_solver.reasons.refusals import SHARE_ENDED, shortage

MOST_CHOICES = 16
"""Subgroups of a gang that are left out in turn where the first choice of subgroups finds no places."""


class Admitter(Protocol):
    """Chooses anew whom the allocate rung admits."""

    def improve(self, outcome: Outcome, waiting: Sequence[AllocationUnit]) -> Proof:
        """Change ``outcome`` in place for the better, if it can; what is then proven of those left waiting."""
        ...


class Allocation:
    """One run of the rung."""

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
        """Place the gangs ``candidates``; those with surplus take turns again and again."""
        keep_promises(self.context, candidates)
        turns = self.context.turns(candidates)
        gallop = BatchProbe(self.context, Action.ALLOCATE)
        failed: dict[Signature, Refusal] = {}
        waiting: list[AllocationUnit] = []
        refused = Refused(self.context, Action.ALLOCATE)
        while not turns.is_over:
            if self.context.is_over():
                self.context.stop(Action.ALLOCATE, turns.rest())
                self._place_postponed(failed)
                return
            if self.runs.admit(turns) or (turn := turns.pop()) is None:
                refused.forget()
                continue
            gang, chunk, _ = turn
            try:
                with self.context.timed_turn(is_shared=True):
                    refusal = self._place(chunk, failed)
            except TimeIsUp:
                self.postponed.append(chunk)
                continue
            if refusal is None or (chunk.is_choice and self._place_other(chunk)):
                turns.again(gang)
                refused.forget()
                gallop.after(turns, chunk)
                continue
            self.outcome.refuse(gang, Action.ALLOCATE, of_choice(refusal, chunk), chunk.pods)
            waiting.append(chunk)
            refused.note(self.context.kind(gang), refusal)
            if self.admitter is None and refused.refuse_rest(turns):
                break
        self._place_postponed(failed)
        if self.admitter is not None and waiting:
            self._admit_anew(self.admitter, waiting)

    def _place_postponed(self, failed: dict[Signature, Refusal]) -> None:
        """Gangs that took more than their share have what time the others left."""
        for number, chunk in enumerate(self.postponed):
            try:
                with self.context.timed_turn(is_shared=number + 1 < len(self.postponed)):
                    refusal = self._place(chunk, failed)
            except TimeIsUp:
                self.outcome.stopped = True
                refusal = SHARE_ENDED
            if refusal is not None:
                self.outcome.refuse(chunk.gang, Action.ALLOCATE, of_choice(refusal, chunk), chunk.pods)

    def _place(self, chunk: AllocationUnit, failed: dict[Signature, Refusal]) -> Refusal | None:
        """Admit ``chunk`` where it may and can run. ``failed``: what chunks like it were told."""
        refusal = over_capacity(self.state, chunk)
        if refusal is not None:
            return refusal
        signature = self.context.signature(chunk)
        refusal = failed.get(signature) or self._seat(chunk)
        if refusal is not None:
            failed[signature] = refusal
        return refusal

    def _seat(self, chunk: AllocationUnit) -> Refusal | None:
        mark = self.state.mark()
        if not self.placer.place_chunk(chunk):
            return self.context.ask(chunk, Action.ALLOCATE, None)
        refusal = costs_too_much(self.state, chunk)
        if refusal is not None:
            self.state.rollback(mark)
            return refusal
        self.outcome.admit(Admission(chunk, Action.ALLOCATE))
        return None

    def _place_other(self, chunk: AllocationUnit) -> bool:
        """Ask for other subgroups of the gang that would serve as well; true where they found places.

        First without those that fit nowhere even alone, then also without one more, the last first. KAI has one try.
        """
        if len(self.problem.gangs[chunk.gang].leaves) < 2:
            return False
        leaves = tuple(chunk.root.leaves())[:MOST_CHOICES]
        hopeless = frozenset(leaf.name for leaf in leaves if not self._fits_alone(leaf))
        tried = {chunk.pods}
        for avoided in (hopeless, *(hopeless | {leaf.name} for leaf in reversed(leaves))):
            other = self.context.allocation_units[chunk.gang].next(avoided)
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

    def _admit_anew(self, admitter: Admitter, waiting: list[AllocationUnit]) -> None:
        """Let the admitter choose among all; those it leaves out are refused, those it takes in no longer."""
        candidates = [*(a.chunk for a in self.outcome.admissions), *waiting]
        proof = admitter.improve(self.outcome, waiting)
        served = {a.chunk.pods for a in self.outcome.admissions}
        for chunk in candidates:
            self.outcome.refusals.pop(chunk.gang, None)
        for chunk in candidates:
            if chunk.pods not in served:
                refusal = over_capacity(self.state, chunk)
                refusal = refusal or shortage(self.state, self.placer, chunk, proof)
                self.outcome.refuse(chunk.gang, Action.ALLOCATE, refusal, chunk.pods)
