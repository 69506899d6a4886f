"""Gauges of queues, nodes and what could not be used; what did not change is not set again."""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import prometheus_client as prometheus

from kai_solver.cluster.binding import GangBound
from kai_solver.controller.loop import Cycle, Evicted
from kai_solver.domain import Gang, Reason
from kai_solver.metrics import Metrics
from kai_solver.problem import Problem
from kai_solver.units import GPU, MILLI, UNLIMITED
from kai_solver.units.shares import WHOLE

_GB = 1e9
LONGEST = 20
"""Pending gangs that have a series of their own: metrics must not grow with the work."""

Labels = tuple[str, ...]


@dataclass(slots=True)
class ClusterGauges:
    """A `Reporter` of the cluster's numbers.

    Attributes
    ----------
    problem
        The cluster of the newest decision as the engine saw it.
    totals
        Counters that others keep, and how far they are.
    """

    metrics: Metrics
    problem: Callable[[], Problem | None]
    totals: Mapping[prometheus.Counter, Callable[[], int]] = field(default_factory=dict)
    _stands: dict[prometheus.Gauge, dict[Labels, float]] = field(default_factory=dict)
    _counted: dict[prometheus.Counter, int] = field(default_factory=dict)

    def cycle(self, cycle: Cycle) -> None:
        """All of them."""
        set_aside = Counter(n.object.partition(" ")[0] for n in cycle.snapshot.notices if n.kind == "set-aside")
        self._set(self.metrics.set_aside, {(kind,): count for kind, count in set_aside.items()})
        for counter, total in self.totals.items():
            now = total()
            counter.inc(now - self._counted.get(counter, 0))
            self._counted[counter] = now
        self._set(self.metrics.pending_since, longest_pending(cycle))
        problem = self.problem()
        if problem is not None:
            self._queues(problem)
            self._set(self.metrics.free_block, free_blocks(problem))
            self._set(self.metrics.held_gpus, held_gpus(problem))
            self._set(self.metrics.without_queue, pods_without_queue(problem))

    def bound(self, outcome: GangBound) -> None:
        """Nothing: bindings show in the next cycle."""

    def evicted(self, evicted: Evicted) -> None:
        """Nothing."""

    def _queues(self, problem: Problem) -> None:
        metrics, tree = self.metrics, problem.queues
        ours = [(queue.title, queue.name, queue.display_name) for queue in tree.queues]
        named = [(queue.name, queue.name, queue.display_name) for queue in tree.queues]
        share, held, quota = (np.array(rows, dtype=float).reshape(-1, 3) for rows in _amounts(problem))
        usage = np.array([queue.usage for queue in tree.queues], dtype=float).reshape(-1, 3)
        base, giga = (1 / MILLI, 1.0, 1 / MILLI), (1 / MILLI, 1 / _GB, 1 / MILLI)
        self._columns((metrics.fair_share_cpu, metrics.fair_share_memory, metrics.fair_share_gpu), ours, share, giga)
        self._columns((metrics.past_cpu, metrics.past_memory, metrics.past_gpu), ours, usage, (1.0, 1.0, 1.0))
        self._columns((metrics.quota_cpu, metrics.quota_memory, metrics.deserved_gpus), named, quota, base)
        self._columns((metrics.allocated_cpu, metrics.allocated_memory, metrics.allocated_gpus), named, held, base)
        self._set(metrics.queue_info, dict.fromkeys(named, 1.0))
        leaves = [index for index, is_leaf in enumerate(tree.is_leaf) if is_leaf]
        self._set(metrics.quota_percent, _parts(tree.names, leaves, held[:, GPU], quota[:, GPU], 100.0))
        self._set(metrics.fair_share_usage, _parts(tree.names, leaves, held[:, GPU], share[:, GPU], 1.0))

    def _columns(
        self,
        gauges: tuple[prometheus.Gauge, ...],
        labels: Sequence[Labels],
        amounts: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]",
        scale: tuple[float, ...],
    ) -> None:
        """One gauge for each of the (Q, 3) columns; unlimited stays -1."""
        for at, gauge in enumerate(gauges):
            column = amounts[:, at]
            scaled = np.where(column == UNLIMITED, UNLIMITED, column * scale[at])
            self._set(gauge, dict(zip(labels, scaled.tolist(), strict=True)))

    def _set(self, gauge: prometheus.Gauge, wanted: Mapping[Labels, float]) -> None:
        """Set what changed, take away what is gone."""
        stands = self._stands.get(gauge, {})
        if stands == wanted:
            return
        for labels, value in wanted.items():
            if stands.get(labels) != value:
                gauge.labels(*labels).set(value)
        for labels in stands.keys() - wanted.keys():
            gauge.remove(*labels)
        self._stands[gauge] = dict(wanted)


def longest_pending(cycle: Cycle) -> dict[Labels, float]:
    """When the gangs were created that have been pending longest: at most `LONGEST`, by key, queue and reason."""
    gangs = {gang.key: gang for gang in cycle.snapshot.gangs}
    waiting = (pending for pending in cycle.plan.pending if pending.gang not in cycle.busy)
    known = ((gangs[pending.gang], pending.reason) for pending in waiting)
    oldest = heapq.nsmallest(LONGEST, (entry for entry in known if entry[0].created_s), key=_by_creation)
    return {(gang.key, gang.queue, reason.value): gang.created_s for gang, reason in oldest}


def _by_creation(entry: tuple[Gang, Reason]) -> tuple[float, str]:
    return entry[0].created_s, entry[0].key


def free_blocks(problem: Problem) -> dict[Labels, float]:
    """By node with GPUs: the most wholly free ones in one row of its indices."""
    free = problem.device_free >= WHOLE
    run = np.zeros(len(problem.nodes), dtype=np.int64)
    best = run.copy()
    for column in free.T:
        run = (run + 1) * column
        best = np.maximum(best, run)
    found = zip(problem.nodes, best.tolist(), strict=True)
    return {(node.name,): float(most) for node, most in found if node.gpus}


def held_gpus(problem: Problem) -> dict[Labels, float]:
    """GPUs that pods hold, parts as parts, by how it is known which they are; all three kinds are there."""
    parts = {"fact": 0, "wish": 0, "unknown": 0}
    for pod, devices in problem.held_devices.items():
        if devices:
            held = problem.pods[pod]
            known, _ = held.known_devices
            parts[known] += len(devices) * held.gpu.parts_on(problem.nodes[problem.pod_node[pod]].gpu_memory_mib)
    return {(known,): amount / WHOLE for known, amount in parts.items()}


def pods_without_queue(problem: Problem) -> dict[Labels, float]:
    """Active pods by the name of their queue, which takes no part."""
    found: Counter[Labels] = Counter()
    for gang, _ in problem.without_queue:
        found[(gang.queue,)] += sum(pod.status.is_active for pod in gang.pods)
    return dict(found)


def _amounts(problem: Problem) -> tuple[object, object, object]:
    """(Q, 3) fair share, allocated, quota."""
    return problem.share, problem.allocated, problem.queues.quotas


def _parts(
    names: tuple[str, ...],
    leaves: list[int],
    held: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]",
    of: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]",
    scale: float,
) -> dict[Labels, float]:
    """What leaf queues hold as a part of something that they have."""
    return {(names[at],): scale * float(held[at]) / float(of[at]) for at in leaves if of[at] > 0}
