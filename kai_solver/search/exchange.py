"""For which gangs the victims of a neighbourhood leave, while most victims of the cycle stay as they were."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kai_solver.domain import Action
from kai_solver.model.decode import Decision
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.units import GPU


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Units disturbed that a neighbourhood does not touch."""

    reclaimed: tuple[int, ...]
    preempted: tuple[int, ...]
    moved: tuple[int, ...]

    @property
    def units(self) -> tuple[int, ...]:
        """All of them."""
        return (*self.reclaimed, *self.preempted, *self.moved)

    def beside(self, decision: Decision) -> Decision:
        """The decision of the whole cycle."""
        return replace(
            decision,
            reclaimed=[*decision.reclaimed, *self.reclaimed],
            preempted=[*decision.preempted, *self.preempted],
            moved=[*decision.moved, *self.moved],
        )


def disturbed_elsewhere(outcome: Outcome, pool: VictimPool, inside: frozenset[int]) -> Elsewhere:
    """Units not ``inside`` that left, by the action that took them, or moved."""
    found: dict[Action | None, dict[int, None]] = {}
    for admission in outcome.admissions:
        for unit in admission.units:
            if unit not in inside and pool.is_disturbed(unit):
                found.setdefault(admission.action if pool.has_left(unit) else None, {})[unit] = None
    preempted = found.get(Action.PREEMPT, {})
    return Elsewhere(
        tuple(u for u in found.get(Action.RECLAIM, ()) if u not in preempted),
        tuple(preempted),
        tuple(found.get(None, ())),
    )


def exchanged(
    outcome: Outcome, pool: VictimPool, decision: Decision, inside: frozenset[int], takers: Sequence[frozenset[int]]
) -> list[Admission]:
    """The admissions with new victims ``inside``: unchanged ones as before, others for those that gave some back.

    The last of these is the safest: at every admission the queue has lost no more than before, if it loses no more in
    all.
    """
    assigned = [_Assigned(admission, number) for number, admission in enumerate(outcome.admissions)]
    for one in assigned:
        one.keep(outcome, pool, decision, inside)
    taken = {unit for one in assigned for unit in one.units}
    for unit, action in sorted(_leaving(decision), key=lambda entry: -pool.units[entry[0]].charge[GPU]):
        queue = outcome.state.problem.gangs[pool.units[unit].gang].queue
        cost = pool.units[unit].charge[GPU] if action is not None else 0
        able = [b for b in assigned if unit in takers[b.number] and b.may_take(pool.units[unit].gang, action)]
        if unit not in taken and able:
            max(able, key=lambda one: one.rank(queue, cost)).take(unit, queue, cost)
    return [replace(one.admission, units=tuple(one.units)) for one in assigned]


def _leaving(decision: Decision) -> Iterator[tuple[int, Action | None]]:
    """Units with the action that evicts them; None if they move."""
    yield from ((unit, Action.RECLAIM) for unit in decision.reclaimed)
    yield from ((unit, Action.PREEMPT) for unit in decision.preempted)
    yield from ((unit, None) for unit in decision.moved)


class _Assigned:
    """One admission: its units, and what it gave back by leaf queue (thousandths of GPUs)."""

    def __init__(self, admission: Admission, number: int) -> None:
        self.admission = admission
        self.number = number
        self.units: list[int] = []
        self._back: dict[int, int] = {}

    def keep(self, outcome: Outcome, pool: VictimPool, decision: Decision, inside: frozenset[int]) -> None:
        """Keep all that is still disturbed in the same way."""
        action = self.admission.action
        same = {Action.RECLAIM: decision.reclaimed, Action.PREEMPT: decision.preempted}.get(action, [])
        for unit in self.admission.units:
            queue = outcome.state.problem.gangs[pool.units[unit].gang].queue
            if unit not in inside or unit in same or unit in decision.moved:
                self.units.append(unit)
                self._back.setdefault(queue, 0)
            else:
                self._back[queue] = self._back.get(queue, 0) + pool.units[unit].charge[GPU]

    def may_take(self, gang: int, action: Action | None) -> bool:
        """May a unit of ``gang`` leave for it by ``action``, or move (None)?"""
        own = self.admission.action
        return own is not Action.ALLOCATE and action in (None, own) and gang != self.admission.allocation_unit.gang

    def rank(self, queue: int, cost: int) -> tuple[bool, bool, int]:
        """Sort key: admissions that take from the queue anyway, and gave back as much; of these the last."""
        return queue in self._back, self._back.get(queue, 0) >= cost, self.number

    def take(self, unit: int, queue: int, cost: int) -> None:
        """Note a unit."""
        self.units.append(unit)
        self._back[queue] = self._back.get(queue, 0) - cost
