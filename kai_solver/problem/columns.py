"""What pods have, as arrays by pod: for questions about thousands of pods at once."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem.known_pods import KnownPods
from kai_solver.problem.podtable import PodTable

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


class PodColumns:
    """Of the P pods of a problem. Do not write to the arrays.

    Attributes
    ----------
    node, shape, gang
        (P,) indices of the node, the shape and the gang of each pod; -1 for no node, and for no gang.
    """

    def __init__(self, table: PodTable, known_pods: KnownPods, held_devices: Mapping[int, Sequence[int]]) -> None:
        """``held_devices``: by pod, in ascending order."""
        self._table = table
        self._held_devices = held_devices
        self.node = table.nodes
        self.shape = _column(table.pod_shape)
        self.gang = table.gang_of
        self._replaced = [row.are_replaced for row in known_pods.rows]
        self._sizes = table.sizes

    @cached_property
    def charge(self) -> IntArray:
        """(P, 3) what the queue of each pod pays for it."""
        return self._table.charge_rows()

    @cached_property
    def beyond_reach(self) -> IntArray:
        """Nodes that no pod of a gang may be on: what is free there serves none of them."""
        return np.flatnonzero(~self._table.shapes.reach(np.unique(self.shape[self.gang >= 0]).tolist()))

    @cached_property
    def devices(self) -> IntArray:
        """(P,) devices that each pod holds, shared ones too."""
        found = np.zeros(len(self.node), dtype=np.int64)
        found[_column([*self._held_devices])] = [*map(len, self._held_devices.values())]
        return found

    def held(self, pods: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Devices that the running ``pods`` (K,) hold: (S,) position in ``pods``, device, and parts of it."""
        counts = self.devices[pods]
        row = np.repeat(np.arange(len(pods)), counts)
        first, every = self._first_device[pods] - np.cumsum(counts) + counts, np.arange(len(row))
        shapes, parts = self.shape[pods], np.zeros(len(pods), dtype=np.int64)
        for shape in np.unique(shapes).tolist():
            same = shapes == shape
            parts[same] = self._table.shapes.parts(shape)[self.node[pods[same]]]
        return row, self._every_device[every + first[row]], parts[row]

    @cached_property
    def _every_device(self) -> IntArray:
        """Devices that pods hold, one pod after the other."""
        return np.fromiter(chain.from_iterable(self._held_devices.values()), dtype=np.int64)

    @cached_property
    def _first_device(self) -> IntArray:
        """(P,) where those of each pod begin."""
        return np.cumsum(self.devices) - self.devices

    @cached_property
    def shares(self) -> BoolArray:
        """(P,) pods that ask for parts of devices, and so share them with others."""
        by_shape = np.array([shape.gpu.is_shared for shape in self._table.shapes.shapes], dtype=np.bool_)
        found: BoolArray = by_shape[self.shape]
        return found

    @cached_property
    def is_replaced(self) -> BoolArray:
        """(P,) pods that their controller makes again when they are gone."""
        pods, ends = self._table.pods, np.cumsum(self._sizes)
        found: BoolArray = np.repeat(np.array([*self._replaced, -1]) > 0, self._sizes)
        for row in [row for row, are in enumerate([*self._replaced, -1]) if are < 0]:
            own = slice(int(ends[row] - self._sizes[row]), int(ends[row]))
            found[own] = [pod.is_replaced for pod in pods[own]]
        return found


def _column(numbers: Sequence[int]) -> IntArray:
    return np.array(numbers, dtype=np.int64)
