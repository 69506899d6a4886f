"""Units that a reclaim may evict, as far as saturation and the next cycle's order go, whatever is evicted with them.

Two tests get harder the more is taken from the victim's queue: saturation (`fairness.reclaim`, rule 4), and that the
reclaim lasts (docs/kai-behaviour.md#reclaim-lasts): the queue of the reclaimer comes before that of every victim in the
next cycle. A gang which fails one of them with a single unit gone therefore fails it in every set of victims. The first
is a rule, and a proof may rest on it. The second is our own caution: where few gangs wait, their turns are played
through in its place (`actions.survival`), which refuses fewer victims.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kai_solver.actions.gang_order import key_of
from kai_solver.fairness import (
    SaturationBound,
    compare_queues,
    exceeded,
    levelled,
    levelled_above,
    saturation_bound,
)
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.planstate.eviction_units import Unit
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.charges import Charge

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def evictable(
    state: State,
    pool: VictimPool,
    preemptor: Preemptor,
    units: Iterable[int],
    given: Sequence[int],
    *,
    lasting: bool = False,
) -> frozenset[int]:
    """Those of ``units`` that may be evicted for ``preemptor`` as far as saturation goes.

    Parameters
    ----------
    given
        Gangs of the units that got places in this cycle, and would lose them with their cores.
    lasting
        Only those whose queue comes after the reclaimer's in the next cycle.
    """
    chosen = np.fromiter(units, dtype=np.int64)
    test = _SingleVictims(state, preemptor, _least_held(state, pool, chosen, given), lasting)
    together = chosen[pool.is_elastic[chosen]] if lasting else chosen[:0]
    alone = np.setdiff1d(chosen, together)
    may_go = np.zeros(len(state.problem.gangs), dtype=np.bool_)
    is_open = test.open_to_all(pool.queue_of[alone])
    may_go[pool.gang_of[alone[is_open]]] = True
    alone = alone[~is_open]
    kinds, first, kind_of = np.unique(pool.cost_kind[alone], return_index=True, return_inverse=True)
    passes = np.array([test.passes(int(pool.queue_of[u]), pool.units[u].charge) for u in alone[first].tolist()])
    if len(kinds):
        may_go[pool.gang_of[alone[passes[kind_of]]]] = True
    by_gang: dict[int, list[Unit]] = {}
    for index in together.tolist():
        by_gang.setdefault(pool.units[index].gang, []).append(pool.units[index])
    for gang, own in by_gang.items():
        may_go[gang] = test.may_go(gang, own)
    return frozenset(chosen[may_go[pool.gang_of[chosen]]].tolist())


def _least_held(state: State, pool: VictimPool, units: IntArray, given: Sequence[int]) -> list[list[int]]:
    """By queue, what it holds at the least: without all that may be taken."""
    problem, undone = state.problem, frozenset(given)
    held = [list(row) for row in state.allocated]
    losses = np.zeros((problem.queues.size, 3), dtype=np.int64)
    np.add.at(losses, pool.queue_of[units], pool.charges[units])
    for pod, place in state.places.items() if undone else ():
        if problem.pod_gang[pod] in undone:
            losses[problem.gangs[problem.pod_gang[pod]].queue] += place.charge
    for leaf in np.flatnonzero(losses.any(axis=1)).tolist():
        loss = losses[leaf].tolist()
        for queue in problem.queues.path[leaf]:
            held[queue] = [have - gone for have, gone in zip(held[queue], loss, strict=True)]
    return held


@dataclass(slots=True)
class _SingleVictims:
    """The two tests with one unit gone and the reclaimer's queue at its least."""

    state: State
    preemptor: Preemptor
    least: list[list[int]]
    """By queue, the least that it may finally hold."""
    lasting: bool
    _known: dict[tuple[int, Charge], bool] = field(default_factory=dict)
    """Answers by leaf queue and charge: of 5,000 gangs most cost the same as another one of their queue."""
    _levels: dict[int, tuple[int, int]] = field(default_factory=dict)
    _bounds: dict[int, tuple[SaturationBound, Sequence[int]]] = field(default_factory=dict)

    def open_to_all(self, leaves: IntArray) -> BoolArray:
        """Which of ``leaves`` (U,) pass the tests with any of their units gone: most do, where nothing has to last.

        On 20,000 loaded nodes a reclaimer asks of 5,700 kinds of unit.
        """
        tree = self.state.problem.queues
        is_open = np.zeros(tree.size, dtype=np.bool_)
        if not self.lasting:
            for queue, leaf in levelled_above(tree, self.preemptor.queue, np.unique(leaves).tolist()).items():
                is_open[list(tree.leaves[queue])] = not self._saturation(leaf)[0].ratios
        return is_open[leaves]

    def may_go(self, gang: int, units: Sequence[Unit]) -> bool:
        """False where no set of victims with any of ``units``, of one gang, passes the tests."""
        leaf = self.state.problem.gangs[gang].queue
        charges = {unit.charge for unit in units}
        may_go = any(self._less_saturated(leaf, charge) for charge in charges)
        return may_go and any(self._comes_first(leaf, charge) for charge in charges)

    def passes(self, leaf: int, charge: Charge) -> bool:
        """Whether a unit of this ``charge``, of a gang of the queue ``leaf``, passes the tests."""
        known = self._known.get((leaf, charge))
        if known is None:
            known = self._less_saturated(leaf, charge) and (not self.lasting or self._comes_first(leaf, charge))
            self._known[leaf, charge] = known
        return known

    def _levelled(self, leaf: int) -> tuple[int, int]:
        if leaf not in self._levels:
            self._levels[leaf] = levelled(self.state.problem.queues, self.preemptor.queue, leaf)
        return self._levels[leaf]

    def _comes_first(self, leaf: int, charge: tuple[int, int, int]) -> bool:
        """`goes_before` with only ``charge`` lost by ``leaf``: the more it loses, the less its limits keep it out."""
        problem = self.state.problem
        asked = [resource for resource, amount in enumerate(charge) if amount > 0]
        if exceeded(problem.queues, problem.queues.limits, self.state.allocated, leaf, asked) is not None:
            return True
        mine, theirs = self._levelled(leaf)
        key = key_of(self.state, mine, self.least[mine], self.preemptor.charge)
        left = [have - gone for have, gone in zip(self.state.allocated[theirs], charge, strict=True)]
        other = key_of(self.state, theirs, left, charge)
        return compare_queues(problem.queues, problem.allocatable, mine, key, theirs, other) <= 0

    def _less_saturated(self, leaf: int, charge: tuple[int, int, int]) -> bool:
        """`ReclaimLedger.saturation_ok` with only ``charge`` lost by ``leaf``."""
        bound, (cpu, memory, gpu) = self._saturation(leaf)
        return not bound.ratios or bound.holds((cpu - charge[0], memory - charge[1], gpu - charge[2]))

    def _saturation(self, leaf: int) -> tuple[SaturationBound, Sequence[int]]:
        """What bounds the loss of the levelled queue of ``leaf``, and what it holds."""
        found = self._bounds.get(leaf)
        if found is None:
            problem, asked = self.state.problem, self.preemptor.charge
            mine, theirs = self._levelled(leaf)
            ours = [held + more for held, more in zip(self.least[mine], asked, strict=True)]
            involved = [resource for resource in range(3) if asked[resource] > 0]
            shares = problem.share[mine], problem.share[theirs]
            bound = saturation_bound(ours, *shares, involved, problem.policy.saturation_multiplier)
            found = self._bounds[leaf] = bound, self.state.allocated[theirs]
        return found
