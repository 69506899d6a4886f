"""What the actions decided: which gangs were admitted how, which were refused why."""

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Protocol

from kai_solver.domain import Action, Blocker, FitError, Proof, Reason
from kai_solver.fairness import levelled
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool


@dataclass(slots=True, unsafe_hash=True)
class Admission:
    """An allocation unit that got places; never changed. ``units``: victims that leave or move (pool indices)."""

    allocation_unit: AllocationUnit
    action: Action
    units: tuple[int, ...] = ()
    by_solver: bool = False


class Evidence(Protocol):
    """A question that was answered with "no", kept until it is asked what blocks."""

    def blocking(self) -> tuple[Blocker, ...]:
        """The smallest set found that blocks this action; empty where it is not known."""
        ...

    def blocking_ever(self) -> tuple[Blocker, ...]:
        """The set that blocks every action, even on an empty cluster; empty where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one action does nothing for a gang.

    ``message`` and ``fit_errors`` hold ``{gang}`` and ``{pod:i}`` for names, since one refusal serves all gangs of one
    shape (``kai_solver.reasons.pending``). ``evidence``: what a bound was asked, for the smallest set of what blocks.
    """

    reason: Reason
    message: str
    proof: Proof
    fit_errors: tuple[FitError, ...] = ()
    evidence: Evidence | None = field(default=None, compare=False)


