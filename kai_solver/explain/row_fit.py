"""One pod that must have its GPUs in a row against the GPUs of one node."""

import numpy as np

from kai_solver.links import largest_free_row, masks_of
from kai_solver.problem import Problem, Shape
from kai_solver.problem.gpurows import needs_row, rows_in, wish_of
from kai_solver.problem.rowtexts import no_row_text, row_text
from kai_solver.units.shares import WHOLE


def row_room(after: Problem, shape: Shape, node: int, most: int) -> int:
    """Pods of the shape that find a row each on the node, counted up to ``most``."""
    wish = wish_of(shape.gpu)
    if wish is None or not wish.is_required:
        return most
    whole = after.device_free[[node]] >= WHOLE
    return min(most, int(rows_in(whole, shape.gpu.devices, wish.row)[0])) if _is_known(after, node) else 0


def _is_known(after: Problem, node: int) -> bool:
    """Whether it is known which GPUs are free."""
    return bool(after.devices_known[node]) or bool(np.all(after.device_free[node, : after.devices[node]] >= WHOLE))


def row_lack(after: Problem, shape: Shape, node: int) -> tuple[str, str] | None:
    """KAI's and Kubernetes' words where the node has no row; None where it has, or none is asked for."""
    if not needs_row(shape.gpu) or row_room(after, shape, node, 1):
        return None
    whole = after.device_free[node] >= WHOLE
    text = no_row_text(after, shape.gpu, node, whole, is_known=_is_known(after, node))
    return text, text


def row_shortage(after: Problem, shape: Shape, node: int) -> str:
    """How long the longest row of the node is; empty where rows are not what is short."""
    if row_lack(after, shape, node) is None:
        return ""
    if not _is_known(after, node):
        what = "failed" if after.gpus[node] < after.devices[node] else "are free"
        return f"has no {row_text(shape.gpu)} for certain: nobody says which GPUs {what}"
    longest = int(largest_free_row(masks_of(after.device_free[[node]] >= WHOLE))[0])
    return f"has no {row_text(shape.gpu)}, {longest} at most"
