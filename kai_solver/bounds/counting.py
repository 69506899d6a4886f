"""Counting bounds: what cannot fit even when everything that may leave or move is out of the way.

Each bound is a relaxation: capacity is taken node by node, every resource alone, with all flexible pods lifted out.
A "no" is a proof; silence proves nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import NO_PLACEMENT, Blocker, Placement
from kai_solver.reduction import Problem
from kai_solver.reduction.capacity import MANY, fitting
from kai_solver.units import GPU, MILLI, format_amount

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Relaxed:
    """Capacity with all flexible pods lifted out: (R, N) resources and (N, D) free thousandths of devices."""

    free: IntArray
    device_free: IntArray

    @property
    def whole(self) -> IntArray:
        """(N,) devices that are wholly free."""
        whole: IntArray = (self.device_free >= MILLI).sum(axis=1)
        return whole


def count_bound(
    problem: Problem,
    relaxed: Relaxed,
    needed: Mapping[int, int],
    beside: Mapping[int, int],
    domains: Sequence[BoolArray] | None,
    spacing: Placement = NO_PLACEMENT,
) -> Blocker | None:
    """What proves that ``needed`` pods cannot be placed, None where counting proves nothing.

    Parameters
    ----------
    needed
        Pods by shape of the chunk in question.
    beside
        Pods by shape that must have a place too, anywhere.
    domains
        Node masks (N,) of which one must hold all of ``needed``; None where any nodes will do.
    spacing
        How the pods of ``needed`` must lie. Of its least number of nodes only what asks for nobody else may be given.
    """
    blocker = _spaced(problem, relaxed, needed, domains, spacing) if spacing.is_rule else None
    for shape, count in needed.items():
        fit = fitting(problem, relaxed.free, relaxed.device_free, shape)
        best = int(fit.sum()) if domains is None else max((int(fit[mask].sum()) for mask in domains), default=0)
        if best < count:
            kind = "resource" if domains is None else "domain"
            return Blocker(kind, describe(problem, shape), _pods(count), f"room for {best}")
    total = _sum(needed, beside)
    return _slots(problem, relaxed, total) or _totals(problem, relaxed, total) or blocker


def _spaced(
    problem: Problem,
    relaxed: Relaxed,
    needed: Mapping[int, int],
    domains: Sequence[BoolArray] | None,
    rule: Placement,
) -> Blocker | None:
    """Not enough room where a node holds at most so much of one workload, or not enough nodes with room."""
    masks = domains if domains is not None else [np.ones(len(problem.nodes), dtype=np.bool_)]
    offers = np.zeros(len(problem.nodes), dtype=np.bool_)
    for shape, count in needed.items():
        fit = np.minimum(fitting(problem, relaxed.free, relaxed.device_free, shape), most_beside(problem, shape, rule))
        offers |= fit > 0
        best = max((int(fit[mask].sum()) for mask in masks), default=0)
        if best < count:
            text = f"{describe(problem, shape)} a pod, {say_most(rule)} on one node"
            return Blocker("placement", text, _pods(count), f"room for {best}")
    least = min(rule.min_nodes or 0, sum(needed.values()))
    nodes = max((int(offers[mask].sum()) for mask in masks), default=0)
    if nodes < least:
        return Blocker("placement", "different nodes with room", str(least), str(nodes))
    return None


def most_beside(problem: Problem, shape: int, rule: Placement) -> IntArray:
    """(N,) most pods of ``shape`` that one workload may have on each node."""
    most = np.full(len(problem.nodes), MANY, dtype=np.int64)
    if rule.max_pods_per_node is not None:
        np.minimum(most, rule.max_pods_per_node, out=most)
    milli = problem.shapes.milli(shape) * problem.shapes.shapes[shape].gpu.devices
    if rule.max_gpus_per_node is not None:
        np.minimum(most, rule.max_gpus_per_node * MILLI // np.maximum(milli, 1), out=most, where=milli > 0)
    return most


def say_most(rule: Placement) -> str:
    """The most that ``rule`` allows on a node, in words; empty where it sets none."""
    words = []
    if rule.max_pods_per_node is not None:
        words.append(f"at most {rule.max_pods_per_node} of its pods")
    if rule.max_gpus_per_node is not None:
        words.append(f"at most {rule.max_gpus_per_node} of its GPUs")
    return " and ".join(words)


def _sum(first: Mapping[int, int], second: Mapping[int, int]) -> dict[int, int]:
    total = dict(first)
    for shape, count in second.items():
        total[shape] = total.get(shape, 0) + count
    return total


def _slots(problem: Problem, relaxed: Relaxed, pods: Mapping[int, int]) -> Blocker | None:
    """A node with f free GPUs has floor(f / s) slots of s, and a pod of k GPUs takes at least floor(k / s) of them."""
    sizes = {shape: problem.shapes.shapes[shape].gpu for shape in pods}
    whole = relaxed.whole
    for size in sorted({gpu.devices for gpu in sizes.values() if gpu.is_whole}, reverse=True):
        shapes = [s for s, gpu in sizes.items() if gpu.is_whole and gpu.devices >= size]
        admits = np.zeros(len(whole), dtype=np.bool_)
        for shape in shapes:
            admits |= problem.shapes.mask(shape)
        need = sum(pods[s] * (sizes[s].devices // size) for s in shapes)
        have = int((whole[admits] // size).sum())
        if need > have:
            return Blocker("resource", f"slots of {size} GPUs on one node", str(need), str(have))
    return None


def _totals(problem: Problem, relaxed: Relaxed, pods: Mapping[int, int]) -> Blocker | None:
    """No resource can be asked for beyond what is there in all."""
    names = problem.snapshot.schema.names
    admits = np.zeros(len(problem.nodes), dtype=np.bool_)
    for shape in pods:
        admits |= problem.shapes.mask(shape)
    for resource, name in enumerate(names):
        if resource == GPU:
            need = sum(n * _least_milli(problem, s) for s, n in pods.items())
            have = int(np.maximum(relaxed.device_free[admits], 0).sum())
        else:
            need = sum(n * problem.shapes.shapes[s].request[resource] for s, n in pods.items())
            have = int(np.maximum(relaxed.free[resource][admits], 0).sum())
        if need > have:
            return Blocker("resource", name, format_amount(name, need), format_amount(name, have))
    return None


def _least_milli(problem: Problem, shape: int) -> int:
    gpu = problem.shapes.shapes[shape].gpu
    mask = problem.shapes.mask(shape)
    if not gpu.devices or not mask.any():
        return 0
    return int(problem.shapes.milli(shape)[mask].min()) * gpu.devices


def describe(problem: Problem, shape: int) -> str:
    """What one pod of ``shape`` asks for, in the words of users."""
    spec = problem.shapes.shapes[shape]
    if not spec.gpu.devices:
        return ", ".join(format_amount(n, a) for n, a in problem.snapshot.schema.mapping(spec.request).items())
    if spec.gpu.memory_mib:
        return f"{spec.gpu.memory_mib} MiB of GPU memory"
    return format_amount("gpu", spec.gpu.devices * spec.gpu.milli)


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
