"""Why there is no row of GPUs, in words: of one node, and of all of them."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import GpuRequest
from kai_solver.links import largest_free_row, masks_of
from kai_solver.problem.gpurows import fitting_in_rows, known_where, wish_of
from kai_solver.problem.problem import Problem
from kai_solver.units.shares import WHOLE

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


def row_text(gpu: GpuRequest) -> str:
    """What a pod asks for that must have a row: ``8 GPUs in a row``."""
    return f"{gpu.devices} GPUs in a row" + (" and aligned" if _is_aligned(gpu) else "")


def _is_aligned(gpu: GpuRequest) -> bool:
    wish = wish_of(gpu)
    return wish is not None and wish.row == "aligned"


def no_row_text(problem: Problem, gpu: GpuRequest, node: int, whole: BoolArray, *, is_known: bool) -> str:
    """What to say of a node with enough GPUs that has them in no row; ``whole``: (D,) those that are free."""
    free = f"{np.count_nonzero(whole)} of {problem.devices[node]} free"
    failed = int(problem.devices[node] - problem.gpus[node])
    unknown = f", {failed} failed and nobody says which" if failed else ", nobody says which"
    return f"node(s) had no {row_text(gpu)}, {free}{'' if is_known else unknown}"


def largest_row_text(problem: Problem, gpu: GpuRequest, device_free: IntArray, inside: BoolArray) -> str:
    """The largest row that is free on the nodes ``inside`` (N,), given (N, D) what is free; and unknown nodes."""
    whole = device_free >= WHOLE
    known = known_where(problem, device_free)
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
        f"GPUs of {_named(problem, failed)} failed, and nobody says which" if failed.any() else "",
        f"nobody says which are free on {_named(problem, unclear & ~failed)}" if (unclear & ~failed).any() else "",
    ]
    return "; ".join(filter(None, parts))


def _named(problem: Problem, nodes: BoolArray) -> str:
    count = int(nodes.sum())
    return f"node {problem.nodes[int(nodes.argmax())].name}" if count == 1 else f"{count} nodes"
