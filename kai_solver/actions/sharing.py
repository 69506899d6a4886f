"""Victims assigned to the reclaims of a finished cycle, from the last reclaim to the first.

With ``held`` what the queues hold after a reclaim, rule 3 of `fairness.reclaim` for a levelled queue V that loses by it
is

    held[V] + largest last part of V's victims > kept[V]

whatever the other victims are, since V gains nothing by the reclaim. Rule 4 is about ``held`` as well. What the queues
finally hold is known. So, going backwards, each reclaim takes all that it may of a queue, or nothing. A victim of a
later reclaim was still running before all earlier ones, and their rights only grow by it. Only rule 1, the reclaimer's
queue within its share, may suffer: then a way to assign the victims may be missed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kai_solver.actions.reclaim_replay import ReclaimReplay
from kai_solver.domain import Action
from kai_solver.fairness import exceeds, levelled, saturation_bound
from kai_solver.planstate.eligibility import victim_parts
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.charges import Charge, sum_of
from kai_solver.units import GPU, UNLIMITED

BY_WEIGHT = (GPU, 1, 0)
"""Resources of queues, the one first in which most of them are bounded."""


@dataclass(frozen=True, slots=True)
class VictimGroup:
    """Units that are evicted (or moved) together, for one of the admissions ``able`` (by number)."""

    units: tuple[int, ...]
    able: frozenset[int]
    evicted: bool = True


@dataclass(frozen=True, slots=True)
class Shared:
    """``admissions`` with the units that they take, and the groups ``left`` that none may take.

    ``short``: by queue, (resource, how much more it would have to hold) for some of what is left to be taken.
    """

    admissions: list[Admission]
    left: list[VictimGroup]
    short: Mapping[int, tuple[int, int]] = field(default_factory=dict)


def share_out(outcome: Outcome, groups: Iterable[VictimGroup]) -> Shared:
    """Assign every victim group to one admission that may take it, whatever the admissions took before."""
    left = list(groups)
    if outcome.pool is None:
        return Shared(outcome.admissions, left)
    return _Sharing(outcome, outcome.pool, left).run()


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Victim groups of one leaf queue that the same admissions may take: one takes them all, or none does.

    ``charge``: what the queue loses by them (nothing if they move). ``parts``: the sum of all parts that rule 3 tests,
    ``lasts``: the last parts of each group.
    """

    groups: list[VictimGroup]
    queue: int
    charge: Charge
    parts: Charge
    lasts: frozenset[Charge]


_Level = tuple[int, int]
"""The levelled queues R and V."""


