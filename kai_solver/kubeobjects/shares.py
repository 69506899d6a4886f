"""Shared GPUs: which device each pod has a part of, how large, and what proves it.

Pods name their devices in labels, and request their parts in annotations. Users may write both while the pods run. In a
cluster (`Trust.strict`) the first existing one of these counts instead:

1. the reservation pod of the device, which only schedulers may write, names the pod's uid and its part;
2. an annotation of the pod that this scheduler signed;
3. a BindRequest for the pod, which only schedulers may write, names its devices;
4. the labels, where each device that they name has a reservation pod on the pod's node (KAI bound the pod, or an
   earlier kai-solver), and no further than the devices have room;
5. nothing: no device was ever given to the pod, so it holds none.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kai_solver.domain import NO_GPU, GpuRequest, gpus_asked
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.nodes import RawNode, gpu_memory_mib
from kai_solver.kubeobjects.notices import Notices, object_name
from kai_solver.kubeobjects.objects import Object
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.stored import newer_text, newer_values
from kai_solver.units import MILLI, parse_whole
from kai_solver.units.shares import WHOLE

if TYPE_CHECKING:
    from kai_solver.kubeobjects.pods import RawPod

_LONGEST_NUMBER = 12


@dataclass(frozen=True, slots=True)
class Share:
    """Parts of devices that a pod has: names of the devices, and its part of each.

    ``gpu`` is `NO_GPU` where only the names are known.
    """

    groups: tuple[str, ...]
    gpu: GpuRequest = NO_GPU


@dataclass(frozen=True, slots=True)
class Reservations:
    """The content of reservation pods.

    Attributes
    ----------
    devices
        Index of the device by node and group, as far as it is known.
    groups
        Node and group of all of them.
    users
        Groups and the part of each, by node and the uid of the pod that has it.
    """

    devices: Mapping[tuple[str, str], int] = field(default_factory=dict)
    groups: frozenset[tuple[str, str]] = frozenset()
    users: Mapping[tuple[str, str], Share] = field(default_factory=dict)


def amount_text(gpu: GpuRequest) -> str:
    """A part of a device: ``500m`` of its thousandths, or ``20000Mi`` of its memory."""
    return f"{gpu.memory_mib}Mi" if gpu.memory_mib else f"{gpu.milli}m"


def share_text(share: Share) -> str:
    """The value of the annotation that says what a pod has: ``500m of group-a group-b``."""
    return f"{amount_text(share.gpu)} of {' '.join(share.groups)}"


def parse_share(text: str) -> Share | None:
    """What `share_text` wrote; None for any other text."""
    amount, of, groups = text.partition(" of ")
    named = tuple(groups.split(" "))
    gpu = _amount(amount, len(named))
    return Share(named, gpu) if of and all(named) and gpu is not None else None


def user_text(share: Share, pod: str) -> str:
    """The value by which a reservation pod names a user of its device: its part, and ``namespace/name`` of the pod."""
    return f"{amount_text(share.gpu)} {pod}"


def users_of(reservation: Object) -> dict[str, tuple[str, str]]:
    """By uid: the part and ``namespace/name`` of each pod that a reservation pod names as a user of its device."""
    metadata = reservation.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    found: dict[str, tuple[str, str]] = {}
    for name, value in annotations.items() if isinstance(annotations, dict) else ():
        if isinstance(name, str) and isinstance(value, str) and name.startswith(names.USER_PREFIX):
            amount, _, pod = value.partition(" ")
            found[name.removeprefix(names.USER_PREFIX)] = amount, pod
    return found


def read_reservations(pods: Iterable[Object], notices: Notices | None = None) -> Reservations:
    """The content of the reservation pods among some pods, without unreadable parts.

    ``notices``: where values are reported that a newer version wrote.
    """
    devices: dict[tuple[str, str], int] = {}
    groups: set[tuple[str, str]] = set()
    users: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for value in pods:
        metadata, spec = (value.get("metadata"), value.get("spec")) if isinstance(value, dict) else (None, None)
        if not isinstance(metadata, dict) or metadata.get("namespace") != names.RESERVATION_NAMESPACE:
            continue
        labels, annotations = metadata.get("labels"), metadata.get("annotations")
        node = str(spec.get("nodeName") or "") if isinstance(spec, dict) else ""
        group = str(labels.get(names.GPU_GROUP, "")) if isinstance(labels, dict) else ""
        stated = str(annotations.get(names.RESERVED_INDEX, "")) if isinstance(annotations, dict) else ""
        index = parse_whole(stated, 4)
        if index is not None:
            devices[node, group] = index
        if notices is not None and isinstance(annotations, dict):
            for newer in newer_values(annotations):
                notices.warn(object_name("Pod", Raw(value)), newer_text(*newer))
        if group:
            groups.add((node, group))
            for uid, (amount, _) in users_of(value).items():
                users[node, uid].append((group, amount))
    shares = {key: share for key, found in users.items() if (share := _named(sorted(found))) is not None}
    return Reservations(devices, frozenset(groups), shares)


def within_room(pods: list["RawPod"], nodes: Mapping[str, RawNode], notices: Notices) -> list["RawPod"]:
    """The pods without the parts of GPUs that only their labels claim and that their devices have no room for."""
    if not any(pod.unproven for pod in pods):
        return pods
    used: dict[tuple[str, str], int] = defaultdict(int)
    doubtful = []
    for at, pod in enumerate(pods):
        if pod.unproven and pod.gpu_groups:
            doubtful.append(at)
        elif pod.gpu_groups and pod.node:
            _charge(used, pod, nodes)
    found = list(pods)
    for at in sorted(doubtful, key=lambda at: pods[at].order[1:]):
        pod = pods[at]
        if any(used[pod.node, group] + _parts(pod, nodes) > WHOLE for group in pod.gpu_groups):
            notices.warn(f"Pod {pod.key}", f"{_NONE}: its labels name a device that is full")
            found[at] = replace(pod, gpu=NO_GPU, gpu_groups=(), devices=())
        else:
            _charge(used, pod, nodes)
    return found


def consistent(pods: list["RawPod"], nodes: Mapping[str, RawNode], notices: Notices) -> list["RawPod"]:
    """The pods without impossible devices that files state: two groups on one device that has no room."""
    stated = [pod for pod in pods if pod.devices and pod.gpu_groups and pod.node]
    used: dict[tuple[str, int], int] = defaultdict(int)
    groups: dict[tuple[str, int], set[str]] = defaultdict(set)
    for pod in stated:
        for group, device in zip(pod.gpu_groups, pod.devices, strict=False):
            used[pod.node, device] += _parts(pod, nodes)
            groups[pod.node, device].add(group)
    wrong = {node for (node, device), parts in used.items() if parts > WHOLE and len(groups[node, device]) > 1}
    if not wrong:
        return pods
    for node in sorted(wrong):
        text = "its pods state one device for several groups, without room for them: devices are worked out again"
        notices.warn(f"Node {node}", text)
    return [replace(pod, devices=()) if pod.gpu_groups and pod.node in wrong else pod for pod in pods]


_NONE = "asks for a part of a GPU, and no scheduler gave it any"


def warn_unproven(pod: str, node: str, notices: Notices) -> None:
    """A pod (``namespace/name``) that runs, and holds no part of the GPUs that it requests."""
    notices.warn(f"Pod {pod}", f"{_NONE}: no reservation pod on node {node!r} knows it")


def _charge(used: dict[tuple[str, str], int], pod: "RawPod", nodes: Mapping[str, RawNode]) -> None:
    for group in pod.gpu_groups:
        used[pod.node, group] += _parts(pod, nodes)


def _parts(pod: "RawPod", nodes: Mapping[str, RawNode]) -> int:
    """Parts (`units.shares`) that the pod has of each device; on an unknown node nothing counts."""
    node = nodes.get(pod.node)
    return pod.gpu.parts_on(gpu_memory_mib(node.labels.get(names.GPU_MEMORY_LABEL, ""))) if node else 0


def _named(found: Sequence[tuple[str, str]]) -> Share | None:
    gpu = _amount(found[0][1], len(found))
    return None if gpu is None else Share(tuple(group for group, _ in found), gpu)


def _amount(text: str, devices: int) -> GpuRequest | None:
    number = parse_whole(text.removesuffix("Mi").removesuffix("m"), _LONGEST_NUMBER)
    if not number:
        return None
    if text.endswith("Mi"):
        return gpus_asked(devices, 0, number)
    return gpus_asked(devices, number) if text.endswith("m") and number < MILLI else None
