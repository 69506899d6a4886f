"""Rows of units: what each holds, node by node, where it ran before the cycle and where it moved to."""

from kai_solver.actions.board.arrays import NONE, Arrays, IntArray
from kai_solver.actions.board.room import count_block, free_devices, give_zones, note
from kai_solver.compiled import kernel


@kernel
def rows_of(arrays: Arrays, unit: int, is_moved: bool) -> int:
    """Rows of ``unit`` where it ran before the cycle, or where it moved to."""
    first = arrays.units.first_moved if is_moved else arrays.units.first_row
    count: int = first[unit + 1] - first[unit]
    return count


@kernel
def row_at(arrays: Arrays, unit: int, is_moved: bool, number: int) -> int:
    """The row with that number of `rows_of`."""
    units = arrays.units
    if is_moved:
        return int(units.first_moved[unit] + number)
    return int(units.row[units.first_row[unit] + number])


@kernel
def shift_unit(arrays: Arrays, unit: int, sign: int) -> None:
    """What ``unit`` holds where it was becomes free later (+1), or is taken again (-1)."""
    units, nodes, is_moved = arrays.units, arrays.nodes, arrays.scratch.was_moved[unit]
    for number in range(rows_of(arrays, unit, is_moved)):
        row = row_at(arrays, unit, is_moved, number)
        node = units.node[row]
        if node == NONE:
            continue
        for resource in range(nodes.later.shape[1]):
            nodes.later[node, resource] += sign * units.request[row, resource]
        if units.whole[row]:
            free_devices(arrays, node, sign * units.whole[row])
        if arrays.zones.row[node] != NONE:
            give_zones(arrays.zones, node, False, arrays.zones.held, row, sign)
        count_block(nodes, node)
        note(arrays, node)


@kernel
def fits_back(arrays: Arrays, unit: int) -> bool:
    """Whether there is room for all of ``unit`` where it was."""
    units, nodes, is_moved = arrays.units, arrays.nodes, arrays.scratch.was_moved[unit]
    for number in range(rows_of(arrays, unit, is_moved)):
        row = row_at(arrays, unit, is_moved, number)
        node = units.node[row]
        if node == NONE:
            continue
        if nodes.whole_later[node] < units.whole[row]:
            return False
        for resource in range(nodes.later.shape[1]):
            held = units.request[row, resource]
            if resource != nodes.gpu and held > 0 and nodes.later[node, resource] < held:
                return False
        zones, at = arrays.zones, arrays.zones.row[node]
        for zone in range(zones.later.shape[1] if at != NONE else 0):
            for resource in range(zones.aware.shape[1]):
                held = zones.held[row, zone, resource]
                if held > 0 and zones.later[at, zone, resource] < held:
                    return False
    return True


@kernel
def list_moved(arrays: Arrays, unit: int, nodes: IntArray, takes: IntArray, at: int) -> None:
    """The pods of ``unit`` are on ``nodes`` from ``at`` on: list a row for each node, and leave the others empty.

    ``takes``: what they took of compartments, from ``at`` on.
    """
    units, shapes, held = arrays.units, arrays.shapes, arrays.zones.held
    first, last, shape = units.first_moved[unit], units.first_moved[unit + 1], units.shape[unit]
    for row in range(first, last):
        if units.is_listed[unit] and units.node[row] != NONE:
            unlist(arrays, row)
    for row in range(first, last):
        node, own = nodes[at + row - first], row
        for other in range(first, row):
            if units.node[other] == node:
                own = other
        if own == row:
            units.whole[row] = 0
            units.request[row, :] = 0
            if arrays.zones.row[node] != NONE:
                held[row] = 0
            units.node[row], units.after[row], units.head[node] = node, units.head[node], row
        else:
            units.node[row] = NONE
        units.whole[own] += shapes.devices[shape]
        for resource in range(shapes.request.shape[1]):
            units.request[own, resource] += shapes.request[shape, resource]
        if arrays.zones.row[node] != NONE:
            for zone in range(held.shape[1]):
                for resource in range(held.shape[2]):
                    held[own, zone, resource] += takes[at + row - first, zone, resource]
    units.is_listed[unit] = True


@kernel
def unlist(arrays: Arrays, row: int) -> None:
    """Take a row out of the list of its node."""
    units = arrays.units
    node = units.node[row]
    if units.head[node] == row:
        units.head[node] = units.after[row]
        return
    before = units.head[node]
    while before != NONE:
        if units.after[before] == row:
            units.after[before] = units.after[row]
            return
        before = units.after[before]
