"""The cheapest victims on a node, and room for a gang that is made by them.

For each shape a lower bound of the cost is kept for every node, as if all units that are at home could leave; it is
found again only where something changed. A turn begins with these bounds and looks closely at the cheapest nodes.
"""

from kai_solver.actions.board.arrays import (
    BLOCK,
    BOUNDED,
    BOUNDLESS,
    CAUGHT_UP,
    CHANGED,
    CONSOLIDATE,
    EXACT,
    HOME,
    IMPOSSIBLE,
    LEFT,
    MOVED,
    MOVES,
    NONE,
    PODS,
    RECLAIM,
    ROUGH,
    STAMP,
    WASTED,
    WIDTH,
    Arrays,
    IntArray,
)
from kai_solver.actions.board.order import pay
from kai_solver.actions.board.rights import accepts, may_take, passes_cap, permits, spend
from kai_solver.actions.board.room import (
    best_node,
    count_block,
    empty,
    fill,
    free_devices,
    give_zones,
    lacking,
    note,
    shared_device,
    shift,
    tightest,
)
from kai_solver.compiled import kernel

DOMAINS_TRIED = 16
"""Domains in which room is tried to be made for one gang, the cheapest by estimate first."""

FEW = 8
"""Nodes for each unit that may be taken, from which on a turn begins with the nodes of these units alone. Else it
begins with all nodes, and closes those without such units once `MOST_WASTED` close looks were in vain. On 20,000 nodes
to go through 10,000 units took 0.4 ms, up to three times a turn, and most turns need one of them (2026-11-29)."""

MOST_WASTED = 256

# -- one node ----------------------------------------------------------------------------------------------------------


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


# -- all nodes ---------------------------------------------------------------------------------------------------------


@kernel
def set_cost(arrays: Arrays, node: int, cost: float) -> None:
    """Write the cost of a node, and the least of its block."""
    scratch = arrays.scratch
    scratch.cost[node] = cost
    block = node // BLOCK
    least = IMPOSSIBLE
    for other in range(block * BLOCK, min(len(scratch.cost), (block + 1) * BLOCK)):
        least = min(least, scratch.cost[other])
    scratch.block_cost[block] = least


