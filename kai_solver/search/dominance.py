"""A "no" of the solver, for all that ask for as much or more with no more rights while nothing is freed.

Source: docs/how-a-cycle-decides.md#oracle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kai_solver.domain import Action
from kai_solver.fairness import QueueSurplus
from kai_solver.planstate.allocation_units import AllocationUnit, Part
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import Problem
from kai_solver.search.question import Question

Levels = tuple[tuple[str, str], ...]
"""Required topologies with their levels, from the outermost in."""

KEEPING = (Action.ALLOCATE, Action.CONSOLIDATION)
"""Actions in which nothing running loses what it holds."""
MOST_KEPT = 200
"""Refusals that are remembered; with more, the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Pods by shape, all under one and the same topology levels."""

    pods: Mapping[int, int]
    levels: Levels

    @classmethod
    def of(cls, problem: Problem, allocation_unit: AllocationUnit) -> "Demand | None":
        """What ``allocation_unit`` asks for; None where it is bound to more than that."""
        if allocation_unit.root.anchors or problem.gangs[allocation_unit.gang].is_spaced:
            return None
        levels = _levels(allocation_unit.root)
        return None if levels is None else cls(problem.by_shape(allocation_unit.pods), levels)

    def includes(self, problem: Problem, other: "Demand") -> bool:
        """True where places for this one would be places for ``other``, too."""
        if other.levels not in ((), self.levels):
            return False
        if all(self.pods.get(shape, 0) >= count for shape, count in other.pods.items()):
            return True
        if len(self.pods) > 1 or len(other.pods) > 1:
            return False
        (mine, many), (theirs, few) = *self.pods.items(), *other.pods.items()
        return many >= few and _is_harder(problem, mine, theirs)


def _levels(part: Part) -> Levels | None:
    """Of a tree with all its pods in one part; None for others."""
    top = part.topology
    mine = () if top is None or not top.required else ((top.topology, top.required),)
    if not part.parts:
        return mine
    below = _levels(part.parts[0]) if len(part.parts) == 1 and not part.pods else None
    return None if below is None else (*mine, *below)


def _is_harder(problem: Problem, mine: int, theirs: int) -> bool:
    """Would one of ``theirs`` fit wherever one of shape ``mine`` does? Some rules may refuse the smaller pod alone."""
    table = problem.shapes
    if not all(rule.is_monotone for rule in problem.rules):
        return False
    one, other = table.shapes[mine], table.shapes[theirs]
    same_kind = replace(one.gpu, devices=other.gpu.devices) == other.gpu and one.gpu.devices >= other.gpu.devices
    more = all(amount >= least for amount, least in zip(one.request, other.request, strict=True))
    return same_kind and more and not (table.mask(mine) & ~table.mask(theirs)).any()


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question as far as answers depend on it. ``admitted``: what must have places beside it."""

    action: Action
    reclaimer: tuple[int, bool]
    demand: Demand
    units: frozenset[int]
    charged: frozenset[int]
    droppable: frozenset[int]
    surplus: Mapping[int, QueueSurplus]
    admitted: Sequence[tuple[AllocationUnit, Action]]

    @classmethod
    def of(cls, question: Question, demand: Demand) -> "_Asked":
        rights = {s.queue: s for s in question.surplus}
        reclaimer = (question.preemptor.queue, question.preemptor.gang.gang.preemptible)
        units, charged, droppable = question.units, question.charged, question.droppable
        return cls(question.action, reclaimer, demand, units, charged, droppable, rights, question.admitted)

    def refutes(self, problem: Problem, other: "_Asked") -> bool:
        """This one has no way: True where a way for ``other`` would be one for it."""
        return (
            self.action is other.action
            and other.demand.includes(problem, self.demand)
            and self._has_rights_of(other)
            and self._is_before(problem, other)
        )

    def _has_rights_of(self, other: "_Asked") -> bool:
        """Caps are tested before questions in which nothing is evicted; else they are part of them."""
        return (
            (self.reclaimer == other.reclaimer or self.action in KEEPING)
            and other.units <= self.units
            and other.droppable <= self.droppable
            and other.charged <= self.charged | self.droppable
            and all(_is_within(surplus, self.surplus.get(queue)) for queue, surplus in other.surplus.items())
        )

    def _is_before(self, problem: Problem, other: "_Asked") -> bool:
        """Whether all that was admitted is still there, and nothing has been freed since.

        What was admitted since only takes room: no pod may need it beside itself.
        """
        length = len(self.admitted)
        since = other.admitted[length:]
        is_more = other.admitted[:length] == self.admitted and len(other.admitted) >= length
        if not is_more or not since:
            return is_more
        is_kept = self.action in KEEPING and all(action in KEEPING for _, action in since)
        return is_kept and all(problem.ruled.isdisjoint(unit.pods) for unit, _ in since)


def _is_within(mine: QueueSurplus, theirs: QueueSurplus | None) -> bool:
    """No more may be taken; a resource with nothing above the line gives no right, however far below it is."""
    if theirs is None or not mine.leaves <= theirs.leaves:
        return False
    return all(a <= b or a <= 0 for a, b in zip(mine.amounts, theirs.amounts, strict=True))


@dataclass(slots=True)
class Refusals:
    """What the solver refused in one run of the actions."""

    outcome: Outcome | None = None
    _refused: list[_Asked] = field(default_factory=list)

    def note(self, question: Question) -> None:
        """The solver proved that there is no way for ``question``."""
        asked = _read(question)
        if question.outcome is not self.outcome:
            self.outcome, self._refused = question.outcome, []
        if asked is not None:
            self._refused = [*self._refused[1 - MOST_KEPT :], asked]

    def cover(self, question: Question) -> bool:
        """True where an earlier "no" is one to ``question`` as well."""
        if not self._refused or question.outcome is not self.outcome:
            return False
        asked = _read(question)
        return asked is not None and any(refused.refutes(question.problem, asked) for refused in self._refused)


def _read(question: Question) -> _Asked | None:
    """None where more may fit than less, or where a "no" is not certain."""
    state = question.state
    ruled = question.problem.ruled
    if not ruled.isdisjoint(question.allocation_unit.pods) or state.by_memory or not question.is_exact:
        return None
    pods = question.allocation_unit.pods
    if any(rule.tells_apart(pod) is not None for rule in question.problem.rules for pod in pods):
        return None
    demand = Demand.of(question.problem, question.allocation_unit)
    return None if demand is None else _Asked.of(question, demand)
