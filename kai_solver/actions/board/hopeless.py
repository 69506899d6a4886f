"""Gangs for which no victims need to be looked for: all of them together leave too few devices."""

from kai_solver.actions.board.arrays import BLOCK, MOVED, NONE, STAMP, Arrays
from kai_solver.actions.board.rights import may_take
from kai_solver.actions.board.rows import row_at, rows_of
from kai_solver.compiled import kernel


@kernel
def is_hopeless(arrays: Arrays, gang: int, below: int) -> bool:
    """Whether whole devices do not suffice even with all gone that may be taken, in the best domain.

    Units are let go one after the other, and it ends with the first that suffices.
    """
    gangs, units, scratch, stamp = arrays.gangs, arrays.units, arrays.scratch, arrays.record.numbers[STAMP]
    if arrays.shapes.devices[gangs.shape[gang]] == 0 or arrays.shapes.parts[gangs.shape[gang]] > 0:
        return False
    if count_hosts(arrays, gang):
        return False
    scratch.gain[:] = 0
    for queue in range(len(scratch.open_queue)):
        if scratch.open_queue[queue] != stamp:
            continue
        for at in range(units.first_of[queue], units.first_of[queue + 1]):
            unit = units.of_queue[at]
            if may_take(arrays, unit, below) and suffice_with(arrays, gang, unit):
                return False
    return True


@kernel
def count_hosts(arrays: Arrays, gang: int) -> bool:
    """Count the pods of ``gang`` that free devices host in each domain; whether all of them in some domain."""
    gangs, nodes, scratch = arrays.gangs, arrays.nodes, arrays.scratch
    shape, level = gangs.shape[gang], gangs.level[gang]
    devices = arrays.shapes.devices[shape]
    scratch.hosts[:] = 0
    for block in range(len(nodes.block_whole)):
        if nodes.block_whole[block] < devices:
            continue
        for node in range(block * BLOCK, min(len(nodes.whole_later), (block + 1) * BLOCK)):
            domain = 0 if level == NONE else arrays.domains.of_node[level, node]
            if domain == NONE or not may_host(arrays, shape, node):
                continue
            scratch.hosts[domain] += nodes.whole_later[node] // devices
            if scratch.hosts[domain] >= gangs.pods[gang]:
                return True
    return False


@kernel
def suffice_with(arrays: Arrays, gang: int, unit: int) -> bool:
    """Whether devices suffice in some domain once ``unit`` has left, beside those that left before."""
    gangs, units, nodes, scratch = arrays.gangs, arrays.units, arrays.nodes, arrays.scratch
    shape, level, is_moved = gangs.shape[gang], gangs.level[gang], units.where[unit] == MOVED
    devices = arrays.shapes.devices[shape]
    for number in range(rows_of(arrays, unit, is_moved)):
        row = row_at(arrays, unit, is_moved, number)
        node = units.node[row]
        if node == NONE or units.whole[row] == 0 or not may_host(arrays, shape, node):
            continue
        domain = 0 if level == NONE else arrays.domains.of_node[level, node]
        if domain == NONE:
            continue
        have = nodes.whole_later[node] + scratch.gain[node]
        scratch.gain[node] += units.whole[row]
        scratch.hosts[domain] += (have + units.whole[row]) // devices - have // devices
        if scratch.hosts[domain] >= gangs.pods[gang]:
            return True
    return False


@kernel
def may_host(arrays: Arrays, shape: int, node: int) -> bool:
    """Whether ``node`` would take a pod of ``shape`` if all its devices were free."""
    return bool(arrays.shapes.allowed[shape, node] and arrays.nodes.devices[node] >= arrays.shapes.devices[shape])
