"""Gangs: pods that are scheduled all or nothing, and the trees of subgroups that they form."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kai_solver.domain.placement import NO_PLACEMENT, Placement
from kai_solver.domain.pods import Pod, PodStatus


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """Required and preferred level (node label or alias) of a topology; empty where not asked for."""

    topology: str
    required: str = ""
    preferred: str = ""


@dataclass(frozen=True, slots=True)
class PodSet:
    """A leaf of a gang's tree: pods with one role; at least ``min_member`` of them or none of the gang."""

    name: str
    min_member: int
    topology: TopologyConstraint | None = None


@dataclass(frozen=True, slots=True)
class SubGroup:
    """An inner node of a gang's tree.

    ``min_subgroups`` None: all children are needed; K: any K of them; 0: a fully elastic subtree.
    """

    name: str = ""
    children: tuple["SubGroup | PodSet", ...] = ()
    min_subgroups: int | None = None
    topology: TopologyConstraint | None = None

    @property
    def needed(self) -> int:
        """How many children must be satisfied."""
        return len(self.children) if self.min_subgroups is None else min(self.min_subgroups, len(self.children))

    def podsets(self) -> Iterator[PodSet]:
        """All leaves, depth first."""
        for child in self.children:
            if isinstance(child, PodSet):
                yield child
            else:
                yield from child.podsets()

    def has(self, podset: str) -> bool:
        """Whether one of its leaves has this name."""
        return any(child.name == podset if isinstance(child, PodSet) else child.has(podset) for child in self.children)


def flat_gang(min_member: int, topology: TopologyConstraint | None = None) -> SubGroup:
    """Tree of a gang without subgroups: one podset named ``default``; the same object for the same tree."""
    return _flat_gang(min_member, topology)


@lru_cache(maxsize=4096)
def _flat_gang(min_member: int, topology: TopologyConstraint | None) -> SubGroup:
    return SubGroup(children=(PodSet("default", min_member),), topology=topology)


def still_needed(root: SubGroup, pods: Sequence[Pod]) -> SubGroup:
    """What a gang that states ``root`` needs at once, when some of its pods have succeeded; else the same tree.

    Those are not created again, so they count where pods are missing: of a podset that needs n pods, of which s
    succeeded and a wait or run, max(n - s, min(n, a)) are needed. Else the successor of a pod that was lost would wait
    for ever, and so would the last of 5 completions of which 4 run at a time (KAI issue 1347, Kubernetes issue 142330).
    """
    return _with_minima(root, pods, lambda n, s, a: max(n - s, min(n, a)))


def stated_for(root: SubGroup, pods: Sequence[Pod]) -> SubGroup:
    """A tree of which ``root`` is `still_needed`."""
    return _with_minima(root, pods, lambda n, s, a: n if n <= a else n + s)


def _with_minima(root: SubGroup, pods: Sequence[Pod], minimum: Callable[[int, int, int], int]) -> SubGroup:
    """The tree with other minima, by the old one and how many pods of each podset succeeded, and are alive."""
    if not any(pod.status is PodStatus.SUCCEEDED for pod in pods):
        return root
    done = Counter(pod.podset for pod in pods if pod.status is PodStatus.SUCCEEDED)
    alive = Counter(pod.podset for pod in pods if pod.status.is_alive)

    def least(part: PodSet) -> int:
        return minimum(part.min_member, done[part.name], alive[part.name])

    return replace(root, children=tuple(_changed(child, least) for child in root.children))


def _changed(part: SubGroup | PodSet, least: Callable[[PodSet], int]) -> SubGroup | PodSet:
    """Not a function within the one above: it would hold itself, and stay until the garbage collector comes."""
    if isinstance(part, PodSet):
        return replace(part, min_member=least(part))
    return replace(part, children=tuple(_changed(child, least) for child in part.children))


def _is_enough(part: SubGroup | PodSet, active: Mapping[str, int]) -> bool:
    """Whether as many pods of ``part`` are active as it needs."""
    if isinstance(part, PodSet):
        return active.get(part.name, 0) >= part.min_member
    return sum(_is_enough(child, active) for child in part.children) >= part.needed


@dataclass(frozen=True, slots=True)
class Gang:
    """A PodGroup with its pods: what is scheduled all or nothing.

    Attributes
    ----------
    namespace, name
        ``key`` is ``namespace/name``, unique in a snapshot.
    pods
        All pods, finished ones included; order is the importer's.
    preemptible
        Effective: stated, else priority below the policy's ``non_preemptible_priority``.
    never_preempts
        ``preemptionPolicy: Never``: may not cause victims by preempt.
    last_start_s, last_eviction_s, stale_since_s
        Epoch seconds, None where it never happened.
    preemption_delay_s
        Wait after ``max(created_s, last_eviction_s)`` before it may cause victims or moves.
    staleness_grace_s
        None: the policy's; negative: never evicted for staleness.
    placement
        Where its pods should and must go; wins over its queues' (field by field).
    workload
        Name that gangs of one namespace have in common which are replicas of one workload (a Deployment's); empty: the
        gang is the workload. ``placement`` is about the pods of all of them.
    may_use_spares
        It says that it may take nodes that domains keep free; see ``uses_spares``.
    set_aside
        Why the gang cannot be considered at all (unknown queue, broken tree, two sizes in one job).
        Its running pods still count as load and are never touched.
    queue_source
        What named the queue, in words, where the importer knows (for people; it changes no decision).
    """

    namespace: str
    name: str
    queue: str
    root: SubGroup
    pods: tuple[Pod, ...] = ()
    priority: int = 50
    preemptible: bool = True
    never_preempts: bool = False
    created_s: float = 0.0
    last_start_s: float | None = None
    last_eviction_s: float | None = None
    stale_since_s: float | None = None
    preemption_delay_s: float = 0.0
    staleness_grace_s: float | None = None
    placement: Placement = NO_PLACEMENT
    workload: str = ""
    may_use_spares: bool = False
    set_aside: str = ""
    uid: str = ""
    queue_source: str = field(default="", compare=False)
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Write the key once: it is asked for all the time."""
        object.__setattr__(self, "key", f"{self.namespace}/{self.name}")

    @property
    def uses_spares(self) -> bool:
        """Whether its waiting pods may take nodes that domains keep free.

        It says so, or some of its pods run, and fewer than its minimum: it lost a node.
        """
        if self.may_use_spares:
            return True
        active = Counter(pod.podset for pod in self.pods if pod.status.is_active)
        return bool(active) and not _is_enough(self.root, active)

    @property
    def family(self) -> str:
        """What its placement is about: the gang, or all gangs of its workload in its namespace."""
        return f"{self.namespace}/{self.workload}/" if self.workload else self.key
