"""A plan as orders: which pods to bind together, which to evict, which are promised a place."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kai_solver.cluster.binding import GangPlacement, Placement
from kai_solver.cluster.evicting import Departure
from kai_solver.controller.groups import Groups
from kai_solver.domain import Allotted, Bind, Eviction, Gang, Move, Plan, Pod, Snapshot, object_of
from kai_solver.errors.barrier import barrier
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.exportzones import placement_text
from kai_solver.kubeobjects.shares import Share, share_text
from kai_solver.kubeobjects.trust import NO_SIGNER, Signer, signatures


@dataclass(frozen=True, slots=True)
class Orders:
    """What is to be done.

    Attributes
    ----------
    binds
        Gangs to bind now.
    departures
        Pods to evict, movers among them.
    nominations
        (uid, node) of pods that wait for a place that others leave.
    """

    binds: tuple[GangPlacement, ...] = ()
    departures: tuple[Departure, ...] = ()
    nominations: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.binds or self.departures)


def orders_of(
    snapshot: Snapshot,
    plan: Plan,
    has_group: Callable[[str], bool] = lambda _: False,
    signer: Signer = NO_SIGNER,
) -> Orders:
    """The orders that carry ``plan`` out; it was made from ``snapshot``.

    ``has_group``: whether there is, or will be, a PodGroup of this key: then its name is written on the pods.
    ``signer``: signs what later cycles must be able to believe.
    """
    gangs = {gang.key: gang for gang in snapshot.gangs}
    pods = {pod.key: pod for gang in snapshot.gangs for pod in gang.pods}
    now: dict[str, list[Bind]] = {}
    for bind in plan.binds:
        if not bind.nominated:
            now.setdefault(bind.gang, []).append(bind)
    groups = Groups(snapshot)
    leaving: tuple[Eviction | Move, ...] = (*plan.evictions, *plan.moves)
    placements, departures = [], []
    for key, binds in now.items():
        with barrier("ordering", key):
            placements.append(_placements(gangs[key], binds, pods, has_group(key), groups, signer))
    for entry in leaving:
        with barrier("ordering", entry.gang):
            departures.append(_departure(entry, gangs[entry.gang], pods[entry.pod]))
    return Orders(
        binds=tuple(placements),
        departures=tuple(departures),
        nominations={b.pod: (_uid(pods[b.pod]), b.node) for b in plan.binds if b.nominated},
    )


def _placements(
    gang: Gang, binds: list[Bind], pods: Mapping[str, Pod], has_group: bool, groups: Groups, signer: Signer
) -> GangPlacement:
    placements = tuple(
        _placement(bind, pods[bind.pod], gang.name if has_group else "", groups, signer) for bind in binds
    )
    ran = any(pod.status.is_active for pod in gang.pods)
    return GangPlacement(gang.key, placements, min(needed_pods(gang, len(placements)), len(placements)), ran)


def needed_pods(gang: Gang, placements: int) -> int:
    """How many of ``placements`` the gang cannot do without: what its minimum lacks; of a tree of subgroups, all."""
    podsets = tuple(gang.root.podsets())
    active = Counter(pod.podset for pod in gang.pods if pod.status.is_active)
    if len(podsets) == 1:
        return max(0, podsets[0].min_member - active[podsets[0].name])
    is_whole = all(active[podset.name] >= podset.min_member for podset in podsets)
    return 0 if is_whole else placements


def _placement(bind: Bind, pod: Pod, group: str, groups: Groups, signer: Signer) -> Placement:
    is_sliced = bool(pod.quota_gpu_milli) and not pod.claims  # shared claims are paid so, too
    received = "Fraction" if pod.gpu.is_shared else "MigInstance" if is_sliced else "Regular"
    shared = groups.of(bind, pod)
    lasting = (*_zones(bind, groups.gpu_resources), *_wished(bind, groups), *_share(pod, shared))
    return Placement(
        namespace=pod.namespace,
        name=pod.name,
        uid=_uid(pod),
        node=bind.node,
        annotations=(
            (names.RECEIVED_TYPE, received),
            *_membership(pod, group),
            *lasting,
            *signatures(lasting, _uid(pod), signer),
        ),
        devices=tuple((device.index, device.milli) for device in bind.devices),
        claims=_claims(bind, groups),
        groups=shared,
        extended=tuple((groups.made[g.claim], g.devices) for g in bind.claims if g.claim in groups.made),
    )


def _claims(bind: Bind, groups: Groups) -> tuple[tuple[str, tuple[Allotted, ...]], ...]:
    """Devices by claim, of which the plan may know parts."""
    found: dict[str, tuple[Allotted, ...]] = {}
    for grant in bind.claims:
        if grant.claim not in groups.made:
            key = object_of(grant.claim)
            found[key] = (*found.get(key, ()), *grant.devices)
    return tuple(found.items())


def _zones(bind: Bind, gpu_resources: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The NUMA zones of the plan, until an agent on the node has observed them."""
    return ((names.NUMA_PREDICTED, placement_text(bind.zones, gpu_resources)),) if bind.zones else ()


def _wished(bind: Bind, groups: Groups) -> tuple[tuple[str, str], ...]:
    """The GPUs that were chosen by their links: a wish, for a device plugin may give others."""
    if bind.link is None or groups.gives_by_claim(bind.node):
        return ()
    return ((names.OWN_WISHED, ",".join(str(device.index) for device in bind.devices)),)


def _share(pod: Pod, shared: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The pod's part of shared devices: its users may change what it asks for while it runs, but not what it has."""
    return ((names.OWN_SHARE, share_text(Share(shared, pod.gpu))),) if shared else ()


def _membership(pod: Pod, group: str) -> tuple[tuple[str, str], ...]:
    """The name of its PodGroup, for tools of KAI's; not where it would need the label of a subgroup that it lacks."""
    is_complete = pod.podset in ("default", pod.labels.get(names.SUBGROUP))
    return ((names.POD_GROUP, group),) if group and is_complete else ()


def _departure(entry: Eviction | Move, gang: Gang, pod: Pod) -> Departure:
    if isinstance(entry, Move):
        rule, target = entry.by, entry.target
    else:
        rule, target = "stalegangeviction" if entry.reason == "stale" else entry.reason, ""
    return Departure(
        namespace=pod.namespace,
        name=pod.name,
        uid=_uid(pod),
        gang=gang.key,
        queue=gang.queue,
        rule=rule,
        message=entry.message,
        helps=entry.helps,
        target=target,
    )


def _uid(pod: Pod) -> str:
    """The importer keeps it as the last part of the order."""
    return pod.order[2]
