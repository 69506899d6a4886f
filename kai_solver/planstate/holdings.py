"""What the units hold, node by node, as arrays: which could free what where, for all nodes at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.eviction_units import Unit, UnitTable
from kai_solver.planstate.state import State
from kai_solver.problem import Problem

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class HoldRows:
    """One row for each unit and node on which it has pods, by node and then by unit; H rows.

    Attributes
    ----------
    unit, node
        (H,) the unit of the row, and its node.
    whole
        (H,) devices that it holds alone.
    request
        (R, H) what it holds of the other resources.
    shared_unit, shared_node, shared_device
        (S,) the devices that it shares with others, one row each. ``shared_parts``: its parts of them.
    """

    unit: IntArray
    node: IntArray
    whole: IntArray
    request: IntArray
    shared_unit: IntArray
    shared_node: IntArray
    shared_device: IntArray
    shared_parts: IntArray

    def starts(self, nodes: int) -> IntArray:
        """(N + 1,) where the rows of each node begin."""
        return np.searchsorted(self.node, np.arange(nodes + 1))

    def on(self, nodes: IntArray, starts: IntArray, stay: Callable[[IntArray], BoolArray]) -> "HoldRows":
        """The rows on ``nodes`` (M,), ascending, of the units that ``stay``; ``node`` is now a position in them."""
        begin, counts = starts[nodes], starts[nodes + 1] - starts[nodes]
        ends = np.cumsum(counts)
        at = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(begin - ends + counts, counts)
        is_kept = stay(self.unit[at])
        own = at[is_kept]
        rows = replace(
            self,
            unit=self.unit[own],
            node=np.repeat(np.arange(len(nodes)), counts)[is_kept],
            whole=self.whole[own],
            request=np.take(self.request, own, axis=1),
        )
        if not len(self.shared_unit):
            return rows
        position, inside = _position(nodes, self.shared_node)
        return _with_shared(rows, position, inside & stay(self.shared_unit))

    def within(self, nodes: IntArray) -> "HoldRows":
        """The rows on ``nodes`` (M,), ascending; ``node`` is a position in ``nodes`` then."""
        position, inside = _position(nodes, self.node)
        rows = replace(
            self,
            unit=self.unit[inside],
            node=position[inside],
            whole=self.whole[inside],
            request=self.request[:, inside],
        )
        return _with_shared(rows, *_position(nodes, rows.shared_node))

    def beside(self, other: "HoldRows") -> "HoldRows":
        """These rows and those of ``other``, whose units are others."""
        unit, node = np.concatenate([self.unit, other.unit]), np.concatenate([self.node, other.node])
        order = np.argsort(node * (int(unit.max(initial=0)) + 1) + unit, kind="stable")
        return HoldRows(
            unit[order],
            node[order],
            np.concatenate([self.whole, other.whole])[order],
            np.concatenate([self.request, other.request], axis=1)[:, order],
            np.concatenate([self.shared_unit, other.shared_unit]),
            np.concatenate([self.shared_node, other.shared_node]),
            np.concatenate([self.shared_device, other.shared_device]),
            np.concatenate([self.shared_parts, other.shared_parts]),
        )

    @classmethod
    def of(
        cls, problem: Problem, pods: IntArray, units: IntArray, nodes: IntArray, held_devices: "HeldDevices"
    ) -> "HoldRows":
        """Rows of ``pods`` (P,), each of a unit and on a node; ``held_devices``: the devices that they hold there."""
        order = np.lexsort((units, nodes))
        pods, units, nodes, devices = pods[order], units[order], nodes[order], held_devices.whole[order]
        first = np.ones(len(pods), dtype=np.bool_)
        first[1:] = (units[1:] != units[:-1]) | (nodes[1:] != nodes[:-1])
        starts = np.flatnonzero(first)
        amounts = problem.shapes.requests[problem.columns.shape[pods]].reshape(len(pods), problem.snapshot.schema.size)
        request = np.add.reduceat(amounts.T, starts, axis=1) if len(starts) else amounts.T
        whole = np.add.reduceat(devices, starts) if len(starts) else devices
        return cls(units[starts], nodes[starts], whole, request, *held_devices.shared)

    @classmethod
    def at_origin(cls, problem: Problem, table: UnitTable) -> "HoldRows":
        """Rows of all units of ``table`` where they run."""
        owner = table.unit_of_row
        held_devices = HeldDevices.at_origin(problem, table.pods, owner)
        return cls.of(problem, table.pods, owner, problem.columns.node[table.pods], held_devices)

    @classmethod
    def moved(cls, state: State, units: Sequence[Unit]) -> "HoldRows":
        """Rows of ``units`` that have other places now."""
        pods = [pod for unit in units for pod in unit.pods]
        owner = [unit.index for unit in units for _ in unit.pods]
        nodes = np.array([state.places[pod].node for pod in pods], dtype=np.int64)
        held_devices = HeldDevices.placed(state, pods, owner)
        return cls.of(
            state.problem, np.array(pods, dtype=np.int64), np.array(owner, dtype=np.int64), nodes, held_devices
        )


@dataclass(frozen=True, slots=True, eq=False)
class HeldDevices:
    """Devices of some pods: (P,) how many each holds alone, and the rows of those that it shares."""

    whole: IntArray
    shared: tuple[IntArray, IntArray, IntArray, IntArray]

    @classmethod
    def at_origin(cls, problem: Problem, pods: IntArray, owner: IntArray) -> "HeldDevices":
        """Devices that running ``pods`` (P,) hold; ``owner`` (P,): the unit of each."""
        columns = problem.columns
        shares = columns.shares[pods]
        row, device, parts = columns.held(pods[shares])
        shared = (owner[shares][row], columns.node[pods[shares]][row], device, parts)
        return cls(np.where(shares, 0, columns.devices[pods]), shared)

    @classmethod
    def placed(cls, state: State, pods: list[int], owner: list[int]) -> "HeldDevices":
        """Devices that ``pods`` were given in this cycle."""
        places = [state.places[pod] for pod in pods]
        is_shared = [state.problem.pods[pod].gpu.is_shared for pod in pods]
        rows = [
            (unit, place.node, device, place.parts)
            for unit, place, shares in zip(owner, places, is_shared, strict=True)
            if shares
            for device in place.devices
        ]
        whole = [0 if shares else len(place.devices) for place, shares in zip(places, is_shared, strict=True)]
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return cls(np.array(whole, dtype=np.int64), (table[:, 0], table[:, 1], table[:, 2], table[:, 3]))


def _position(nodes: IntArray, of: IntArray) -> tuple[IntArray, BoolArray]:
    """Where each of ``of`` stands in ``nodes``, ascending, and whether it is there at all."""
    position = np.minimum(np.searchsorted(nodes, of), max(0, len(nodes) - 1))
    inside = nodes[position] == of if len(nodes) else np.zeros(len(of), dtype=np.bool_)
    return position, inside


def _with_shared(rows: HoldRows, position: IntArray, kept: BoolArray) -> HoldRows:
    return replace(
        rows,
        shared_unit=rows.shared_unit[kept],
        shared_node=position[kept],
        shared_device=rows.shared_device[kept],
        shared_parts=rows.shared_parts[kept],
    )
