"""What a queue may take from others by reclaim: the rule, stated here and nowhere else in the solver.

Source: docs/kai-behaviour.md#reclaim (KAI: ``plugins/proportion/reclaimable``). A pending gang of leaf queue r asks for
``request``. Amounts are of three resources; a bound of -1 is unlimited and never exceeded. The levelled queues R and V
are the first that differ on the ways down from the root to r and to the leaf queue of a victim.

1. Right (#reclaim-right): ``allocated[r] + request <= share[r]`` in **all** resources, requested or not; for
   non-preemptible work also ``allocated non-preemptible + request <= quota`` at r and every ancestor.
2. Victim queues (#reclaim-victims). R is *guaranteed* if ``allocated[R] + request <= quota[R]`` in all resources.
   Guaranteed: V exceeds its quota of a requested resource, or is below its quota of none.
   Otherwise: V exceeds its allocatable share of some resource.
3. Amount (#reclaim-parts). Victims are taken in parts. Before each part is subtracted, ``left[V] >
   kept[V]`` in some resource. What V keeps is its allocatable share, or its quota where that is lower and R is
   guaranteed. The size of the part does not matter, so the last one may leave V below what it keeps.
4. Saturation (#reclaim-saturation). After all parts, no queue Q on the path of r that is above its fair share is more
   saturated than a sibling S that lost something: ``ratio[Q] * multiplier < ratio[S]`` in every resource that the
   request or a victim has. A ratio is what a queue holds by its fair share.

Rules 1, 2 and 3 are by what the queues hold before the reclaim. `ReclaimLedger` applies them to victims part by part.
`QueueSurplus` and `QueueAllowance` apply them to sums: some order of a set of parts is allowed exactly where, without
one of them (the last), the sum is below the surplus in some resource.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from kai_solver.domain import Blocker
from kai_solver.fairness.limits import cap_blocker, first_over
from kai_solver.fairness.order import Amounts, Table
from kai_solver.fairness.tree import QueueTree, Triple
from kai_solver.units import GPU, QUEUE_RESOURCES, UNLIMITED

QUEUE_INDICES = range(len(QUEUE_RESOURCES))

Held = Table | Mapping[int, Amounts]
"""Amounts by queue: of all queues, or of those that are compared."""


def levelled(tree: QueueTree, leaf_r: int, leaf_v: int) -> tuple[int, int]:
    """The levelled queues R and V: the first queues that differ on the ways down from the root.

    Where one way is the beginning of the other, the last queue of the shorter, twice.
    """
    path_r, path_v = tree.path[leaf_r], tree.path[leaf_v]
    shared = min(len(path_r), len(path_v))
    for depth in range(1, shared + 1):
        if path_r[-depth] != path_v[-depth]:
            return path_r[-depth], path_v[-depth]
    return path_r[-shared], path_v[-shared]


def levelled_above(tree: QueueTree, leaf_r: int, leaves: Iterable[int]) -> dict[int, int]:
    """By levelled queue V, one of the ``leaves`` below it.

    All leaves below V have the same levelled queues, so one of them is asked. Of 800 queues, asking all for each
    gang took 2% of the greedy's CPU (20,000 loaded nodes, 2026-11-24).
    """
    found: dict[int, int] = {}
    seen: set[int] = set()
    for leaf in leaves:
        if leaf not in seen:
            queue = levelled(tree, leaf_r, leaf)[1]
            found[queue] = leaf
            seen |= tree.leaves[queue]
    return found


@dataclass(frozen=True, slots=True)
class ReclaimRight:
    """The right of one gang to reclaim, by what the queues hold when a method is called.

    Attributes
    ----------
    share, allocatable, allocated
        (Q, 3) fair share, allocatable share, and what each queue holds before the reclaim; not copied.
    leaf, request
        Leaf queue of the gang, and what it asks for.
    multiplier
        Of the reclaimer's saturation (``policy.saturation_multiplier``); values below 1 count as 1.
    """

    tree: QueueTree
    share: Table
    allocatable: Table
    allocated: Held
    leaf: int
    request: Amounts
    multiplier: float = 1.0

    def refusal(self, allocated_np: Table, *, preemptible: bool) -> Blocker | None:
        """What denies the right whatever the victims are (rule 1); None where nothing does.

        ``allocated_np``: (Q, 3) what non-preemptible work holds. Where the leaf's limit would not allow the request
        either, the limit is named instead of the share.
        """
        tree, leaf, request, held = self.tree, self.leaf, self.request, self.allocated[self.leaf]
        share, limit = self.share[leaf], tree.limits[leaf]
        resource = first_over(share, held, request, QUEUE_INDICES)
        if resource >= 0:
            is_capped = held[resource] + request[resource] > limit[resource] != UNLIMITED
            kind, bound = ("queue-limit", limit) if is_capped else ("fair-share", share)
            return cap_blocker(kind, tree.title(leaf), resource, request, bound, held)
        for queue in tree.path[leaf] if not preemptible else ():
            quota, held = tree.quotas[queue], allocated_np[queue]
            resource = first_over(quota, held, request, QUEUE_INDICES)
            if resource >= 0:
                return cap_blocker("queue-quota", tree.title(queue), resource, request, quota, held)
        return None

    def is_guaranteed(self, queue: int) -> bool:
        """Whether ``queue``, on the path of the leaf, stays within its quota in all resources with the request."""
        return first_over(self.tree.quotas[queue], self.allocated[queue], self.request, QUEUE_INDICES) < 0

    def may_look_at(self, victim_leaf: int) -> bool:
        """Whether work of ``victim_leaf`` may be a victim (rule 2)."""
        reclaimer, victim = levelled(self.tree, self.leaf, victim_leaf)
        held, quota = self.allocated[victim], self.tree.quotas[victim]
        if not self.is_guaranteed(reclaimer):
            return exceeds(held, self.allocatable[victim])
        over = any(r > 0 and h > q != UNLIMITED for r, h, q in zip(self.request, held, quota, strict=True))
        return over or not any(q != UNLIMITED and h < q for h, q in zip(held, quota, strict=True))

    def kept(self, victim_leaf: int) -> Triple:
        """What the levelled queue of ``victim_leaf`` keeps (rule 3)."""
        reclaimer, victim = levelled(self.tree, self.leaf, victim_leaf)
        return kept_amounts(self.allocatable[victim], self.tree.quotas[victim], self.is_guaranteed(reclaimer))

    def may_lose_gpus(self, victim_leaf: int, milli: int) -> bool:
        """Whether saturation (rule 4) allows ``victim_leaf`` to lose ``milli`` GPUs, which are asked for."""
        reclaimer, victim = levelled(self.tree, self.leaf, victim_leaf)
        ours = [held + asked for held, asked in zip(self.allocated[reclaimer], self.request, strict=True)]
        bound = saturation_bound(ours, self.share[reclaimer], self.share[victim], (GPU,), self.multiplier)
        cpu, memory, gpu = self.allocated[victim]
        return bound.holds((cpu, memory, gpu - milli))

    def surplus(self, victim_leaf: int) -> "QueueSurplus":
        """How much may be taken in all from the levelled queue of ``victim_leaf`` (rule 3)."""
        _, victim = levelled(self.tree, self.leaf, victim_leaf)
        return QueueSurplus(
            victim, self.tree.leaves[victim], surplus_above(self.allocated[victim], self.kept(victim_leaf))
        )

    def allowance(self, victim_leaf: int) -> "QueueAllowance":
        """Rules 3 and 4 for the levelled queue of ``victim_leaf``, as if all victims were below it."""
        reclaimer, victim = levelled(self.tree, self.leaf, victim_leaf)
        ours, (cpu, memory, gpu) = self.allocated[reclaimer], self.allocated[victim]
        with_request = [held + asked for held, asked in zip(ours, self.request, strict=True)]
        shares = self.share[reclaimer], self.share[victim]
        saturation = saturation_bound(with_request, *shares, range(3), self.multiplier)
        return QueueAllowance(self.surplus(victim_leaf).amounts, (cpu, memory, gpu), saturation)


def kept_amounts(allocatable: Amounts, quota: Amounts, is_guaranteed: bool) -> Triple:
    """What a victim queue keeps (rule 3), by its allocatable share and quota; -1 where a resource gives no right."""
    cpu, memory, gpu = map(_lower, allocatable, quota) if is_guaranteed else allocatable
    return cpu, memory, gpu


def _lower(one: int, other: int) -> int:
    """The lower of two bounds."""
    if one == UNLIMITED:
        return other
    return one if other == UNLIMITED else min(one, other)


def exceeds(amounts: Amounts, bounds: Amounts) -> bool:
    """Whether some amount is above its bound."""
    return (
        (amounts[0] > bounds[0] != UNLIMITED)
        or (amounts[1] > bounds[1] != UNLIMITED)
        or (amounts[2] > bounds[2] != UNLIMITED)
    )


def surplus_above(held: Amounts, kept: Amounts) -> Triple:
    """By resource, how much a queue holds above what it keeps; 0 where a resource gives no right."""
    cpu, memory, gpu = (max(0, h - k) if k != UNLIMITED else 0 for h, k in zip(held, kept, strict=True))
    return cpu, memory, gpu


class SaturationBound(NamedTuple):
    """Rule 4 for a queue Q and its sibling S, once it is known what Q will hold.

    ``ratios``: (resource, ratio, fair share of S) where Q is above its fair share and S has one; S must stay above the
    ratio. Empty where Q stays within its fair share.
    """

    ratios: tuple[tuple[int, float, int], ...]

    def holds(self, left: Amounts) -> bool:
        """Whether S may hold ``left`` at last."""
        return all(left[resource] / fair > ratio for resource, ratio, fair in self.ratios)


def saturation_bound(
    ours: Amounts, fair: Amounts, fair_theirs: Amounts, involved: Iterable[int], multiplier: float
) -> SaturationBound:
    """Rule 4 where Q holds ``ours`` at last, of its ``fair`` share; ``fair_theirs`` is that of the sibling.

    Only the resources ``involved`` are compared: those that the request or a victim has.
    """
    factor, ratios = max(1.0, multiplier), []
    for resource in involved:
        ratio = _saturation(ours[resource], fair[resource])
        if ratio > 1 and fair_theirs[resource] > 0:
            ratios.append((resource, ratio * factor, fair_theirs[resource]))
    return SaturationBound(tuple(ratios))


def _saturation(amount: int, fair: int) -> float:
    """What a queue holds by its fair share; 0 where that is unlimited, infinite where there is none."""
    if fair == UNLIMITED:
        return 0.0
    if fair == 0:
        return inf if amount > 0 else 0.0
    return amount / fair


@dataclass(frozen=True, slots=True)
class QueueSurplus:
    """What reclaim may take in all from one levelled queue V.

    Attributes
    ----------
    queue, leaves
        V, and the leaf queues below it (V itself where it is one).
    amounts
        What V holds above what it keeps (rule 3).
    """

    queue: int
    leaves: frozenset[int]
    amounts: Triple

    def most(self, resource: int, last: int) -> int | None:
        """Most that parts may take of a resource which gives the right, where ``last`` is the most of one part.

        None where the resource gives no right.
        """
        return self.amounts[resource] - 1 + last if self.amounts[resource] > 0 else None


class QueueAllowance(NamedTuple):
    """Whether a set of victims of one levelled queue V is allowed in some order, by their sum and the last of them.

    ``surplus``: what V holds above what it keeps (rule 3). ``held``: what V holds. ``saturation``: rule 4, in all
    resources, also those that no victim has.
    """

    surplus: Triple
    held: Triple
    saturation: SaturationBound

    def permits(self, total: Amounts, last: Amounts) -> bool:
        """Whether parts of ``total`` may be taken from V in some order that ends with the part ``last``."""
        if self.saturation.ratios:
            left = [held - gone for held, gone in zip(self.held, total, strict=True)]
            if not self.saturation.holds(left):
                return False
        cpu, memory, gpu = self.surplus
        return total[0] - last[0] < cpu or total[1] - last[1] < memory or total[2] - last[2] < gpu


class ReclaimLedger:
    """The victims of one reclaimer, part by part, against what the queues held when it began.

    Victims that find another place are not charged: leave them out.
    """

    def __init__(self, right: ReclaimRight) -> None:
        # Only queues on the path and their siblings are ever compared.
        path = right.tree.path[right.leaf]
        self._left = {queue: list(right.allocated[queue]) for above in path for queue in _level(right.tree, above)}
        self._right = replace(right, allocated=self._left)
        self._guaranteed = {queue: right.is_guaranteed(queue) for queue in path}
        self._levels: dict[int, tuple[int, int, Triple]] = {}
        self._involved = {resource for resource in range(3) if right.request[resource] > 0}
        self._touched: set[tuple[int, int]] = set()
        """Levelled queues of the reclaimer and of what was taken."""

    def may_look_at(self, victim_leaf: int) -> bool:
        """Whether work of ``victim_leaf`` may be a victim, by what the queues hold now (rule 2)."""
        return self._right.may_look_at(victim_leaf)

    def allows(self, victim_leaf: int) -> bool:
        """Whether one more part of ``victim_leaf`` may be taken now (rule 3)."""
        _, victim, kept = self._level(victim_leaf)
        return exceeds(self._left[victim], kept)

    def _level(self, victim_leaf: int) -> tuple[int, int, Triple]:
        """The levelled queues of the reclaimer and of ``victim_leaf``, and what the latter keeps."""
        found = self._levels.get(victim_leaf)
        if found is None:
            right = self._right
            reclaimer, victim = levelled(right.tree, right.leaf, victim_leaf)
            kept = kept_amounts(right.allocatable[victim], right.tree.quotas[victim], self._guaranteed[reclaimer])
            found = self._levels[victim_leaf] = reclaimer, victim, kept
        return found

    def forget(self, leaf: int, charge: Amounts) -> None:
        """Places that were given in this cycle and are taken back: no queue holds them or is charged for them."""
        for queue in self._right.tree.path[leaf]:
            row = self._left.get(queue)
            if row is not None:
                row[0] -= charge[0]
                row[1] -= charge[1]
                row[2] -= charge[2]

    def take(self, victim_leaf: int, charge: Amounts) -> None:
        """Subtract a part from ``victim_leaf`` and every ancestor."""
        self.forget(victim_leaf, charge)
        self._touched.add(self._level(victim_leaf)[:2])
        self._involved.update(resource for resource in range(3) if charge[resource] > 0)

    def takes(self, victim_leaf: int, parts: Iterable[Amounts]) -> bool:
        """Take the ``parts`` of one gang beside what is taken if rules 3 and 4 allow it; else nothing changes."""
        touched, involved, taken = self._touched.copy(), self._involved.copy(), []
        for part in parts:
            if not self.allows(victim_leaf):
                break
            self.take(victim_leaf, part)
            taken.append(part)
        else:
            if self.saturation_ok():
                return True
        for cpu, memory, gpu in taken:
            self.forget(victim_leaf, (-cpu, -memory, -gpu))
        self._touched, self._involved = touched, involved
        return False

    def take_all(self, victim_leaves: Iterable[int], parts: Iterable[tuple[int, Amounts]]) -> bool:
        """Take ``parts`` (leaf queue, charge) in this order; False where a rule refuses it.

        ``victim_leaves``: leaf queues of all that is disturbed, also of what is not charged.
        """
        if not all(map(self.may_look_at, victim_leaves)):
            return False
        for leaf, charge in parts:
            if not self.allows(leaf):
                return False
            self.take(leaf, charge)
        return self.saturation_ok()

    def saturation_ok(self) -> bool:
        """Whether no queue of the reclaimer is too saturated for a sibling from which it took (rule 4)."""
        right = self._right
        for mine, theirs in self._touched:
            if mine != theirs:
                ours = [left + asked for left, asked in zip(self._left[mine], right.request, strict=True)]
                shares = right.share[mine], right.share[theirs]
                bound = saturation_bound(ours, *shares, self._involved, right.multiplier)
                if not bound.holds(self._left[theirs]):
                    return False
        return True


def _level(tree: QueueTree, queue: int) -> Sequence[int]:
    """``queue`` and its siblings."""
    path = tree.path[queue]
    return tree.children[path[1]] if len(path) > 1 else tree.roots
