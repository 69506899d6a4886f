"""Which pod of its workload a pod is, and how near neighbours in that order lie to each other."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from kai_solver.domain import PodSet, SubGroup

Rank = tuple[int, ...]
"""Replica of a replicated job (where there is one), then the index in it; smaller first."""

OWN_RANK = "kai-solver/rank"
REPLICAS = ("jobset.sigs.k8s.io/job-global-index", "jobset.sigs.k8s.io/job-index")
INDICES = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
)
"""Labels that the controllers of workloads write; the first that a pod bears counts."""

_DIGITS = 9
D = TypeVar("D")


def rank_of(labels: Mapping[str, str]) -> Rank | None:
    """The rank that a pod's labels tell; None where they tell none."""
    if not labels:
        return None
    own = _number(labels, (OWN_RANK,))
    if own is not None:
        return (own,)
    index = _number(labels, INDICES)
    replica = _number(labels, REPLICAS)
    if index is None:
        return None if replica is None else (replica,)
    return (index,) if replica is None else (replica, index)


def named_topology(root: SubGroup, known: Collection[str]) -> str | None:
    """The topology along which ranks lie: the first ``known`` one that the gang's tree names, else the only one."""
    named = (name for name in _named(root) if name in known)
    return next(named, next(iter(known)) if len(known) == 1 else None)


def _named(part: SubGroup | PodSet) -> Iterator[str]:
    if part.topology is not None:
        yield part.topology.topology
    for child in part.children if isinstance(part, SubGroup) else ():
        yield from _named(child)


def neighbours_apart(domains: Sequence[D]) -> int:
    """Neighbouring pairs that are in different domains, of pods in order of rank."""
    return sum(one != other for one, other in pairwise(domains))


def fewest_apart(domains: Iterable[D]) -> int:
    """The least that `neighbours_apart` can come to for these places, in any order."""
    return max(0, len(set(domains)) - 1)


def _number(labels: Mapping[str, str], names: Iterable[str]) -> int | None:
    for name in names:
        text = labels.get(name, "")
        if text.isdecimal() and text.isascii() and len(text) <= _DIGITS:
            return int(text)
    return None
