"""Rule ``entitlement``: what reclaim may take.

Source: docs/kai-behaviour.md#reclaim; KAI: ``plugins/proportion/reclaimable``.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kai_solver.check.accounts import RESOURCES, ZERO, Amount, Bills, Ledger, QueueTree, minus, plus, summed
from kai_solver.check.scene import Scene, set_scene
from kai_solver.check.victims import EVICTING, VictimBook, VictimGroup, judge_runtime
from kai_solver.check.violation import Violation
from kai_solver.domain import Action, Eviction, Gang, Move
from kai_solver.units import QUEUE_RESOURCES, UNLIMITED

Shares = Mapping[str, Amount]
"""Fair share of every queue."""


class VictimPart(NamedTuple):
    """Pods of one victim that are tested together; ``is_core`` ones come after the surplus of their gang."""

    gang: Gang
    amount: Amount
    is_core: bool


@dataclass(slots=True)
class Claim:
    """One gang's reclaim, and what every queue held before it."""

    gang: Gang
    need: Amount
    held: Ledger
    groups: list[VictimGroup]
    parts: dict[str, list[VictimPart]] = field(default_factory=dict)


class ReclaimReplay:
    """Judges the claims of a plan one after the other, each in the state that the earlier ones left."""

    def __init__(
        self, scene: Scene, tree: QueueTree, book: VictimBook, before: Ledger, shares: Shares, bills: Bills
    ) -> None:
        self._scene = scene
        self._bills = bills
        self._book = book
        self._tree = tree
        self._ledger = before.copy()
        self._shares = shares
        self._allocatable = {name: self._allocatable_share(name) for name in tree.queues}
        self._gone: set[str] = set()
        self._levels: dict[tuple[str, str], tuple[str, str]] = {}
        self._children = Counter([queue.parent for queue in tree.queues.values()])
        self._with_siblings: dict[str, tuple[str, ...]] = {}
        self._charges_moves = not scene.snapshot.policy.consolidating_reclaim
        self._minima: dict[int, dict[str, int]] = {}

    def replay(self) -> Iterator[Violation]:
        """Violations of all claims, in the order of admission."""
        for key, action in dict.fromkeys(self._scene.plan.admitted):
            change = self._scene.changes.get(key)
            if change is None:
                continue  # Judged by `order`.
            come = [bind for bind in change.binds if bind.action is action]
            groups = self._book.groups(key, action) if action in EVICTING else []
            amount = summed(self._bills.come, come)
            if action is Action.RECLAIM and groups:
                is_same = self._bills.asked is self._bills.come
                need = amount if is_same else summed(self._bills.asked, come)
                yield from self._judge(self._claim(change.gang, need, groups))
            self._ledger.add(change.gang, amount)
            for group in groups:
                self._remove(group)

    def _allocatable_share(self, name: str) -> Amount:
        queue, share = self._tree.queues[name], self._shares.get(name, ZERO)

        def of(r: int) -> int:
            if queue.quota[r] == UNLIMITED:
                return queue.limit[r]
            entitled = max(queue.quota[r], share[r])
            return entitled if queue.limit[r] == UNLIMITED else min(queue.limit[r], entitled)

        return of(0), of(1), of(2)

    def _remove(self, group: VictimGroup) -> None:
        fresh = [eviction for eviction in group.evictions if eviction.pod not in self._gone]
        self._ledger.remove(group.change.gang, summed(self._bills.gone, fresh))
        self._gone.update([eviction.pod for eviction in fresh])

    def _claim(self, gang: Gang, need: Amount, groups: list[VictimGroup]) -> Claim:
        """The claim, with victims that it shares with an earlier one still in their places."""
        known = self._gone
        gone = [(group, eviction) for group in groups for eviction in group.evictions if eviction.pod in known]
        held = self._ledger.copy() if gone else self._ledger
        for group, eviction in gone:
            held.add(group.change.gang, self._bills.gone[eviction.pod])
        return Claim(gang, need, held, groups)

    def _judge(self, claim: Claim) -> Iterator[Violation]:
        refusals: dict[tuple[str, bool], str] = {}
        for group in claim.groups:
            victim = group.change.gang
            kind = victim.queue, victim.preemptible
            if kind not in refusals:
                refusals[kind] = self._refused(claim, victim)
            if text := refusals[kind]:
                yield Violation("entitlement", victim.key, f"gang {victim.key}: reclaimed for {claim.gang.key}, {text}")
                return
            if self._book.may_protect(victim):
                yield from judge_runtime(self._scene, self._tree, Action.RECLAIM, claim.gang, group)
        text = self._not_entitled(claim) or self._takes_too_much(claim) or self._saturates(claim)
        if text:
            yield Violation("entitlement", claim.gang.key, f"gang {claim.gang.key}: reclaims, but {text}")

    def _not_entitled(self, claim: Claim) -> str:
        """Step 1: the leaf stays within its fair share; non-preemptible work within its quota."""
        leaf = claim.gang.queue
        after = plus(claim.held.allocated[leaf], claim.need)
        if _is_above(after, self._shares[leaf]):
            return f"queue {leaf} would be above its fair share of {_words(_above(after, self._shares[leaf]))}"
        if not claim.gang.preemptible:
            after = plus(claim.held.fixed[leaf], claim.need)
            if over := _above(after, self._tree.queues[leaf].quota):
                return f"queue {leaf} would be above its quota of {_words(over)} with non-preemptible work"
        return ""

    def _refused(self, claim: Claim, victim: Gang) -> str:
        """Step 2: why no pod of ``victim`` may be taken."""
        if victim.queue == claim.gang.queue:
            return "but it is in the same queue"
        if not victim.preemptible:
            return "but it is not preemptible"
        if victim.queue not in self._tree.paths:
            return f"but its queue {victim.queue} takes no part"
        mine, theirs = self._levelled(claim.gang, victim)
        held = claim.held.allocated[theirs]
        if not self._within_quota(claim, mine):
            if not _is_above(held, self._allocatable[theirs]):
                return f"but queue {theirs} is not above its fair share"
            return ""
        quota = self._tree.queues[theirs].quota
        if _is_below(held, quota) and not any(claim.need[r] for r in _above(held, quota)):
            return f"but queue {theirs} is within its quota"
        return ""

    def _levelled(self, gang: Gang, victim: Gang) -> tuple[str, str]:
        key = gang.queue, victim.queue
        if key not in self._levels:
            self._levels[key] = self._tree.levelled(*key)
        return self._levels[key]

    def _within_quota(self, claim: Claim, queue: str) -> bool:
        after = plus(claim.held.allocated[queue], claim.need)
        return not _is_above(after, self._tree.queues[queue].quota)

    def _parts(self, group: VictimGroup) -> list[VictimPart]:
        """Parts of one victim as KAI splits them (``splitVictimTasks``).

        Of each podset the first ``min_member`` victims in the order of eviction are core, the rest surplus: positions
        in the list of victims, not what is left. Pods that find another place are not charged where policy says so.
        """
        scene, gang = self._scene, group.change.gang
        charged: list[Eviction | Move] = list(group.evictions)
        if self._charges_moves:
            charged.extend(group.moves)
        minimum = self._minimum(gang)
        if len(charged) == 1:
            pod = scene.pods[charged[0].pod]
            amount, is_core = self._bills.gone[pod.key], minimum.get(pod.podset, 0) > 0
            return [VictimPart(gang, amount, is_core)] if not is_core or any(amount) else []
        minimum = minimum.copy()
        core: Amount = ZERO
        parts: list[VictimPart] = []
        pods = [scene.pods[entry.pod] for entry in charged]
        for pod in sorted(pods, key=lambda pod: pod.order, reverse=True) if len(pods) > 1 else pods:
            amount = self._bills.gone[pod.key]
            if minimum.get(pod.podset, 0) > 0:
                minimum[pod.podset] -= 1
                core = plus(core, amount)
            else:
                parts.append(VictimPart(gang, amount, is_core=False))
        if any(core):
            parts.append(VictimPart(gang, core, is_core=True))
        return parts

    def _minimum(self, gang: Gang) -> dict[str, int]:
        """Least pods of each podset; gangs share their trees."""
        known = self._minima.get(id(gang.root))
        if known is None:
            known = {podset.name: podset.min_member for podset in gang.root.podsets()}
            self._minima[id(gang.root)] = known
        return known

    def _takes_too_much(self, claim: Claim) -> str:
        """Step 3: before each part is taken, its levelled queue holds more than it may keep.

        What is left shrinks with every part, so the test before the last one decides; any part may be the last but
        a gang's surplus before its core.
        """
        if self._takes_little(claim):
            return ""
        by_queue: dict[tuple[str, str], list[VictimPart]] = defaultdict(list)
        self._split(claim)
        for group in claim.groups:
            by_queue[self._levelled(claim.gang, group.change.gang)].extend(claim.parts[group.change.gang.key])
        for (mine, theirs), parts in by_queue.items():
            held = claim.held.allocated[theirs]
            if not self._may_take_all(claim, mine, theirs, held, parts):
                return f"queue {theirs} would fall below what it may keep before the last victims are taken"
        return ""

    def _takes_little(self, claim: Claim) -> bool:
        """True where all levelled queues hold more than they may keep even when everything is taken."""
        left: dict[str, Amount] = {}
        for group in claim.groups:
            if group.moves and self._charges_moves:
                return False
            _, theirs = self._levelled(claim.gang, group.change.gang)
            held = left[theirs] if theirs in left else claim.held.allocated[theirs]
            left[theirs] = minus(held, summed(self._bills.gone, group.evictions))
        return all(_is_above(amount, self._allocatable[queue]) for queue, amount in left.items())

    def _split(self, claim: Claim) -> None:
        """Split all victims in parts, unless that is done."""
        if not claim.parts:
            claim.parts.update((group.change.gang.key, self._parts(group)) for group in claim.groups)

    def _may_take_all(self, claim: Claim, mine: str, theirs: str, held: Amount, parts: list[VictimPart]) -> bool:
        if len(parts) < 2:
            return not parts or self._may_take(claim, mine, theirs, held)
        taken = ZERO
        for part in parts:
            taken = plus(taken, part.amount)
        cored = {part.gang.key for part in parts if part.is_core}
        last = [part for part in parts if part.is_core or part.gang.key not in cored]
        rests = (minus(held, minus(taken, part.amount)) for part in last)
        return any(self._may_take(claim, mine, theirs, rest) for rest in rests)

    def _may_take(self, claim: Claim, mine: str, theirs: str, rest: Amount) -> bool:
        """MaintainFairShare or GuaranteeDeservedQuota, for what the victims' queue still holds."""
        if _is_above(rest, self._allocatable[theirs]):
            return True
        after = plus(self._after(claim, mine), claim.need)
        quotas = self._tree.queues
        return not _is_above(after, quotas[mine].quota) and _is_above(rest, quotas[theirs].quota)

    def _after(self, claim: Claim, queue: str) -> Amount:
        """What ``queue`` holds when all of the claim's victims are charged."""
        held = claim.held.allocated[queue]
        for parts in claim.parts.values():
            for part in parts:
                if queue in self._tree.paths[part.gang.queue]:
                    held = minus(held, part.amount)
        return held

    def _saturates(self, claim: Claim) -> str:
        """The claimant's queues beyond their fair share may not become fuller than the siblings that pay."""
        # Victims only make room: a queue within all shares before they leave cannot be beyond one afterwards.
        beyond = [q for q in self._rivals(claim.gang.queue) if self._beyond_share(claim, q)]
        if not beyond:
            return ""
        self._split(claim)
        amounts = [claim.need] + [part.amount for parts in claim.parts.values() for part in parts]
        involved = [r for r in RESOURCES if any(amount[r] for amount in amounts)]
        # A gang that is only moved pays nothing (KAI leaves its queue out, `getVictimResources`).
        payers = [group.change.gang for group in claim.groups if claim.parts[group.change.gang.key]]
        touched = {q for gang in payers for q in self._tree.paths[gang.queue]}
        for queue in beyond:
            for sibling in sorted(touched - {queue}):
                if self._tree.are_siblings(queue, sibling) and self._fuller(claim, queue, sibling, involved):
                    return f"queue {queue} would be fuller than queue {sibling}, which pays for it"
        return ""

    def _rivals(self, leaf: str) -> tuple[str, ...]:
        """Queues from ``leaf`` up that have siblings."""
        if leaf not in self._with_siblings:
            path = self._tree.paths[leaf]
            self._with_siblings[leaf] = tuple(q for q in path if self._children[self._tree.queues[q].parent] > 1)
        return self._with_siblings[leaf]

    def _beyond_share(self, claim: Claim, queue: str) -> bool:
        return _is_above(plus(claim.held.allocated[queue], claim.need), self._shares[queue])

    def _fuller(self, claim: Claim, queue: str, sibling: str, involved: list[int]) -> bool:
        multiplier = max(1.0, self._scene.snapshot.policy.saturation_multiplier)
        mine = plus(self._after(claim, queue), claim.need)
        theirs = self._after(claim, sibling)
        my_share, their_share = self._shares[queue], self._shares[sibling]
        return any(
            mine[r] > my_share[r] >= 0
            and their_share[r] > 0
            and mine[r] * multiplier * their_share[r] >= theirs[r] * my_share[r]
            for r in involved
        )


