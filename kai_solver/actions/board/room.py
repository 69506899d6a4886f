"""Places on what is free: how many pods fit a node, which node is next, which domain is the tightest.

Nodes are packed: of those where a pod fits, those where it can start now come first, then the one with the least free.
A node is filled before the next begins (docs/kai-behaviour.md#scoring). Pods that share a device join others first, on
the device with the least free, and open a new one where they find none; that takes a pod slot for its reservation pod.
"""

from kai_solver.actions.board.arrays import (
    BLOCK,
    BOUNDLESS,
    CAUGHT_UP,
    CHANGED,
    NONE,
    PODS,
    Arrays,
    Domains,
    IntArray,
    Nodes,
    Shapes,
    Zones,
)
from kai_solver.compiled import kernel
from kai_solver.units.shares import PARTS_OF_MILLI, WHOLE

UNSHARED = 2**57
LATER = 2**53
NOT_FOR_IT = 2**48
"""Added to what is free: where a pod finds no shared device to join; where it cannot start now; where a pod without
GPUs would be on a node that has some."""
POINT = NOT_FOR_IT // 10
"""A point of a rule's score, of which the best is a hundred: ten of them outweigh that a node has GPUs."""


@kernel
def has_devices(nodes: Nodes, shapes: Shapes, shape: int, node: int) -> bool:
    """Whether ``node`` has the devices that one more pod of ``shape`` asks for."""
    return bool(nodes.whole_later[node] >= shapes.devices[shape] or 0 < shapes.parts[shape] <= nodes.most_parts[node])


