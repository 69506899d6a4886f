"""PodGroups of our own making as objects of the cluster: their owners, and what may be changed of them later."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping.model import Group, Member
from kai_solver.kubeobjects.ownsettings import PREFIX
from kai_solver.kubeobjects.trim import LAST_APPLIED

_MANAGED = ("minMember", "minSubGroup", "subGroups", "priorityClassName", "preemptibility", "topologyConstraint")
"""What follows the workload. All else of a spec is left as it stands, as KAI leaves it: the queue, above all (1.7)."""

_MOST_OWNERS = 20

_MOST_COPIED = 200 * 1024
"""Bytes of annotations that a PodGroup takes over. The API server refuses an object with more than 256 KiB of them."""

_NOT_COPIED = frozenset(
    {
        LAST_APPLIED,
        names.STALE_SINCE,
        names.LAST_START,
        names.LAST_EVICTION,
        names.TOP_OWNER,
        names.POD_GROUP,
        names.RECEIVED_TYPE,
        names.NUMA_PREDICTED,
        names.NUMA_OBSERVED,
    }
)
"""What schedulers write on PodGroups and pods: users could gain by it if they stated it on workloads. And what `kubectl
apply` wrote of another object."""


@dataclass(frozen=True, slots=True)
class OwnGroup:
    """A PodGroup to be written. ``is_plain``: of a pod without owner, which needs none."""

    document: Mapping[str, Any]
    is_plain: bool


def own_group(pod_group: Mapping[str, Any], group: Group, members: list[Member]) -> OwnGroup | None:
    """The object to write for what a grouper found; None where it cannot be said in full, or is not to be used."""
    try:
        owners = list(_owners(members, one_each=bool(group.workload)))
    except InputError:
        return None
    if group.problem:
        return None
    metadata, spec = pod_group["metadata"], pod_group["spec"]
    annotations = {**metadata["annotations"], names.OWN_CREATED: metadata["creationTimestamp"]}
    annotations = _of_workload(members[0]) | annotations
    top = members[0].top
    if top is not None:
        fields = {"name": top.name, "uid": top.uid, "group": top.group, "kind": top.kind}
        annotations[names.TOP_OWNER] = "".join(f"{name}: {value}\n" for name, value in fields.items())
    written = {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "labels": metadata["labels"],
        "annotations": annotations,
        "ownerReferences": owners,
    }
    kept = {name: value for name, value in spec.items() if value not in ("", None)}
    if not any(spec["topologyConstraint"].values()):
        kept.pop("topologyConstraint", None)
    return OwnGroup({"metadata": written, "spec": kept}, is_plain=top is None and len(members) == 1)


def _of_workload(first: Member) -> dict[str, str]:
    """Annotations of the top owner, as KAI's pod grouper copies them, and the user that the pod names.

    Those of ours are copied where they are heeded (`pod_group_object`). The longest are left out if all are too long.
    """
    stated = first.pod.annotations if first.top is None else first.top.annotations
    user = {names.USER: first.pod.annotations[names.USER]} if names.USER in first.pod.annotations else {}
    copied: dict[str, str] = {}
    left = _MOST_COPIED
    for name, value in sorted((user | stated).items(), key=lambda item: (len(item[1]), item[0])):
        left -= len(name.encode()) + len(value.encode())
        if left < 0:
            break
        if name not in _NOT_COPIED and PREFIX not in name:
            copied[name] = value
    return dict(sorted(copied.items()))


def is_own(value: Mapping[str, Any]) -> bool:
    """Whether we wrote a PodGroup."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return isinstance(annotations, dict) and names.OWN_CREATED in annotations


def followed(stands: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a spec that have to change so that a PodGroup of ours follows its workload; None: to be removed.

    A topology that stands there stays where the workload names none.
    """
    spec = stands.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    differing = {name: wanted["spec"].get(name) for name in _MANAGED if spec.get(name) != wanted["spec"].get(name)}
    if differing.get("topologyConstraint", ...) is None:
        del differing["topologyConstraint"]
    return differing


def _owners(members: list[Member], *, one_each: bool) -> Iterator[dict[str, Any]]:
    """Objects that the PodGroup is deleted with: the top owners; pods without owners and replicas themselves."""
    seen: set[str] = set()
    for member in members:
        top = member.top
        if top is None or one_each:
            found = {"apiVersion": "v1", "kind": "Pod", "name": member.pod.name, "uid": member.pod.uid}
        else:
            found = {"apiVersion": _api_version(member), "kind": top.kind, "name": top.name, "uid": top.uid}
        if found["uid"] and found["apiVersion"] and found["uid"] not in seen and len(seen) < _MOST_OWNERS:
            seen.add(found["uid"])
            yield found


def _api_version(member: Member) -> str:
    """Of the top owner: as its object says, else as the one that refers to it does."""
    chain = [member.pod.raw, *(owner.raw for owner in member.owners)]
    top = member.owners[-1]
    stated = top.raw.text("apiVersion")
    below = chain[len(member.owners) - 1]
    references = (r for r in below.items("metadata.ownerReferences") if r.text("uid") == top.uid)
    return stated or next((r.text("apiVersion") for r in references), "")
