"""Our policy: arrivals are collected and placed together, each where the rest is worth most for what usually arrives.

No future is known: arrivals are expected to go on until they ask for all GPUs of the cluster, and for 2% of these when
they do, in the proportions of the whole trace, as in the paper's definition of typical pods; the window's own pods are
known. Prices are computed again for every part of a window (see `kai_solver.bounds.prices`): at one set of prices all
pods would go to the same place.
"""

import time
from dataclasses import replace

import numpy as np

from kai_solver.bounds.prices import Groups, Pricing, profits
from kai_solver.lab.experiments.baselines import Tell
from kai_solver.lab.experiments.cluster import Cluster, Devices
from kai_solver.lab.experiments.first_pods import FirstPods
from kai_solver.lab.experiments.fragmentation import Fragmentation
from kai_solver.lab.experiments.landscape import Judge, Landscape
from kai_solver.lab.experiments.record import Record
from kai_solver.lab.experiments.trace import Floats, Ints, Trace, typical
from kai_solver.leftover import Demand, ValueTable
from kai_solver.units import MILLI

PART = 50
"""Pods of a window that are placed at one set of prices, large ones first.

At 200 all pods of a window go where one set of prices sends them: on gpuspec33, seed 42, what the linear programme can
still reach fell from 96.4% to 94.4% in the first 1,000 arrivals, at 50 to 96.4% (2026-11-21)."""
LEAST_PACKED = 0.2
"""A share of a GPU is refused when the linear programme packs less than this part of what is expected of its kind.

At the programme's optimum a pod of 0.81 GPUs and one of 1.0 are worth the same to the GPU that either takes: prices
cannot tell them apart, and only how many of each are packed does. The best plan for the arrivals by 100% fails pods of
0.81 alone on default (236) and gpushare100 (830), and mostly such on the others: beside each a part of a GPU is lost.
With this limit, and as many pods expected as the cluster has GPUs for, 95.91 and 88.03 percent of the GPUs are
allocated on default and gpushare100, and without both 95.82 and 87.82 (means of three seeds, 2026-11-28). Where nearly
all pods are of one kind, it refuses some that would fit: they are kept out for later ones like them.
"""
REFUSE_ABOVE = 1.3
"""A share of a GPU, and a pod without GPUs, is refused when what it takes is worth so many times what it brings.

Prices assume perfect packing, so near ties mean nothing. Pods of whole GPUs are never refused where they fit. On seed
42 of default, 1.2 gave 95.95 and 1.3 96.03 (2026-11-21, before `LEAST_PACKED`). Without this rule, and with 0.3 as the
least packed, gpushare100 had 87.78 in place of 88.03, and default 96.02 in place of 95.91 (2026-11-28).
"""
CPU_WORTH = 0.03
"""What a thousandth of a CPU of a pod without GPUs brings, in thousandths of a GPU.

At 0.1 such pods took the CPU of free GPUs: when all of cpu250, seed 42, had arrived, 117 whole GPUs were free on nodes
of 96 cores, which had 6.4 cores for each free GPU.
"""
LOST_CPU = 2_200
"""Thousandths of CPU of every node that prices leave out: finally each has a rest that no usual pod can take.

GPUs allocated on cpu250, means of seeds 42 to 44: 95.21 with 1,500, 95.56 with 2,200, 95.31 with 3,000, and 95.53 where
4% of each node are left out instead, which gains less on the other traces. With 0 the seeds 42 and 43 had 94.8
(2026-11-28)."""
MOVE_ABOVE_MILLI = 150.0
"""A running pod is moved for at least so much more value, in thousandths of a GPU."""
_LEAST_EXPECTED = 0.02
"""Of the GPUs: what is expected at least, however much has arrived."""


