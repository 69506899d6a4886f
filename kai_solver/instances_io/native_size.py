"""Counts the objects of a native document: its ``count`` and ``replicas`` are multiplied before any object is made."""

from collections.abc import Iterator

from kai_solver.errors import LimitExceededError
from kai_solver.instances_io.limits import Limits
from kai_solver.instances_io.native_claims_schema import SliceDoc
from kai_solver.instances_io.native_schema import GangDoc, GroupDoc, InstanceDoc, NodeDoc, PodDoc


def check_size(doc: InstanceDoc, limits: Limits, file: str) -> None:
    """Raise `LimitExceededError` if ``doc`` means more than ``limits.max_objects``; names the largest entry.

    An entry with ``count`` 100,000 and ``replicas`` 100,000 has sixty bytes in a file, and means 10 TiB of pods.
    """
    sizes = dict(_sizes(doc))
    total = sum(sizes.values())
    if total > limits.max_objects:
        field = max(sizes, key=lambda name: sizes[name])
        problem = f"the document expands to {total:,} objects, more than {limits.max_objects:,}"
        cure = "Lower count or replicas, or raise the limit (--input-limit objects=) if that is intended"
        raise LimitExceededError(problem, file=file, field=field, cure=cure)


def _sizes(doc: InstanceDoc) -> Iterator[tuple[str, int]]:
    for place, node in enumerate(doc.nodes):
        yield f"nodes[{place}]", node.count * _of_node(node)
    for place, gang in enumerate(doc.gangs):
        yield f"gangs[{place}]", gang.count * _of_gang(gang)
    for place, pod in enumerate(doc.foreign):
        yield f"foreign[{place}]", pod.replicas * _of_pod(pod)
    for place, offered in enumerate(doc.resource_slices):
        yield f"resourceSlices[{place}]", offered.count * _of_slice(offered)


def _of_node(doc: NodeDoc) -> int:
    """The node, and what each node holds of its own."""
    return 1 + len(doc.labels) // 20 + (len(doc.numa.zones) if doc.numa is not None else 0)


def _of_gang(doc: GangDoc) -> int:
    return 1 + sum(map(_of_group, doc.groups or ())) + sum(pod.replicas * _of_pod(pod) for pod in doc.pods)


def _of_group(doc: GroupDoc) -> int:
    return 1 + sum(map(_of_group, doc.groups or ()))


def _of_pod(doc: PodDoc) -> int:
    """The pod, and the claims that are made for each."""
    return 1 + len(doc.claim_templates)


def _of_slice(doc: SliceDoc) -> int:
    return 1 + sum(device.count for device in doc.devices)
