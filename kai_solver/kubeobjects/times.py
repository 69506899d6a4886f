"""Times that users may write, as far as the API server's own times allow them."""

from collections.abc import Sequence

from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.raw import Raw

LEEWAY_S = 60.0
"""By so much the clock of who wrote a time may be ahead of ours; what is later is no time that has been."""

LATE_S = 3600.0
"""By so much a PodGroup of ours may be written after the first pod of its gang was made."""


def stated_creation_s(raw: Raw) -> float | None:
    """Since when the gang of a PodGroup is there, as an annotation says; None where it says nothing readable."""
    try:
        return raw.get("metadata.annotations").key(names.OWN_CREATED).time_s()
    except InputError:
        return None


def bounded_creation_s(stated_s: float, written_s: float, pods_s: Sequence[float]) -> float:
    """``stated_s`` as far as the API server's own times allow it.

    A PodGroup of ours is younger than the first pod of its gang, for it is written after that pod was seen; and older
    than all of its pods where these were made again. What is much older than all that the API server took is a lie, and
    then the gang is as young as it can be.

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
