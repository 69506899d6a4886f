"""Pods that a rule wants elsewhere move: off nodes that are to be drained (docs/operating.md#maintenance).

They move last, once every gang that waits has what it gets in this cycle, and take only room that is left over. So no
other gang loses anything, and neither questions nor stages have to know of them. Only what requires such a pod beside
it waits until that runs again. A gang moves by its eviction units: surplus pod by pod, of its core all pods that have
to leave, or none; where its pods must lie together, more of it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.actions.caps import within_limits
from kai_solver.placement.placing import Placer
from kai_solver.planstate.eviction_units import units_of
from kai_solver.planstate.origins import moved_pods
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.victims import part_of_unit
from kai_solver.problem import GangShape, Leaf, TreeNode
from kai_solver.problem.rules import Leaver

BoolArray = NDArray[np.bool_]

NOT_PREEMPTIBLE = "its workload is not preemptible"
NOT_REPLACED = "no controller would make it again"
NO_MOVES = "moves are switched off"
PROTECTED = "a disruption budget keeps it, or its eviction was refused lately"
NO_ROOM = "no other node has room for it"
UNLIMITED = -1


def move_away(
    outcome: Outcome,
    *,
    may_move: bool,
    most: int,
    left_out: frozenset[str],
    is_over: Callable[[], bool],
) -> None:
    """Move pods that have to leave their nodes, the most urgent gangs first; say of the others why they stay.

    Gangs that lose or get pods in this cycle come in a later one.

    Parameters
    ----------
    may_move
        Whether the model moves anything.
    most
        Pods that may be elsewhere in one cycle, or -1. A unit that is larger goes where no other does.
    left_out
        Keys of gangs that are left alone.
    is_over
        Asked before each gang; what was not looked at comes in a later cycle.
    """
    problem = outcome.state.problem
    by_gang: dict[int, dict[int, Leaver]] = {}
    for leaver in problem.leavers:
        by_gang.setdefault(problem.pod_gang[leaver.pod], {})[leaver.pod] = leaver
    if not by_gang:
        return
    busy = outcome.has_admitted() | set(outcome.stale)
    may_move = may_move and problem.policy.max_consolidation_gangs != 0
    mover = _Mover(outcome, most)

    def urgency(gang: int) -> tuple[float, int, int]:
        return min(leaver.by_s for leaver in by_gang[gang].values()), -problem.gangs[gang].gang.priority, gang

    for number in sorted(by_gang, key=urgency):
        gang, leavers = problem.gangs[number], by_gang[number]
        if is_over():
            return
        if number in busy or gang.gang.key in left_out or not outcome.state.gone.isdisjoint(gang.active):
            continue
        if not gang.gang.preemptible:
            mover.stay(leavers.values(), NOT_PREEMPTIBLE)
        elif not may_move:
            mover.stay(leavers.values(), NO_MOVES)
        else:
            mover.serve(gang, leavers)


class _Mover:
    """Moves gang after gang on the state of ``outcome``; what fails leaves it unchanged."""

    def __init__(self, outcome: Outcome, most: int) -> None:
        self._outcome = outcome
        self._state = outcome.state
        self._most = most
        self._placer = Placer(outcome.state, later=True)

    def stay(self, leavers: Iterable[Leaver], why: str) -> None:
        """Say why they stay."""
        for leaver in leavers:
            self._outcome.unmoved[leaver.pod] = f"{leaver.why}, but {why}"

    def serve(self, gang: GangShape, leavers: Mapping[int, Leaver]) -> None:
        """Move units of ``gang`` that have pods among ``leavers``, its core first."""
        problem = self._state.problem
        for unit in reversed(units_of(self._state, np.array([gang.index])).units):
            mine = {pod: leavers[pod] for pod in unit.pods if pod in leavers and pod not in self._state.gone}
            if not mine:
                continue
            why = NOT_REPLACED
            for pods in _sets(gang, tuple(mine), unit.pods):
                if not all(problem.pods[pod].is_replaced for pod in pods):
                    break
                if not self._is_within(len(pods)):
                    why = ""  # A later cycle moves it.
                    break
                why = self._move(gang, pods, [leavers[pod] for pod in pods if pod in leavers])
                if not why:
                    text = next(iter(mine.values())).why
                    self._outcome.moved_away.update(dict.fromkeys(pods, text))
                    break
            if why:
                self.stay(mine.values(), why)

    def _is_within(self, count: int) -> bool:
        """Whether so many more may move in this cycle."""
        if self._most == UNLIMITED:
            return True
        moved = len(moved_pods(self._state))
        return not moved or moved + count <= self._most

    def _move(self, gang: GangShape, pods: tuple[int, ...], leavers: Sequence[Leaver]) -> str:
        """Give ``pods`` other places; why that cannot be, or nothing where it was done."""
        state, problem = self._state, self._state.problem
        mark = state.mark()
        for pod in pods:
            state.evict(pod)
        if not state.may_be_gone():
            state.rollback(mark)
            return PROTECTED
        part = part_of_unit(gang, pods, state.gangs[gang.index].active)
        allowed = np.logical_and.reduce([leaver.allowed for leaver in leavers])
        left, is_uneven = state.mark(), len({problem.pod_shape[pod] for pod in pods}) > 1
        for largest_first in (False, True) if is_uneven else (False,):
            if self._placer.place_part(part, allowed, largest_first=largest_first) and self._holds(gang):
                return ""
            state.rollback(left)
        state.rollback(mark)
        return NO_ROOM

    def _holds(self, gang: GangShape) -> bool:
        """Whether the plan keeps every rule with ``gang`` where it is now."""
        state = self._state
        is_together = self._placer.keeps_domains(gang, gang.root) and state.keeps_spacing(gang.index)
        return is_together and within_limits(state, gang.queue) and state.keeps_rules() and state.may_be_gone()


def _sets(gang: GangShape, leaving: tuple[int, ...], unit: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Pods of ``gang`` to move together, few first; more than those ``leaving`` only where a domain must hold all."""
    yield leaving
    if not _must_lie_together(gang.root):
        return
    if len(unit) > len(leaving):
        yield unit
    if len(gang.active) > len(unit):
        yield gang.active


def _must_lie_together(node: TreeNode | Leaf) -> bool:
    if node.topology is not None and node.topology.required:
        return True
    return not isinstance(node, Leaf) and any(map(_must_lie_together, node.children))
