"""What room for one more pod costs on every node, and in every domain.

For each shape a lower bound of the cost is kept for every node, as if all units that are at home could leave; it is
found again only where something changed. A turn begins with these bounds and looks closely at the cheapest nodes.
"""

from kai_solver.actions.board.arrays import (
    BLOCK,
    BOUNDED,
    CAUGHT_UP,
    CHANGED,
    EXACT,
    IMPOSSIBLE,
    MOVED,
    NONE,
    ROUGH,
    STAMP,
    WASTED,
    Arrays,
)
from kai_solver.actions.board.leaving import bound_at, cost_at
from kai_solver.actions.board.rights import may_take
from kai_solver.actions.board.rows import row_at, rows_of
from kai_solver.compiled import kernel

FEW = 8
"""Nodes for each unit that may be taken, from which on a turn begins with the nodes of these units alone. Else it
begins with all nodes, and closes those without such units once `MOST_WASTED` close looks were in vain. On 20,000 nodes
to go through 10,000 units took 0.4 ms, up to three times a turn, and most turns need one of them (2026-11-29)."""

MOST_WASTED = 256


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
def has_few_open(arrays: Arrays) -> bool:
    """Whether the queues that are open in this turn have far fewer units than there are nodes."""
    units, scratch, stamp = arrays.units, arrays.scratch, arrays.record.numbers[STAMP]
    count = 0
    for queue in range(len(scratch.open_queue)):
        if scratch.open_queue[queue] == stamp:
            count += units.first_of[queue + 1] - units.first_of[queue]
    return bool(FEW * count < len(arrays.nodes.whole_later))


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
def update_costs(arrays: Arrays, shape: int, unit: int, below: int) -> None:
    """Look closely at all nodes of ``unit``, which left."""
    is_moved = arrays.scratch.was_moved[unit]
    for number in range(rows_of(arrays, unit, is_moved)):
        node = arrays.units.node[row_at(arrays, unit, is_moved, number)]
        if node != NONE:
            set_cost(arrays, node, cost_at(arrays, shape, node, below))


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
def cost_of_next(arrays: Arrays, shape: int, node: int) -> float:
    """The cost of one more pod on ``node`` as known by now; nothing where it has room, which its lower bound shows."""
    scratch = arrays.scratch
    return 0.0 if scratch.least[shape, node] == 0.0 else float(scratch.cost[node])


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
