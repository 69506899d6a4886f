"""Proofs for the gangs that wait, asked of the final state: beside all that the plan admits.

An action asks in its turn, and often the time ends before it does, or before the answer is sure. At the end more is
admitted, and less may be disturbed: the same bounds then refute most of what was left open. Of 1,000 loaded nodes 2 to
7 of 29 to 73 gangs that wait were unknown for 2 s, of 5,000 nodes 111 of 226; a question takes 2 ms (2026-11-23).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kai_solver.actions.caps import over_capacity
from kai_solver.actions.disrupt import search_of
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action, Reason
from kai_solver.placement.placing import Placer
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.planstate.outcome import Outcome, Refusal
from kai_solver.planstate.signature import signature
from kai_solver.reasons.refusals import shortage, within_delay
from kai_solver.search.oracle import UNKNOWN, SolverActions

Class = tuple[object, ...]
"""What gangs share that have one answer: the action, queue, priority, what they ask for, and what it costs."""


class FinalProofs:
    """Asks rules and bounds once more for the gangs of ``outcome`` that wait without a proof; nothing is placed."""

    def __init__(self, outcome: Outcome, actions: Iterable[Action]) -> None:
        self.outcome = outcome
        self.state = outcome.state
        self.problem = outcome.state.problem
        self.oracle = SolverActions(None, UNKNOWN)
        self.placer = Placer(self.state)
        self.gang_units = [
            AllocationUnits(gang, state, self.problem.pod_shape)
            for gang, state in zip(self.problem.gangs, self.state.gangs, strict=True)
        ]
        self.searches: Mapping[Action, VictimSearch] = {
            action: search_of(action, outcome, self.placer.fits, self.gang_units)
            for action in actions
            if action not in (Action.ALLOCATE, Action.STALE)
        }
        self._found: dict[Class, Refusal | None] = {}

    def run(self, is_late: Callable[[], bool]) -> None:
        """Ask for each gang in the order in which it was refused, and note each proof; ``is_late`` ends it."""
        for gang, refusals in self.outcome.refusals.items():
            unit = self.gang_units[gang].next()
            open_actions = [action for action, refusal in refusals.items() if refusal.proof.state == "unknown"]
            if unit is None or unit.is_choice or not open_actions:
                continue
            for action in open_actions:
                if is_late():
                    return
                refusal = self._refusal(unit, action)
                if refusal is None:
                    break  # What one action leaves open stays open, whatever the others say.
                self.outcome.refuse(gang, action, refusal, unit.pods)

    def _refusal(self, unit: AllocationUnit, action: Action) -> Refusal | None:
        """A proof that ``action`` cannot run ``unit``; None without one. Equal questions are asked once."""
        preemptor = Preemptor.of(self.problem, unit)
        delayed = within_delay(self.problem, preemptor.gang) if action is not Action.ALLOCATE else None
        if delayed is not None:
            return delayed
        is_first = next(iter(self.outcome.refusals[unit.gang])) is action
        gang = preemptor.gang.gang
        rights = (preemptor.queue, gang.priority, gang.preemptible, gang.never_preempts)
        cost = (preemptor.charge, preemptor.device_milli)
        key = (action, is_first, *rights, *cost, signature(self.state, unit))
        if key not in self._found:
            self._found[key] = self._ask(unit, action, preemptor, is_first=is_first)
        return self._found[key]

    def _ask(self, unit: AllocationUnit, action: Action, preemptor: Preemptor, *, is_first: bool) -> Refusal | None:
        """Rules, then bounds. The first refusal of a gang is the one that says what lacks, in the final state."""
        search = self.searches.get(action)
        refusal = over_capacity(self.state, unit) if search is None else search.over_capacity(unit)
        if refusal is None and search is not None:
            refusal = search.refusal(preemptor)
        if refusal is not None:
            return _of_the_plan(refusal) if refusal.proof.state == "proven" else None
        answer = self.oracle.place(self.outcome, unit, action, search)
        if answer.proof.state != "proven":
            return None
        if is_first:
            text = shortage(self.state, self.placer, unit, answer.proof)
        else:
            text = Refusal(Reason.NOT_ENOUGH_RESOURCES, "", answer.proof)
        return _of_the_plan(replace(text, evidence=answer.evidence))


def _of_the_plan(refusal: Refusal) -> Refusal:
    return replace(refusal, proof=replace(refusal.proof, beside="plan"))
