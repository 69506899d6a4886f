"""One question of an action: the allocation unit, all that was admitted before it, and what may be disturbed."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from kai_solver.actions.reclaim_replay import reclaims_hold
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.bounds import Domains, count_bound, lacks_rights
from kai_solver.domain import Action, Blocker
from kai_solver.fairness import QueueSurplus
from kai_solver.model.decode import Decision
from kai_solver.model.joint import Joint
from kai_solver.model.spec import Term
from kai_solver.model.variables import Variables
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.planstate.eviction_units import Unit
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.saving import free_milli, savings
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import Problem
from kai_solver.problem.rules import Spacing
from kai_solver.reasons.attempt import constraint_of
from kai_solver.search.apply import apply
from kai_solver.search.evictable import evictable
from kai_solver.search.joint_input import Found, JointModelInput
from kai_solver.search.looseness import loose_gangs
from kai_solver.search.rights import NOTHING, reclaimable
from kai_solver.units import CPU, GPU, MEMORY

IntArray = NDArray[np.int64]


class Question:
    """One question: the allocation unit beside all that was admitted, and what may be disturbed."""

    def __init__(
        self,
        model_input: JointModelInput,
        outcome: Outcome,
        allocation_unit: AllocationUnit,
        action: Action,
        victim_search: VictimSearch | None,
    ) -> None:
        self.model_input = model_input
        self.outcome = outcome
        self.state = outcome.state
        self.problem = outcome.state.problem
        self.allocation_unit = allocation_unit
        self.action = action
        self.victim_search = victim_search
        self.preemptor = Preemptor.of(self.problem, allocation_unit)
        self.eligible = (
            victim_search.eligibility.units(action, self.preemptor) if victim_search is not None else NOTHING
        )
        standing = model_input.standing()
        self.admitted, self.disturbed, self.evicted = standing.admitted, standing.disturbed, standing.evicted
        """``evicted``: units that earlier questions evicted."""
        self._standing = standing
        self.served = standing.served(self.eligible)
        """Cores of gangs that got places in this cycle: they may move, but to evict them would undo an admission."""
        self.is_rough = self.problem.snapshot.claims is not None and self.problem.snapshot.claims.is_rough
        is_blurred = self.is_rough or self.state.is_crossed
        is_loose = self._has_loose_parts() or bool(self.loose or self.divisible)
        is_partial = bool(model_input.violated.any()) or self._once(
            "partial", lambda: model_input.is_partial(self.units)
        )
        self.is_exact = not (is_blurred or is_partial or self.served or is_loose)

    def _once(self, name: Hashable, make: Callable[[], Found]) -> Found:
        """What follows from the ``eligible`` alone, and is asked once for all questions that have the same."""
        return self._standing.once(name, self.eligible, make)

    def _has_loose_parts(self) -> bool:
        """Reclaim tests pods of a gang as one allocation unit: which, the model says only where they cost the same."""
        pool = self.outcome.pool
        if self.action is not Action.RECLAIM or pool is None:
            return False
        return self._once("uneven", lambda: any(self._is_uneven(pool, gang) for gang in self._elastic(pool)))

    @property
    def _is_scoped(self) -> bool:
        """Whether a required level of a topology is over some of what is asked for."""
        return constraint_of(self.allocation_unit.root) is not None

    def _elastic(self, pool: VictimPool) -> list[int]:
        """Gangs of which some eligible unit is no core."""
        eligible = np.fromiter(self.eligible, dtype=np.int64, count=len(self.eligible))
        found: list[int] = np.unique(pool.gang_of[eligible[~pool.table.is_core[eligible]]]).tolist()
        return found

    def _is_uneven(self, pool: VictimPool, gang: int) -> bool:
        units = [pool.units[u] for u in pool.of_gang[gang]]
        charges = {self.problem.charges[pod] for unit in units for pod in unit.pods}
        leaves = self.problem.gangs[gang].leaves
        counts = (Counter(self.state.leaf_of[pod] for pod in unit.pods) for unit in units)
        return len(charges) > 1 or any(n > max(1, leaves[leaf].min_member) for c in counts for leaf, n in c.items())

    @property
    def has_choice(self) -> bool:
        """False where the greedy's "no" is the answer: one pod, and nothing that could be arranged otherwise."""
        return (
            bool(self.eligible or self.disturbed or self.admitted)
            or len(self.allocation_unit.pods) > 1
            or not self.is_exact
        )

    @cached_property
    def loose(self) -> frozenset[int]:
        """Gangs of eligible units that could give up others instead."""
        pool = self.outcome.pool
        if pool is None or not self._evicts:
            return NOTHING
        return self._once("loose", lambda: loose_gangs(self.state, pool, self.eligible))

    @property
    def _evicts(self) -> bool:
        return self.action in (Action.RECLAIM, Action.PREEMPT)

    @cached_property
    def shielded(self) -> frozenset[int]:
        """Units that may not go as they are, of which some could: others could be the minimum of a loose gang."""
        pool, loose = self.outcome.pool, NOTHING
        if pool is not None and self.loose:
            own = (u for gang in self.loose for u in pool.of_gang[gang])
            loose = self._once("shielded", lambda: frozenset(own) - self.eligible)
        return loose | (self.divisible - self.eligible) if self.divisible else loose

    @cached_property
    def divisible(self) -> frozenset[int]:
        """Units of which optional rules let a part move where the whole may not."""
        pool = self.outcome.pool
        divisible = pool.releases.divisible if pool is not None else None
        if self.victim_search is None or divisible is None:
            return NOTHING
        mine = self.victim_search.eligibility.divisible(self.action, self.preemptor)
        return mine | {unit for unit in self.disturbed if divisible[unit]}

    # -- bounds --------------------------------------------------------------------------------------------------

    @cached_property
    def units(self) -> frozenset[int]:
        """Units that this question may disturb, with those that earlier ones did."""
        return self._standing.units(self.eligible)

    @cached_property
    def lifted(self) -> frozenset[int]:
        """Units that count as out of the way: with those of which some could be."""
        if self.divisible:
            return self.units | self.shielded
        return self._once("lifted", lambda: self.units | self.shielded) if self.shielded else self.units

    def bound(self) -> Blocker | None:
        """What proves "no" without a search. Counts are the same for all that have the same rights and ask the same."""
        needed = self.problem.by_shape(self.allocation_unit.pods)
        spacings = self.state.spacings(self.allocation_unit.gang)
        is_own = self.action is Action.RECLAIM or spacings or self.divisible or self._is_scoped
        if not is_own:
            asked = ("bound", self.action, frozenset(needed.items()))
            return self._once(asked, lambda: self._count_bound(needed, ()))
        return self._count_bound(needed, spacings) or self._fair_share_bound()

    def _count_bound(self, needed: Counter[int], spacings: tuple[Spacing, ...]) -> Blocker | None:
        admitted = self._standing.allocation_units
        beside = self.model_input.shapes_of(admitted)
        if self.undone:
            lost = chain.from_iterable(unit.pods for unit in admitted if unit.gang in self.undone)
            beside = beside - self.problem.by_shape(lost)
        if self.outcome.pool is not None:
            beside.update(self.model_input.room_at_origins(self.kept))
        relaxed = self.model_input.relaxed(self.lifted)
        return count_bound(self.problem, relaxed, needed, beside, self._domains(), spacings)

    def _domains(self) -> Domains | None:
        """Domains of which one must hold the whole allocation unit; None without such a rule."""
        if not self._is_scoped:
            return None
        arrival = self.model_input.arrival(self.allocation_unit, self.action, self.units)
        over_all = [s for i, s in enumerate(arrival.scopes) if all(i in piece.scopes for piece in arrival.pieces)]
        if not over_all:
            return None
        return Domains(over_all[-1].domain_of)

    def _fair_share_bound(self) -> Blocker | None:
        """Evictions may free at most every queue's surplus and one last allocation unit: is that enough GPUs in all?"""
        pool = self.outcome.pool
        if self.action is not Action.RECLAIM or not self.preemptor.device_milli or pool is None or self.shielded:
            return None
        if any(surplus.amounts[CPU] > 0 or surplus.amounts[MEMORY] > 0 for surplus in self.surplus):
            return None
        free = free_milli(self.state).reached + savings(self.state).total
        charged = np.fromiter(self.charged, dtype=np.int64, count=len(self.charged))
        queues = pool.queue_of[charged]
        for surplus in self.surplus:
            if surplus.amounts[GPU] > 0:
                theirs = [pool.units[u] for u in charged[np.isin(queues, list(surplus.leaves))].tolist()]
                most = surplus.most(GPU, largest_part(self.problem, theirs, GPU)) or 0
                free += min(sum(unit.charge[GPU] for unit in theirs), most)
        if free >= self.preemptor.device_milli:
            return None
        return lacks_rights(self.preemptor.device_milli, free)

    # -- what may be dropped ---------------------------------------------------------------------------------------

    @cached_property
    def undone(self) -> frozenset[int]:
        """Gangs whose admission would be undone with the core that they ran with."""
        pool = self.outcome.pool
        return frozenset(pool.units[u].gang for u in self.served) if pool is not None else NOTHING

    @cached_property
    def charged(self) -> frozenset[int]:
        """Units whose eviction counts against their queue's surplus."""
        if self.action is not Action.RECLAIM:
            return NOTHING
        return self._evictable() | self._evicted_by().get(Action.RECLAIM, NOTHING)

    def _evictable(self, *, lasting: bool = False) -> frozenset[int]:
        """Units that some reclaim (``lasting``: some that lasts) may evict."""
        units, pool = self.eligible - self.served, self.outcome.pool
        if pool is None:
            return units
        return evictable(self.state, pool, self.preemptor, units, sorted(self.undone), lasting=lasting)

    @cached_property
    def kept(self) -> frozenset[int]:
        """Units that keep their right to run, though not their places: all but those that may be gone at no cost.

        Those are victims of preemption, and units of gangs that may lose the places which they got in this cycle.
        """
        if not self._evicts:
            return self._standing.kept(self.eligible)
        if self.action is Action.PREEMPT:
            return self._standing.moved_aside(self.eligible)
        return self.units - self.charged - self.served - self.evicted

    # -- model ---------------------------------------------------------------------------------------------------

    def size_estimate(self) -> int:
        """About how many variables the model will have: places by shape and node, and units that may leave."""
        return self.model_input.size_estimate([*self.admitted, (self.allocation_unit, self.action)], self.units)

    def joint(self, *, cautious: bool = False) -> Joint:
        """The problem in which everything admitted keeps its right to run but not its place.

        ``cautious``: what was evicted for others stays out, so that their rights are what they were, and no unit is
        evicted whose queue would get its place back in the next cycle.
        """
        preempt = self.eligible - self.served if self.action is Action.PREEMPT else NOTHING
        reclaim = self._evictable(lasting=True) if cautious and self.charged else self.charged
        was = self._evicted_by()
        policy = self.problem.policy
        return self.model_input.join(
            [*self.admitted, (self.allocation_unit, self.action)],
            self.units - self.evicted if cautious else self.units,
            reclaim | was.get(Action.RECLAIM, NOTHING),
            preempt | was.get(Action.PREEMPT, NOTHING),
            self._surplus(self.evicted if not cautious else NOTHING),
            gone=self.evicted if cautious else NOTHING,
            may_move=self.action is Action.CONSOLIDATION or policy.consolidating_reclaim,
        )

    def _evicted_by(self) -> dict[Action, frozenset[int]]:
        """Units that earlier questions evicted, by the action that did it last."""
        return self._standing.once("evicted-by", NOTHING, self._find_evicted_by)

    def _find_evicted_by(self) -> dict[Action, frozenset[int]]:
        pool = self.outcome.pool
        cause = {u: a.action for a in self.outcome.admissions for u in a.units if pool is not None and pool.has_left(u)}
        return {action: frozenset(u for u, c in cause.items() if c is action) for action in set(cause.values())}

    @cached_property
    def surplus(self) -> list[QueueSurplus]:
        """What this reclaimer may take, from the numbers of this moment."""
        return self._surplus(self.evicted)

    def _surplus(self, open_again: frozenset[int]) -> list[QueueSurplus]:
        if self.action is not Action.RECLAIM or self.victim_search is None:
            return []
        found = reclaimable(self.state, self.victim_search.eligibility, self.preemptor)
        taken = self._taken(open_again)
        return [replace(s, amounts=_with_taken(s, taken)) for s in found]

    def _taken(self, units: frozenset[int]) -> IntArray:
        """(Q, 3) by leaf queue, the charge of ``units``."""
        pool, taken = self.outcome.pool, np.zeros((self.problem.queues.size, 3), dtype=np.int64)
        if pool is not None and units:
            chosen = np.fromiter(units, dtype=np.int64, count=len(units))
            np.add.at(taken, pool.queue_of[chosen], pool.charges[chosen])
        return taken

    def cost_terms(self, v: Variables) -> list[Term]:
        """One rough sum for a question: an evicted pod costs a hundred moved ones. The stages weigh exactly."""
        terms: list[Term] = []
        for group in v.classes:
            terms += [(-1, var) for var in group.stay.values()]
            terms += [(99, group.out_reclaim), (99, group.out_preempt)]
        for unit in v.units:
            pods = len(unit.mover.origin)
            terms += [(pods, unit.moved), (100 * pods, unit.out_reclaim), (100 * pods, unit.out_preempt)]
        return terms

    # -- acceptance ----------------------------------------------------------------------------------------------

    def accept(self, joint: Joint, decision: Decision) -> tuple[int, ...] | None:
        """Put the solution into effect; the units disturbed for this allocation unit, None where a rule refuses it."""
        mark = self.state.mark()
        ledger = self.victim_search.ledger(self.preemptor) if self.victim_search is not None else None
        units = self._for_this_unit(decision)
        if not apply(
            self.state, self.outcome.pool, joint, decision, [*self.admitted, (self.allocation_unit, self.action)]
        ):
            return None
        units = self._needed(units)
        if self.victim_search is not None and not self.victim_search.is_allowed(
            self.preemptor, self.allocation_unit, units, ledger
        ):
            self.state.rollback(mark)
            return None
        if not self._earlier_reclaims_hold(units):
            self.state.rollback(mark)
            return None
        return tuple(units)

    def _needed(self, units: list[int]) -> list[int]:
        """Of ``units`` those that are in the way; the others return to their places.

        A solution that was found in a hurry evicts far more: 318 units where 103 are in the way, and after as long a
        search for a cheaper one 130 where 78 are (1,000 loaded nodes, seed 24, 2026-11-30).
        """
        pool = self.outcome.pool
        if self.victim_search is None or pool is None:
            return units
        self.victim_search.settle(units)
        return [unit for unit in units if pool.is_disturbed(unit)]

    def _earlier_reclaims_hold(self, units: list[int]) -> bool:
        """Whether earlier reclaims are still allowed: units that returned, or left after all, may change that."""
        outcome = self.outcome
        mine = set(units) & self.disturbed  # They were moved for others, which are not charged for their eviction.
        earlier = [replace(a, units=tuple(u for u in a.units if u not in mine)) for a in outcome.admissions]
        ours = Admission(self.allocation_unit, self.action, tuple(units), by_solver=True)
        return reclaims_hold(replace(outcome, admissions=[*earlier, ours]))

    def _for_this_unit(self, decision: Decision) -> list[int]:
        """Units that leave or move for this one; what an earlier question did likewise stays with that one."""
        evicted = {Action.RECLAIM: decision.reclaimed, Action.PREEMPT: decision.preempted}.get(self.action, [])
        before = self._evicted_by().get(self.action, NOTHING)
        moved = [u for u in decision.moved if u not in self.disturbed]
        return [u for u in evicted if u in self.eligible and u not in before] + moved


def _with_taken(surplus: QueueSurplus, taken: IntArray) -> tuple[int, int, int]:
    """Units already evicted below the queue count again in the model, so their charge is added back."""
    cpu, memory, gpu = taken[list(surplus.leaves)].sum(axis=0).tolist()
    return surplus.amounts[0] + cpu, surplus.amounts[1] + memory, surplus.amounts[2] + gpu


def largest_part(problem: Problem, units: Iterable[Unit], resource: int) -> int:
    """Most of a resource that reclaim may test as one: a unit, or as much surplus as the gang's minimum."""
    largest = 0
    for unit in units:
        amount = unit.charge[resource]
        if not unit.is_core:
            amount *= max(1, sum(leaf.min_member for leaf in problem.gangs[unit.gang].leaves))
        largest = max(largest, amount)
    return largest
