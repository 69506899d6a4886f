"""Claims and their pods: which pods use a claim, which of them hold its devices, and which one pays for it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from kai_solver.domain import MOST_CONSUMERS, Claim, Gang, Pod, PodSet, PodStatus, Snapshot

Rank = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Consumer:
    """A pod that uses a claim. ``rank``: smaller is served first."""

    pod: Pod
    gang: Gang | None
    rank: Rank


class Keeping(Enum):
    """What holds the devices of a claim.

    ``UNALLOCATED``: nothing. ``PAYER``: they are free once the payer has left. ``ITSELF``: they stay allocated,
    whichever pods leave.
    """

    UNALLOCATED = "unallocated"
    PAYER = "payer"
    ITSELF = "itself"


@dataclass(slots=True)
class Use:
    """A claim with its consumers, served first to last."""

    claim: Claim
    holding: list[Consumer] = field(default_factory=list)
    waiting: list[Consumer] = field(default_factory=list)

    @property
    def is_shared(self) -> bool:
        """True where more than one pod uses it."""
        return len(self.holding) + len(self.waiting) > 1

    @property
    def payer(self) -> Consumer:
        """The pod that is charged for the devices: the first that holds them, else the first that waits."""
        return (self.holding or self.waiting)[0]

    @property
    def keeping(self) -> Keeping:
        """What holds the devices: the payer, if it is the only holder or all holders leave with it; else the claim."""
        if self.claim.allotted is None:
            return Keeping.UNALLOCATED
        if not self.holding or self.waiting or self._has_unidentified():
            return Keeping.ITSELF
        gangs = {id(consumer.gang) for consumer in self.holding}
        if len(self.holding) == 1 or (len(gangs) == 1 and _leaves_whole(self.holding[0].gang)):
            return Keeping.PAYER
        return Keeping.ITSELF

    def _has_unidentified(self) -> bool:
        """True where pods that are not in the snapshot have the claim reserved."""
        return bool(set(self.claim.reserved) - {consumer.pod.name for consumer in (*self.holding, *self.waiting)})


def _leaves_whole(gang: Gang | None) -> bool:
    """True where no pod of the gang can leave without all others: one podset, and nothing above its minimum."""
    if gang is None or len(gang.root.children) != 1:
        return False
    leaf = gang.root.children[0]
    return isinstance(leaf, PodSet) and sum(pod.status.is_active for pod in gang.pods) <= leaf.min_member


def survey(snapshot: Snapshot, claims: Iterable[Claim]) -> dict[str, Use]:
    """Uses by claim key, of all claims."""
    uses = {claim.key: Use(claim) for claim in claims}
    for consumer in _consumers(snapshot):
        for key in dict.fromkeys(consumer.pod.claims):
            use = uses.get(key)
            if use is None:
                continue
            if consumer.pod.status.holds_resources:
                use.holding.append(consumer)
            elif consumer.pod.status in (PodStatus.PENDING, PodStatus.GATED):
                use.waiting.append(consumer)
    return uses


def _consumers(snapshot: Snapshot) -> list[Consumer]:
    """All pods with claims; among those that wait the likeliest to run first, in a gang the first to be placed."""
    found = [Consumer(pod, None, (2,)) for pod in snapshot.foreign if pod.claims]
    for gang in snapshot.gangs:
        places = {podset.name: place for place, podset in enumerate(gang.root.podsets())}
        for pod in gang.pods:
            if pod.claims:
                hopeless = bool(gang.set_aside or pod.constraints.blocked or pod.status is PodStatus.GATED)
                order = (places.get(pod.podset, 0), *pod.task_order)
                rank = (int(hopeless), -gang.priority, gang.created_s, gang.key, *order)
                found.append(Consumer(pod, gang, rank))
    return sorted(found, key=lambda consumer: consumer.rank)


def refusals(use: Use, queue_label: str, *, is_gpu: bool) -> dict[str, str]:
    """By pod key: why a pod that waits may not use the claim, whatever devices there are.

    Source: docs/kai-behaviour.md#claims.
    """
    claim, found = use.claim, {}
    labelled = claim.labels.get(queue_label, "")
    if is_gpu and not claim.is_own:
        for consumer in use.waiting:
            if consumer.gang is not None and consumer.gang.queue != labelled:
                text = f"is labelled for queue {labelled!r}" if labelled else f"has no label {queue_label}"
                found[consumer.pod.key] = f"resource claim {claim.key} {text}, the pod is of {consumer.gang.queue!r}"
    here = {consumer.pod.name for consumer in use.holding}
    room = MOST_CONSUMERS - len(here | set(claim.reserved))
    for consumer in use.waiting:
        if consumer.pod.name in claim.reserved:
            continue
        room -= 1
        if room < 0:
            text = f"resource claim {claim.key} has reached its maximum number of consumers ({MOST_CONSUMERS})"
            found.setdefault(consumer.pod.key, text)
    return found
