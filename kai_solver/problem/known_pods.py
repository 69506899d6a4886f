"""Which pods are there, came and left since the last cycle: gangs, and foreign pods all together."""

from collections.abc import Container, Sequence
from itertools import chain, compress, repeat
from operator import attrgetter

from kai_solver.domain import Gang, Pod, is_moving
from kai_solver.problem.gang_facts import GangFacts
from kai_solver.problem.kinds import Kinds
from kai_solver.problem.rows import FOREIGN, NO_DEVICES, GangRow, Lodgers, gang_row

Paying = tuple[str, bool, int, bool, str]
"""Name of a queue, whether its gangs are preemptible, and a `PodCount` of them."""


class KnownPods:
    """Of one cluster, kept from cycle to cycle.

    Attributes
    ----------
    rows
        Of the gangs, by key.
    come, gone
        Gangs that were not there in the cycle before, and gangs that are there no more.
    pod_counts
        How many pods cost a queue the same.
    facts
        Of the gangs of ``rows``, by their slots.
    """

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self.rows: list[GangRow] = []
        self.foreign = Lodgers(FOREIGN, (), [], [], NO_DEVICES)
        self.come: list[Lodgers] = []
        self.gone: list[Lodgers] = []
        self.pod_counts: dict[Paying, int] = {}
        self.facts = GangFacts()
        self._index: dict[str, int] = {}
        self._rows: dict[int, GangRow] = {}
        self._moving: set[int] = set()
        self._foreign: tuple[Pod, ...] = ()

    def call(self, gangs: Sequence[Gang], foreign: tuple[Pod, ...], index: dict[str, int]) -> None:
        """Note what is there now; ``index``: of nodes by name."""
        before, kinds = self._rows, self.kinds
        if index is not self._index:
            for lodgers in (*before.values(), self.foreign):
                lodgers.origins = [index.get(pod.node, -1) for pod in lodgers.pods]
            self._index = index
        # A row holds its gang, so that no other object can have the same identity meanwhile.
        present = {id(gang): gang for gang in gangs}
        come = [gang_row(gang, kinds, index) for own, gang in present.items() if own not in before]
        gone = [row for own, row in before.items() if own not in present]
        new = {id(row.source): row for row in come}
        now = {own: before.get(own) or new[own] for own in present}
        self._rows = now
        self._moving = {own for own in self._moving if own in now}
        for row in come:
            if any(is_moving(pod) for pod in row.pods if pod.nominated_node):
                self._moving.add(id(row.source))
        self._count(come, +1)
        self._count(gone, -1)
        for row in gone:
            self.facts.leave(row.slot)
        for row in come:
            row.slot = self.facts.enter()
        self.come, self.gone = [*come], [*gone]
        self.rows = sorted(map(now.__getitem__, map(id, gangs)), key=attrgetter("key"))
        if foreign != self._foreign:
            self.gone.append(self.foreign)
            self._foreign = foreign
            pods = tuple(sorted(foreign, key=lambda pod: pod.key))
            origins = [index.get(pod.node, -1) for pod in pods]
            self.foreign = Lodgers(FOREIGN, pods, kinds.of(pods), origins, NO_DEVICES)
            self.come.append(self.foreign)

    def still(self) -> Container[int]:
        """Gangs, by identity, of which no pod leaves one node for another."""
        return self._rows.keys() - self._moving if self._moving else self._rows

    def held_devices(self) -> dict[int, tuple[int, ...]]:
        """Devices held, by index of the pod."""
        rows = (*self.rows, self.foreign)
        every = [*chain.from_iterable([row.held_devices or repeat((), len(row.kinds)) for row in rows])]
        return dict(zip(compress(range(len(every)), every), filter(None, every), strict=True))

    def _count(self, rows: Sequence[GangRow], sign: int) -> None:
        pod_counts = self.pod_counts
        for row in rows:
            queue, preemptible = row.gang.queue, row.gang.preemptible
            for (kind, is_active, node), count in row.pod_counts.items():
                key = queue, preemptible, kind, is_active, node
                pod_counts[key] = pod_counts.get(key, 0) + sign * count
                if not pod_counts[key]:
                    del pod_counts[key]
