"""Nodes that are to be drained, in words: why a node is refused, what blocks, and the cluster without the rule."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.blocking import ElementWords
from kai_solver.domain import Blocker, Snapshot
from kai_solver.problem import Problem
from kai_solver.rules.maintenance.problem import NAME, DrainTimes
from kai_solver.units import FIRST_S, LAST_S, counted, rfc3339

BoolArray = NDArray[np.bool_]

CURE = "no {name} to be drained"
_MOST_NAMED = 8
"""Times that are named one by one."""


def node_text(times: DrainTimes, node: int) -> str:
    """Why ``node`` is closed to a pod."""
    return f"node(s) were to be drained at {_moment(times.at_s[node])}, before the pod is sure to end"


def leaving_text(problem: Problem, times: DrainTimes, node: int) -> str:
    """Why pods leave ``node``."""
    return f"node {problem.nodes[node].name} is to be drained at {_moment(times.at_s[node])}"


def reasons(times: DrainTimes, nodes: BoolArray) -> dict[str, int]:
    """For ``nodes`` (N,) that are closed: how many are drained at which time, or in all where the times are many."""
    numbers = np.flatnonzero(nodes)
    moments, first, counts = np.unique(times.at_s[numbers], return_index=True, return_counts=True)
    if len(moments) > _MOST_NAMED:
        return {"node(s) were to be drained before the pod is sure to end": len(numbers)}
    return {node_text(times, int(node)): int(n) for node, n in zip(numbers[first], counts, strict=True)}


def element(times: DrainTimes, words: ElementWords) -> Blocker:
    """What blocks: how many nodes are drained too early for some of the pods, and when."""
    masks = [mask for shape in words.demand.needed if (mask := times.closed(shape)) is not None]
    moments = times.at_s[np.logical_or.reduce(masks)]
    first, last = _moment(moments.min()), _moment(moments.max())
    when = f"at {first}" if first == last else f"from {first} to {last}"
    have = f"{counted(len(moments), 'node')} to be drained {when}, before its pods are sure to end"
    return Blocker(NAME, "nodes", "nodes that are drained after its pods have ended", have)


def _moment(epoch_s: float) -> str:
    return rfc3339(min(max(float(epoch_s), FIRST_S), LAST_S))


def without(snapshot: Snapshot) -> Snapshot:
    """The cluster with no node to be drained."""
    return replace(snapshot, nodes=tuple(replace(node, drain_at_s=None) for node in snapshot.nodes))