def _above(amount: Amount, cap: Amount) -> list[int]:
    """Resources in which ``amount`` is above ``cap``; -1 is no cap."""
    return [r for r in RESOURCES if cap[r] != UNLIMITED and amount[r] > cap[r]]


def _is_above(amount: Amount, cap: Amount) -> bool:
    """Whether ``amount`` is above ``cap`` in any resource."""
    return amount[0] > cap[0] != UNLIMITED or amount[1] > cap[1] != UNLIMITED or amount[2] > cap[2] != UNLIMITED


def _is_below(amount: Amount, cap: Amount) -> bool:
    """Whether ``amount`` is below ``cap`` in any resource, where there is a cap."""
    return amount[0] < cap[0] != UNLIMITED or amount[1] < cap[1] != UNLIMITED or amount[2] < cap[2] != UNLIMITED


def _words(resources: list[int]) -> str:
    return ", ".join(QUEUE_RESOURCES[r] for r in resources)


def reclaims_hold(
    scene: Scene, tree: QueueTree, before: Ledger, shares: Shares, bills: Bills, staying: Collection[str]
) -> bool:
    """Whether every reclaim of the plan is allowed where the pods ``staying`` are not evicted."""
    kept = tuple(eviction for eviction in scene.plan.evictions if eviction.pod not in staying)
    fewer = set_scene(scene.snapshot, replace(scene.plan, evictions=kept))
    return not any(judge_entitlement(fewer, tree, VictimBook(fewer), before, shares, bills))


def judge_entitlement(
    scene: Scene, tree: QueueTree, book: VictimBook, before: Ledger, shares: Shares, bills: Bills
) -> Iterator[Violation]:
    """Every reclaim of the plan, in the order of admission."""
    if any(action is Action.RECLAIM for _, action in scene.plan.admitted):
        yield from ReclaimReplay(scene, tree, book, before, shares, bills).replay()
