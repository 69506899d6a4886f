"""What the actions left open of the gangs that wait: can this gang run beside all that is admitted?

An action asks in its turn, and often the time ends before it does, or before the answer is sure. Afterwards each gang
that waits without a proof is asked for again, in policy order: rules, then bounds, then CP-SAT where there is a solver
to ask. CP-SAT's "yes" is put into effect. Equal gangs share an answer until a gang is admitted.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Literal

from kai_solver.actions.caps import over_capacity
from kai_solver.actions.disrupt import search_of
from kai_solver.actions.gang_order import GangOrder, SizeOrder
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action, Proof, Reason
from kai_solver.placement.fit import FitTable
from kai_solver.planstate.allocation_units import AllocationUnit, GangUnitsOf
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.planstate.outcome import Admission, Outcome, Refusal
from kai_solver.planstate.signature import signature
from kai_solver.reasons.refusals import within_delay
from kai_solver.reasons.untold import with_words_of
from kai_solver.search.oracle import UNKNOWN, SolverActions

Beside = Literal["earlier", "plan"]

NEVER = -1

Class = tuple[object, ...]
"""What gangs share that have one answer: the action, queue, priority, what they ask for, and what it costs."""


class OpenQuestions:
    """Asks for the gangs of ``outcome`` that wait without a proof.

    Parameters
    ----------
    oracle
        Answers by bounds alone, or by CP-SAT too.
    by_size
        Gangs come by their size, as with the admission ``max-gpus``.
    states
        Of proofs: refusals with these are asked for again.
    """

    def __init__(
        self,
        outcome: Outcome,
        actions: Iterable[Action],
        oracle: SolverActions | None = None,
        *,
        by_size: bool = False,
        states: Collection[str] = ("unknown",),
    ) -> None:
        self.outcome = outcome
        self.state = outcome.state
        self.problem = outcome.state.problem
        self.oracle = oracle or SolverActions(None, UNKNOWN)
        self.order_type = SizeOrder if by_size else GangOrder
        self.actions = tuple(action for action in actions if action is not Action.STALE)
        self.gang_units = GangUnitsOf(self.state)
        fits = FitTable(self.state)
        waiting = outcome.waiting
        self.searches: Mapping[Action, VictimSearch] = {
            action: search_of(action, outcome, fits, self.gang_units, waiting)
            for action in self.actions
            if action is not Action.ALLOCATE
        }
        self.states = frozenset(states)
        self._found: dict[Class, Refusal | None] = {}
        self._unanswered: set[Class] = set()
        self._in_order = 0
        """Gangs admitted here since the order began again: those before the one that is asked for."""

    def run(self, is_late: Callable[[], bool], *, beside: Beside = "earlier") -> int:
        """Ask until no more gangs come in, or ``is_late`` ends it; how many were admitted.

        ``beside``: what proofs hold beside: "plan" where nothing is admitted any more. Else they hold beside the plan,
        too, if gangs of later order came in since the action had its turn.
        """
        admitted, before = 0, -1
        while before < admitted:
            before, self._in_order = admitted, 0
            order = self.order_type(self.state, self.gang_units, self._open())
            while not is_late() and (next_gang := order.pop()) is not None:
                if self._admit(next_gang.allocation_unit, is_late, beside):
                    admitted += 1
                    self._in_order += 1
                    order.refresh()
        return admitted

    def _open(self) -> list[int]:
        """Gangs that wait, and that some action refused without a proof."""
        return [
            gang
            for gang, refusals in self.outcome.refusals.items()
            if self.gang_units[gang].waits() and any(r.proof.state in self.states for r in refusals.values())
        ]

    def _admit(self, unit: AllocationUnit, is_late: Callable[[], bool], beside: Beside) -> bool:
        """Ask action by action, and note each proof; True if one admitted ``unit``."""
        refusals = self.outcome.refusals[unit.gang]
        for action in [action for action, refusal in refusals.items() if refusal.proof.state in self.states]:
            if is_late():
                return False
            version = self.outcome.version
            refusal = self._refusal(unit, action)
            if self.outcome.version != version:
                self._found.clear()
                return True
            if refusal is not None and not unit.is_choice:
                before = self.outcome.refused_at.get((unit.gang, action), NEVER) + self._in_order
                proof = replace(refusal.proof, beside=beside if before == self.outcome.version else "plan")
                said = with_words_of(replace(refusal, proof=proof), refusals[action])
                self.outcome.refuse(unit.gang, action, said, unit.pods)
        return False

    def _refusal(self, unit: AllocationUnit, action: Action) -> Refusal | None:
        """A proof that ``action`` cannot run ``unit``; None without one, or if it runs now."""
        preemptor = Preemptor.of(self.problem, unit)
        delayed = within_delay(self.problem, preemptor.gang) if action is not Action.ALLOCATE else None
        if delayed is not None:
            return delayed
        gang = preemptor.gang.gang
        rights = (preemptor.queue, gang.priority, gang.preemptible, gang.never_preempts)
        cost = (preemptor.charge, preemptor.device_milli)
        key = (action, *rights, *cost, signature(self.state, unit))
        if key in self._unanswered:
            return None
        if key not in self._found:
            self._found[key] = self._ask(unit, action, preemptor, key)
        return self._found[key]

    def _ask(self, unit: AllocationUnit, action: Action, preemptor: Preemptor, key: Class) -> Refusal | None:
        """Rules, bounds, CP-SAT."""
        search = self.searches.get(action)
        refusal = over_capacity(self.state, unit) if search is None else search.over_capacity(unit)
        if refusal is None and search is not None:
            refusal = search.refusal(preemptor)
        if refusal is not None:
            return refusal if refusal.proof.state == "proven" else None
        answer = self.oracle.place(self.outcome, unit, action, search)
        if answer.verdict == "yes":
            self.outcome.admit(Admission(unit, action, answer.units, by_solver=True))
            return None
        if answer.proof.state != "proven":
            self._unanswered.add(key)
            return None
        proof = self._with_held(answer.proof, action, preemptor)
        return Refusal(Reason.NOT_ENOUGH_RESOURCES, "", proof, evidence=answer.evidence)

    def _with_held(self, proof: Proof, action: Action, preemptor: Preemptor) -> Proof:
        """With the rules that hold running pods, and may be what blocks."""
        search = self.searches.get(action)
        if search is None or not any(rule.is_protective for rule in self.problem.rules):
            return proof
        return replace(proof, blocking=(*proof.blocking, *search.eligibility.held(action, preemptor)))