class _Sharing:
    """What every queue holds, and the groups not taken yet, as the admissions are gone through backwards."""

    def __init__(self, outcome: Outcome, pool: VictimPool, groups: Iterable[VictimGroup]) -> None:
        self.problem, self.pool = outcome.state.problem, pool
        self.admissions = [replace(admission, units=()) for admission in outcome.admissions]
        self.replay = ReclaimReplay(outcome, pool)
        self.short: dict[int, tuple[int, int]] = {}
        alike: dict[tuple[int, frozenset[int]], list[VictimGroup]] = {}
        for group in groups:
            queue = self.problem.gangs[pool.units[group.units[0]].gang].queue
            alike.setdefault((queue, group.able), []).append(group)
        self.waiting = [(able, self._candidates(queue, own)) for (queue, able), own in alike.items()]
        for admission in self.admissions:
            self.replay.receive(admission)
        self._charge((candidates for _, candidates in self.waiting), -1)

    def run(self) -> Shared:
        """From the last admission to the first."""
        for number in range(len(self.admissions) - 1, -1, -1):
            admission = self.admissions[number]
            self.replay.receive(admission, -1)
            able = [candidates for may, candidates in self.waiting if number in may]
            mine = self._taken(admission, able) if able else []
            if mine:
                taken = set(map(id, mine))
                self.waiting = [one for one in self.waiting if id(one[1]) not in taken]
                units = tuple(unit for candidates in mine for group in candidates.groups for unit in group.units)
                self.admissions[number] = replace(admission, units=units)
        left = [group for _, candidates in self.waiting for group in candidates.groups]
        return Shared(self.admissions, left, self.short)

    def _candidates(self, queue: int, groups: list[VictimGroup]) -> _Candidates:
        charges: list[Charge] = []
        parts: list[Charge] = []
        lasts: set[Charge] = set()
        for group in groups:
            units = [self.pool.units[unit] for unit in group.units]
            charges += [unit.charge for unit in units] if group.evicted else []
            if group.evicted or not self.problem.policy.consolidating_reclaim:
                tested = victim_parts(self.replay.state, units)
                parts += tested
                lasts.update(tested[-1:])
        return _Candidates(groups, queue, sum_of(charges), sum_of(parts), frozenset(lasts))

    def _charge(self, candidates: Iterable[_Candidates], sign: int) -> None:
        """Give their queues what they hold, or take it; once a queue, since its whole path changes."""
        of_queue: dict[int, list[Charge]] = {}
        for one in candidates:
            of_queue.setdefault(one.queue, []).append(one.charge)
        for queue, charges in of_queue.items():
            self.replay.add(queue, sum_of(charges), sign)

    def _taken(self, admission: Admission, able: list[_Candidates]) -> list[_Candidates]:
        """Those of ``able`` that the admission takes; they are back in their queues then."""
        gang, charge = self.problem.gangs[admission.allocation_unit.gang], self.replay.asked_by(admission)
        if admission.action is Action.RECLAIM:
            right = self.problem.reclaim_right(self.replay.allocated, gang.queue, charge)
            if right.refusal(self.replay.fixed, preemptible=gang.gang.preemptible) is not None:
                return []
        self._charge(able, +1)
        return able if admission.action is not Action.RECLAIM else self._reclaimed(gang.queue, charge, able)

    def _reclaimed(self, leaf: int, charge: Charge, able: list[_Candidates]) -> list[_Candidates]:
        levels: dict[_Level, list[_Candidates]] = {}
        for candidates in able:
            levels.setdefault(levelled(self.problem.queues, leaf, candidates.queue), []).append(candidates)
        while refused := [level for level in levels if not self._may_lose(level, levels, leaf, charge)]:
            self._charge((candidates for level in refused for candidates in levels.pop(level)), -1)
        return [candidates for own in levels.values() for candidates in own]

    def _may_lose(self, level: _Level, levels: Mapping[_Level, list[_Candidates]], leaf: int, charge: Charge) -> bool:
        problem, own, (mine, theirs) = self.problem, levels[level], level
        tree, held = problem.queues, self.replay.allocated
        queue = own[0].queue
        right = problem.reclaim_right(held, leaf, charge)
        kept = right.kept(queue)
        if not right.may_look_at(queue):
            return False  # The queue is judged before any of these leave: to take fewer of them would not help.
        rest = _less(held[theirs], sum_of(candidates.parts for candidates in own))
        lasts = sorted(frozenset[Charge]().union(*(candidates.lasts for candidates in own)), key=_by_gpu)
        if not lasts:
            return True
        if not any(exceeds(_less(rest, last, -1), kept) for last in lasts):
            return self._refuse(theirs, kept, _less(rest, lasts[-1], -1))
        taken = [candidates for all_of in levels.values() for candidates in all_of]
        involved = [r for r in range(3) if charge[r] or any(candidates.parts[r] for candidates in taken)]
        here = sum_of(candidates.parts for candidates in taken if mine in tree.path[candidates.queue])
        ours = _less(_less(held[mine], here), charge, -1)
        shares = (problem.share[mine], problem.share[theirs])
        bound = saturation_bound(ours, *shares, involved, problem.policy.saturation_multiplier)
        return bound.holds(rest) or self._refuse_saturation(level, ours, rest)

    def _refuse(self, queue: int, kept: Sequence[int], held: Sequence[int]) -> bool:
        """Note by how little ``queue`` fails to hold more than it keeps."""
        for resource in BY_WEIGHT:
            if kept[resource] != UNLIMITED:
                self._note(queue, resource, kept[resource] + 1 - held[resource])
                break
        return False

    def _refuse_saturation(self, level: _Level, ours: Charge, rest: Charge) -> bool:
        """Note by how little the victim queue is less saturated than the reclaimer's queue."""
        mine, theirs = (self.problem.share[queue] for queue in level)
        for resource in BY_WEIGHT:
            if mine[resource] > 0 and ours[resource] > mine[resource]:
                needed = ours[resource] * theirs[resource] // mine[resource] + 1
                self._note(level[1], resource, needed - rest[resource])
                break
        return False

    def _note(self, queue: int, resource: int, missing: int) -> None:
        if missing > 0 and (queue not in self.short or missing < self.short[queue][1]):
            self.short[queue] = (resource, missing)


def _by_gpu(charge: Charge) -> Charge:
    cpu, memory, gpu = charge
    return (gpu, memory, cpu)


def _less(held: Iterable[int], gone: Iterable[int], sign: int = 1) -> Charge:
    cpu, memory, gpu = (have - sign * away for have, away in zip(held, gone, strict=True))
    return (cpu, memory, gpu)
