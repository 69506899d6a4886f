"""A history as past usage of queues, for time-based fair share."""

from collections import Counter
from dataclasses import replace
from math import floor

import numpy as np

from kai_solver.domain import Notice, Snapshot, counted_gpu_milli
from kai_solver.fairness import UsageHistory, past_usage, usage_warnings
from kai_solver.fairness.usage import FloatArray, window_start_s
from kai_solver.instances_io.history_schema import HistoryMappingDoc
from kai_solver.instances_io.native_usage import NAME, params_of
from kai_solver.lab.history.past_jobs import PastJob
from kai_solver.lab.history.read import History
from kai_solver.units import CPU, MEMORY

MOST_SAMPLES = 20_000
"""A week has 10,080 minutes; of a longer window, samples are farther apart than its resolution says."""


def with_past_usage(snapshot: Snapshot, history: History, doc: HistoryMappingDoc) -> Snapshot:
    """The cluster whose queues have the past usage that ``history`` tells, at the cluster's moment.

    It replaces what queues stated. Capacity is that of the nodes, at all times. Jobs of queues that the cluster does
    not have count for none; a notice says how many.
    """
    known = {queue.name for queue in snapshot.queues}
    by_queue = Counter(doc.queues.get(job.queue, job.queue) for job in history.jobs)
    texts = [
        f"{count:,} jobs of queue {queue!r} are not counted: the cluster has no such queue. Map it with queues"
        for queue, count in sorted(by_queue.items())
        if queue not in known
    ]
    params = params_of(doc.usage, snapshot.now_s)
    params = replace(params, resolution_s=max(params.resolution_s, params.size_s / MOST_SAMPLES))
    first, last = window_start_s(params, snapshot.now_s), snapshot.now_s
    step = params.resolution_s
    moments = np.arange(floor(first / step) + 1, floor(last / step) + 1, dtype=np.float64) * step
    queues = tuple(sorted(known & by_queue.keys()))
    place = {name: number for number, name in enumerate(queues)}
    change = np.zeros((len(moments) + 1, len(queues), 3))
    for job in history.jobs:
        queue = place.get(doc.queues.get(job.queue, job.queue))
        if queue is not None:
            _add(change, moments, queue, job)
    nodes = snapshot.nodes
    capacity = [
        sum(node.allocatable[CPU] for node in nodes),
        sum(node.allocatable[MEMORY] for node in nodes),
        sum(counted_gpu_milli(node, snapshot.schema, snapshot.policy) for node in nodes),
    ]
    found = UsageHistory(
        time_s=moments,
        queues=queues,
        allocated=np.cumsum(change[:-1], axis=0),
        capacity=np.tile(np.array(capacity, dtype=np.float64), (len(moments), 1)),
    )
    if not any(job.start_s <= last and (job.end_s is None or job.end_s > first) for job in history.jobs):
        texts.append("no job ran in the window: past usage counts as none. Is the moment of the cluster right?")
    texts += usage_warnings(found, params, snapshot.now_s)
    usage = past_usage(found, params, {queue.name: queue.parent for queue in snapshot.queues}, snapshot.now_s)
    return replace(
        snapshot,
        queues=tuple(replace(queue, usage=usage.get(queue.name, (0.0, 0.0, 0.0))) for queue in snapshot.queues),
        notices=(*snapshot.notices, *history.notices, *(Notice("warning", NAME, text) for text in texts)),
    )


def _add(change: FloatArray, moments: FloatArray, queue: int, job: PastJob) -> None:
    """A job holds what it asks for at every moment from its start until its end."""
    amounts = np.array([job.cpu_milli, job.memory_bytes, job.gpu_milli], dtype=np.float64) * job.pods
    change[np.searchsorted(moments, job.start_s), queue] += amounts
    if job.end_s is not None:
        change[np.searchsorted(moments, job.end_s), queue] -= amounts
