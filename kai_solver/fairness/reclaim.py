"""What a queue may take from others (docs/kai-behaviour.md#reclaim; KAI: ``proportion/reclaimable``)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from kai_solver.domain import Blocker
from kai_solver.fairness.order import NOTHING, Amounts, Table
from kai_solver.fairness.tree import QueueTree, Triple
from kai_solver.units import QUEUE_RESOURCES, UNLIMITED, format_amount

Held = Table | Mapping[int, Amounts]
"""What queues hold: of all, or of those that count."""


def may_reclaim(
    tree: QueueTree,
    share: Table,
    allocated: Table,
    allocated_np: Table,
    leaf: int,
    request: Amounts,
    preemptible: bool = True,
) -> Blocker | None:
    """What forbids ``leaf`` to reclaim ``request`` whoever the victims are; None where nothing does.

    The leaf stays within its fair share in **all** resources, requested or not; non-preemptible work also within the
    quota of the leaf and every ancestor. Where no share could be enough, since the leaf's limit is not, that is said.
    """
    resource = _first_over(share[leaf], allocated[leaf], request)
    if resource is not None:
        limit = tree.limits[leaf]
        is_capped = allocated[leaf][resource] + request[resource] > limit[resource] != UNLIMITED
        kind, bound = ("queue-limit", limit) if is_capped else ("fair-share", share[leaf])
        return _blocker(kind, tree.title(leaf), resource, request, bound, allocated[leaf])
    if preemptible:
        return None
    for queue in tree.path[leaf]:
        quota = tree.quotas[queue]
        resource = _first_over(quota, allocated_np[queue], request)
        if resource is not None:
            return _blocker("queue-quota", tree.title(queue), resource, request, quota, allocated_np[queue])
    return None


def levelled(tree: QueueTree, leaf_r: int, leaf_v: int) -> tuple[int, int]:
    """The first differing ancestors on the two ways down from the root: the siblings that are compared.

    Where one way is the beginning of the other, the last queue of the shorter, twice.
    """
    path_r, path_v = tree.path[leaf_r], tree.path[leaf_v]
    shared = min(len(path_r), len(path_v))
    for depth in range(1, shared + 1):
        if path_r[-depth] != path_v[-depth]:
            return path_r[-depth], path_v[-depth]
    return path_r[-shared], path_v[-shared]


def victim_queue_eligible(
    tree: QueueTree, allocatable: Table, allocated: Held, leaf_r: int, leaf_v: int, request: Amounts
) -> bool:
    """Whether work of ``leaf_v`` may be looked at as a victim for ``request`` of ``leaf_r``.

    Beyond the reclaimer's quota, the victim's levelled queue must hold more than its allocatable share of something.
    Within it, more than its quota of a requested resource, or not less than its quota of anything.
    """
    reclaimer, victim = levelled(tree, leaf_r, leaf_v)
    held, quota = allocated[victim], tree.quotas[victim]
    if not within_quota(tree, allocated, reclaimer, request):
        return exceeds(held, allocatable[victim])
    over = any(r > 0 and h > q != UNLIMITED for r, h, q in zip(request, held, quota, strict=True))
    return over or not any(q != UNLIMITED and h < q for h, q in zip(held, quota, strict=True))


def within_quota(tree: QueueTree, allocated: Held, queue: int, request: Amounts) -> bool:
    """Whether ``queue`` with ``request`` stays within its quota in all three resources."""
    return _first_over(tree.quotas[queue], allocated[queue], request) is None


class Surplus(NamedTuple):
    """What reclaim may take from one levelled queue.

    A set of chunks may be taken in some order exactly when, without one of them (the last), their sum is below
    ``amounts`` in at least one resource.
    """

    queue: int
    amounts: Triple


def surplus(
    tree: QueueTree, allocatable: Table, allocated: Table, leaf_r: int, leaf_v: int, request: Amounts
) -> Surplus:
    """How much of ``leaf_v``'s levelled queue may be evicted before the last chunk; 0 where a resource gives no right.

    Above the allocatable share anybody may take; above the quota, a reclaimer that stays within its own.
    """
    reclaimer, victim = levelled(tree, leaf_r, leaf_v)
    guaranteed = within_quota(tree, allocated, reclaimer, request)
    quota, bound, held = tree.quotas[victim], allocatable[victim], allocated[victim]
    amounts = []
    for resource in range(3):
        floors = [bound[resource], quota[resource]] if guaranteed else [bound[resource]]
        lowest = min((floor for floor in floors if floor != UNLIMITED), default=None)
        amounts.append(0 if lowest is None else max(0, held[resource] - lowest))
    return Surplus(victim, (amounts[0], amounts[1], amounts[2]))


def saturation_room(
    tree: QueueTree,
    share: Table,
    allocated: Table,
    leaf_r: int,
    leaf_v: int,
    request: Amounts,
    multiplier: float = 1.0,
) -> tuple[float, float, float]:
    """What all victims of ``leaf_v``'s levelled queue together must stay below, lest the reclaimer's be the fuller one.

    Infinite where the reclaimer's queue stays within its fair share. Work taken elsewhere below the reclaimer's own
    queue would only widen it.
    """
    reclaimer, victim = levelled(tree, leaf_r, leaf_v)
    room = []
    for resource in range(3):
        fair = share[victim][resource]
        ours = _saturation(allocated[reclaimer][resource] + request[resource], share[reclaimer][resource])
        beyond = ours > 1 and fair > 0
        room.append(allocated[victim][resource] - ours * max(1.0, multiplier) * fair if beyond else inf)
    return room[0], room[1], room[2]


class ReclaimLedger:
    """The victims of one reclaimer, chunk by chunk, against the queues as they stood when it began.

    Chunks are tested before they are subtracted, so the last one may take a queue below its share
    (docs/kai-behaviour.md#reclaim-chunks). Victims that find another place are not charged: leave them out.
    """

    def __init__(
        self,
        tree: QueueTree,
        share: Table,
        allocatable: Table,
        allocated: Table,
        leaf: int,
        request: Amounts,
    ) -> None:
        self._tree = tree
        self._share = share
        self._allocatable = allocatable
        # Only queues of the way up and their siblings are ever compared.
        self._left = {queue: list(allocated[queue]) for above in tree.path[leaf] for queue in _level(tree, above)}
        self._leaf = leaf
        self._request = tuple(request)
        self._involved = {resource for resource in range(3) if request[resource] > 0}
        self._touched: set[int] = set()
        self._guaranteed = {queue: within_quota(tree, allocated, queue, request) for queue in tree.path[leaf]}

    def allows(self, victim_leaf: int, _chunk_charge: Amounts = NOTHING) -> bool:
        """Whether one more chunk of ``victim_leaf`` may be taken now; its size does not matter.

        MaintainFairShare: the levelled victim queue still holds more than its allocatable share of something; or
        GuaranteeDeservedQuota: more than its quota of something, and the reclaimer stays within its own.
        """
        reclaimer, victim = levelled(self._tree, self._leaf, victim_leaf)
        left = self._left[victim]
        if exceeds(left, self._allocatable[victim]):
            return True
        return self._guaranteed[reclaimer] and exceeds(left, self._tree.quotas[victim])

    def forget(self, leaf: int, charge: Amounts) -> None:
        """Places that were given in this cycle and are taken back: nobody is charged for them, nobody holds them."""
        for queue in self._tree.path[leaf]:
            row = self._left.get(queue)
            if row is not None:
                row[0] -= charge[0]
                row[1] -= charge[1]
                row[2] -= charge[2]

    def may_look_at(self, victim_leaf: int) -> bool:
        """Whether work of ``victim_leaf`` may be a victim at all, by the numbers of this moment."""
        return victim_queue_eligible(self._tree, self._allocatable, self._left, self._leaf, victim_leaf, self._request)

    def take(self, victim_leaf: int, chunk_charge: Amounts) -> None:
        """Subtract a chunk from ``victim_leaf`` and every ancestor."""
        self.forget(victim_leaf, chunk_charge)
        self._touched.update(self._tree.path[victim_leaf])
        self._involved.update(resource for resource in range(3) if chunk_charge[resource] > 0)

    def saturation_ok(self, multiplier: float = 1.0) -> bool:
        """Whether no queue of the reclaimer ends above its fair share and more saturated than a sibling it took from.

        ``multiplier`` of the reclaimer's saturation, at least 1 (``policy.saturation_multiplier``).
        """
        return not self.fuller_than(multiplier)

    def fuller_than(self, multiplier: float = 1.0) -> frozenset[int]:
        """Queues taken from that a queue of the reclaimer, above its fair share, would be fuller than."""
        factor = max(1.0, multiplier)
        return frozenset(
            sibling
            for queue in self._tree.path[self._leaf]
            for sibling in self._siblings(queue)
            if sibling in self._touched and not self._is_less_saturated(queue, sibling, factor)
        )

    def _siblings(self, queue: int) -> Iterator[int]:
        return (other for other in _level(self._tree, queue) if other != queue)

    def _is_less_saturated(self, queue: int, sibling: int, factor: float) -> bool:
        ours = [left + asked for left, asked in zip(self._left[queue], self._request, strict=True)]
        shares = (self._share[queue], self._share[sibling])
        return less_saturated(ours, self._left[sibling], *shares, self._involved, factor)


def _level(tree: QueueTree, queue: int) -> Sequence[int]:
    """``queue`` and its siblings."""
    path = tree.path[queue]
    return tree.children[path[1]] if len(path) > 1 else tree.roots


def less_saturated(
    ours: Amounts, theirs: Amounts, fair: Amounts, fair_theirs: Amounts, involved: Iterable[int], factor: float
) -> bool:
    """Whether a queue that holds ``ours`` in the end is within its ``fair`` share, or less saturated than a sibling.

    ``factor`` of its saturation, at least 1, is compared with that of ``theirs``, in the resources ``involved``.
    """
    for resource in involved:
        mine = _saturation(ours[resource], fair[resource])
        other = _saturation(theirs[resource], fair_theirs[resource])
        if mine > 1 and fair_theirs[resource] > 0 and mine * factor >= other:
            return False
    return True


def _saturation(amount: int, fair: int) -> float:
    """Part of the fair share in use; 0 where it is unlimited, infinite where there is none."""
    if fair == UNLIMITED:
        return 0.0
    if fair == 0:
        return inf if amount > 0 else 0.0
    return amount / fair


def exceeds(amounts: Amounts, bounds: Amounts) -> bool:
    """Whether some amount is above its bound; -1 is never exceeded."""
    return (
        (amounts[0] > bounds[0] != UNLIMITED)
        or (amounts[1] > bounds[1] != UNLIMITED)
        or (amounts[2] > bounds[2] != UNLIMITED)
    )


def _first_over(bounds: Amounts, held: Amounts, request: Amounts) -> int | None:
    """The first resource in which ``held`` and ``request`` together exceed ``bounds``; -1 is never exceeded."""
    for resource in range(3):
        if held[resource] + request[resource] > bounds[resource] != UNLIMITED:
            return resource
    return None


def _blocker(kind: str, name: str, resource: int, request: Amounts, bounds: Amounts, held: Amounts) -> Blocker:
    label = QUEUE_RESOURCES[resource]
    have = f"{format_amount(label, bounds[resource])}, of which {format_amount(label, held[resource])} in use"
    short = held[resource] + request[resource] - bounds[resource]
    return Blocker(kind, name, format_amount(label, request[resource]), have, resource=label, short=short)
