"""Consolidation: preemptible gangs of any queue move, so that a preemptible gang fits.

Source: docs/kai-behaviour.md#consolidation. Every victim has to find another place in the same step. So no queue loses
anything, and no right has to be asked for.
"""

from collections.abc import Iterator
from functools import cached_property

from kai_solver.actions.caps import over_capacity
from kai_solver.actions.room.evictor import Evictor
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action
from kai_solver.fairness import ReclaimLedger
from kai_solver.planstate.allocation_units import AllocationUnit, GangUnits
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.planstate.outcome import Outcome, Refusal
from kai_solver.planstate.saving import free_milli, savings
from kai_solver.planstate.state import Place
from kai_solver.reasons.refusals import (
    LEFT_OUT,
    consolidation_is_off,
    may_not_move_pods,
    not_ready,
    too_few_gpus_to_move,
    within_delay,
)


def still_ready(outcome: Outcome, gang_units: GangUnits) -> Iterator[int]:
    """After the actions: gangs that wait, are ready, past their delay, and lost no pod that ran."""
    state, problem = outcome.state, outcome.state.problem
    for gang in outcome.waiting:
        shape, refusals = problem.gangs[gang], outcome.refusals.get(gang, {})
        if LEFT_OUT in refusals.values() or not state.gone.isdisjoint(shape.active):
            continue
        if not_ready(problem, shape, gang_units[gang]) is None and within_delay(problem, shape) is None:
            yield gang


def still_asking(outcome: Outcome, gang_units: GangUnits) -> Iterator[int]:
    """Those that are preemptible, and that were not consolidated for."""
    served = {admission.allocation_unit.gang for admission in outcome.consolidated}
    for gang in still_ready(outcome, gang_units):
        if gang not in served and outcome.state.problem.gangs[gang].gang.preemptible:
            yield gang


class Consolidate(VictimSearch):
    """Consolidation in one cycle."""

    action = Action.CONSOLIDATION
    uses_free_room = False  # Allocate has tried that, and moves free nothing that they do not take.

    _free_at = (-1, 0)
    """How many steps had been taken when free GPUs were counted, and the count."""

    # -- which gangs may have others moved -----------------------------------------------------------------------------

    def refusal(self, preemptor: Preemptor) -> Refusal | None:
        """Only preemptible gangs, if the action is on, and if so many GPUs are free in all."""
        if not preemptor.gang.gang.preemptible:
            return may_not_move_pods()
        if self.problem.policy.max_consolidation_gangs == 0:
            return consolidation_is_off()
        wanted, free = preemptor.device_milli, self.free_milli
        if wanted <= free:
            return None
        if (wanted, free) not in self._too_few:
            self._too_few[wanted, free] = too_few_gpus_to_move(wanted, free)
        return self._too_few[wanted, free]

    def over_capacity(self, allocation_unit: AllocationUnit) -> Refusal | None:
        """Limits and quotas: no victim gives up anything, so they are tested at once."""
        return over_capacity(self.state, allocation_unit)

    @property
    def free_milli(self) -> int:
        """Thousandths of devices that are free, or that moves would free; counted once while nothing changes."""
        at, free = self._free_at
        if at != len(self.state.touched):
            free = free_milli(self.state).reached + savings(self.state).total
            self._free_at = (len(self.state.touched), free)
        return free

    @cached_property
    def _too_few(self) -> dict[tuple[int, int], Refusal]:
        """By devices asked for and free: one text for all gangs that ask for as many."""
        return {}

    # -- which gangs may move --------------------------------------------------------------------------------------

    # `candidates`: all preemptible gangs that run, but the preemptor's own pods (`Eligibility`).

    def _is_hopeless(self, _evictor: Evictor, _allocation_unit: AllocationUnit) -> bool:
        return False  # Counts with the victims gone say nothing: they stay, elsewhere.

    # -- what is checked before it is accepted -----------------------------------------------------------------------

    def accepts(
        self,
        _preemptor: Preemptor,
        _allocation_unit: AllocationUnit,
        units: list[int],
        _ledger: ReclaimLedger | None,
    ) -> bool:
        """Not more gangs move than the policy allows for one preemptor."""
        limit = self.problem.policy.max_consolidation_gangs
        return limit < 0 or len({self.pool.units[u].gang for u in units}) <= limit

    def _may_lose(self, lost: dict[int, Place], _ledger: ReclaimLedger | None) -> bool:
        return not lost  # Moves take no place from any gang.

    # -- equal questions -------------------------------------------------------------------------------------------

    def _rights_of(self, _preemptor: Preemptor) -> tuple[object, ...]:
        return ()  # All gangs that may have others moved may move the same.

    def forget(self) -> None:
        """Refusals stay: moves and places only take room."""
