"""What is known of one gang, or of the foreign pods, as long as they are the same objects."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter, lt
from typing import Final, NamedTuple

from kai_solver.domain import Gang, Pod, PodStatus
from kai_solver.errors import InternalError
from kai_solver.problem.gangs import GangShape, Standings, standings, standings_of
from kai_solver.problem.kinds import Kinds

PodCount = tuple[int, bool, str]
"""Pods that cost the same: their kind, whether they are active (else they wait), and their node where it matters."""

FOREIGN: Final = "\U0010ffff"
"""Key of the foreign pods: it comes after those of all gangs."""

HeldDevices = list[tuple[int, ...]]
"""Devices by pod."""

NO_DEVICES: Final[HeldDevices] = []
"""Of pods without devices; never written to."""

_PROMISED = attrgetter("nominated_node")


class Company(NamedTuple):
    """What rules and wishes between pods look at.

    ``alike``: how many pods one after the other no such rule tells apart, and the first of them. ``labels``: those that
    any of the pods has. ``speaks``: whether any pod carries such a rule or wish.
    """

    alike: Sequence[tuple[int, Pod]]
    labels: frozenset[tuple[str, str]]
    speaks: bool


def _company(pods: Sequence[Pod]) -> Company:
    firsts: list[tuple[int, Pod]] = []
    before: Pod | None = None
    for at, pod in enumerate(pods):
        if (
            before is None
            or pod.constraints is not before.constraints
            or pod.labels != before.labels
            or pod.namespace != before.namespace
        ):
            firsts.append((at, pod))
        before = pod
    ends = [at for at, _ in firsts[1:]] + [len(pods)]
    alike = [(end - at, pod) for (at, pod), end in zip(firsts, ends, strict=False)]  # There may be no pods.
    labels = frozenset(chain.from_iterable([pod.labels.items() for _, pod in alike]))
    return Company(alike, labels, any(pod.constraints.speaks_of_pods for _, pod in alike))


@dataclass(slots=True, eq=False)
class Lodgers:
    """Pods that are looked at together.

    Attributes
    ----------
    origins
        Index of each pod's node, -1: none; by the numbers of one node table.
    held_devices
        Devices of each pod; empty where none of them has any.
    """

    key: str
    pods: tuple[Pod, ...]
    kinds: list[int]
    origins: list[int]
    held_devices: HeldDevices
    _company: Company | None = field(default=None, kw_only=True)

    @property
    def company(self) -> Company:
        """What rules between pods look at, gathered when it is first asked for."""
        if self._company is None:
            self._company = _company(self.pods)
        return self._company


@dataclass(slots=True, eq=False)
class GangRow(Lodgers):
    """A gang.

    Attributes
    ----------
    source
        The snapshot's gang; ``gang``: the same with its pods in order.
    pod_counts
        How many of its pods cost the same.
    slot
        Its place among `GangFacts`.
    are_replaced
        Whether its pods are made again when they are gone: 1 if all are, 0 if none is, else -1.
    shape
        As it was last numbered; None: it had no place among the queues yet.
    """

    source: Gang
    gang: Gang
    stands: Standings
    pod_counts: dict[PodCount, int]
    are_replaced: int
    slot: int = -1
    shape: GangShape | None = None

    @property
    def known_shape(self) -> GangShape:
        """The shape of a gang that takes part."""
        if self.shape is None:
            raise InternalError(f"{self.key} takes part without a shape")
        return self.shape


def gang_row(gang: Gang, kinds: Kinds, index: dict[str, int]) -> GangRow:
    """Look at ``gang`` for the first time; ``index``: of nodes by name."""
    ordered = _in_order(gang) if len(gang.pods) > 1 else gang
    pods = ordered.pods
    origins = [index.get(pod.node, -1) for pod in pods]
    if pods and _is_uniform(pods):
        kind = kinds.kind(pods[0])
        numbers = [kind] * len(pods)
        stands, pod_counts = standings_of(pods[0], len(pods)), _pod_count(pods[0], kind, len(pods))
    else:
        numbers = kinds.of(pods)
        stands, pod_counts = standings(pods), _pod_counts(pods, numbers)
    replaced = sum([pod.is_replaced for pod in pods])
    are_replaced = 0 if not replaced else 1 if replaced == len(pods) else -1
    return GangRow(gang.key, pods, numbers, origins, NO_DEVICES, gang, ordered, stands, pod_counts, are_replaced)


def _is_uniform(pods: Sequence[Pod]) -> bool:
    """True where the pods plainly are of one kind, podset and status, as those of most gangs."""
    first = pods[0]
    if first.gpu.memory_mib or first.constraints.blocked:
        return False
    for pod in pods[1:] if len(pods) > 1 else ():
        if (
            pod.status is not first.status
            or pod.request is not first.request
            or pod.gpu is not first.gpu
            or pod.constraints is not first.constraints
            or pod.podset != first.podset
            or pod.quota_gpu_milli != first.quota_gpu_milli
            or pod.guaranteed is not first.guaranteed
            or pod.containers is not first.containers
        ):
            return False
    return True


def _in_order(gang: Gang) -> Gang:
    """``gang`` with its pods in order of service, those with a promised node first; itself if already in that order."""
    orders = [pod.order for pod in gang.pods]
    if all(map(lt, orders, orders[1:])) and not any(map(_PROMISED, gang.pods)):
        return gang
    return replace(gang, pods=tuple(sorted(gang.pods, key=lambda pod: pod.task_order)))


def _pod_counts(pods: Sequence[Pod], kinds: list[int]) -> dict[PodCount, int]:
    """Active and waiting pods by what they cost: by kind, and by node where they ask for GPU memory."""
    found: dict[PodCount, int] = {}
    for pod, kind in zip(pods, kinds, strict=True):
        is_active = pod.status.is_active
        if is_active or pod.status is PodStatus.PENDING:
            key = kind, is_active, pod.node if pod.gpu.memory_mib else ""
            found[key] = found.get(key, 0) + 1
    return found


def _pod_count(pod: Pod, kind: int, count: int) -> dict[PodCount, int]:
    """The same of ``count`` pods like ``pod``, which ask for no GPU memory."""
    is_active = pod.status.is_active
    return {(kind, is_active, ""): count} if is_active or pod.status is PodStatus.PENDING else {}
