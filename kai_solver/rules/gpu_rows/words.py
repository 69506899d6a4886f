"""Rows of GPUs in words: why a node or all nodes have none, what blocks, and the cluster without the rule."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.blocking import ElementWords
from kai_solver.bounds.counting import GPU_NAME, describe
from kai_solver.domain import Blocker, Gang, GpuRequest, Snapshot
from kai_solver.links import largest_free_row, masks_of, row_wish
from kai_solver.problem import Problem
from kai_solver.rules.gpu_rows.problem import KIND, fitting_in_rows, known_where, needs_row
from kai_solver.units import GPU, MILLI, counted
from kai_solver.units.shares import WHOLE

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

CURE = "any GPUs, in a row or not"


def row_text(gpu: GpuRequest) -> str:
    """What a pod asks for that must have a row: ``8 GPUs in a row``."""
    wish = row_wish(gpu)
    is_aligned = wish is not None and wish.row == "aligned"
    return f"{gpu.devices} GPUs in a row" + (" and aligned" if is_aligned else "")


# -- one node ----------------------------------------------------------------------------------------------------------


def no_row_text(problem: Problem, gpu: GpuRequest, node: int, whole: BoolArray, *, is_known: bool) -> str:
    """The text for a node with enough GPUs that has them in no row; ``whole``: (D,) those that are free."""
    free = f"{np.count_nonzero(whole)} of {problem.devices[node]} free"
    failed = int(problem.devices[node] - problem.gpus[node])
    unknown = f", {failed} failed, and it is unknown which" if failed else ", it is unknown which"
    return f"node(s) had no {row_text(gpu)}, {free}{'' if is_known else unknown}"


def is_known(after: Problem, node: int) -> bool:
    """Whether it is known which GPUs are free on a node of a problem without changes."""
    return bool(after.devices_known[node]) or bool(np.all(after.device_free[node, : after.devices[node]] >= WHOLE))


def lack(after: Problem, gpu: GpuRequest, node: int) -> str:
    """KAI's and Kubernetes' text for a node without a row."""
    whole = after.device_free[node] >= WHOLE
    return no_row_text(after, gpu, node, whole, is_known=is_known(after, node))


def shortage(after: Problem, gpu: GpuRequest, node: int) -> str:
    """How long the longest row of a node without a row is."""
    if not is_known(after, node):
        what = "failed" if after.gpus[node] < after.devices[node] else "are free"
        return f"has no {row_text(gpu)} for certain: it is unknown which GPUs {what}"
    longest = int(largest_free_row(masks_of(after.device_free[[node]] >= WHOLE))[0])
    return f"has no {row_text(gpu)}, {longest} at most"


# -- what blocks -------------------------------------------------------------------------------------------------------


def element(words: ElementWords, unidentified: frozenset[int]) -> Blocker:
    """Too few rows of GPUs, though there may be GPUs enough; the largest of those that are free, or could be."""
    problem, count = words.problem, words.count
    if count.kind != "fit" or not needs_row(gpu := problem.shapes.shapes[count.shape].gpu):
        need = f"{counted(sum(words.demand.needed.values()), 'pod')}, some of all in rows of GPUs"
        return Blocker(KIND, GPU_NAME, need, "room for fewer", "", GPU_NAME, words.short(count, GPU))
    relaxed, inside = words.free_nodes()
    need = f"{counted(count.need, 'pod')} of {describe(problem, count.shape)}"
    largest = _largest_row_text(problem, unidentified, gpu, relaxed.device_free, inside)
    have = f"room for {count.have:,}" if count.have else f"none; {largest}"
    short = (count.need - count.have) * gpu.devices * MILLI
    return Blocker(KIND, GPU_NAME, need, have, words.where, GPU_NAME, short)


def _largest_row_text(
    problem: Problem, unidentified: frozenset[int], gpu: GpuRequest, device_free: IntArray, inside: BoolArray
) -> str:
    """The largest row that is free on the nodes ``inside`` (N,), given (N, D) what is free; and where it is unknown."""
    whole = device_free >= WHOLE
    known = known_where(problem, unidentified, device_free)
    is_clear = inside & (known | (whole.sum(axis=1) == problem.devices))
    longest = np.where(is_clear, largest_free_row(masks_of(whole)), 0)
    best = int(longest.argmax()) if longest.any() else -1
    found = f"the largest free row is {longest[best]} on node {problem.nodes[best].name}" if best >= 0 else ""
    rows = fitting_in_rows(problem, whole, gpu, slice(None), known)
    if best >= 0 and longest[best] >= gpu.devices and not rows[inside].any():
        found += f", and none of {gpu.devices} begins at a multiple of {gpu.devices}"
    unclear = inside & ~is_clear & (whole.sum(axis=1) >= gpu.devices)
    failed = unclear & (problem.gpus < problem.devices)
    parts = [
        found or "no row is known to be free",
        f"GPUs of {_named(problem, failed)} failed, and it is unknown which" if failed.any() else "",
        f"it is unknown which are free on {_named(problem, unclear & ~failed)}" if (unclear & ~failed).any() else "",
    ]
    return "; ".join(filter(None, parts))


def _named(problem: Problem, nodes: BoolArray) -> str:
    count = int(nodes.sum())
    return f"node {problem.nodes[int(nodes.argmax())].name}" if count == 1 else f"{count} nodes"


def without(snapshot: Snapshot, gang: str) -> Snapshot:
    """The cluster with no row for the gang; where it asks for none itself, for no gang."""
    mine = any(pod.gpu.row.endswith("-required") for g in snapshot.gangs if g.key == gang for pod in g.pods)

    def of_gang(g: Gang) -> Gang:
        pods = (replace(pod, gpu=replace(pod.gpu, row="")) if pod.gpu.row else pod for pod in g.pods)
        return replace(g, pods=tuple(pods)) if g.key == gang or not mine else g

    return replace(snapshot, gangs=tuple(map(of_gang, snapshot.gangs)))
