"""How well a pod's preferences about other pods are met on every node, scored as kube-scheduler does.

Sources: kube-scheduler's plugins InterPodAffinity and PodTopologySpread, their scoring halves;
docs/kai-behaviour.md#scoring.
"""

import math

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Pod, SpreadConstraint
from kai_solver.predicates import of_spread, of_term
from kai_solver.rules.pod_relations.index import PodAffinityIndex, summed

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

BEST = 100
"""Highest score of one plugin."""


def affinity_score(index: PodAffinityIndex, pod: Pod, candidates: BoolArray) -> IntArray:
    """(N,) 0 .. 100 by preferred pod affinity, both ways: pods that ``pod`` prefers, and pods that prefer ``pod``.

    Pods that require its neighbourhood count one each. Scaled over ``candidates``; 0 where all are equal.
    """
    total = np.zeros(len(index.nodes), dtype=np.int64)
    for weight, term in pod.constraints.preferred_pods:
        counts = index.count(frozenset({of_term(term, pod.namespace)}))
        total += weight * summed(index.code(term.topology_key), counts)
    for topology_key, weights in index.pulls(pod):
        total += summed(index.code(topology_key), weights)
    low, high = _range(total, candidates)
    return (total - low) * BEST // (high - low) * candidates if high > low else np.zeros_like(total)


def spread_score(index: PodAffinityIndex, pod: Pod, candidates: BoolArray) -> IntArray:
    """(N,) 0 .. 100 by spread that should hold (``ScheduleAnyway``): emptier domains score more.

    Nodes without a key of the rules score 0. Domains weigh by the logarithm of their number, as in Kubernetes.
    """
    rules = pod.constraints.preferred_spread
    scored = candidates.copy()
    for spread in rules:
        scored &= index.code(spread.topology_key) >= 0
    if not rules or not scored.any():
        return np.zeros(len(index.nodes), dtype=np.int64)
    crowd = np.zeros(len(index.nodes), dtype=np.float64)
    for spread in rules:
        crowd += _crowding(index, pod, spread, scored)
    raw = np.round(crowd).astype(np.int64)
    low, high = _range(raw, scored)
    score = (high + low - raw) * BEST // high if high else np.full_like(raw, BEST)
    result: IntArray = np.where(scored, score, 0)
    return result


def _crowding(index: PodAffinityIndex, pod: Pod, spread: SpreadConstraint, scored: BoolArray) -> NDArray[np.float64]:
    code = index.code(spread.topology_key)
    held, _ = index.held(pod.constraints, spread, of_spread(spread, pod.namespace))
    weight = math.log(len(np.unique(code[scored])) + 2)
    crowding: NDArray[np.float64] = np.append(held, 0)[code] * weight + (spread.max_skew - 1)
    return crowding


def _range(values: IntArray, where: BoolArray) -> tuple[int, int]:
    chosen = values[where]
    return (int(chosen.min()), int(chosen.max())) if chosen.size else (0, 0)
