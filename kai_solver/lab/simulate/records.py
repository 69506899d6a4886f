"""What a replay leaves behind: rows of the tables, and sums over time that the summary is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kai_solver.domain import Queue, Snapshot, counted_gpu_milli
from kai_solver.fairness import QueueTree, fair_share, roll_up
from kai_solver.lab.simulate.jobs import Amounts, LiveJob
from kai_solver.lab.simulate.nodes import Ints, NodeBooks
from kai_solver.lab.simulate.scenario import Scenario
from kai_solver.lab.simulate.world import Did
from kai_solver.units import CPU, GPU, MEMORY, MILLI


@dataclass(frozen=True, slots=True)
class CycleRow:
    """A cycle that was decided. Those between two rows decided nothing and were not computed.

    ``pending``, ``waiting``: gangs with pods that wait, before the plan and after it; the latter holds until the next
    row. ``nominated``: pods that are promised a place.
    """

    cycle: int
    time_s: float
    pending: int
    binds: int
    nominated: int
    moves: int
    evictions: int
    gpus_held: float
    gpus_up: float
    fragmentation: float
    fairness_gap: float
    waiting: int


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A leaf queue from this cycle on, until its next row: GPUs allocated, requested, and its fair share."""

    cycle: int
    time_s: float
    queue: str
    allocated_gpus: float
    requested_gpus: float
    fair_share_gpus: float


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node from this cycle on, until its next row."""

    cycle: int
    time_s: float
    node: str
    gpus_held: float
    gpus_whole_free: int
    gpus_free: float
    is_down: bool


@dataclass(frozen=True, slots=True)
class SolveTime:
    """Seconds that one cycle took to decide; the only table that differs from run to run."""

    cycle: int
    decide_s: float


@dataclass(slots=True)
class Records:
    """Rows so far, and time-weighted sums of what is sampled at cycles."""

    cycles: list[CycleRow] = field(default_factory=list)
    queues: list[QueueRow] = field(default_factory=list)
    nodes: list[NodeRow] = field(default_factory=list)
    solve_times: list[SolveTime] = field(default_factory=list)
    fragmentation_s: float = 0.0
    fairness_gap_s: float = 0.0
    sampled_s: float = 0.0


class Recorder:
    """Takes a sample after every cycle that something happened in. A sample holds until the next one."""

    def __init__(self, scenario: Scenario) -> None:
        self.records = Records()
        self._sizes = scenario.sizes()
        self._shares = ShareMeter(scenario.cluster)
        self._last_nodes: Ints | None = None
        self._last_queues: dict[str, tuple[float, float, float]] = {}
        self._last: tuple[float, float, float] | None = None

    def decided(self, cycle: int, seconds: float) -> None:
        """A cycle was computed in ``seconds``."""
        self.records.solve_times.append(SolveTime(cycle, seconds))

    def sample(
        self, cycle: int, time_s: float, books: NodeBooks, alive: Sequence[LiveJob], did: Did | None, pending: int
    ) -> None:
        """Take down how things are after the cycle; ``did`` is None where nothing had to be decided."""
        self.hold(time_s)
        fragmentation = books.fragmentation(self._sizes)
        lines, gap = self._shares.lines(alive, books)
        self._last = (time_s, fragmentation, gap)
        self._node_rows(cycle, time_s, books)
        for queue, line in lines.items():
            if self._last_queues.get(queue) != line:
                self.records.queues.append(QueueRow(cycle, time_s, queue, *line))
        self._last_queues = lines
        if did is not None:
            waiting = sum(job.waits for job in alive)
            held, up = books.held_gpu_milli / MILLI, books.up_gpu_milli / MILLI
            counts = (pending, did.binds, did.nominated, did.moves, did.evictions)
            self.records.cycles.append(CycleRow(cycle, time_s, *counts, held, up, fragmentation, gap, waiting))

    def hold(self, until_s: float) -> None:
        """The last sample holds until then."""
        if self._last is None:
            return
        since_s, fragmentation, gap = self._last
        self.records.sampled_s += until_s - since_s
        self.records.fragmentation_s += fragmentation * (until_s - since_s)
        self.records.fairness_gap_s += gap * (until_s - since_s)
        self._last = (until_s, fragmentation, gap)

    def _node_rows(self, cycle: int, time_s: float, books: NodeBooks) -> None:
        rows = books.rows()
        last = self._last_nodes
        changed = range(len(rows)) if last is None else np.flatnonzero((rows != last).any(axis=1)).tolist()
        for node in changed:
            held, whole, free, down = rows[node].tolist()
            row = NodeRow(cycle, time_s, books.names[node], held / MILLI, whole, free / MILLI, bool(down))
            self.records.nodes.append(row)
        self._last_nodes = rows


class ShareMeter:
    """Fair share of the leaf queues in GPUs, as the cycle itself divides (``fairness.fair_share``)."""

    def __init__(self, cluster: Snapshot) -> None:
        self._tree = QueueTree.from_queues(sorted(cluster.queues, key=_name), cluster.policy)
        self._cluster = cluster
        self._counted = {n.name: (n, counted_gpu_milli(n, cluster.schema, cluster.policy)) for n in cluster.nodes}
        self._total_milli = sum(milli for _, milli in self._counted.values())

    def lines(self, alive: Sequence[LiveJob], books: NodeBooks) -> tuple[dict[str, tuple[float, float, float]], float]:
        """By leaf queue GPUs (allocated, requested, fair share); and the fairness gap.

        The gap: what queues lack of what they both ask for and are entitled to, as a share of the cluster's GPUs.
        """
        tree = self._tree
        if not tree.size:
            return {}, 0.0
        allocated, request = [[0, 0, 0] for _ in range(tree.size)], [[0, 0, 0] for _ in range(tree.size)]
        for job in alive:
            queue = tree.index.get(job.gang.queue)
            if queue is not None and tree.is_leaf[queue]:
                _add(allocated[queue], job.allocated)
                _add(request[queue], job.requested)
        share = fair_share(
            tree, self._total(books), roll_up(tree, np.array(request, dtype=np.int64)), self._cluster.policy.k_value
        )
        lines, lacking = {}, 0
        for queue in (q for q in range(tree.size) if tree.is_leaf[q]):
            numbers = [int(amounts[queue][GPU]) for amounts in (allocated, request, share)]
            lines[tree.names[queue]] = (numbers[0] / MILLI, numbers[1] / MILLI, numbers[2] / MILLI)
            lacking += max(0, min(numbers[1], numbers[2]) - numbers[0])
        return lines, lacking / self._total_milli if self._total_milli else 0.0

    def _total(self, books: NodeBooks) -> tuple[int, int, int]:
        up = [self._counted[name] for name, down in zip(books.names, books.down, strict=True) if not down]
        cpu = sum(node.allocatable[CPU] for node, _ in up)
        memory = sum(node.allocatable[MEMORY] for node, _ in up)
        return cpu, memory, sum(milli for _, milli in up)


def _name(queue: Queue) -> str:
    return queue.name


def _add(to: list[int], amounts: Amounts) -> None:
    cpu, memory, gpu = amounts
    to[0] += cpu
    to[1] += memory
    to[2] += gpu
