"""After the stages: the same victims and the same admissions, seated once more as the policy scores nodes.

The joint model counts what leaves and what comes; among places that cost the same it has no preference. KAI removes all
victims and then places victims and new pods in their order, by node score (docs/kai-behaviour.md#victim-search). If
that works with the victims that the stages chose, its places are taken: packed or spread as the policy says.
"""

from collections import Counter

from kai_solver.actions.caps import within_limits
from kai_solver.domain import Action
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import Placer
from kai_solver.planstate.losses import worth_lost
from kai_solver.planstate.opening import opened_nodes
from kai_solver.planstate.origins import moved_pods
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool, part_of_unit

_Age = tuple[int, float, str]

MOST_PODS = 1000
"""Pods up to which places are looked for again: about 60 µs each on 500 nodes (2026-11-21)."""


def reseat(outcome: Outcome) -> None:
    """Place moved units again, and the allocation units for which others were disturbed, oldest first.

    Nothing changes where one of them finds no place, where more pods of a unit would move than now, where more of the
    wholly free nodes would be opened than now (or more worth taken from usual pods, where the model prices what is left
    over), where a queue would pass its limit, or where a pod that keeps its place would lose a peer that it requires,
    or get one that it excludes.
    Allocation units that disturb nothing keep what they have: most of it can be bound at once.
    """
    pool, state = outcome.pool, outcome.state
    if pool is None or len(state.places) > MOST_PODS:
        return
    moved = [unit.index for unit in pool.units if pool.is_moved(unit.index)]
    comers = [a for a in outcome.admissions if a.action is not Action.ALLOCATE]
    mark, opened, lost, elsewhere = state.mark(), len(opened_nodes(state)), _lost(state), _moves(state, pool, moved)
    for pod in [*(p for u in moved for p in pool.units[u].pods), *(p for a in comers for p in a.allocation_unit.pods)]:
        state.lift(pod)
    is_done = _seat(state, pool, moved, comers) and _within_limits(state, pool, moved)
    is_worse = not is_done or len(opened_nodes(state)) > opened or _lost(state) > lost
    if is_worse or not _moves(state, pool, moved) <= elsewhere or not state.keeps_rules():
        state.rollback(mark)
    for unit in moved:
        pool.note_places(unit)


def _moves(state: State, pool: VictimPool, units: list[int]) -> Counter[int]:
    """By unit, how many of its pods get another place: some of those that were to move find their own again."""
    elsewhere = set(moved_pods(state))
    return Counter({unit: len(elsewhere.intersection(pool.units[unit].pods)) for unit in units})


def _lost(state: State) -> int:
    """Worth that the plan takes from usual pods, where the model prices what is left over."""
    outlook = state.problem.outlook
    return worth_lost(state, outlook) if outlook is not None else 0


def _within_limits(state: State, pool: VictimPool, moved: list[int]) -> bool:
    """False where some of the ``moved`` now cost their queue more than it may pay: requests by GPU memory may."""
    gangs = state.problem.gangs
    leaves = {gangs[pool.units[unit].gang].queue for unit in moved} if state.by_memory else set()
    return all(within_limits(state, leaf) for leaf in leaves)


def _seat(state: State, pool: VictimPool, moved: list[int], comers: list[Admission]) -> bool:
    fits = FitTable(state)
    placer, mover = Placer(state, fits=fits), Placer(state, fits=fits, later=True)
    gangs = state.problem.gangs

    def age(gang: int) -> _Age:
        g = gangs[gang].gang
        return (-g.priority, g.created_s, g.key)

    steps: list[tuple[_Age, int, int | Admission]] = [
        *((age(pool.units[unit].gang), -pool.units[unit].step, unit) for unit in moved),
        *((age(admission.allocation_unit.gang), 1 + number, admission) for number, admission in enumerate(comers)),
    ]
    for _, _, item in sorted(steps, key=lambda step: step[:2]):
        done = (
            _seat_unit(state, pool, mover, item) if isinstance(item, int) else placer.place_unit(item.allocation_unit)
        )
        if not done:
            return False
    touched = {pool.units[unit].gang for unit in moved} | {admission.allocation_unit.gang for admission in comers}
    return all(state.keeps_spacing(gang) for gang in touched)


def _seat_unit(state: State, pool: VictimPool, mover: Placer, unit: int) -> bool:
    u = pool.units[unit]
    gang = state.problem.gangs[u.gang]
    part = part_of_unit(gang, u.pods, state.gangs[u.gang].active)
    return mover.place_part(part, None) and mover.keeps_domains(gang, gang.root)
