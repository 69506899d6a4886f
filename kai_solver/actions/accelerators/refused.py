"""Gangs that wait in vain: once one of every kind that still waits was refused, so are all the others."""

from kai_solver.actions.context import Context
from kai_solver.actions.gang_order import GangOrder, SizeOrder
from kai_solver.domain import Action
from kai_solver.planstate.outcome import Refusal
from kai_solver.planstate.signature import Kind

FIRST_LOOK = 16
"""Refusals in a row after which the others are looked at; then after twice as many, and so on."""


class Refused:
    """Refusals of one action since it last admitted a gang: until the next nothing changes for those that wait."""

    def __init__(self, context: Context, action: Action) -> None:
        self.context = context
        self.action = action
        self._kinds: dict[Kind | None, Refusal] = {}
        self._row = 0

    def forget(self) -> None:
        """A gang was admitted."""
        self._kinds.clear()
        self._row = 0

    def note(self, kind: Kind | None, refusal: Refusal) -> None:
        """A gang of ``kind`` was refused."""
        self._row += 1
        if kind is not None:
            self._kinds[kind] = refusal

    def refuse_rest(self, gang_order: GangOrder | SizeOrder) -> bool:
        """Refuse all that wait, in order, if each is of a kind that was refused; else none."""
        if self._row < FIRST_LOOK or self._row & (self._row - 1):
            return False
        context, refusals = self.context, dict[int, Refusal]()
        for gang in gang_order.rest():
            refusal = self._kinds.get(context.kind(gang))
            if refusal is None:
                return False
            refusals[gang] = refusal
        for gang, refusal in refusals.items():
            context.outcome.refuse(gang, self.action, refusal, context.gang_units[gang].state.pending[0])
        return True
