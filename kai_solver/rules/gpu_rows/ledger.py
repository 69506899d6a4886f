"""Rows of GPUs while a plan is made: where a row is free for certain, and which devices a pod gets."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import PodStatus
from kai_solver.errors import InternalError
from kai_solver.links import gpus_of, mask_of, row_wish, stretch, tightest_row
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import Problem
from kai_solver.problem.rules import Ledger
from kai_solver.rules.gpu_rows.clearing import RowClearing
from kai_solver.rules.gpu_rows.problem import KIND, fitting_in_rows, needs_row
from kai_solver.rules.gpu_rows.words import no_row_text
from kai_solver.units.shares import WHOLE

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_NEVER = 1 << 30
"""Pods with unidentified GPUs on a node of which some may not be had, and it is unknown which."""


class RowLedger(Ledger):
    """Pods with unidentified GPUs by node: those that run and stay, and those that start among them.

    On a node where one stays no row is promised. A pod that comes to a node where a row is promised waits until the
    unidentified GPUs are free, so that its own are identified. ``is_required``: some pod cannot do without a row.
    """

    kind = KIND

    def __init__(self, problem: Problem, state: State, unidentified: frozenset[int], *, is_required: bool) -> None:
        self._problem = problem
        self._device_idle, self._device_future = state.device_idle, state.device_future
        self._unidentified = unidentified
        self.by_device = is_required
        self._staying: IntArray = np.where(problem.gpus == problem.devices, 0, _NEVER)
        self._is_met: BoolArray = np.zeros(len(problem.nodes), dtype=np.bool_)
        self._rows: Counter[int] = Counter()
        for pod in unidentified:
            node = problem.pod_node[pod]
            self._is_met[node] = True
            self._staying[node] += problem.pods[pod].status is not PodStatus.RELEASING

    # -- steps -------------------------------------------------------------------------------------------------------

    def place(self, shape: int, pod: int, node: int, count: int, sign: int, *, now: bool) -> None:
        """A pod that starts at once on a node with unidentified GPUs has such GPUs, too; so has one that returns."""
        gpu = self._problem.shapes.shapes[shape].gpu
        if not gpu.devices or not self._is_met[node]:
            return
        is_back = pod in self._unidentified and node == self._problem.pod_node[pod]
        if now or is_back:
            self._staying[node] += sign * count
        if needs_row(gpu):
            self._rows[node] += sign * count

    def leave(self, shape: int, pod: int, node: int, count: int, sign: int, /) -> None:
        """Only the pod itself is looked at: ``count`` is 1 where some GPUs are unidentified."""
        if pod in self._unidentified:
            self._staying[node] -= sign * count

    # -- questions ---------------------------------------------------------------------------------------------------

    def is_plain(self, shape: int, /) -> bool:
        """True for pods without GPUs, and for whole GPUs that need no row where all GPUs are identified."""
        return self.adds_up(shape)

    def adds_up(self, shape: int, /) -> bool:
        """A row may be broken by a pod elsewhere in the node; a pod with unidentified GPUs leaves no known room."""
        gpu = self._problem.shapes.shapes[shape].gpu
        return not gpu.row and not (gpu.devices and self._unidentified)

    def limits(self, shape: int, /) -> bool:
        """Pods that need a row."""
        return needs_row(self._problem.shapes.shapes[shape].gpu)

    def limit(self, shape: int, nodes: IntArray, now: IntArray, later: IntArray, /) -> None:
        """As many pods as there are rows side by side."""
        problem, gpu = self._problem, self._problem.shapes.shapes[shape].gpu
        whole = self._device_future[nodes] == WHOLE
        np.minimum(later, fitting_in_rows(problem, whole, gpu, nodes, self._known_later), out=later)
        whole &= self._device_idle[nodes] == WHOLE
        np.minimum(now, fitting_in_rows(problem, whole, gpu, nodes, problem.devices_known), out=now)

    def avoided(self, shape: int, /) -> BoolArray | None:
        """Nodes without a row, for a pod that prefers one."""
        gpu = self._problem.shapes.shapes[shape].gpu
        if not gpu.row or needs_row(gpu):
            return None
        whole = self._device_future == WHOLE
        found: BoolArray = fitting_in_rows(self._problem, whole, gpu, slice(None), self._known_later) == 0
        return found

    def may_start(self, shape: int, pod: int, node: int, /) -> bool:
        """False where a row was promised on ``node`` for when its unidentified GPUs are free."""
        return not (self._problem.shapes.shapes[shape].gpu.devices and self._rows[node] > 0)

    def has_room_at_origin(self, pod: int, /) -> bool:
        """False for a pod with unidentified GPUs that left a node where a row was promised since."""
        return not (pod in self._unidentified and self._rows[self._problem.pod_node[pod]] > 0)

    def may_return(self, pod: int, /) -> bool:
        """``has_room_at_origin`` says it."""
        return True

    # -- devices -----------------------------------------------------------------------------------------------------

    def chooses_devices(self, shape: int, /) -> bool:
        """Pods that need a row."""
        return self.limits(shape)

    def devices(self, shape: int, node: int, free: Sequence[int], /) -> tuple[int, ...] | None:
        """The row of the best links where these make a difference, else the one that leaves the longest rows."""
        problem = self._problem
        gpu, fabric = problem.shapes.shapes[shape].gpu, problem.fabric
        wish = row_wish(gpu)
        if wish is None:
            return None
        if len(free) >= gpu.devices and fabric is not None and fabric.kinds[node] >= 0:
            found = fabric.pick(node, list(free), gpu.devices, wish)
        else:
            found = gpus_of(tightest_row(mask_of(free), gpu.devices, wish.row))
        if not found and wish.is_required:
            raise InternalError(f"no {gpu.devices} GPUs in a row are free on node {problem.nodes[node].name}")
        return found

    def ordered(self, free: list[int], /) -> list[int]:
        """Those in the shortest stretches of free devices first, so that long ones stay for pods that need a row."""
        if not self.by_device:
            return free
        mask = mask_of(free)
        return sorted(free, key=lambda device: stretch(mask, 1 << device))

    def precedence(self, shape: int, /) -> int:
        """Pods that need a row come before all others, the longest first."""
        gpu = self._problem.shapes.shapes[shape].gpu
        return -gpu.devices if needs_row(gpu) else 0

    def clearing(self, pool: VictimPool, shape: int, prices: Sequence[float], /) -> RowClearing | None:
        """For pods that need a row."""
        gpu, unidentified = self._problem.shapes.shapes[shape].gpu, self._unidentified
        wish = row_wish(gpu)
        if wish is None or not wish.is_required:
            return None
        return RowClearing(pool, prices, gpu.devices, wish.row, unidentified, self._staying)

    # -- words -------------------------------------------------------------------------------------------------------

    def closed(self, shape: int, pod: int, nodes: BoolArray, /) -> BoolArray | None:
        """Nodes that have enough free GPUs, but not in a row."""
        gpu = self._problem.shapes.shapes[shape].gpu
        if not needs_row(gpu):
            return None
        whole = self._device_future == WHOLE
        found: BoolArray = nodes & (fitting_in_rows(self._problem, whole, gpu, slice(None), self._known_later) == 0)
        return found

    def reasons(self, shape: int, pod: int, nodes: BoolArray, /) -> Mapping[str, int]:
        """By node, how many of its GPUs are free."""
        problem, gpu, known = self._problem, self._problem.shapes.shapes[shape].gpu, self._known_later
        whole = self._device_future == WHOLE
        found = np.flatnonzero(nodes).tolist()
        return Counter(no_row_text(problem, gpu, n, whole[n], is_known=bool(known[n])) for n in found)

    @property
    def _known_later(self) -> BoolArray:
        """(N,) where it is known which GPUs are free once all have left that are leaving."""
        found: BoolArray = self._staying == 0
        return found
