"""Segments: replicas in blocks that want to sit together (docs/kai-behaviour.md#segments)."""

from collections.abc import Sequence
from dataclasses import dataclass

from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping.model import Member, Part
from kai_solver.kubeobjects.grouping.read import natural
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.tree import check_number

SIZE = "kai.scheduler/segment-size"
REQUIRED = "kai.scheduler/segment-topology-required-placement"
PREFERRED = "kai.scheduler/segment-topology-preferred-placement"


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """Pods of one segment, and the topology that each segment keeps to (empty levels: none)."""

    size: int
    topology: str = ""
    required: str = ""
    preferred: str = ""

    def part(self, name: str, min_member: int | None, parent: str = "") -> Part:
        """A segment; a leaf where it has a minimum, else one with parts of its own."""
        return Part(
            name,
            min_member=min_member,
            parent=parent,
            topology=self.topology,
            required_level=self.required,
            preferred_level=self.preferred,
        )


def plan_segments(members: Sequence[Member], template: Raw, replicas: int, stated: int | None) -> SegmentPlan | None:
    """How the pods of one template are segmented; None where they are not.

    Parameters
    ----------
    members
        Pods of the template. What they say comes first, then the template, then (topology only) the owner.
    replicas
        Pods of the template at full size.
    stated
        A size that the workload states in a field of its own; it comes before annotations.

    Raises
    ------
    InputError
        The size is no number above 1, or larger than the replicas (KAI's pod grouper refuses such a workload too), or
        there are too many segments.
    """
    text = _said(members, template, SIZE)
    size = stated if stated is not None else natural(text) if text else None
    if stated is None and not text:
        return None
    if size is None or not 1 < size <= replicas:
        problem = f"{text if stated is None else stated!r} is not a segment size for {replicas} replicas"
        raise InputError(problem, field=SIZE, cure=f"Write a number from 2 to {max(replicas, 2)}")
    check_number(-(-replicas // size))
    topology = _said(members, template, names.TOPOLOGY) or members[0].stated(names.TOPOLOGY)
    if not topology:
        return SegmentPlan(size)
    return SegmentPlan(size, topology, _said(members, template, REQUIRED), _said(members, template, PREFERRED))


def segments(plan: SegmentPlan | None, name: str, replicas: int, needed: int) -> tuple[Part, ...]:
    """The part ``name`` of ``replicas`` pods: one leaf, or a parent with one leaf per segment.

    Segments beyond the ``needed`` replicas need no pod.
    """
    if plan is None:
        return (Part(name, min_member=needed),)
    leaves = tuple(
        plan.part(f"{name}-{index}", max(0, min(plan.size, needed - index * plan.size)), parent=name)
        for index in range(-(-replicas // plan.size))
    )
    return (Part(name), *leaves)


def segment_of(plan: SegmentPlan | None, name: str, index: int) -> str:
    """Leaf of the replica ``index`` of the part ``name``."""
    return f"{name}-{index // plan.size}" if plan else name


def _said(members: Sequence[Member], template: Raw, name: str) -> str:
    """An annotation of the first pod that has it, else of the template that the workload makes pods from."""
    for member in members:
        if member.pod.annotations.get(name):
            return member.pod.annotations[name]
    return template.strings("metadata.annotations").get(name, "")
