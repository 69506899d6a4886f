"""One question to all bounds: is it sure that no allowed plan of an action runs this allocation unit?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.counting import GPU_NAME, NOTHING, TOPOLOGY, Relaxed, Shortfall, in_words, shortfall
from kai_solver.bounds.demand import Demand
from kai_solver.bounds.flow import flow_shortfall
from kai_solver.bounds.residents import Residents
from kai_solver.bounds.rights import PROTECTIONS, Rights, Table
from kai_solver.domain import Action, Blocker
from kai_solver.fairness import SHARE, first_over
from kai_solver.problem import Problem
from kai_solver.problem.capacity import NODE_RULES
from kai_solver.problem.rules import Holding
from kai_solver.units import GPU, MILLI, QUEUE_RESOURCES, UNLIMITED, format_amount

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MOST_DOMAINS = 16
"""Domains up to which flow is asked for each."""

LIMIT, QUOTA = "queue-limit", "queue-quota"
EVICTING = (Action.RECLAIM, Action.PREEMPT)
SURPLUS, OTHERS = "surplus", "other queues"
"""Kind and name of the element "what others hold above their share"."""


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """The cycle as it stands when a question is asked.

    Attributes
    ----------
    allocated, fixed
        (Q, 3) what queues hold in all, and for work that may not be taken.
    free_milli
        Thousandths of devices free where pods of gangs may be, once all leaving pods have left, and with what moves
        would free. ``beyond_milli``: free on other nodes.
    savable
        (Q,) thousandths that those below each queue would cost it less on the largest devices; empty: none.
    disturbed
        Gangs (index) of which something left or moved already: they may again.
    so_far
        What ledgers of optional rules tell of the plan so far, by kind; empty: nothing was planned, and no pod runs.
    """

    allocated: Table
    fixed: Table
    free_milli: int
    beyond_milli: int = 0
    disturbed: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    savable: Sequence[int] = ()
    so_far: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refuted:
    """A proof: a count that does not come out, or too little of what a queue may have, or take.

    ``queue``, ``resource``, ``need`` and ``have`` where it is about a queue; ``blocker`` where it is a rule's.
    """

    kind: str
    count: Shortfall | None = None
    queue: int = -1
    resource: int = GPU
    need: int = 0
    have: int = 0
    blocker: Blocker | None = None


def lacks_rights(need: int, have: int) -> Blocker:
    """Fewer GPUs are free, or of queues above their share, than ``need``; thousandths.

    ``have``: the most, with the last that reclaim may take. It takes until nothing is left above the share, so the most
    is mostly one thousandth below a whole GPU.
    """
    wanted = f"{format_amount(GPU_NAME, need)} that are free or of queues above their share"
    return Blocker(SURPLUS, OTHERS, wanted, most_in_words(have), resource=GPU_NAME, short=need - have)


def most_in_words(milli: int) -> str:
    """``79 GPUs``; ``less than 80 GPUs`` for one thousandth below that."""
    below = f"less than {format_amount(GPU_NAME, milli + 1)}"
    return below if milli % MILLI == MILLI - 1 else format_amount(GPU_NAME, milli)


class Bounds:
    """All bounds on one problem; what they share is kept.

    ``holding``: by kind of the optional rule, which running pods keep a place. ``protections``: all that protects
    running work. ``ever``: sets that block even on an empty cluster, by what was asked. ``blocking``: by what may
    matter, what blocked the last question of this kind.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.residents = Residents(problem)
        self.rights = Rights(self.residents)
        holding = ((rule.kind, rule.holding(self.residents)) for rule in problem.rules)
        self.holding = {kind: found for kind, found in holding if found is not None}
        self.protections = PROTECTIONS.union(self.holding)
        self._admitting = frozenset((NODE_RULES, *(rule.kind for rule in problem.rules)))
        self.ever: dict[tuple[object, ...], tuple[Blocker, ...]] = {}
        self.blocking: dict[tuple[str, ...], frozenset[str]] = {}

    def refute(self, demand: Demand, moment: Moment, dropped: frozenset[str] = NOTHING) -> Refuted | None:
        """What proves "no" with the rules and resources ``dropped`` not binding; None where nothing does."""
        leaving = self.leaving(demand, moment, dropped)
        whole = [holding.whole for holding in self._holding(dropped)]
        return (
            self._passes_cap(demand, moment, leaving, dropped)
            or self._breaks_rule(demand, moment, leaving, dropped)
            or self._lacks_rights(demand, moment, leaving, dropped)
            or self._lacks_room(demand, moment, leaving, dropped)
            or (self._lacks_rights(demand, moment, leaving & ~np.any(whole, axis=0), dropped) if whole else None)
        )

    def _holding(self, dropped: frozenset[str]) -> list[Holding]:
        return [holding for kind, holding in self.holding.items() if kind not in dropped]

    def barred(self, dropped: frozenset[str] = NOTHING) -> BoolArray | None:
        """(P,) pods that optional rules keep where they are; None where no rule does that."""
        masks = [holding.barred for holding in self._holding(dropped)]
        return np.any(masks, axis=0) if len(masks) > 1 else next(iter(masks), None)

    def leaving(self, demand: Demand, moment: Moment, dropped: frozenset[str] = NOTHING) -> BoolArray:
        """(G,) gangs that may be out of the way."""
        leaving = self.rights.leaving(demand, moment.allocated, dropped)
        if len(moment.disturbed):
            leaving = leaving.copy()
            leaving[moment.disturbed] = True
        return leaving

    def _spared(self, demand: Demand, moment: Moment, dropped: frozenset[str]) -> BoolArray | None:
        """(G,) gangs that may be evicted once protections are dropped: they need no other place. None: none may."""
        if demand.action not in EVICTING or not dropped & self.protections:
            return None
        may, could = (self.rights.leaving(demand, moment.allocated, rules) for rules in (dropped, NOTHING))
        for kind, holding in self.holding.items():
            could = could & ~holding.whole if kind in dropped else could
        return may & ~could

    def _lacks_room(
        self, demand: Demand, moment: Moment, leaving: BoolArray, dropped: frozenset[str]
    ) -> Refuted | None:
        masks = None if demand.scope is None else demand.scope.masks
        beside = self.beside(demand, moment, leaving, dropped)
        relaxed = self.residents.without(leaving, self.barred(dropped))
        found = shortfall(self.problem, relaxed, demand.needed, beside, masks, demand.spacings, dropped)
        if found is None and demand.deep:
            found = self._lacks_flow(demand, relaxed, beside, dropped)
        return None if found is None else Refuted("count", found)

    def beside(
        self, demand: Demand, moment: Moment, leaving: BoolArray, dropped: frozenset[str] = NOTHING
    ) -> Counter[int]:
        """Pods by shape of others that must have a place too when the gangs ``leaving`` (G,) are out of the way."""
        beside = Counter(demand.beside_of(leaving))
        barred = self.barred(dropped)
        if demand.kept is not None:
            beside.update(demand.kept.without(self._spared(demand, moment, dropped)))
        elif demand.action is Action.CONSOLIDATION:
            moving = leaving.copy()
            moving[moment.disturbed] = False
            beside.update(self.residents.room_at_origins(moving, barred))
        if barred is not None and demand.action in EVICTING:
            may_leave = leaving if demand.kept is None else leaving & ~demand.kept.mask(len(leaving))
            staying: Counter[int] = Counter()
            for holding in self._holding(dropped):
                staying |= holding.staying(may_leave, barred)  # Rules may hold the same pods.
            beside.update(staying)
        return beside

    def _lacks_flow(
        self, demand: Demand, relaxed: Relaxed, beside: Mapping[int, int], dropped: frozenset[str]
    ) -> Shortfall | None:
        """By flow: what lacks everywhere, or in every domain where the allocation unit has to be in one."""
        if demand.scope is None or TOPOLOGY in dropped:
            return flow_shortfall(self.problem, relaxed, demand.needed, beside, None, dropped)
        if len(demand.scope.masks) > MOST_DOMAINS:
            return None
        best: Shortfall | None = None
        for where, mask in enumerate(demand.scope.masks):
            found = flow_shortfall(self.problem, relaxed, demand.needed, beside, mask, dropped, where)
            if found is None:
                return None
            best = found if best is None or found.have > best.have else best
        return best

    def _lacks_rights(
        self, demand: Demand, moment: Moment, leaving: BoolArray, dropped: frozenset[str]
    ) -> Refuted | None:
        """Evictions by reclaim may free at most every queue's surplus and one last allocation unit."""
        if demand.action is not Action.RECLAIM or dropped & {SHARE, GPU_NAME} or not demand.device_milli:
            return None
        taken = self.rights.entitled_milli(demand, leaving, moment.allocated)
        if taken is None:
            return None
        free = moment.free_milli + (moment.beyond_milli if dropped & self._admitting else 0)
        most = free + taken + demand.returned_milli(leaving)
        if most >= demand.device_milli:
            return None
        return Refuted(SHARE, None, demand.gang.queue, GPU, demand.device_milli, most)

    def _passes_cap(
        self, demand: Demand, moment: Moment, leaving: BoolArray, dropped: frozenset[str]
    ) -> Refuted | None:
        """A limit passed though all evictable work is gone; a quota passed by work that may not be taken."""
        tree = self.problem.queues
        asked = [r for r, amount in enumerate(demand.least) if amount > 0]
        is_fixed = not demand.gang.gang.preemptible
        for queue in tree.path[demand.gang.queue]:
            if LIMIT not in dropped and any(tree.limits[queue][r] != UNLIMITED for r in asked):
                freed = self._freed(demand, leaving, queue)
                held = [amount - gone for amount, gone in zip(moment.allocated[queue], freed, strict=True)]
                found = _over(LIMIT, queue, tree.limits[queue], _saving(moment, queue, held), demand.least, asked)
                if found is not None:
                    return found
            if is_fixed and QUOTA not in dropped:
                held = _saving(moment, queue, moment.fixed[queue])
                found = _over(QUOTA, queue, tree.quotas[queue], held, demand.least, asked)
                if found is not None:
                    return found
        return None

    def _breaks_rule(
        self, demand: Demand, moment: Moment, leaving: BoolArray, dropped: frozenset[str]
    ) -> Refuted | None:
        """Pods that an optional rule forbids wherever they go, even with every gang gone that may be evicted."""
        may_evict = demand.action in EVICTING

        def is_gone(gang: int) -> bool:
            return gang in demand.undone or bool(may_evict and leaving[gang])

        for rule in self.problem.rules:
            if rule.kind not in dropped:
                blocker = rule.lacks(self.problem, demand.pods, moment.so_far.get(rule.kind), is_gone)
                if blocker is not None:
                    return Refuted(rule.kind, queue=demand.gang.queue, blocker=blocker)
        return None

    def _freed(self, demand: Demand, leaving: BoolArray, queue: int) -> list[int]:
        """What ``queue`` would hold less with everything gone that may be evicted."""
        if demand.action not in EVICTING:
            return [0, 0, 0]
        below = np.array([queue in path for path in self.problem.queues.path])
        freed: list[int] = self.residents.charge[leaving & below[self.residents.queue]].sum(axis=0).tolist()
        returned = demand.returned_charge(leaving)
        return [a + b for a, b in zip(freed, returned, strict=True)]

    def refute_ever(self, demand: Demand, dropped: frozenset[str] = NOTHING) -> Refuted | None:
        """What proves "no" on every action, even for an empty cluster and empty queues."""
        nothing_held = [(0, 0, 0)] * self.problem.queues.size
        empty = Moment(nothing_held, nothing_held, 0)
        alone = replace(demand, action=Action.ALLOCATE, beside={}, grown=(), kept=None)
        all_running, dropped = self.residents.runs, dropped.union(self.holding)
        return (
            self._passes_cap(alone, empty, all_running, dropped)
            or self._breaks_rule(alone, empty, all_running, dropped)
            or self._lacks_room(alone, empty, all_running, dropped)
        )

    def in_words(self, found: Refuted) -> Blocker:
        """The proof as one element."""
        if found.count is not None:
            return in_words(self.problem, found.count)
        if found.blocker is not None:
            return found.blocker
        if found.kind == SHARE:
            return lacks_rights(found.need, found.have)
        name = QUEUE_RESOURCES[found.resource]
        title = self.problem.queues.title(found.queue)
        return Blocker(found.kind, title, format_amount(name, found.need), format_amount(name, found.have))


def _saving(moment: Moment, queue: int, held: Sequence[int]) -> list[int]:
    """What ``queue`` holds at least, with all pods on the largest devices."""
    return [*held[:GPU], held[GPU] - (moment.savable[queue] if moment.savable else 0)]


def _over(
    kind: str, queue: int, caps: Sequence[int], held: Sequence[int], request: Sequence[int], asked: Sequence[int]
) -> Refuted | None:
    r = first_over(caps, held, request, asked)
    if r >= 0:
        return Refuted(kind, None, queue, r, request[r], caps[r] - held[r])
    return None
