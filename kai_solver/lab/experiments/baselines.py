"""One pod after the other, as the authors' simulator does it: the best score takes it, a pod that fits nowhere has
failed.

A placement changes one node, so only that node's score is computed again, and only when a pod of the shape comes next.
"""

import time
from collections.abc import Callable

import numpy as np

from kai_solver.lab.experiments.cluster import Cluster, Devices
from kai_solver.lab.experiments.fragmentation import Fragmentation
from kai_solver.lab.experiments.record import Record
from kai_solver.lab.experiments.scores import BestFit, Constant, GradientDescent, Score
from kai_solver.lab.experiments.trace import Ints, Shape, Trace, typical

Tell = Callable[[int], bool]
"""Called with the number of arrivals decided; says whether to stop."""

BASELINES = ("fgd", "bestfit", "random")


def run_baseline(trace: Trace, policy: str, tell: Tell = lambda _: False) -> Record | None:
    """Replay ``trace`` under one of `BASELINES`; None where ``tell`` stopped it."""
    began_s = time.perf_counter()
    random = np.random.default_rng([trace.seed, 1])
    fragmentation = Fragmentation(typical(trace.shapes, trace.frequency), trace.models)
    scores_of: dict[str, Score] = {
        "fgd": GradientDescent(fragmentation),
        "bestfit": BestFit(),
        "random": Constant(random),
    }
    score = scores_of[policy]
    cluster = Cluster.empty(trace)
    lookup = Lookup(trace, cluster, score)
    gauge = Gauge(cluster, fragmentation)
    nodes = np.full(len(trace.arrivals), -1, dtype=np.int64)
    devices: list[Devices] = [()] * len(nodes)
    totals = np.zeros(len(trace.arrivals))
    for event, kind in enumerate(trace.arrivals.tolist()):
        scores = lookup.scores(kind)
        node = _any_of(scores, random) if policy == "random" else int(np.argmax(scores))
        if node >= 0 and scores[node] >= 0:
            shape = trace.shapes[kind]
            devices[event] = score.devices(cluster, shape, node)
            cluster.take(node, devices[event], shape)
            lookup.changed(node)
            gauge.changed(node)
            nodes[event] = node
        totals[event] = gauge.total
        if event % 500 == 0 and tell(event):
            return None
    own = np.arange(len(nodes))
    still = np.zeros(len(nodes), dtype=np.int64)
    return Record(nodes, tuple(devices), own, totals, still, time.perf_counter() - began_s)


def _any_of(scores: Ints, random: np.random.Generator) -> int:
    hosts = np.flatnonzero(scores >= 0)
    return int(random.choice(hosts)) if hosts.size else -1


class Lookup:
    """Scores by shape and node, computed again for nodes that changed since the shape was last asked for."""

    def __init__(self, trace: Trace, cluster: Cluster, score: Score) -> None:
        self._trace = trace
        self._cluster = cluster
        self._score = score
        self._log: list[int] = []
        self._known: dict[int, tuple[Ints, int]] = {}

    def changed(self, node: int) -> None:
        """Tell that ``node`` is not what it was."""
        self._log.append(node)

    def scores(self, kind: int) -> Ints:
        """Scores of all nodes for the shape ``kind``, shape (N,); -1: it does not fit."""
        if kind in self._known:
            scores, upto = self._known[kind]
            stale = np.unique(np.array(self._log[upto:], dtype=np.int64))
        else:
            scores = np.full(len(self._cluster.cpu), -1, dtype=np.int64)
            stale = np.arange(len(scores))
        self._known[kind] = scores, len(self._log)
        if stale.size:
            self._refresh(scores, self._trace.shapes[kind], stale)
        return scores

    def _refresh(self, scores: Ints, shape: Shape, stale: Ints) -> None:
        fits = self._cluster.fits(shape, self._trace.allowed(shape), stale)
        scores[stale[~fits]] = -1
        hosts = stale[fits]
        if hosts.size:
            scores[hosts] = self._score.of(self._cluster, shape, hosts)


class Gauge:
    """Fragmentation of the whole cluster, kept up node by node."""

    def __init__(self, cluster: Cluster, fragmentation: Fragmentation) -> None:
        self._cluster = cluster
        self._fragmentation = fragmentation
        self._of_node = fragmentation.amount(cluster.cpu, cluster.free, cluster.model)
        self.total = float(self._of_node.sum())

    def changed(self, *nodes: int) -> None:
        """Measure ``nodes`` again."""
        rows, cluster = list(nodes), self._cluster
        now = self._fragmentation.amount(cluster.cpu[rows], cluster.free[rows], cluster.model[rows])
        self.total += float((now - self._of_node[rows]).sum())
        self._of_node[rows] = now