@kernel
def begin_costs(arrays: Arrays, shape: int, below: int) -> None:
    """Begin with the lower bounds of all nodes; where few units may be taken, of the nodes of these alone."""
    scratch, nodes = arrays.scratch, len(arrays.nodes.whole_later)
    arrays.record.numbers[WASTED] = 0
    if has_few_open(arrays):
        arrays.record.numbers[WASTED] = MOST_WASTED
        scratch.cost[:] = IMPOSSIBLE
        scratch.block_cost[:] = IMPOSSIBLE
        for at in range(list_open(arrays, below)):
            node = arrays.units.node[scratch.rows[at]]
            least = scratch.least[shape, node]
            scratch.cost[node] = least
            scratch.block_cost[node // BLOCK] = min(scratch.block_cost[node // BLOCK], least)
        return
    for block in range(len(scratch.block_cost)):
        least = IMPOSSIBLE
        for node in range(block * BLOCK, min(nodes, (block + 1) * BLOCK)):
            scratch.cost[node] = scratch.least[shape, node]
            least = min(least, scratch.cost[node])
        scratch.block_cost[block] = least


@kernel
def waste(arrays: Arrays, looks: int, below: int) -> bool:
    """Note so many ``looks`` in vain; once they are too many, nodes without units that may be taken are closed.

    Whether that happened now. No such node is ever of use: a close look would close it.
    """
    numbers, scratch, units = arrays.record.numbers, arrays.scratch, arrays.units
    if numbers[WASTED] >= MOST_WASTED:
        return False
    numbers[WASTED] += looks
    if numbers[WASTED] < MOST_WASTED:
        return False
    scratch.gain[:] = 0
    for at in range(list_open(arrays, below)):
        scratch.gain[units.node[scratch.rows[at]]] = 1
    nodes = len(scratch.cost)
    for block in range(len(scratch.block_cost)):
        least = IMPOSSIBLE
        for node in range(block * BLOCK, min(nodes, (block + 1) * BLOCK)):
            if scratch.gain[node] == 0:
                scratch.cost[node] = IMPOSSIBLE
            least = min(least, scratch.cost[node])
        scratch.block_cost[block] = least
    return True


@kernel
def list_open(arrays: Arrays, below: int) -> int:
    """Write the rows of units that may be taken in this turn into `Scratch.rows`; how many there are."""
    units, scratch, stamp = arrays.units, arrays.scratch, arrays.record.numbers[STAMP]
    count = 0
    for queue in range(len(scratch.open_queue)):
        if scratch.open_queue[queue] != stamp:
            continue
        for at in range(units.first_of[queue], units.first_of[queue + 1]):
            unit = units.of_queue[at]
            if not may_take(arrays, unit, below):
                continue
            is_moved = units.where[unit] == MOVED
            for number in range(rows_of(arrays, unit, is_moved)):
                row = row_at(arrays, unit, is_moved, number)
                if units.node[row] != NONE:
                    scratch.rows[count] = row
                    count += 1
    return count


@kernel
def has_few_open(arrays: Arrays) -> bool:
    """Whether the queues that are open in this turn have far fewer units than there are nodes."""
    units, scratch, stamp = arrays.units, arrays.scratch, arrays.record.numbers[STAMP]
    count = 0
    for queue in range(len(scratch.open_queue)):
        if scratch.open_queue[queue] == stamp:
            count += units.first_of[queue + 1] - units.first_of[queue]
    return bool(FEW * count < len(arrays.nodes.whole_later))


@kernel
def know_least(arrays: Arrays, shape: int) -> None:
    """Find the lower bounds of ``shape`` again where something changed."""
    scratch, numbers = arrays.scratch, arrays.record.numbers
    if not scratch.is_known[shape]:
        for node in range(len(arrays.nodes.whole_later)):
            scratch.least[shape, node] = bound_at(arrays, shape, node)
        for level in range(len(arrays.domains.number)):
            for domain in range(arrays.domains.number[level]):
                scratch.least_in[shape, level, domain] = find_least_in(arrays, shape, level, domain)
        scratch.is_known[shape] = True
    else:
        for at in range(scratch.seen[shape], numbers[CHANGED]):
            know_again(arrays, shape, scratch.changed[at])
    scratch.seen[shape] = numbers[CAUGHT_UP] = numbers[CHANGED]


@kernel
def know_again(arrays: Arrays, shape: int, node: int) -> None:
    """Find the lower bound of one node again, and with it those of its domains."""
    scratch, domains = arrays.scratch, arrays.domains
    before = scratch.least[shape, node]
    now = bound_at(arrays, shape, node)
    scratch.least[shape, node] = now
    for level in range(len(domains.number)):
        domain = domains.of_node[level, node]
        if domain == NONE:
            continue
        if now <= scratch.least_in[shape, level, domain]:
            scratch.least_in[shape, level, domain] = now
        elif before == scratch.least_in[shape, level, domain]:
            scratch.least_in[shape, level, domain] = find_least_in(arrays, shape, level, domain)


@kernel
def find_least_in(arrays: Arrays, shape: int, level: int, domain: int) -> float:
    """The least lower bound of the nodes of a domain."""
    scratch, domains, least = arrays.scratch, arrays.domains, IMPOSSIBLE
    for at in range(domains.first[level, domain], domains.first[level, domain + 1]):
        least = min(least, scratch.least[shape, domains.nodes[level, at]])
    return float(least)


@kernel
def cheapest(arrays: Arrays, level: int, domain: int) -> int:
    """The node of the least cost by now, in a domain or anywhere; `NONE` where room cannot be made."""
    scratch, domains = arrays.scratch, arrays.domains
    best, least = NONE, IMPOSSIBLE
    if domain != NONE:
        for at in range(domains.first[level, domain], domains.first[level, domain + 1]):
            node = domains.nodes[level, at]
            if scratch.cost[node] < least:
                best, least = node, scratch.cost[node]
        return best
    at_block = NONE
    for block in range(len(scratch.block_cost)):
        if scratch.block_cost[block] < least:
            at_block, least = block, scratch.block_cost[block]
    if at_block == NONE:
        return NONE
    for node in range(at_block * BLOCK, min(len(scratch.cost), (at_block + 1) * BLOCK)):
        if scratch.cost[node] == least:
            return node
    return NONE


# -- units -------------------------------------------------------------------------------------------------------------


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
def update_costs(arrays: Arrays, shape: int, unit: int, below: int) -> None:
    """Look closely at all nodes of ``unit``, which left."""
    is_moved = arrays.scratch.was_moved[unit]
    for number in range(rows_of(arrays, unit, is_moved)):
        node = arrays.units.node[row_at(arrays, unit, is_moved, number)]
        if node != NONE:
            set_cost(arrays, node, cost_at(arrays, shape, node, below))


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


# -- room for a gang ---------------------------------------------------------------------------------------------------


@kernel
def make_room(arrays: Arrays, gang: int, action: int, below: int, frugal: bool) -> int:
    """Place all pods of ``gang`` with the units that are open in this turn; how many units were disturbed.

    `NONE`, with nothing changed, where there is no way. ``frugal``: in reclaim, take no more of a queue than all that
    leaves may be, if none of it moves.
    """
    level, shape = arrays.gangs.level[gang], arrays.gangs.shape[gang]
    know_least(arrays, shape)
    if level == NONE:
        return make_room_in(arrays, gang, action, below, frugal, NONE)
    estimate_domains(arrays, shape, arrays.gangs.pods[gang], level, below)
    for _ in range(DOMAINS_TRIED):
        domain = cheapest_domain(arrays, gang, below)
        if domain == NONE:
            return NONE
        arrays.scratch.domain_cost[domain] = IMPOSSIBLE
        done = make_room_in(arrays, gang, action, below, frugal, domain)
        if done != NONE:
            return done
    return NONE


@kernel
def estimate_domains(arrays: Arrays, shape: int, count: int, level: int, below: int) -> None:
    """Estimate for each domain what room for ``count`` pods costs at the least: so many times its cheapest node."""
    scratch = arrays.scratch
    begin_costs(arrays, shape, below)
    are_all_open = arrays.record.numbers[WASTED] < MOST_WASTED
    for domain in range(arrays.domains.number[level]):
        scratch.exactness[domain] = ROUGH
        least = scratch.least_in[shape, level, domain]
        if are_all_open:
            scratch.domain_cost[domain] = count * least if least < IMPOSSIBLE else IMPOSSIBLE
        else:
            estimate_roughly(arrays, shape, count, level, domain)


@kernel
def estimate_roughly(arrays: Arrays, shape: int, count: int, level: int, domain: int) -> None:
    """Estimate a domain at so many times its cheapest node, as known by now."""
    node = next_in(arrays, shape, level, domain)
    cost = IMPOSSIBLE if node == NONE else count * cost_of_next(arrays, shape, node)
    arrays.scratch.domain_cost[domain] = cost


@kernel
def next_in(arrays: Arrays, shape: int, level: int, domain: int) -> int:
    """The node of a domain on which one more pod costs the least, as known by now; `NONE` where room cannot be made."""
    domains, best, least = arrays.domains, NONE, IMPOSSIBLE
    for at in range(domains.first[level, domain], domains.first[level, domain + 1]):
        node = domains.nodes[level, at]
        cost = cost_of_next(arrays, shape, node)
        if cost < least:
            best, least = node, cost
    return best


@kernel
def raise_estimates(arrays: Arrays, shape: int, count: int, level: int) -> None:
    """Estimate domains again that were not looked at closely: some of their nodes were closed."""
    scratch, domains = arrays.scratch, arrays.domains
    for domain in range(domains.number[level]):
        if scratch.domain_cost[domain] >= IMPOSSIBLE or scratch.exactness[domain] == EXACT:
            continue
        if scratch.exactness[domain] == BOUNDED:
            scratch.domain_cost[domain] = domain_cost(arrays, shape, count, level, domain)
        else:
            estimate_roughly(arrays, shape, count, level, domain)


@kernel
def cost_of_next(arrays: Arrays, shape: int, node: int) -> float:
    """The cost of one more pod on ``node`` as known by now; nothing where it has room, which its lower bound shows."""
    scratch = arrays.scratch
    return 0.0 if scratch.least[shape, node] == 0.0 else float(scratch.cost[node])


@kernel
def domain_cost(arrays: Arrays, shape: int, count: int, level: int, domain: int) -> float:
    """The cost of the cheapest nodes of a domain that host ``count`` pods; each hosts as many as it has devices for."""
    domains, nodes = arrays.domains, arrays.nodes
    first, last = domains.first[level, domain], domains.first[level, domain + 1]
    devices, total, left = arrays.shapes.devices[shape], 0.0, count
    before, before_node = -1.0, NONE
    while left > 0:
        best, least = NONE, IMPOSSIBLE
        for at in range(first, last):
            node = domains.nodes[level, at]
            cost = cost_of_next(arrays, shape, node)
            is_next = cost > before or (cost == before and node > before_node)
            if is_next and cost < least:
                best, least = node, cost
        if best == NONE:
            return IMPOSSIBLE
        hosts = min(left, max(1, nodes.devices[best] // devices) if devices else left)
        total += hosts * least
        left -= hosts
        before, before_node = least, best
    return total


@kernel
def cheapest_domain(arrays: Arrays, gang: int, below: int) -> int:
    """The domain of the least cost, by close looks at no more nodes than it takes; `NONE`."""
    scratch, domains, gangs = arrays.scratch, arrays.domains, arrays.gangs
    level = gangs.level[gang]
    while True:
        best, least = NONE, IMPOSSIBLE
        for domain in range(domains.number[level]):
            if scratch.domain_cost[domain] < least:
                best, least = domain, scratch.domain_cost[domain]
        if best == NONE or scratch.exactness[best] == EXACT:
            return best
        looks = look_closer(arrays, gang, best, below)
        if looks and waste(arrays, looks, below):
            raise_estimates(arrays, gangs.shape[gang], gangs.pods[gang], level)


@kernel
def look_closer(arrays: Arrays, gang: int, domain: int, below: int) -> int:
    """Raise the estimate of a domain, or let it rest on more; how many close looks were in vain.

    First its cheapest node is looked at, then the next ones count with their lower bounds, at last all are looked at.
    """
    scratch, domains, gangs = arrays.scratch, arrays.domains, arrays.gangs
    shape, level, count = gangs.shape[gang], gangs.level[gang], gangs.pods[gang]
    before = scratch.domain_cost[domain]
    if scratch.exactness[domain] == BOUNDED:
        look_at_domain(arrays, shape, level, domain, below)
        scratch.exactness[domain] = EXACT
        scratch.domain_cost[domain] = domain_cost(arrays, shape, count, level, domain)
        is_dearer = scratch.domain_cost[domain] > before
        return int(domains.first[level, domain + 1] - domains.first[level, domain]) if is_dearer else 0
    node = next_in(arrays, shape, level, domain)
    if node == NONE:
        scratch.domain_cost[domain] = IMPOSSIBLE
        return 0
    known = cost_of_next(arrays, shape, node)
    cost = cost_at(arrays, shape, node, below)
    if cost > known:
        scratch.cost[node] = cost
        estimate_roughly(arrays, shape, count, level, domain)
        return 1
    devices = arrays.shapes.devices[shape]
    hosts_all = devices == 0 or arrays.nodes.devices[node] >= count * devices
    scratch.exactness[domain] = EXACT if hosts_all or count == 1 else BOUNDED
    scratch.domain_cost[domain] = domain_cost(arrays, shape, count, level, domain)
    return 0


@kernel
def look_at_domain(arrays: Arrays, shape: int, level: int, domain: int, below: int) -> None:
    """Find the exact costs of all nodes of a domain."""
    domains = arrays.domains
    for at in range(domains.first[level, domain], domains.first[level, domain + 1]):
        node = domains.nodes[level, at]
        arrays.scratch.cost[node] = cost_at(arrays, shape, node, below)


@kernel
def make_room_in(arrays: Arrays, gang: int, action: int, below: int, frugal: bool, domain: int) -> int:
    """`make_room` in one domain, or anywhere."""
    gangs, record = arrays.gangs, arrays.record
    shape, count, level, first = gangs.shape[gang], gangs.pods[gang], gangs.level[gang], record.numbers[PODS]
    if domain == NONE:
        begin_costs(arrays, shape, below)
    else:
        look_at_domain(arrays, shape, level, domain, below)
    taken, placed = 0, 0
    while placed < count:
        node = best_node(arrays, shape, level, domain)
        if node == NONE:
            node, taken = clear(arrays, shape, action, below, frugal, level, domain, taken)
            if node == NONE:
                break
        record.node[first + placed], record.is_now[first + placed] = node, False
        shift(arrays, node, shape, -1, False, arrays.zones.placed, first + placed)
        set_cost(arrays, node, cost_at(arrays, shape, node, below))
        placed += 1
    moves = record.numbers[MOVES]
    done = placed == count
    if done:
        settle(arrays, taken, arrays.may_move or action == CONSOLIDATE)
        done = is_allowed(arrays, gang, action, taken)
    if done:
        record.numbers[PODS] += count
        return int(taken)
    take_back(arrays, shape, first, placed, taken, moves)
    return NONE


@kernel
def clear(
    arrays: Arrays, shape: int, action: int, below: int, frugal: bool, level: int, domain: int, taken: int
) -> tuple[int, int]:
    """Let the cheapest units leave so that one more pod fits: the node, and how many units have left by now."""
    scratch, units = arrays.scratch, arrays.units
    while True:
        node = cheapest(arrays, level, domain)
        if node == NONE:
            return NONE, taken
        before = scratch.cost[node]
        cost = cost_at(arrays, shape, node, below)
        if cost > before:
            set_cost(arrays, node, cost)
            if domain == NONE:
                waste(arrays, 1, below)
            continue
        picks = scratch.picks
        if picks[0] == 0:  # It fits, and another rule than room forbids it.
            set_cost(arrays, node, IMPOSSIBLE)
            continue
        if frugal and action == RECLAIM and not spend_picks(arrays, taken):
            # By other queues, if one was closed; else not by now: what leaves elsewhere may change it.
            cost = cost_at(arrays, shape, node, below)
            set_cost(arrays, node, cost if cost != before else IMPOSSIBLE)
            continue
        count = picks[0]
        for at in range(1, count + 1):
            scratch.units[taken] = units.unit[picks[at]]
            taken += 1
        for number in range(taken - count, taken):
            unit = scratch.units[number]
            scratch.was_moved[unit] = units.where[unit] == MOVED
            units.where[unit] = LEFT
            shift_unit(arrays, scratch.units[number], +1)
        for number in range(taken - count, taken):
            update_costs(arrays, shape, scratch.units[number], below)
        return node, taken


@kernel
def spend_picks(arrays: Arrays, taken: int) -> bool:
    """Take the picks off what may be taken of their queues, beside the first ``taken`` units of the turn.

    If that is too much, nothing is taken off; a queue from which nothing may be taken any more is closed for the turn.
    """
    units, scratch, picks = arrays.units, arrays.scratch, arrays.scratch.picks
    for at in range(1, picks[0] + 1):
        unit = units.unit[picks[at]]
        charge, sibling = units.charge[unit], scratch.victim_queue[units.queue[unit]]
        if permits(arrays, sibling, charge[0], charge[1], charge[2]):
            spend(arrays, unit)
            continue
        spend_again(arrays, taken)
        if not permits(arrays, sibling, 1, 1, 1):
            queues = arrays.queues
            for below in range(queues.first_leaf[sibling], queues.first_leaf[sibling + 1]):
                scratch.open_queue[queues.leaf[below]] = 0
        return False
    return True


@kernel
def spend_again(arrays: Arrays, taken: int) -> None:
    """Count what was taken of each queue by the first ``taken`` units of the turn."""
    scratch = arrays.scratch
    scratch.spent[:] = 0
    scratch.last[:] = 0
    for number in range(taken):
        spend(arrays, scratch.units[number])


@kernel
def settle(arrays: Arrays, taken: int, may_move: bool) -> None:
    """Let units that left stay where there is still room, the dearest first; then move what can, if they may.

    The units of the turn are then in this order, in which the record has the places of those that moved.
    """
    units, scratch = arrays.units, arrays.scratch
    for number in range(taken):
        unit, at = scratch.units[number], number
        while at > 0 and units.cost[scratch.order[at - 1]] < units.cost[unit]:
            scratch.order[at] = scratch.order[at - 1]
            at -= 1
        scratch.order[at] = unit
    for number in range(taken):
        unit = scratch.order[number]
        if fits_back(arrays, unit):
            shift_unit(arrays, unit, -1)
            units.where[unit] = MOVED if scratch.was_moved[unit] else HOME
    for number in range(taken if may_move else 0):
        unit = scratch.order[number]
        is_movable = units.movable[unit] and not scratch.was_moved[unit]
        if units.where[unit] == LEFT and is_movable and move(arrays, unit):
            units.where[unit] = MOVED
    for number in range(taken):
        scratch.units[number] = scratch.order[number]


@kernel
def move(arrays: Arrays, unit: int) -> bool:
    """Give all pods of ``unit`` places elsewhere, if its queue may hold it beside what came."""
    units, queues, record = arrays.units, arrays.queues, arrays.record
    shape, count, level, first = units.shape[unit], units.pods[unit], units.level[unit], record.numbers[MOVES]
    queue = units.queue[unit]
    while queue != NONE:
        for at in range(3):
            if units.charge[unit, at] > 0 and queues.held[queue, at] > queues.limit[queue, at]:
                return False
        queue = queues.parent[queue]
    domain = NONE
    if level != NONE:
        domain = tightest(arrays, shape, count, level)
        if domain == NONE:
            return False
    takes = arrays.zones.moved
    done = fill(arrays, shape, count, level, domain, record.moved, takes, first, True)
    if done < count:
        empty(arrays, shape, done, record.moved, takes, first, True)
        return False
    list_moved(arrays, unit, record.moved, takes, first)
    record.numbers[MOVES] += count
    return True


@kernel
def is_allowed(arrays: Arrays, gang: int, action: int, taken: int) -> bool:
    """Limits and quotas with the victims gone, and what reclaim and consolidation check themselves."""
    units, scratch, queues = arrays.units, arrays.scratch, arrays.queues
    if action == RECLAIM and not accepts(arrays, gang, taken):
        return False
    if action == CONSOLIDATE and not all_moved(arrays, taken):
        return False
    for number in range(taken):
        unit = scratch.units[number]
        if units.where[unit] == LEFT:
            pay(queues, units.queue[unit], units.charge[unit], -1, False)
    passes = passes_cap(arrays, gang, arrays.gangs.charge[gang])
    for number in range(taken):
        unit = scratch.units[number]
        if units.where[unit] == LEFT:
            pay(queues, units.queue[unit], units.charge[unit], +1, False)
    return not passes


@kernel
def all_moved(arrays: Arrays, taken: int) -> bool:
    """Whether all of the turn's units have a place, and not more moved than consolidation may move for one gang."""
    moved = 0
    for number in range(taken):
        unit = arrays.scratch.units[number]
        if arrays.units.where[unit] == LEFT:
            return False
        moved += arrays.units.where[unit] == MOVED and not arrays.scratch.was_moved[unit]
    return bool(moved <= arrays.most_moved)


@kernel
def take_back(arrays: Arrays, shape: int, first: int, placed: int, taken: int, moves: int) -> None:
    """Undo what a turn did: places, moves, and units that left."""
    units, scratch, record = arrays.units, arrays.scratch, arrays.record
    for at in range(first, first + placed):
        shift(arrays, record.node[at], shape, +1, False, arrays.zones.placed, at)
    at = moves
    for number in range(taken):
        unit = scratch.units[number]
        stayed = units.where[unit] == (MOVED if scratch.was_moved[unit] else HOME)
        if units.where[unit] == MOVED and not scratch.was_moved[unit]:
            empty(arrays, units.shape[unit], units.pods[unit], record.moved, arrays.zones.moved, at, True)
            at += units.pods[unit]
        if not stayed:
            shift_unit(arrays, unit, -1)
        units.where[unit] = MOVED if scratch.was_moved[unit] else HOME
    record.numbers[MOVES] = moves


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
