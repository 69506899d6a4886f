"""Oracles for tests of what the actions do without a solver."""

from collections.abc import Sequence

from kai_solver.actions import Answer
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action, Proof
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Outcome


class Unasked:
    """Knows nothing: refutes nothing, and places nothing."""

    unanswered = Answer("no", Proof("unasked", "greedy"))

    def refute(self, _outcome: Outcome, _unit: AllocationUnit, _action: Action) -> None:
        return None

    def place(
        self, _outcome: Outcome, _unit: AllocationUnit, _action: Action, _disruption: VictimSearch | None
    ) -> Answer:
        return Answer("no", Proof("unasked", "greedy"))

    def place_together(
        self, _outcome: Outcome, _chunks: Sequence[AllocationUnit], _action: Action, _disruption: VictimSearch | None
    ) -> Answer:
        return Answer("no", Proof("unasked", "greedy"))
