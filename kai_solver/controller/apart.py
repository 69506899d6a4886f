"""Gangs that a cycle leaves alone, whatever the engine would make of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kai_solver.domain import Gang, Snapshot

BUSY = "its pods are being bound"
RESTS = "its pods could not be bound; it is tried again in a moment"


@dataclass(frozen=True, slots=True)
class Apart:
    """Sets gangs apart. ``namespace``: the scheduler's own, empty where it has none; ``scheduler``: its name."""

    namespace: str = ""
    scheduler: str = ""

    def __call__(self, snapshot: Snapshot, busy: frozenset[str], resting: frozenset[str] = frozenset()) -> Snapshot:
        """The cluster without gangs that are being bound, were not bound, or are in the scheduler's namespace."""
        aside = dict.fromkeys(resting, RESTS) | dict.fromkeys(busy, BUSY)
        if not aside and not any(map(self._is_misplaced, snapshot.gangs)):
            return snapshot
        return replace(snapshot, gangs=tuple(self._marked(snapshot, aside)))

    def _marked(self, snapshot: Snapshot, aside: Mapping[str, str]) -> Iterator[Gang]:
        for gang in snapshot.gangs:
            if gang.key in aside:
                yield replace(gang, set_aside=aside[gang.key])
            elif self._is_misplaced(gang):
                yield replace(gang, set_aside=own_namespace_text(self.namespace, self.scheduler))
            else:
                yield gang

    def _is_misplaced(self, gang: Gang) -> bool:
        return bool(self.namespace) and gang.namespace == self.namespace and not gang.set_aside


def own_namespace_text(namespace: str, scheduler: str) -> str:
    """Workloads do not belong beside the scheduler: they would share its quota, its secrets and its network rules."""
    return (
        f"namespace {namespace} is the scheduler's own: its pods are not scheduled by {scheduler}. "
        "Create the pod in another namespace"
    )