def run_windows(trace: Trace, window: int, moves: float, tell: Tell = lambda _: False) -> Record | None:
    """Replay ``trace`` in windows of so many arrivals, with moves of at most that share of the arrivals so far.

    None where ``tell`` stopped it.
    """
    began_s = time.perf_counter()
    run = _Run(trace, moves)
    for first in range(0, len(trace.arrivals), window):
        if tell(first):
            return None
        run.decide(np.arange(first, min(first + window, len(trace.arrivals))))
    decided = np.minimum((np.arange(len(run.node)) // window + 1) * window, len(run.node)) - 1
    devices = tuple(run.devices)
    return Record(run.node, devices, decided, run.totals, run.moved, time.perf_counter() - began_s)


class _Run:
    """State of a replay: where pods are, and what they are worth."""

    def __init__(self, trace: Trace, moves: float) -> None:
        events = len(trace.arrivals)
        self.node = np.full(events, -1, dtype=np.int64)
        self.devices: list[Devices] = [()] * events
        self.totals = np.zeros(events)
        self.moved = np.zeros(events, dtype=np.int64)
        self._trace = trace
        self._budget_share = moves
        self._moves = 0
        self._arrived = trace.arrived()
        self._cluster = Cluster.empty(trace)
        self._allowed = [trace.allowed(shape) for shape in trace.shapes]
        self._demand, self._type = expected_demand(trace)
        self._cpu = np.array([shape.cpu_milli for shape in trace.shapes], dtype=np.int64)
        self._cpu_per_mib: Floats = trace.cpu / trace.memory
        self._milli = self._demand.total_milli
        self._pricing = Pricing(self._demand, profits(self._demand, self._cpu, CPU_WORTH))
        self._frequency: Floats = trace.frequency / trace.frequency.sum()
        self._expected: Floats = np.zeros(len(trace.shapes))
        """Pods of each shape that the last prices were computed for, waiting and to come, shape (S,)."""
        self._ties = Fragmentation(typical(trace.shapes, trace.frequency, 1.0), trace.models)
        self._measure = Fragmentation(typical(trace.shapes, trace.frequency), trace.models)

    def decide(self, events: Ints) -> None:
        """Place a window; pods that are not placed have failed."""
        kinds = self._trace.arrivals[events]
        order = np.lexsort((-self._cpu[kinds], -self._milli[kinds]))
        future = self._future(int(self._arrived[events[-1]]))
        for begin in range(0, len(order), PART):
            landscape = self._price(kinds[order[begin:]], future)
            if begin == 0:
                self._move(landscape, int(events[-1]) + 1)
            self._place(landscape, events[order[begin : begin + PART]])
        cluster = self._cluster
        self.totals[events] = self._measure.amount(cluster.cpu, cluster.free, cluster.model).sum()
        self.moved[events] = self._moves

    def _future(self, arrived_milli: int) -> Floats:
        """Pods of each shape that are expected once pods have asked for so much, shape (S,)."""
        capacity = self._trace.capacity_milli
        milli = max(capacity - arrived_milli, _LEAST_EXPECTED * capacity)
        pods: Floats = self._frequency * (milli / max(float(self._frequency @ self._milli), 1e-9))
        return pods

    def _price(self, waiting: Ints, future: Floats) -> Landscape:
        cluster = self._cluster
        room = np.minimum(cluster.cpu, (cluster.memory * self._cpu_per_mib).astype(np.int64))
        groups = Groups.of(self._demand, np.maximum(0, room - LOST_CPU), cluster.free, self._type)
        self._expected = future + np.bincount(waiting, minlength=len(future))
        worth = self._pricing.worth(groups, self._expected)
        table = ValueTable.of(self._demand, worth, cluster.free.shape[1])
        first = FirstPods.of(self._demand, worth, self._frequency)
        judge = Judge(table, replace(table, full=()), first, self._ties, cluster.model, self._type, self._cpu_per_mib)
        return Landscape(cluster, judge, self._trace.shapes, self._allowed)

    def _place(self, landscape: Landscape, events: Ints) -> None:
        for event in events.tolist():
            kind = int(self._trace.arrivals[event])
            loss, device = landscape.losses(kind)
            node = int(np.argmin(loss))
            if np.isfinite(loss[node]) and not self._refuses(landscape, node, int(device[node]), kind):
                self.node[event] = node
                self.devices[event] = landscape.take(node, int(device[node]), kind)

    def _refuses(self, landscape: Landscape, node: int, device: int, kind: int) -> bool:
        """Whether a small pod takes more than it brings; pods of whole GPUs are never refused where they fit."""
        if self._milli[kind] >= MILLI:
            return False
        if self._milli[kind] and self._pricing.packed[kind] < LEAST_PACKED * self._expected[kind]:
            return True
        return landscape.cost(node, device, kind) > REFUSE_ABOVE * float(self._pricing.profit[kind])

    def _move(self, landscape: Landscape, arrived: int) -> None:
        """Move running pods where value rises most, as far as the budget goes."""
        budget = int(self._budget_share * arrived) - self._moves
        running = np.flatnonzero(self.node >= 0)
        if budget <= 0 or not running.size:
            return
        kinds = self._trace.arrivals[running]
        gains = landscape.gains(kinds, self.node[running], [self.devices[event] for event in running.tolist()])
        least = {kind: float(landscape.losses(kind)[0].min()) for kind in np.unique(kinds).tolist()}
        net = gains - np.array([least[kind] for kind in kinds.tolist()])
        for place in np.argsort(-net, kind="stable")[: 3 * budget].tolist():
            if net[place] < MOVE_ABOVE_MILLI or budget <= 0:
                break
            budget -= self._try_move(landscape, int(running[place]))

    def _try_move(self, landscape: Landscape, event: int) -> bool:
        kind, node, devices = int(self._trace.arrivals[event]), int(self.node[event]), self.devices[event]
        [gain] = landscape.gains(np.array([kind]), np.array([node]), [devices])
        landscape.give(node, devices, kind)
        loss, device = landscape.losses(kind)
        to = int(np.argmin(loss))
        if to == node or gain - loss[to] < MOVE_ABOVE_MILLI:
            landscape.retake(node, devices, kind)
            return False
        self.node[event] = to
        self.devices[event] = landscape.take(to, int(device[to]), kind)
        self._moves += 1
        return True


def expected_demand(trace: Trace) -> tuple[Demand, Ints]:
    """Shapes of a trace as demand, and the type (model, CPU, memory, GPUs) of every node, shape (N,).

    A pod takes the larger of its CPU and the CPU that comes with its memory.
    """
    rows = np.column_stack((trace.model, trace.cpu, trace.memory, trace.gpus))
    types, kind = np.unique(rows, axis=0, return_inverse=True)
    fits = [
        trace.allowed(shape)[types[:, 0]]
        & (types[:, 1:] >= (shape.cpu_milli, shape.memory_mib, shape.gpus)).all(axis=1)
        for shape in trace.shapes
    ]
    columns = [[shape.cpu_milli, shape.memory_mib, shape.gpus, shape.gpu_milli] for shape in trace.shapes]
    cpu, memory, gpus, milli = np.array(columns, dtype=np.int64).T
    with_memory = np.ceil(memory[:, None] * (types[:, 1] / types[:, 2])).astype(np.int64)
    return Demand(np.maximum(cpu[:, None], with_memory), gpus, milli, np.array(fits, dtype=np.bool_)), kind.ravel()
