"""What could be disturbed for the admitted gangs, by the numbers from before the disruptive actions."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kai_solver.domain import Action
from kai_solver.fairness import QueueSurplus, levelled, levelled_above, surplus_above
from kai_solver.planstate.eligibility import Eligibility, Preemptor
from kai_solver.planstate.eviction_units import charge_of
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.charges import Charge

NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Rights:
    """What the stages may change.

    Attributes
    ----------
    movable
        Units that may be disturbed at all.
    by_action
        Units that each action may evict for any gang that it admitted: no core of a gang that got places itself.
    takers
        By admission, the units that it may take. For a reclaim, if their queue holds enough when its turn comes, which
        `actions.sharing` asks: queues gain by the admissions before it. By what queues hold before all of them, 16 of
        the 211 victims of least work on 1,000 loaded nodes, and 4 of 370 on 2,000, have no taker (2026-11-23).
    divisible
        Units of which optional rules let a part go, and not the whole: the stages know them as whole ones only.
    surplus
        How much all reclaims may take from each levelled queue: what it holds before the last of them with nothing
        evicted, above the least that it may keep (`fairness.reclaim`, rule 3). No plan whose reclaims are allowed one
        by one takes more.
    """

    movable: frozenset[int]
    by_action: dict[Action, frozenset[int]]
    takers: tuple[frozenset[int], ...]
    surplus: tuple[QueueSurplus, ...]
    divisible: frozenset[int] = NOTHING


def rights_of(outcome: Outcome) -> Rights:
    """What the stages may change for all admissions of ``outcome``."""
    pool = outcome.pool
    if pool is None:
        return Rights(NOTHING, {}, (NOTHING,) * len(outcome.admissions), ())
    survey = _Survey(_before_disruption(outcome), pool)
    by_numbers = [survey.add(admission) for admission in outcome.admissions]
    takers = tuple(map(survey.at_its_turn, outcome.admissions, by_numbers))
    served = outcome.has_admitted()
    cores = frozenset(u.index for u in pool.units if u.is_core and u.gang in served)
    return Rights(
        movable=NOTHING.union(*survey.taken.values()),
        by_action={action: frozenset(units) - cores for action, units in survey.taken.items()},
        takers=takers,
        surplus=tuple(_surplus(outcome, survey, pool)),
        divisible=frozenset(survey.divisible),
    )


def _surplus(outcome: Outcome, survey: "_Survey", pool: VictimPool) -> Iterator[QueueSurplus]:
    problem, tree = outcome.state.problem, outcome.state.problem.queues
    held, least = [list(row) for row in survey.before.allocated], [list(row) for row in survey.before.allocated]
    movable = NOTHING.union(*survey.taken.values())
    taken = np.fromiter(movable, dtype=np.int64, count=len(movable))
    losses = np.zeros((tree.size, 3), dtype=np.int64)
    np.add.at(losses, pool.queue_of[taken], pool.charges[taken])
    for leaf in np.flatnonzero(losses.any(axis=1)).tolist():
        _add(least, tree.path[leaf], losses[leaf].tolist(), -1)
    amounts: dict[int, list[int]] = {}
    known: dict[int, list[int]] = {}
    kept: dict[tuple[int, Charge], list[Charge]] = {}
    for admission in outcome.admissions:
        queue = problem.gangs[admission.allocation_unit.gang].queue
        charge = charge_of(problem, admission.allocation_unit.pods)  # The most that it may cost, wherever it is seated.
        if admission.action is Action.RECLAIM:
            if queue not in known:
                known[queue] = sorted({levelled(tree, queue, leaf)[1] for leaf in survey.queues - {queue}})
            if (queue, charge) not in kept:
                right = problem.reclaim_right(least, queue, charge)
                kept[queue, charge] = [right.kept(min(tree.leaves[theirs])) for theirs in known[queue]]
            for theirs, keeps in zip(known[queue], kept[queue, charge], strict=True):
                above = surplus_above(held[theirs], keeps)
                amounts[theirs] = list(map(max, amounts.get(theirs, above), above))
        if admission.action is not Action.ALLOCATE:
            _add(held, tree.path[queue], charge, +1)
    for theirs, (cpu, memory, gpu) in amounts.items():
        yield QueueSurplus(theirs, tree.leaves[theirs], (cpu, memory, gpu))


def _add(table: list[list[int]], path: Iterable[int], charge: Sequence[int], sign: int) -> None:
    for queue in path:
        table[queue] = [held + sign * amount for held, amount in zip(table[queue], charge, strict=True)]


def reclaimable(state: State, eligibility: Eligibility, preemptor: Preemptor) -> list[QueueSurplus]:
    """What ``preemptor`` may reclaim of each levelled queue, by the numbers of ``state``."""
    right = state.problem.reclaim_right(state.allocated, preemptor.queue, preemptor.charge)
    leaves = levelled_above(state.problem.queues, preemptor.queue, eligibility.reclaim_queues(preemptor))
    return [right.surplus(leaf) for leaf in leaves.values()]


class _Survey:
    """Goes over the admissions; those that may take the same are asked for once.

    ``queues``: of all units that some reclaim may take.
    """

    def __init__(self, before: State, pool: VictimPool) -> None:
        self.before = before
        self.taken: dict[Action, set[int]] = {}
        self.queues: frozenset[int] = NOTHING
        self.divisible: set[int] = set()
        self._pool = pool
        self._eligibility = Eligibility(before, pool)
        self._known: dict[tuple[object, ...], tuple[frozenset[int], frozenset[int]]] = {}
        self._queues: dict[frozenset[int], frozenset[int]] = {}
        self._others: dict[tuple[int, int, bool], frozenset[int]] = {}
        self._counted: set[tuple[Action, frozenset[int]]] = set()

    def add(self, admission: Admission) -> frozenset[int]:
        """Units that ``admission`` may take by the numbers from before."""
        action = admission.action
        if action is Action.ALLOCATE:
            return NOTHING
        preemptor = Preemptor.of(self.before.problem, admission.allocation_unit)
        gang = preemptor.gang.gang
        own = preemptor.gang.index if action is Action.CONSOLIDATION else -1
        key = (action, preemptor.queue, preemptor.charge, gang.priority, gang.never_preempts, own)
        if key not in self._known:
            units = self._eligibility.units(action, preemptor)
            if units not in self._queues:  # Many may take the same.
                self._queues[units] = self._queues_of(units)
            self._known[key] = units, self._queues[units]
            if (action, units) not in self._counted:
                self._counted.add((action, units))
                self.taken.setdefault(action, set()).update(units)
            self.divisible |= self._eligibility.divisible(action, preemptor)
        self.taken[action].update(admission.units)
        units, queues = self._known[key]
        self.queues |= queues | self._queues_of(admission.units) if action is Action.RECLAIM else NOTHING
        return units

    def at_its_turn(self, admission: Admission, by_numbers: frozenset[int]) -> frozenset[int]:
        """Units that ``admission`` may take if their queues hold enough then, of those that some reclaim may take."""
        if admission.action is not Action.RECLAIM:
            return by_numbers
        preemptor = Preemptor.of(self.before.problem, admission.allocation_unit)
        key = (preemptor.queue, preemptor.gang.gang.priority, preemptor.gang.gang.never_preempts)
        if key not in self._others:
            queues = tuple(q for q in dict.fromkeys(self._pool.queue_of.tolist()) if q != preemptor.queue)
            mask = self._eligibility.reclaim(preemptor, queues)
            self._others[key] = frozenset(np.flatnonzero(mask).tolist()) & self.taken[Action.RECLAIM]
        return self._others[key]

    def _queues_of(self, units: Collection[int]) -> frozenset[int]:
        return frozenset(self._pool.queue_of[np.fromiter(units, dtype=np.int64, count=len(units))].tolist())


def _before_disruption(outcome: Outcome) -> State:
    """Queue numbers with the victims back and only undisturbing admissions in."""
    before = State(outcome.state.problem)
    for admission in outcome.admissions:
        if admission.action is Action.ALLOCATE:
            leaf = before.problem.gangs[admission.allocation_unit.gang].queue
            for pod in admission.allocation_unit.pods:
                place = outcome.state.places[pod]
                before.suppose(before.problem.queues.path[leaf], place.charge)
    return before
