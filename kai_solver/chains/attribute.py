"""For which admission each unit leaves or moves, once chains have changed which do.

A unit stays with the admissions that disturbed it before. Else it is for the gang that takes its node, or for any that
may take it (`search.rights`). An admission for which nothing leaves any more may count as consolidation: its gang could
as well have had others moved, of whatever queue and priority.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kai_solver.actions.reclaim_replay import reclaims_hold
from kai_solver.actions.sharing import VictimGroup, share_out
from kai_solver.domain import Action
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.units import GPU, UNLIMITED

EVICTING = (Action.RECLAIM, Action.PREEMPT)
NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Charging:
    """By which rights units may be disturbed.

    ``takers``: by admission from before the chains, the units that it may take (`Rights.takers`). ``may_consolidate``:
    whether the model runs consolidation, and the policy allows it. ``per_gang``: gangs that may move for one gang by
    consolidation; -1: any number.
    """

    takers: tuple[frozenset[int], ...] = ()
    may_consolidate: bool = True
    per_gang: int = UNLIMITED


def charge(outcome: Outcome, pool: VictimPool, changed: Iterable[int], charging: Charging) -> bool:
    """Let the admissions of ``outcome`` disturb the units that are disturbed now; False where that is not allowed.

    ``changed``: units that may be disturbed now and were not before, or the other way round. The admissions are to be
    put back by the caller where it is not allowed.
    """
    units = {unit for admission in outcome.admissions for unit in admission.units}.union(changed)
    disturbed = sorted(unit for unit in units if pool.is_disturbed(unit))
    evicted = [unit for unit in disturbed if pool.has_left(unit)]
    moved = [unit for unit in disturbed if not pool.has_left(unit)]
    found = _Charge(outcome, pool, charging)
    if not (all(map(found.evict, evicted)) and all(map(found.move, moved))):
        return False
    outcome.replace_admissions(found.admissions())
    if reclaims_hold(outcome):
        return True
    shared = share_out(outcome, found.victim_groups(evicted, moved))
    outcome.replace_admissions(shared.admissions)
    return not shared.left and reclaims_hold(outcome)


class _Charge:
    """Units given to admissions one by one: first those that leave, then those that move."""

    def __init__(self, outcome: Outcome, pool: VictimPool, charging: Charging) -> None:
        self.pool, self.charging, self.state = pool, charging, outcome.state
        gangs = outcome.state.problem.gangs
        self.admitted = outcome.admissions
        self.actions = [admission.action for admission in self.admitted]
        self.takers = [*charging.takers, *(NOTHING for _ in range(len(self.admitted) - len(charging.takers)))]
        self.units: list[dict[int, None]] = [{} for _ in self.admitted]
        self.loses = [False for _ in self.admitted]
        """Whether some unit leaves for the admission."""
        self.gangs: list[set[int]] = [set() for _ in self.admitted]
        """Gangs whose units it disturbs."""
        self.preemptible = [gangs[a.allocation_unit.gang].gang.preemptible for a in self.admitted]
        self._before: dict[int, list[int]] = {}
        self._landing: dict[int, list[int]] = {}
        self._owed: list[dict[int, int]] = [{} for _ in self.admitted]
        self._of_gang: dict[int, int] = {}
        """By gang, the admission for which its first unit left: those of one gang leave for one."""
        self._next = 0
        for number, admission in enumerate(self.admitted):
            for unit in admission.units:
                self._before.setdefault(unit, []).append(number)
                self._owe(number, unit, +1)
            for node in {self.state.places[pod].node for pod in admission.allocation_unit.pods}:
                self._landing.setdefault(node, []).append(number)

    def admissions(self) -> list[Admission]:
        """The admissions with their units."""
        every = zip(self.admitted, self.actions, self.units, strict=True)
        return [replace(admission, action=action, units=tuple(units)) for admission, action, units in every]

    def victim_groups(self, evicted: Iterable[int], moved: Iterable[int]) -> Iterator[VictimGroup]:
        """What may leave for which gang: units of one gang together. Moved ones stay with their admission."""
        by_gang: dict[int, list[int]] = {}
        for unit in evicted:
            by_gang.setdefault(self.pool.units[unit].gang, []).append(unit)
        alike: dict[int, list[int]] = {}
        for number in range(len(self.admitted)):
            if self.actions[number] in EVICTING:
                alike.setdefault(id(self.takers[number]), []).append(number)
        for units in by_gang.values():
            able = {n for unit in units for n in self._before.get(unit, ()) if self._may_evict_all(n, units)}
            able.update(*(numbers for numbers in alike.values() if self.takers[numbers[0]].issuperset(units)))
            yield VictimGroup(tuple(units), frozenset(able))
        for unit in moved:
            mine = frozenset(n for n, own in enumerate(self.units) if unit in own)
            yield VictimGroup((unit,), mine, evicted=False)

    # -- evictions ---------------------------------------------------------------------------------------------------

    def evict(self, unit: int) -> bool:
        """Find for which admission ``unit`` leaves."""
        able = [number for number in self._before.get(unit, ()) if self._may_evict(number, unit)]
        if not able:
            every = [number for number in range(len(self.admitted)) if self._may_evict(number, unit)]
            near = frozenset(self._near(unit))
            able = [max(every, key=lambda number: self._rank(number, unit, near))] if every else []
        for number in able:
            self._note(number, unit)
            self.loses[number] = True
            self._of_gang.setdefault(self.pool.units[unit].gang, number)
            self._owe(number, unit, -1)
        return bool(able)

    def _rank(self, number: int, unit: int, near: frozenset[int]) -> tuple[bool, ...]:
        """Which admissions come first: of the same victim, those that gave back as much in its queue, near ones.

        Then others that took from its queue, and that took anything: what a reclaim takes was judged by its queues.
        """
        own = self.pool.units[unit]
        owed = self._owed[number].get(int(self.pool.queue_of[unit]))
        return (
            self._of_gang.get(own.gang) == number,
            owed is not None and owed >= own.charge[GPU],
            self.actions[number] is Action.PREEMPT,
            number in near,
            owed is not None,
            bool(self.admitted[number].units),
        )

    def _owe(self, number: int, unit: int, sign: int) -> None:
        """Thousandths of GPUs by which an admission takes less (+1) or more (-1) of the unit's queue than before."""
        queue, owed = int(self.pool.queue_of[unit]), self._owed[number]
        owed[queue] = owed.get(queue, 0) + sign * self.pool.units[unit].charge[GPU]

    def _may_evict_all(self, number: int, units: Iterable[int]) -> bool:
        return all(self._may_evict(number, unit) for unit in units)

    def _may_evict(self, number: int, unit: int) -> bool:
        return self.actions[number] in EVICTING and self._takes(number, unit)

    def _takes(self, number: int, unit: int) -> bool:
        return unit in self.takers[number] or unit in self.admitted[number].units

    # -- moves -------------------------------------------------------------------------------------------------------

    def move(self, unit: int) -> bool:
        """Find for which admission ``unit`` moves: first where its queue is sure to allow it."""
        count = len(self.admitted)
        near = (*self._before.get(unit, ()), *self._near(unit))
        for is_sure in (True, False):
            for number in near:
                if self._move_for(number, unit, is_sure=is_sure):
                    return True
            # Round about, so that no admission gets all that moves far from any.
            for number in ((self._next + offset) % count for offset in range(count)):
                if self._move_for(number, unit, is_sure=is_sure):
                    self._next = (number + 1) % count
                    return True
        return False

    def _move_for(self, number: int, unit: int, *, is_sure: bool) -> bool:
        """Let ``unit`` move for an admission that may evict it, or by consolidation; False where it may not.

        ``is_sure``: not for a reclaim that took nothing from the unit's queue before. It is judged by what the queue
        holds at its turn, even where the unit only moves.
        """
        may_move = self.state.problem.policy.consolidating_reclaim
        if self.actions[number] in EVICTING and may_move and self._takes(number, unit):
            is_judged = (
                self.actions[number] is Action.RECLAIM and int(self.pool.queue_of[unit]) not in self._owed[number]
            )
            if not (is_sure and is_judged):
                self._note(number, unit)
                return True
        if not self._may_consolidate(number, unit):
            return False
        self.actions[number] = Action.CONSOLIDATION
        self._note(number, unit)
        return True

    def _may_consolidate(self, number: int, unit: int) -> bool:
        action, gang = self.actions[number], self.pool.units[unit].gang
        if not self.charging.may_consolidate or not self.preemptible[number] or self.loses[number]:
            return False
        if action is Action.ALLOCATE or gang == self.admitted[number].allocation_unit.gang:
            return False
        most = self.charging.per_gang
        return most < 0 or len(self.gangs[number] | {gang}) <= most

    # -- both --------------------------------------------------------------------------------------------------------

    def _note(self, number: int, unit: int) -> None:
        self.units[number][unit] = None
        self.gangs[number].add(self.pool.units[unit].gang)

    def _near(self, unit: int) -> Iterator[int]:
        """Admissions that take nodes where the unit ran."""
        origin = self.state.problem.pod_node
        for node in dict.fromkeys(origin[pod] for pod in self.pool.units[unit].pods):
            yield from self._landing.get(node, ())
