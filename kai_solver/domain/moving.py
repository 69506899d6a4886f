"""Pods that are being moved: still leaving one node, with a place promised on another."""

from collections.abc import Container
from dataclasses import replace

from kai_solver.domain.gangs import Gang
from kai_solver.domain.pods import Pod, PodStatus
from kai_solver.domain.snapshot import Snapshot

SUFFIX = "~promised"
"""Suffix of the name of a pod that represents a pod that is being moved; no name of a Kubernetes object has a tilde."""


def is_moving(pod: Pod) -> bool:
    """Whether the pod is leaving its place for another place that it was promised, possibly on the same node."""
    return bool(pod.nominated_node) and pod.status is PodStatus.RELEASING


def with_moves(snapshot: Snapshot, still: Container[int] = ()) -> Snapshot:
    """``snapshot`` with moving pods also at their new places; the same object if there are none.

    ``still``: gangs, by identity, of which no pod moves, as was found before.

    There they hold their place, and count toward their gang and queue, so that no plan gives the place away before they
    arrive. Meanwhile they cannot be moved again, or evicted. They have no labels: a pod that requires them beside it
    has to wait until they arrive.
    """
    looked_at = [gang for gang in snapshot.gangs if id(gang) not in still]
    promised = [pod for gang in looked_at for pod in gang.pods if pod.nominated_node]
    moved = frozenset([pod.key + SUFFIX for pod in promised if is_moving(pod)])
    if not moved or moved <= snapshot.refused:
        return snapshot
    gangs = tuple(map(_with_moves, snapshot.gangs))
    return replace(snapshot, gangs=gangs, refused=snapshot.refused | moved)


def _with_moves(gang: Gang) -> Gang:
    coming = tuple(_coming(pod) for pod in gang.pods if is_moving(pod))
    return replace(gang, pods=(*gang.pods, *coming)) if coming else gang


def _coming(pod: Pod) -> Pod:
    """The pod as it will run on the node that it was promised."""
    return replace(
        pod,
        name=pod.name + SUFFIX,
        status=PodStatus.RUNNING,
        node=pod.nominated_node,
        nominated_node="",
        devices=(),
        wished=(),
        gpu_groups=(),
        zones=(),
        claims=(),
        labels={},
    )
