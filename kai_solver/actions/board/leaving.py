"""The cheapest units that leave a node so that one more pod fits, and lower bounds of what they cost."""

from kai_solver.actions.board.arrays import BOUNDLESS, HOME, IMPOSSIBLE, MOVED, NONE, WIDTH, Arrays
from kai_solver.actions.board.rights import may_take
from kai_solver.actions.board.room import lacking, shared_device
from kai_solver.compiled import kernel


@kernel
def cost_at(arrays: Arrays, shape: int, node: int, below: int) -> float:
    """The least cost of units that leave ``node`` so that one more pod of ``shape`` fits; their rows are the picks.

    ``below``: only units that may be taken in this turn, of less priority; `NONE`: all that are at home.
    """
    picks = arrays.scratch.picks
    picks[0] = 0
    if not arrays.shapes.allowed[shape, node]:
        return IMPOSSIBLE
    need = lacking(arrays, shape, node)
    if need <= 0 and suffices(arrays, shape, node):
        return 0.0
    count = look_around(arrays, node, below)
    cost = cover(arrays, count, need) if need > 0 else 0.0
    if cost < IMPOSSIBLE and not suffices(arrays, shape, node):
        cost += add_units(arrays, shape, node, count)
        if cost < IMPOSSIBLE and picks[0] > 1:
            cost -= prune(arrays, shape, node)
    return cost


@kernel
def is_open(arrays: Arrays, unit: int, below: int) -> bool:
    """Whether ``unit`` may leave, as `cost_at` has it."""
    if below == NONE:
        return bool(arrays.units.where[unit] in (HOME, MOVED))
    return may_take(arrays, unit, below)


@kernel
def look_around(arrays: Arrays, node: int, below: int) -> int:
    """Write the rows of ``node`` of units that may leave into `Scratch.here`; how many there are."""
    units, here, count = arrays.units, arrays.scratch.here, 0
    for row in range(units.first_on[node], units.first_on[node + 1]):
        unit = units.unit[row]
        if units.where[unit] == HOME and is_open(arrays, unit, below) and count < len(here):
            here[count] = row
            count += 1
    row = units.head[node]
    while row != NONE:
        unit = units.unit[row]
        if units.where[unit] == MOVED and is_open(arrays, unit, below) and count < len(here):
            here[count] = row
            count += 1
        row = units.after[row]
    return count


@kernel
def cover(arrays: Arrays, rows: int, need: int) -> float:
    """Pick the cheapest of the first ``rows`` units here that hold ``need`` devices together; what they cost."""
    units, scratch = arrays.units, arrays.scratch
    sums, masks, picks, here = scratch.sums, scratch.masks, scratch.picks, scratch.here
    if need > WIDTH:
        return IMPOSSIBLE
    sums[0], masks[0] = 0.0, 0
    for count in range(1, need + 1):
        sums[count] = IMPOSSIBLE
    bit = 0
    for at in range(rows):
        whole, price = units.whole[here[at]], units.cost[units.unit[here[at]]]
        if whole == 0 or bit == WIDTH:
            continue
        for count in range(need, 0, -1):
            rest = max(0, count - whole)
            cost = sums[rest] + price
            if cost < sums[count]:
                sums[count] = cost
                masks[count] = masks[rest] | (1 << bit)
        bit += 1
    if sums[need] >= IMPOSSIBLE:
        return IMPOSSIBLE
    chosen = masks[need]
    for at in range(rows):
        if chosen == 0:
            break
        if units.whole[here[at]]:
            if chosen & 1:
                picks[0] += 1
                picks[picks[0]] = here[at]
            chosen >>= 1
    return float(sums[need])


@kernel
def bound_at(arrays: Arrays, shape: int, node: int) -> float:
    """A lower bound of what room for one more pod of ``shape`` on ``node`` costs, whatever units may leave.

    0 only where there is room. `cost_at` of all units is no such bound: where CPU or memory is short it adds units by a
    rule of thumb, which may choose better among fewer.
    """
    nodes, request = arrays.nodes, arrays.shapes.request
    arrays.scratch.picks[0] = 0
    if not arrays.shapes.allowed[shape, node]:
        return IMPOSSIBLE
    need = lacking(arrays, shape, node)
    if need <= 0 and suffices(arrays, shape, node):
        return 0.0
    count = look_around(arrays, node, NONE)
    bound = cover(arrays, count, need) if need > 0 else cheapest_here(arrays, count)
    for resource in range(request.shape[1]):
        lack = request[shape, resource] - nodes.later[node, resource]
        if request[shape, resource] > 0 and resource != nodes.gpu and lack > 0:
            bound = max(bound, bound_of_lack(arrays, count, resource, lack))
    return bound


@kernel
def cheapest_here(arrays: Arrays, rows: int) -> float:
    """The cost of the cheapest of the first ``rows`` units here."""
    units, least = arrays.units, IMPOSSIBLE
    for at in range(rows):
        least = min(least, units.cost[units.unit[arrays.scratch.here[at]]])
    return float(least)


