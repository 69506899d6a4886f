"""Segments: replicas in blocks that want to sit together (reference 1.1)."""

from collections.abc import Sequence

from kai_solver.kubeobjects.grouping.model import Member, Part
from kai_solver.kubeobjects.grouping.read import positive

SIZE = "kai.scheduler/segment-size"
REQUIRED = "kai.scheduler/segment-topology-required-placement"
PREFERRED = "kai.scheduler/segment-topology-preferred-placement"
_MOST = 10_000


def segments(members: Sequence[Member], name: str, replicas: int, needed: int) -> tuple[tuple[Part, ...], int]:
    """The part ``name`` of ``replicas`` pods, in segments where the pods ask for them.

    Returns
    -------
    parts
        One leaf, or a parent with one leaf per segment. Segments beyond the ``needed`` replicas need no pod.
    size
        Pods of a segment; 0 without segments (a size of 1, above the replicas, or far too many segments).
    """
    asking = next((member for member in members if member.stated(SIZE)), None)
    size = positive(asking.stated(SIZE)) if asking else None
    if asking is None or size is None or not 1 < size <= replicas or replicas > size * _MOST:
        return (Part(name, min_member=needed),), 0
    count = -(-replicas // size)
    mandatory = -(-needed // size)
    levels = asking.stated(REQUIRED), asking.stated(PREFERRED)
    leaves = tuple(
        Part(
            f"{name}-{index}",
            min_member=min(size, needed - index * size) if index < mandatory else 0,
            parent=name,
            required_level=levels[0],
            preferred_level=levels[1],
        )
        for index in range(count)
    )
    return (Part(name), *leaves), size


def segment_of(name: str, index: int, size: int) -> str:
    """Leaf of the replica ``index`` of the part ``name``."""
    return f"{name}-{index // size}" if size else name