@dataclass(slots=True)
class Outcome:
    """Everything decided in one cycle.

    Attributes
    ----------
    pool
        Units of those that may be disturbed; None if no action disturbed anything.
    refusals
        By gang and action, the last word of each action that was asked. ``asked``: the pods that it was asked for;
        ``refused_at``: the ``version`` by then.
    consolidated
        Admissions for which others were moved; one that lost its places since may still be among them.
    stale
        Gangs evicted for running below their minimum.
    moved_away, unmoved
        By pod that a rule wants elsewhere: why it moves, or why it stays although it should leave.
    stopped
        The time ended before every gang was attempted.
    version
        Another number whenever ``admissions`` changed.
    _moved, _where
        Units that were moved for others. By unit, where in ``admissions`` those are for which it left or moved: on
        20,000 loaded nodes 295 of them leave after all, and to look at all 7,000 admissions for each took 8% of the
        greedy (2026-11-29).
    """

    state: State
    pool: VictimPool | None = None
    admissions: list[Admission] = field(default_factory=list)
    refusals: dict[int, dict[Action, Refusal]] = field(default_factory=dict)
    asked: dict[tuple[int, Action], tuple[int, ...]] = field(default_factory=dict)
    refused_at: dict[tuple[int, Action], int] = field(default_factory=dict)
    consolidated: list[Admission] = field(default_factory=list)
    stale: list[int] = field(default_factory=list)
    moved_away: dict[int, str] = field(default_factory=dict)
    unmoved: dict[int, str] = field(default_factory=dict)
    stopped: bool = False
    version: int = 0
    _moved: set[int] = field(default_factory=set)
    _where: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _known: list[Admission] = field(default_factory=list)
    _binds: list[Admission] = field(default_factory=list)
    _losing: Counter[int] = field(default_factory=Counter)
    _seen: tuple[list[Admission] | None, int] = (None, 0)

    @property
    def binds(self) -> Sequence[Admission]:
        """Admissions by allocate, in order."""
        self._catch_up()
        return self._binds

    @property
    def losing(self) -> AbstractSet[int]:
        """Levelled queues from which reclaims took victims."""
        self._catch_up()
        return self._losing.keys()

    def _catch_up(self) -> None:
        """Look at the admissions that came since, and at those with other victims; at all again where others changed.

        On 20,000 loaded nodes 231 of 7,000 admissions left victims of earlier ones to later ones: to look at all
        again took 2% of the greedy's CPU (2026-11-24).
        """
        now, known = self.admissions, self._known
        if self._seen[0] is now and self._seen[1] == self.version:
            return
        # The same list only grows: where admissions change, another one takes its place.
        pairs = () if self._seen[0] is now else zip(known, now, strict=False)
        changed = [(old, new) for old, new in pairs if old is not new]
        if len(now) < len(known) or not all(_is_same_but_victims(old, new) for old, new in changed):
            known, changed, self._binds, self._losing = [], [], [], Counter()
        for old, new in changed:
            self._losing = self._losing - Counter(self._losers(old)) + Counter(self._losers(new))
        for admission in now[len(known) :]:
            if admission.action is Action.ALLOCATE:
                self._binds.append(admission)
            else:
                self._losing.update(self._losers(admission))
        self._known = list(now)
        self._seen = now, self.version

    def _losers(self, admission: Admission) -> set[int]:
        """Levelled queues from which a reclaim took victims."""
        if admission.action is not Action.RECLAIM or self.pool is None:
            return set()
        queues, gangs = self.state.problem.queues, self.state.problem.gangs
        mine = gangs[admission.allocation_unit.gang].queue
        victims = {gangs[self.pool.units[unit].gang].queue for unit in admission.units}
        return {levelled(queues, mine, victim)[1] for victim in victims}

    def refuse(self, gang: int, action: Action, refusal: Refusal, asked: Sequence[int] | None = None) -> None:
        """Note why ``action`` does nothing for ``gang``, which asked for the pods ``asked``."""
        self.refusals.setdefault(gang, {})[action] = refusal
        self.refused_at[gang, action] = self.version
        if asked is not None:
            self.asked[gang, action] = tuple(asked)

    def admit(self, admission: Admission) -> None:
        """Note an admission; those that lost their places to it (with the core of their gang) are undone."""
        self.version += 1
        if self.pool is not None and self.pool.took_places:
            self.pool.took_places = False
            self._keep(a for a in self.admissions if a.allocation_unit.pods[0] in self.state.places)
        if self.pool is not None:
            self._charge_once(self.pool, admission)
        self.admissions.append(admission)
        if admission.action is Action.CONSOLIDATION:
            self.consolidated.append(admission)
        if self.pool is not None and admission.action is not Action.ALLOCATE:
            self.pool.pin((admission.allocation_unit.gang,))

    def admit_binds(self, units: Iterable[AllocationUnit]) -> None:
        """Note that allocate admitted ``units``, one at least, for which nothing leaves."""
        first, *others = [Admission(unit, Action.ALLOCATE) for unit in units]
        self.admit(first)
        self.admissions += others

    def _charge_once(self, pool: VictimPool, admission: Admission) -> None:
        """A unit that was moved for others and now leaves is evicted for ``admission`` alone.

        To the others it cost no right, and must not be held against theirs.
        """
        moved = self._moved.intersection(admission.units) if self._moved else ()
        evicted = {unit for unit in moved if pool.has_left(unit)}
        if evicted:
            self.admissions = list(self.admissions)
            for at in {at for unit in evicted for at in self._where.get(unit, ())}:
                self.admissions[at] = _without(self.admissions[at], evicted)
            self.consolidated = [a if evicted.isdisjoint(a.units) else _without(a, evicted) for a in self.consolidated]
            self._moved -= evicted
        self._moved.update(filter(pool.is_moved, admission.units))
        self._note_where(len(self.admissions), admission)

    def _keep(self, admissions: Iterable[Admission]) -> None:
        """Have ``admissions``, and no others."""
        self.admissions, self._where = list(admissions), {}
        for at, admission in enumerate(self.admissions):
            self._note_where(at, admission)

    def _note_where(self, at: int, admission: Admission) -> None:
        for unit in admission.units:
            self._where[unit] = (*self._where.get(unit, ()), at)

    def replace_admissions(self, admissions: Sequence[Admission]) -> None:
        """Take ``admissions`` in place of those made so far: the same gangs with other victims, or others by choice.

        Places and victims have changed in the state already; what actions know of their own admissions stays.
        """
        self.version += 1
        self._keep(admissions)
        if self.pool is not None:
            self._moved = {unit for a in admissions for unit in a.units if self.pool.is_moved(unit)}

    def withdraw(self, admission: Admission, refusal: Refusal) -> None:
        """Take ``admission`` back; its places are lifted already."""
        self.version += 1
        left = list(self.admissions)
        left.remove(admission)
        self._keep(left)
        if admission in self.consolidated:
            self.consolidated.remove(admission)
        self.refuse(admission.allocation_unit.gang, admission.action, refusal)
        if self.pool is not None:
            self.pool.unpin((admission.allocation_unit.gang,))

    @property
    def waiting(self) -> list[int]:
        """Gangs with pods that might be placed still."""
        gangs = self.state.gangs
        return [gang for gang in self.state.problem.gang_columns.waiting if any(gangs[gang].pending)]

    @property
    def admitted(self) -> frozenset[AllocationUnit]:
        """What runs by the plan so far, by whatever action."""
        return frozenset(admission.allocation_unit for admission in self.admissions)

    def has_admitted(self) -> frozenset[int]:
        """Gangs that got places in this cycle."""
        return frozenset(a.allocation_unit.gang for a in self.admissions)


def _is_same_but_victims(old: Admission, new: Admission) -> bool:
    return old.action is new.action is not Action.ALLOCATE and old.allocation_unit is new.allocation_unit


def _without(admission: Admission, units: set[int]) -> Admission:
    return replace(admission, units=tuple(unit for unit in admission.units if unit not in units))


def proven(
    reason: Reason, message: str, method: str, *blocking: Blocker, fit_errors: tuple[FitError, ...] = ()
) -> Refusal:
    """A refusal that follows from a rule or a count."""
    return Refusal(reason, message, Proof("proven", method, blocking), fit_errors)
