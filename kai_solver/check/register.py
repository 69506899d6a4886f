"""What the checker read of each gang, kept from one check to the next: a gang that is the same object is read once.

The snapshot is the only source: nothing here comes from what decides. A caller makes a new object for a gang that
changed. What left the cluster is forgotten with the next check.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kai_solver.check.columns import Census, Counts, Kinds
from kai_solver.domain import Constraints, Gang, Pod, PodStatus, Snapshot, is_moving, with_moves

_Key = TypeVar("_Key")

_SPARE = 1000
"""Kinds of earlier checks that may be held on to beside as many as there were at first."""


@dataclass(slots=True, eq=False)
class Note:
    """What the pods of a gang come to.

    Attributes
    ----------
    at
        Position of the gang in the snapshot.
    counts
        Active and waiting pods by kind; of those that are active only such as ask for no GPU memory.
    constraints
        Of all its pods.
    by_memory
        Active pods that ask for GPU memory.
    holding
        Pods that hold resources of a node, and their kinds.
    moves
        Whether some pod of it leaves one node for another.
    """

    gang: Gang
    at: int = 0
    counts: dict[int, list[int]] = field(default_factory=dict)
    constraints: list[Constraints] = field(default_factory=list)
    by_memory: list[Pod] = field(default_factory=list)
    holding: list[tuple[Pod, int]] = field(default_factory=list)
    moves: bool = False


class Register:
    """Of one cluster, and of its checks one after the other.

    Attributes
    ----------
    kinds
        What pods ask for.
    gangs
        Of the snapshot, by key. Do not change it.
    """

    def __init__(self) -> None:
        self.kinds = Kinds()
        self.gangs: dict[str, Gang] = {}
        self._first_size = 0
        self._notes: dict[int, Note] = {}
        self._moving: dict[int, Note] = {}
        self._running: Counts = {}
        self._waiting: Counts = {}
        self._by_memory: dict[int, Note] = {}
        self._constraints: dict[int, Constraints] = {}
        self._users: dict[int, int] = {}
        self._on: dict[str, dict[int, Note]] = {}

    def clear(self) -> None:
        """Forget everything."""
        self.__dict__.update(Register().__dict__)

    def read(self, snapshot: Snapshot) -> Snapshot:
        """Read what is new in ``snapshot``; it, with moving pods also at their new places (`with_moves`)."""
        if len(self.kinds.pods) > 2 * self._first_size + _SPARE:
            self.clear()
        try:
            known = self._notes.keys() - self._moving.keys() if self._moving else self._notes
            found = with_moves(snapshot, known)
            is_first = not self._notes
            self._update(found)
            self._first_size = len(self.kinds.pods) if is_first else self._first_size
        except Exception:
            self.clear()  # An error may have left it half changed.
            raise
        return found

    def _update(self, snapshot: Snapshot) -> None:
        before, now, come = self._notes, dict[int, Note](), list[Note]()
        for at, gang in enumerate(snapshot.gangs):
            own = id(gang)  # A note holds its gang, so that no other object can have the same identity meanwhile.
            note = before.get(own) or now.get(own)
            if note is None:
                note = read_gang(gang, self.kinds)
                come.append(note)
            note.at = at
            now[own] = note
        for note in [note for own, note in before.items() if own not in now]:
            self._enter(note, -1)
        for note in come:
            self._enter(note, +1)
        self._notes = now
        if len(self.gangs) != len(now):  # Some gangs share a key.
            self.gangs = {gang.key: gang for gang in snapshot.gangs}

    def _enter(self, note: Note, sign: int) -> None:
        """Count what a gang that came (``sign`` 1), or left (-1), comes to."""
        gang = note.gang
        for kind, amounts in note.counts.items():
            key = gang.queue, gang.preemptible, kind
            _add(self._running, key, sign * amounts[0])
            _add(self._waiting, key, sign * amounts[1])
        for constraints in note.constraints:
            self._constraints[id(constraints)] = constraints
            _add(self._users, id(constraints), sign)
            if id(constraints) not in self._users:
                del self._constraints[id(constraints)]
        if sign > 0:
            self._file(note)
        else:
            self._take_out(note)

    def _file(self, note: Note) -> None:
        gang, own = note.gang, id(note.gang)
        self.gangs[gang.key] = gang
        for node in {pod.node for pod, _ in note.holding}:
            self._on.setdefault(node, {})[own] = note
        if note.moves:
            self._moving[own] = note
        if note.by_memory:
            self._by_memory[own] = note

    def _take_out(self, note: Note) -> None:
        gang, own = note.gang, id(note.gang)
        if self.gangs.get(gang.key) is gang:
            del self.gangs[gang.key]
        for node in {pod.node for pod, _ in note.holding}:
            del self._on[node][own]
            if not self._on[node]:
                del self._on[node]
        self._moving.pop(own, None)
        self._by_memory.pop(own, None)

    def census(self, foreign: Iterable[Pod], rows: Mapping[str, int], leaving: Container[str]) -> Census:
        """What all pods of the snapshot that was read last, and the ``foreign`` ones, come to.

        Parameters
        ----------
        rows
            Places of the nodes that the plan names.
        leaving
            Keys of the pods that leave. Others that are active stay finally, as do those that are stuck in releasing.
        """
        by_memory = [(note.gang, pod) for note in self._by_memory.values() for pod in note.by_memory]
        census = Census(self._running, self._waiting, dict(self._constraints), by_memory)
        there = {id(note): note for node in rows for note in self._on.get(node, _NONE).values()}
        for note in sorted(there.values(), key=_place):
            for pod, kind in note.holding:
                census.hold(pod, kind, rows, leaving)
        for pod in foreign:
            census.constraints[id(pod.constraints)] = pod.constraints
            if pod.status.holds_resources and pod.node in rows:
                census.hold(pod, self.kinds.of(pod), rows, leaving)
        return census


def read_gang(gang: Gang, kinds: Kinds) -> Note:
    """Read every pod of ``gang``."""
    note = Note(gang)
    request, gpu, constraints, quota, kind = None, None, None, 0, 0
    for pod in gang.pods:
        # Neighbours mostly share the very objects.
        if pod.request is not request or pod.gpu is not gpu or pod.quota_gpu_milli != quota:
            request, gpu, quota, kind = pod.request, pod.gpu, pod.quota_gpu_milli, kinds.of(pod)
        if pod.constraints is not constraints:
            constraints = pod.constraints
            note.constraints.append(constraints)
        status = pod.status
        if status.holds_resources:
            note.holding.append((pod, kind))
        if status.is_active and pod.gpu.memory_mib:
            note.by_memory.append(pod)
        elif status.is_active or status is PodStatus.PENDING:
            counts = note.counts.setdefault(kind, [0, 0])
            counts[status is PodStatus.PENDING] += 1
        if pod.nominated_node:
            note.moves |= is_moving(pod)
    return note


_NONE: Mapping[int, Note] = {}


def _place(note: Note) -> int:
    return note.at


def _add(table: dict[_Key, int], key: _Key, amount: int) -> None:
    """Add ``amount`` to what ``table`` counts, in which nothing stands at 0."""
    count = table.get(key, 0) + amount
    if count:
        table[key] = count
    else:
        table.pop(key, None)