@kernel
def room_at(arrays: Arrays, shape: int, node: int) -> int:
    """How many pods of ``shape`` fit ``node`` once all that leaves has left."""
    nodes, shapes = arrays.nodes, arrays.shapes
    if not (shapes.allowed[shape, node] and has_devices(nodes, shapes, shape, node)):
        return 0
    devices = shapes.devices[shape]
    if shapes.parts[shape] > 0:
        room = share_room(nodes, shapes.parts[shape], node, False)
    else:
        room = BOUNDLESS if devices == 0 else nodes.whole_later[node] // devices
    for resource in range(shapes.request.shape[1]):
        asked = shapes.request[shape, resource]
        if asked > 0 and resource != nodes.gpu and room > 0:
            room = min(room, nodes.later[node, resource] // asked)
    if room > 0 and arrays.zones.row[node] != NONE:
        room = min(room, zone_room(arrays.zones, shape, node, False))
    return max(0, room)


@kernel
def room_now(arrays: Arrays, shape: int, node: int) -> int:
    """How many of the pods that fit can start now."""
    nodes, shapes = arrays.nodes, arrays.shapes
    devices = shapes.devices[shape]
    if shapes.parts[shape] > 0:
        room = share_room(nodes, shapes.parts[shape], node, True)
    else:
        room = BOUNDLESS if devices == 0 else nodes.whole_now[node] // devices
    for resource in range(shapes.request.shape[1]):
        asked = shapes.request[shape, resource]
        if asked > 0 and resource != nodes.gpu and room > 0:
            room = min(room, min(nodes.now[node, resource], nodes.later[node, resource]) // asked)
    if room > 0 and arrays.zones.row[node] != NONE:
        room = min(room, zone_room(arrays.zones, shape, node, True))
    return max(0, room)


@kernel
def share_room(nodes: Nodes, parts: int, node: int, now: bool) -> int:
    """How many pods that take ``parts`` of a device find devices, and slots for the reservation pods of new ones."""
    whole, slots, devices = nodes.whole_later[node], nodes.later[node, nodes.slots], nodes.parts.shape[1]
    if now:
        whole, slots = min(whole, nodes.whole_now[node]), min(slots, nodes.now[node, nodes.slots])
    joining, each = 0, WHOLE // parts
    for device in range(devices):
        joining += share_free(nodes, node, device, now) // parts
    room = joining + whole * each
    if slots >= room + devices // 2:
        return int(room)
    if slots <= joining:
        return int(max(0, slots))
    rest = slots - joining
    return int(min(room, joining + rest // (each + 1) * each + max(rest % (each + 1) - 1, 0)))


@kernel
def share_free(nodes: Nodes, node: int, device: int, now: bool) -> int:
    """Parts that are free of a shared device: later, or now and promised to no pod."""
    free: int = nodes.parts[node, device]
    return min(free, nodes.parts_now[node, device]) if now else free


@kernel
def shared_device(nodes: Nodes, parts: int, node: int, now: bool) -> int:
    """The shared device with the least free that still has ``parts``, later and perhaps ``now``; `NONE`."""
    best, least = NONE, BOUNDLESS
    for device in range(nodes.parts.shape[1]):
        free = nodes.parts[node, device]
        if free < least and share_free(nodes, node, device, now) >= parts:
            best, least = device, free
    return best


@kernel
def lacking(arrays: Arrays, shape: int, node: int) -> int:
    """How many whole devices ``node`` lacks for one more pod of ``shape``; 0 or less: none."""
    parts = arrays.shapes.parts[shape]
    if parts > 0 and shared_device(arrays.nodes, parts, node, False) != NONE:
        return 0
    return int(arrays.shapes.devices[shape] - arrays.nodes.whole_later[node])


@kernel
def zone_free(zones: Zones, row: int, zone: int, resource: int, now: bool) -> int:
    """What is free of a compartment: later, or now and promised to no pod."""
    free: int = zones.later[row, zone, resource]
    if now:
        free = min(free, zones.now[row, zone, resource])
    return max(0, free)


@kernel
def zone_room(zones: Zones, shape: int, node: int, now: bool) -> int:
    """How many pods of ``shape`` the compartments of ``node`` take."""
    row, room = zones.row[node], 0
    width = zones.width[shape, row]
    if width == 0:
        return BOUNDLESS
    for zone in range(zones.later.shape[1]):
        here = BOUNDLESS
        for resource in range(zones.aware.shape[1]):
            asked = zones.asked[shape, resource]
            if asked > 0 and zones.aware[row, resource]:
                here = min(here, zone_free(zones, row, zone, resource, now) // asked)
        room += here
    if width == 1:
        return int(room)
    room = BOUNDLESS
    for resource in range(zones.aware.shape[1]):
        asked = zones.asked[shape, resource]
        if asked > 0 and zones.aware[row, resource]:
            free = 0
            for zone in range(zones.later.shape[1]):
                free += zone_free(zones, row, zone, resource, now)
            room = min(room, free // asked)
    return int(room)


@kernel
def take_zones(zones: Zones, shape: int, node: int, now: bool, takes: IntArray, at: int) -> None:
    """A pod takes the first compartment that fits, or of all of them, the first first; written into ``takes``."""
    row = zones.row[node]
    takes[at] = 0
    width, count = zones.width[shape, row], zones.later.shape[1]
    first = NONE
    for zone in range(count if width == 1 else 0):
        fits = True
        for resource in range(zones.aware.shape[1]):
            if zones.aware[row, resource]:
                fits = fits and zone_free(zones, row, zone, resource, now) >= zones.asked[shape, resource]
        if fits:
            first = zone
            break
    for resource in range(zones.aware.shape[1]):
        left = zones.asked[shape, resource]
        if width == 0 or left <= 0 or not zones.aware[row, resource]:
            continue
        for zone in range(count):
            if width > 1 or zone == first:
                part = min(left, zone_free(zones, row, zone, resource, now))
                takes[at, zone, resource] = part
                left -= part
    give_zones(zones, node, now, takes, at, -1)


@kernel
def give_zones(zones: Zones, node: int, now: bool, takes: IntArray, at: int, sign: int) -> None:
    """What a pod took of the compartments of ``node`` is free again (+1), or taken (-1)."""
    row = zones.row[node]
    for zone in range(zones.later.shape[1]):
        for resource in range(zones.aware.shape[1]):
            zones.later[row, zone, resource] += sign * takes[at, zone, resource]
            if now:
                zones.now[row, zone, resource] += sign * takes[at, zone, resource]


@kernel
def count_block(nodes: Nodes, node: int) -> None:
    """Find the largest free amounts of a node's block again."""
    block = node // BLOCK
    whole, parts, cpu = 0, 0, 0
    for other in range(block * BLOCK, min(len(nodes.whole_later), (block + 1) * BLOCK)):
        whole = max(whole, nodes.whole_later[other])
        cpu = max(cpu, nodes.later[other, nodes.cpu])
        parts = max(parts, nodes.most_parts[other])
    nodes.block_whole[block], nodes.block_parts[block], nodes.block_cpu[block] = whole, parts, cpu


@kernel
def shift(arrays: Arrays, node: int, shape: int, sign: int, now: bool, takes: IntArray, at: int) -> None:
    """A pod of ``shape`` takes (-1) or gives back (+1) room on ``node``; ``now``: what is free now, too.

    What it takes of compartments is written to, or is in, ``takes`` at ``at``; which device it shares, `Record.device`.
    """
    nodes, shapes = arrays.nodes, arrays.shapes
    for resource in range(shapes.request.shape[1]):
        amount = sign * shapes.request[shape, resource]
        nodes.later[node, resource] += amount
        if now:
            nodes.now[node, resource] += amount
    devices = shapes.devices[shape]
    if shapes.parts[shape] > 0:
        if sign < 0:
            take_share(arrays, shape, node, now, at)
        else:
            give_share(arrays, shape, node, now, at)
    elif devices:
        free_devices(arrays, node, sign * devices)
        if now:
            nodes.whole_now[node] += sign * devices
    if arrays.zones.row[node] != NONE:
        if sign < 0:
            take_zones(arrays.zones, shape, node, now, takes, at)
        else:
            give_zones(arrays.zones, node, now, takes, at, +1)
    count_block(nodes, node)
    note(arrays, node)


@kernel
def take_share(arrays: Arrays, shape: int, node: int, now: bool, at: int) -> None:
    """A pod takes its parts of a shared device, or of a new one; which is written at ``at``."""
    nodes, parts = arrays.nodes, arrays.shapes.parts[shape]
    device = shared_device(nodes, parts, node, now)
    if device == NONE:
        device = nodes.parts.shape[1] // 2
        while nodes.is_shared[node, device]:
            device += 1
        free_devices(arrays, node, -1)
        set_parts(arrays, node, device, WHOLE)
        nodes.later[node, nodes.slots] -= 1
        nodes.is_shared[node, device], nodes.parts_now[node, device] = True, 0
        if now:
            nodes.whole_now[node] -= 1
            nodes.now[node, nodes.slots] -= 1
            nodes.parts_now[node, device] = WHOLE
    set_parts(arrays, node, device, nodes.parts[node, device] - parts)
    if now:
        nodes.parts_now[node, device] -= parts
    arrays.record.device[at] = device


@kernel
def give_share(arrays: Arrays, shape: int, node: int, now: bool, at: int) -> None:
    """A pod gives back what `take_share` took: a device is no longer shared if all of it is free."""
    nodes, parts, device = arrays.nodes, arrays.shapes.parts[shape], arrays.record.device[at]
    set_parts(arrays, node, device, nodes.parts[node, device] + parts)
    if now:
        nodes.parts_now[node, device] += parts
    if nodes.parts[node, device] == WHOLE:
        if nodes.parts_now[node, device] == WHOLE:
            nodes.whole_now[node] += 1
            nodes.now[node, nodes.slots] += 1
        nodes.is_shared[node, device], nodes.parts_now[node, device] = False, 0
        nodes.later[node, nodes.slots] += 1
        set_parts(arrays, node, device, 0)
        free_devices(arrays, node, 1)


@kernel
def set_parts(arrays: Arrays, node: int, device: int, parts: int) -> None:
    """So many ``parts`` of a shared device are free later."""
    nodes, before, most = arrays.nodes, arrays.nodes.parts[node, device], 0
    nodes.parts[node, device] = parts
    for other in range(nodes.parts.shape[1]):
        most = max(most, nodes.parts[node, other])
    nodes.most_parts[node] = most
    free_milli(arrays, node, parts // PARTS_OF_MILLI - before // PARTS_OF_MILLI)


@kernel
def free_devices(arrays: Arrays, node: int, count: int) -> None:
    """``count`` more whole devices are free later; fewer where it is below 0."""
    arrays.nodes.whole_later[node] += count
    free_milli(arrays, node, 1000 * count)


@kernel
def free_milli(arrays: Arrays, node: int, milli: int) -> None:
    """So many thousandths of devices more are free later."""
    arrays.nodes.gpu_free[node] += milli
    domains = arrays.domains
    for level in range(len(domains.of_node)):
        domain = domains.of_node[level, node]
        if domain != NONE:
            domains.free[level, domain] += milli


@kernel
def note(arrays: Arrays, node: int) -> None:
    """Note that something changed on ``node``; once, as long as no shape has seen it."""
    scratch, numbers = arrays.scratch, arrays.record.numbers
    if scratch.noted[node] >= numbers[CAUGHT_UP]:
        return
    if numbers[CHANGED] == len(scratch.changed):
        forget(arrays)
    scratch.changed[numbers[CHANGED]], scratch.noted[node] = node, numbers[CHANGED]
    numbers[CHANGED] += 1


@kernel
def forget(arrays: Arrays) -> None:
    """No lower bound is known any more: all are found again when they are asked for."""
    scratch, numbers = arrays.scratch, arrays.record.numbers
    scratch.is_known[:] = False
    scratch.seen[:] = 0
    scratch.noted[:] = NONE
    numbers[CHANGED] = numbers[CAUGHT_UP] = 0


@kernel
def key_at(arrays: Arrays, shape: int, node: int) -> int:
    """What orders nodes where a pod fits: the least comes first."""
    nodes, shapes = arrays.nodes, arrays.shapes
    if shapes.devices[shape]:
        key: int = nodes.gpu_free[node]
    else:
        key = nodes.later[node, nodes.cpu] + (NOT_FOR_IT if nodes.has_gpus[node] else 0)
    if shapes.parts[shape] > 0 and shared_device(nodes, shapes.parts[shape], node, False) == NONE:
        key += UNSHARED
    if shapes.handicap.shape[1]:
        key += shapes.handicap[shape, node]
    return key if room_now(arrays, shape, node) > 0 else key + LATER


@kernel
def best_node(arrays: Arrays, shape: int, level: int, domain: int) -> int:
    """The node that the next pod of ``shape`` takes, in a domain or anywhere; `NONE` where it fits nowhere."""
    nodes, domains = arrays.nodes, arrays.domains
    best, least = NONE, BOUNDLESS
    if domain != NONE:
        for at in range(domains.first[level, domain], domains.first[level, domain + 1]):
            node = domains.nodes[level, at]
            if room_at(arrays, shape, node) > 0:
                key = key_at(arrays, shape, node)
                if key < least:
                    best, least = node, key
        return best
    for block in range(len(nodes.block_whole)):
        if not may_fit(arrays, shape, block):
            continue
        for node in range(block * BLOCK, min(len(nodes.whole_later), (block + 1) * BLOCK)):
            if has_devices(arrays.nodes, arrays.shapes, shape, node) and room_at(arrays, shape, node) > 0:
                key = key_at(arrays, shape, node)
                if key < least:
                    best, least = node, key
    return best


@kernel
def may_fit(arrays: Arrays, shape: int, block: int) -> bool:
    """Whether a pod of ``shape`` may fit some node of a block."""
    nodes, shapes = arrays.nodes, arrays.shapes
    if nodes.block_cpu[block] < shapes.request[shape, nodes.cpu]:
        return False
    if 0 < shapes.parts[shape] <= nodes.block_parts[block]:
        return True
    return bool(nodes.block_whole[block] >= shapes.devices[shape])


@kernel
def fill(
    arrays: Arrays, shape: int, count: int, level: int, domain: int, to: IntArray, takes: IntArray, at: int, later: bool
) -> int:
    """Give ``count`` pods of ``shape`` places, written into ``to`` from ``at`` on; how many found one.

    ``takes``: gets what they take of compartments. ``later``: none is to start now, even where it could.
    """
    is_now = arrays.record.is_now
    done = 0
    while done < count:
        node = best_node(arrays, shape, level, domain)
        if node == NONE:
            break
        now = 0 if later else room_now(arrays, shape, node)
        room = min(room_at(arrays, shape, node), count - done)
        if now > 0:
            room = min(room, now)
        if arrays.shapes.parts[shape] > 0:
            room = 1  # The next one may find a device to join elsewhere.
        for _ in range(room):
            to[at + done] = node
            if not later:
                is_now[at + done] = now > 0
            shift(arrays, node, shape, -1, now > 0, takes, at + done)
            done += 1
    return done


@kernel
def empty(arrays: Arrays, shape: int, count: int, to: IntArray, takes: IntArray, at: int, later: bool) -> None:
    """Take back what `fill` gave."""
    for number in range(at, at + count):
        shift(arrays, to[number], shape, +1, not later and arrays.record.is_now[number], takes, number)


@kernel
def place(arrays: Arrays, gang: int) -> bool:
    """Give all pods of ``gang`` places on what is free, or change nothing; they start together or not now."""
    gangs, numbers = arrays.gangs, arrays.record.numbers
    shape, count, level, first = gangs.shape[gang], gangs.pods[gang], gangs.level[gang], numbers[PODS]
    node, is_now = arrays.record.node, arrays.record.is_now
    domain = NONE
    if level != NONE:
        domain = tightest(arrays, shape, count, level)
        if domain == NONE:
            return False
    placed = arrays.zones.placed
    done = fill(arrays, shape, count, level, domain, node, placed, first, False)
    if done < count:
        empty(arrays, shape, done, node, placed, first, False)
        return False
    all_now = True
    for at in range(first, first + count):
        all_now = all_now and is_now[at]
    if not all_now:
        for at in range(first, first + count):
            if is_now[at]:
                wait(arrays, node[at], shape, at)
                is_now[at] = False
    numbers[PODS] += count
    return True


@kernel
def fits(arrays: Arrays, gang: int) -> bool:
    """Whether all pods of ``gang`` fit what is free: what `place` finds, and nothing is changed."""
    gangs = arrays.gangs
    shape, left, level = gangs.shape[gang], gangs.pods[gang], gangs.level[gang]
    if level != NONE:
        return tightest(arrays, shape, left, level) != NONE
    for node in range(len(arrays.nodes.whole_later)):
        left -= room_at(arrays, shape, node)
        if left <= 0:
            return True
    return False


@kernel
def wait(arrays: Arrays, node: int, shape: int, at: int) -> None:
    """A pod that has a place on ``node`` and could start now does not: what is free now stays so."""
    zones = arrays.zones
    nodes, shapes = arrays.nodes, arrays.shapes
    for resource in range(shapes.request.shape[1]):
        nodes.now[node, resource] += shapes.request[shape, resource]
    if shapes.parts[shape] > 0:
        nodes.parts_now[node, arrays.record.device[at]] += shapes.parts[shape]
    else:
        nodes.whole_now[node] = min(nodes.whole_now[node] + shapes.devices[shape], nodes.whole_later[node])
    row = zones.row[node]
    if row != NONE:
        for zone in range(zones.now.shape[1]):
            for resource in range(zones.now.shape[2]):
                zones.now[row, zone, resource] += zones.placed[at, zone, resource]


@kernel
def tightest(arrays: Arrays, shape: int, count: int, level: int) -> int:
    """The domain with room for ``count`` pods that has the least free, from the outermost level in; `NONE`."""
    domains = arrays.domains
    best = NONE
    parts = arrays.shapes.parts[shape]
    least = count * (parts // PARTS_OF_MILLI if parts > 0 else 1000 * arrays.shapes.devices[shape])
    for domain in range(domains.number[level]):
        if domains.free[level, domain] < least:
            continue
        if best != NONE and not is_tighter(domains, level, domain, best):
            continue
        if domain_room(arrays, shape, level, domain, count) >= count:
            best = domain
    return best


@kernel
def is_tighter(domains: Domains, level: int, one: int, other: int) -> bool:
    """Whether domain ``one`` comes before ``other`` of a level: by the outermost level where what is free differs."""
    tighter = False
    while level != NONE:
        free, rest = domains.free[level, one], domains.free[level, other]
        if free != rest:
            tighter = free < rest
        one, other, level = domains.parent[level, one], domains.parent[level, other], domains.outer[level]
    return tighter


@kernel
def domain_room(arrays: Arrays, shape: int, level: int, domain: int, enough: int) -> int:
    """How many pods of ``shape`` fit a domain; no more than ``enough`` are counted."""
    domains = arrays.domains
    room = 0
    for at in range(domains.first[level, domain], domains.first[level, domain + 1]):
        node = domains.nodes[level, at]
        room += room_at(arrays, shape, node)
        if room >= enough:
            break
    return room