@kernel
def bound_of_lack(arrays: Arrays, rows: int, resource: int, lack: int) -> float:
    """A lower bound of what those of the first ``rows`` units here cost that hold ``lack`` of a resource together.

    As if parts of units could leave, of which none counts with more than ``lack``.
    """
    units, bound, total = arrays.units, IMPOSSIBLE, 0
    for at in range(rows):
        row = arrays.scratch.here[at]
        cost, held = units.cost[units.unit[row]], min(lack, units.request[row, resource])
        if held > 0 and cost < IMPOSSIBLE:
            bound = min(bound, cost * (lack / held))
            total += held
    return float(bound) if total >= lack else IMPOSSIBLE


@kernel
def suffices(arrays: Arrays, shape: int, node: int) -> bool:
    """Whether all resources but devices suffice for a pod of ``shape`` once the picks have left."""
    nodes, units, picks, parts = arrays.nodes, arrays.units, arrays.scratch.picks, arrays.shapes.parts[shape]
    opens = parts > 0 and shared_device(nodes, parts, node, False) == NONE
    for resource in range(arrays.shapes.request.shape[1]):
        asked = arrays.shapes.request[shape, resource]
        if opens and resource == nodes.slots:
            asked += 1  # For the reservation pod.
        if asked <= 0 or resource == nodes.gpu:
            continue
        have = nodes.later[node, resource]
        for at in range(1, picks[0] + 1):
            have += units.request[picks[at], resource]
        if have < asked:
            return False
    return bool(arrays.zones.row[node] == NONE or zones_suffice(arrays, shape, node))


@kernel
def zones_suffice(arrays: Arrays, shape: int, node: int) -> bool:
    """Whether the compartments of ``node`` take a pod of ``shape`` once the picks have left."""
    zones = arrays.zones
    row = zones.row[node]
    width, count = zones.width[shape, row], zones.later.shape[1]
    if width == 0:
        return True
    fits_all = True
    for resource in range(zones.aware.shape[1]):
        asked = zones.asked[shape, resource]
        if asked > 0 and zones.aware[row, resource]:
            free = 0
            for zone in range(count):
                free += zone_left(arrays, row, zone, resource)
            fits_all = fits_all and free >= asked
    if width > 1 or not fits_all:
        return fits_all
    for zone in range(count):
        fits = True
        for resource in range(zones.aware.shape[1]):
            asked = zones.asked[shape, resource]
            if asked > 0 and zones.aware[row, resource]:
                fits = fits and zone_left(arrays, row, zone, resource) >= asked
        if fits:
            return True
    return False


@kernel
def zone_left(arrays: Arrays, row: int, zone: int, resource: int) -> int:
    """What is free of a compartment later, once the picks have left."""
    picks, zones = arrays.scratch.picks, arrays.zones
    free: int = zones.later[row, zone, resource]
    for at in range(1, picks[0] + 1):
        free += zones.held[picks[at], zone, resource]
    return max(0, free)


@kernel
def add_units(arrays: Arrays, shape: int, node: int, rows: int) -> float:
    """Pick the cheapest others of the first ``rows`` units here until all resources suffice; what they cost."""
    units, picks, here = arrays.units, arrays.scratch.picks, arrays.scratch.here
    total: float = 0.0
    while picks[0] < WIDTH:
        best, least = NONE, IMPOSSIBLE
        for number in range(rows):
            row = here[number]
            cost = units.cost[units.unit[row]]
            if cost >= least:
                continue
            is_picked = False
            for at in range(1, picks[0] + 1):
                is_picked = is_picked or picks[at] == row
            if not is_picked:
                best, least = row, cost
        if best == NONE:
            return IMPOSSIBLE
        picks[0] += 1
        picks[picks[0]] = best
        total += least
        if suffices(arrays, shape, node):
            return total
    return IMPOSSIBLE


@kernel
def prune(arrays: Arrays, shape: int, node: int) -> float:
    """Leave out picks without which it suffices too, the dearest tried first; what that spares."""
    units, picks = arrays.units, arrays.scratch.picks
    need = lacking(arrays, shape, node)
    spared, tried = 0.0, BOUNDLESS * 1.0
    while True:
        at = 0
        for number in range(1, picks[0] + 1):
            cost = units.cost[units.unit[picks[number]]]
            if cost < tried and (at == 0 or cost > units.cost[units.unit[picks[at]]]):
                at = number
        if at == 0:
            return spared
        row = picks[at]
        tried = units.cost[units.unit[row]]
        whole = 0
        for number in range(1, picks[0] + 1):
            whole += units.whole[picks[number]]
        picks[at] = picks[picks[0]]
        picks[0] -= 1
        if whole - units.whole[row] >= need and suffices(arrays, shape, node):
            spared += tried
        else:
            picks[0] += 1
            picks[picks[0]] = row
