"""Victims that go to the earliest reclaims which may take them, gang by gang, forwards."""

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Sequence

from kai_solver.actions.reclaim_replay import ReclaimReplay
from kai_solver.actions.sharing.levels import Levels
from kai_solver.actions.sharing.victims import NOTHING, Taken, Victims
from kai_solver.domain import Action
from kai_solver.fairness import ReclaimLedger
from kai_solver.planstate.outcome import Admission
from kai_solver.problem.charges import Charge


def earliest(
    start: ReclaimReplay,
    admissions: Sequence[Admission],
    levels: Levels,
    victims: Iterable[Victims],
    planned: Taken = NOTHING,
) -> tuple[dict[int, list[Victims]], list[Victims]]:
    """What each admission takes, and what none takes; all that is taken is allowed.

    Each takes what is ``planned`` for it, then what it may of ``victims`` and of what was refused to earlier ones.
    ``start``: what the queues hold before all of them.
    """
    replay = start.copy()
    waiting: dict[tuple[int, frozenset[int]], list[Victims]] = defaultdict(list)
    for one in victims:
        insort(waiting[one.queue, one.group.able], one, key=_size)
    taken: dict[int, list[Victims]] = {}
    for number, admission in enumerate(admissions):
        mine = [own for (_, able), own in waiting.items() if own and number in able]
        if mine and admission.action is Action.RECLAIM:
            leaf = replay.problem.gangs[admission.allocation_unit.gang].queue
            mine = [o for o in mine if not o[0].parts or levels.may_lose(leaf, o[0].queue, replay.allocated)]
        if number in planned or mine:
            taken[number], refused = _takes(replay, admission, planned.get(number, ()), mine)
            for one in refused:
                insort(waiting[one.queue, one.group.able], one, key=_size)
        replay.receive(admission)
        for one in taken.get(number, ()):
            replay.add(one.queue, one.charge, -1)
    return taken, [one for own in waiting.values() for one in own]


def _takes(
    replay: ReclaimReplay, admission: Admission, planned: Iterable[Victims], waiting: Sequence[list[Victims]]
) -> tuple[list[Victims], list[Victims]]:
    """What the admission takes, which ``waiting`` loses then, and what of its ``planned`` victims is refused."""
    taken: list[Victims] = []
    refused: list[Victims] = []
    judge = _Judge(replay, admission)
    for one in sorted(planned, key=_size):
        (taken if judge.takes(one) else refused).append(one)
    for own in waiting:
        rest: list[Victims] = []
        for number, one in enumerate(own):
            if judge.takes(one):
                taken.append(one)
            elif judge.has_enough(one.queue):
                rest.append(one)
            else:
                rest += own[number:]
                break
        own[:] = rest
    return taken, refused


class _Judge:
    """Whether the admission may take one victim more."""

    def __init__(self, replay: ReclaimReplay, admission: Admission) -> None:
        self._is_reclaim = admission.action is Action.RECLAIM
        self._right = replay.right_of(admission) if self._is_reclaim else None
        self._ledger: ReclaimLedger | None = None
        self._may_look_at: dict[int, bool] = {}

    def takes(self, one: Victims) -> bool:
        """Take it if that is allowed: preemption may take all that it is able to."""
        if not self._is_reclaim:
            return True
        ledger = self._ledger_for(one.queue)
        return ledger is not None and ledger.takes(one.queue, one.parts)

    def has_enough(self, queue: int) -> bool:
        """Whether the queue may still lose something, so that others of it may be allowed."""
        ledger = self._ledger_for(queue)
        return ledger is not None and ledger.allows(queue)

    def _ledger_for(self, queue: int) -> ReclaimLedger | None:
        """What a reclaim has taken; None if it has no right, or may not look at the queue."""
        if self._right is None:
            return None
        if queue not in self._may_look_at:
            self._may_look_at[queue] = self._right.may_look_at(queue)
        if not self._may_look_at[queue]:
            return None
        self._ledger = self._ledger or ReclaimLedger(self._right)
        return self._ledger


def _size(victims: Victims) -> Charge:
    """Its last part, by which reclaim orders gangs (`planstate.eligibility.reclaim_allowed`)."""
    cpu, memory, gpu = victims.parts[-1] if victims.parts else (0, 0, 0)
    return gpu, memory, cpu
