"""Times that users may write, limited by the API server's own times."""

from collections.abc import Sequence

from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.raw import Raw

LEEWAY_S = 60.0
"""The clock of a time's author may be ahead of ours by this much; later times are ignored."""

LATE_S = 3600.0
"""Our PodGroup may be written this long after the first pod of its gang was created."""


def stated_creation_s(raw: Raw) -> float | None:
    """Creation time of the gang of a PodGroup, from an annotation; None if it cannot be read."""
    try:
        return raw.get("metadata.annotations").key(names.OWN_CREATED).time_s()
    except InputError:
        return None


def bounded_creation_s(stated_s: float, written_s: float, pods_s: Sequence[float]) -> float:
    """``stated_s``, limited by the API server's own times.

    Our PodGroup is younger than the first pod of its gang, because it is written after that pod was seen. It is older
    than all of its pods if these were replaced. A time much older than all times of the API server is false, and then
    the gang is as young as it can be.

    Parameters
    ----------
    stated_s
        What an annotation says, which any user of the namespace may write.
    written_s, pods_s
        When the API server took the PodGroup (0: not known) and each of its pods.
    """
    known_s = [*pods_s, *([written_s] if written_s else [])]
    if not known_s:
        return stated_s
    oldest_s = min(known_s)
    if stated_s < oldest_s - LATE_S:
        return max(written_s, min(pods_s, default=0.0))
    return oldest_s if stated_s < oldest_s else min(stated_s, written_s or stated_s)
