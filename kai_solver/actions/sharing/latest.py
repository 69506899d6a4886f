"""Victims that go to the latest reclaims which may take them, from the last reclaim to the first.

With ``held`` what the queues hold after a reclaim, rule 3 of `fairness.reclaim` for a levelled queue V that loses by it
is

    held[V] + largest last part of V's victims > kept[V]

whatever the other victims are, since V gains nothing by the reclaim. Rule 4 is about ``held`` as well. What the queues
finally hold is known. So, going backwards, each reclaim takes all that it may of a queue, or nothing. A victim of a
later reclaim was still running before all earlier ones, and that much more V holds.

It is not always good to be late. The reclaimer's own queues hold more, too: rule 1 asks that its leaf queue stays
within its share, and rule 4 that R is less saturated than V. And with two levels above a leaf queue, it may be that it
holds too little for the late reclaims beside it, and its parent too little for the earlier ones from elsewhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kai_solver.actions.reclaim_replay import ReclaimReplay
from kai_solver.actions.sharing.levels import Levels
from kai_solver.actions.sharing.victims import NOTHING, Taken, Victims
from kai_solver.domain import Action
from kai_solver.fairness import exceeds, levelled, saturation_bound
from kai_solver.planstate.outcome import Admission
from kai_solver.problem.charges import Charge, sum_of
from kai_solver.units import GPU, UNLIMITED

BY_WEIGHT = (GPU, 1, 0)
"""Resources of queues, the one first in which most of them are bounded."""


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Victims of one leaf queue that the same admissions may take: one takes them all, or none does.

    ``charge``: what the queue loses by them. ``parts``: the sum of all parts that rule 3 tests, ``lasts``: the last
    parts of each.
    """

    victims: Sequence[Victims]
    queue: int
    charge: Charge
    parts: Charge
    lasts: frozenset[Charge]


_Level = tuple[int, int]
"""The levelled queues R and V."""


class Latest:
    """What every queue holds, and what is not taken yet, as the admissions are gone through backwards.

    ``end``: what the queues hold when all is admitted and nothing has left. ``levels``: queues that may lose nothing
    are passed over by them, and are not noted as short then.

    Attributes
    ----------
    taken
        By admission, what it takes: at first what is given to it, of which nothing more is asked here.
    short
        By queue, (resource, how much more it would have to hold) for some of what is left to be taken.
    saturated
        Levelled queues of reclaimers that were too saturated for a victim's, as found on the way.
    """

    def __init__(
        self,
        end: ReclaimReplay,
        admissions: Sequence[Admission],
        victims: Iterable[Victims],
        taken: Taken = NOTHING,
        levels: Levels | None = None,
    ) -> None:
        self.replay, self.problem, self.levels = end.copy(), end.problem, levels
        self.admissions = admissions
        self.taken = {number: list(own) for number, own in taken.items()}
        self.short: dict[int, tuple[int, int]] = {}
        self.saturated: dict[int, None] = {}
        given = {id(one) for own in taken.values() for one in own}
        alike: dict[tuple[int, frozenset[int]], list[Victims]] = {}
        for one in victims:
            if id(one) not in given:
                alike.setdefault((one.queue, one.group.able), []).append(one)
        self._waiting = [(able, _candidates(own)) for (_, able), own in alike.items()]
        lasts = [(0, 0, 0), *(last for _, candidates in self._waiting for last in candidates.lasts)]
        self._largest = (max(one[0] for one in lasts), max(one[1] for one in lasts), max(one[2] for one in lasts))
        self._charge((candidates for _, candidates in self._waiting), -1)
        self._charge((one for own in self.taken.values() for one in own), -1)

    @property
    def left(self) -> list[Victims]:
        """What no admission takes."""
        return [one for _, candidates in self._waiting for one in candidates.victims]

    def run(self) -> None:
        """From the last admission to the first."""
        for number in range(len(self.admissions) - 1, -1, -1):
            admission = self.admissions[number]
            self.replay.receive(admission, -1)
            if number in self.taken:
                self._charge(self.taken[number], +1)
            able = [candidates for may, candidates in self._waiting if number in may]
            mine = self._takes(admission, able) if able else []
            if mine:
                known = set(map(id, mine))
                self._waiting = [one for one in self._waiting if id(one[1]) not in known]
                self.taken.setdefault(number, []).extend(one for candidates in mine for one in candidates.victims)

    def _charge(self, leaving: Iterable[_Candidates | Victims], sign: int) -> None:
        """Give their queues what they hold, or take it; once a queue, since its whole path changes."""
        of_queue: dict[int, list[Charge]] = {}
        for one in leaving:
            of_queue.setdefault(one.queue, []).append(one.charge)
        for queue, charges in of_queue.items():
            self.replay.add(queue, sum_of(charges), sign)

    def _takes(self, admission: Admission, able: list[_Candidates]) -> list[_Candidates]:
        """Those of ``able`` that the admission takes; they are back in their queues then."""
        gang, charge = self.problem.gangs[admission.allocation_unit.gang], self.replay.asked_by(admission)
        if admission.action is Action.RECLAIM:
            if self.replay.right_of(admission) is None:
                return []
            held, levels = self.replay.allocated, self.levels
            if levels is not None:
                largest = self._largest
                able = [o for o in able if not o.lasts or levels.may_lose(gang.queue, o.queue, held, largest)]
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
                self.saturated[level[0]] = None
                needed = ours[resource] * theirs[resource] // mine[resource] + 1
                self._note(level[1], resource, needed - rest[resource])
                break
        return False

    def _note(self, queue: int, resource: int, missing: int) -> None:
        if missing > 0 and (queue not in self.short or missing < self.short[queue][1]):
            self.short[queue] = (resource, missing)


def _candidates(victims: Sequence[Victims]) -> _Candidates:
    """Of some victims at least."""
    parts = sum_of(part for one in victims for part in one.parts)
    lasts = frozenset(part for one in victims for part in one.parts[-1:])
    return _Candidates(victims, victims[0].queue, sum_of(one.charge for one in victims), parts, lasts)


def _by_gpu(charge: Charge) -> Charge:
    cpu, memory, gpu = charge
    return (gpu, memory, cpu)


def _less(held: Iterable[int], gone: Iterable[int], sign: int = 1) -> Charge:
    cpu, memory, gpu = (have - sign * away for have, away in zip(held, gone, strict=True))
    return (cpu, memory, gpu)
