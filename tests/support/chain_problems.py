"""Small random problems of the chain search, the rules of a result in plain Python, and the best there is by CP-SAT."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from kai_solver.chains.arrays import NONE, UNLIMITED, ChainProblem, ChainResult
from kai_solver.units.shares import WHOLE

IntArray = NDArray[np.int64]
Place = tuple[int, tuple[int, ...]]
"""Node and devices."""

WIDTH = 2
SLOTS = 1


# -- problems ----------------------------------------------------------------------------------------------------------


def random_problem(seed: int, groups: int = 7) -> ChainProblem:
    """Two to four nodes, with up to three devices, and up to ``groups`` groups of one to three pods."""
    random = np.random.default_rng(seed)
    nodes, shapes = int(random.integers(2, 5)), int(random.integers(2, 6))
    there = np.arange(3) < random.integers(0, 4, nodes)[:, None]
    sharers = (there & (random.random(there.shape) < 0.2)).astype(np.int64)
    devices = random.integers(0, WIDTH + 1, shapes)
    shared = (devices > 0) & (random.random(shapes) < 0.5)
    share = random.integers(2, 9, (shapes, 2)) * (WHOLE // 10)
    rows: dict[str, Any] = {
        "room": np.stack([random.integers(2, 9, nodes), random.integers(2, 8, nodes)], axis=1),
        "device_room": np.where(there, WHOLE, 0) - np.where(sharers > 0, 3 * WHOLE // 10, 0),
        "sharers": sharers,
        "slots": SLOTS if random.random() < 0.7 else NONE,
        "kind": random.integers(0, 2, nodes),
        "domain": random.integers(-1, 2, (1, nodes)),
        "request": np.stack([random.integers(0, 4, shapes), np.ones(shapes, dtype=np.int64)], axis=1),
        "devices": devices,
        "parts": np.where(shared[:, None], share, np.where(devices[:, None] > 0, WHOLE, 0)),
        "shared": shared,
        "allowed": random.random((2, nodes)) < 0.8,
        "mask": random.integers(0, 2, shapes),
    }
    room = _Room(rows)
    columns: dict[str, list[Any]] = defaultdict(list)
    first = [0]
    for group in range(int(random.integers(2, groups + 1))):
        first.append(first[-1] + _add_group(random, room, rows, columns, group))
    count = len(first) - 1
    rows |= {name: np.array(values) for name, values in columns.items() if name not in ("turn", "is_in")}
    rows |= {
        "first": np.array(first),
        "ledger_above": np.array([NONE, 0, NONE, NONE]),
        "ledger_limit": random.integers(2, 12, (4, 3)),
        "in_ledgers": np.stack([random.integers(-1, 2, count), random.choice([NONE, 2], count)], axis=1),
        "out_ledger": random.choice([NONE, 3], count),
        "turn": np.array(columns["turn"], dtype=np.int64),
        "moves_limit": int(random.integers(0, 4)) if random.random() < 0.3 else UNLIMITED,
        "moves_per_turn": int(random.integers(0, 3)) if random.random() < 0.5 else UNLIMITED,
    }
    return ChainProblem(**rows)


def _add_group(
    random: np.random.Generator, room: "_Room", rows: dict[str, Any], columns: dict[str, list[Any]], group: int
) -> int:
    """Add a group that runs, was evicted, got places, or waits; its size."""
    size = int(random.integers(1, 4)) if random.random() < 0.4 else 1
    level = 0 if random.random() < 0.25 else NONE
    shapes = random.integers(0, len(rows["devices"]), size).tolist()
    places = [room.drawn(random, shape) for shape in shapes]
    found = {rows["domain"][0, place[0]] for place in places if place is not None}
    is_placed = None not in places and (level == NONE or (len(found) == 1 and NONE not in found))
    state = random.choice(["runs", "evicted", "placed", "waits"], p=[0.5, 0.25, 0.1, 0.15]) if is_placed else "waits"
    runs, is_in = state in ("runs", "evicted"), state in ("runs", "placed")
    for shape, place in zip(shapes, places, strict=True):
        if place is not None and not is_in:
            room.hold(shape, place, -1)
        for name, is_there in (("home", runs), ("start", is_in)):
            node, devices = place if place is not None and is_there else (NONE, ())
            columns[name].append(node)
            columns[f"{name}_devices"].append([*sorted(devices), *[NONE] * (WIDTH - len(devices))])
        columns["shape"].append(shape)
        columns["price"].append(int(random.integers(0, 3)) if runs else 0)
    is_extra = group > 0 and runs and (not is_in or columns["is_in"][-1]) and random.random() < 0.2
    columns["is_in"].append(is_in)
    columns["cost"].append(int(random.integers(1, 20)) if runs else 0)
    columns["may_leave"].append(bool(runs and random.random() < 0.7))
    columns["may_move"].append(bool(random.random() < 0.8))
    columns["level"].append(level)
    columns["within"].append(NONE)
    columns["requires"].append(group - 1 if is_extra else NONE)
    columns["charge"].append(random.integers(0, 3, 3))
    columns["turn"] += [group] if state == "waits" else []
    return size


class _Room:
    """What is free while pods of a problem are drawn."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows = rows
        self.free, self.devices, self.sharers = (rows[n].copy() for n in ("room", "device_room", "sharers"))

    def drawn(self, random: np.random.Generator, shape: int) -> Place | None:
        """A place with room, drawn by chance and held; None where none is found soon."""
        rows = self.rows
        for _ in range(6):
            node = int(random.integers(len(self.free)))
            devices = tuple(random.permutation(3)[: rows["devices"][shape]].tolist())
            if rows["allowed"][rows["mask"][shape], node]:
                self.hold(shape, (node, devices), +1)
                if self.free[node].min() >= 0 and self.devices[node].min() >= 0:
                    return node, devices
                self.hold(shape, (node, devices), -1)
        return None

    def hold(self, shape: int, place: Place, sign: int) -> None:
        """Take (+1) or give back (-1) a place."""
        rows, (node, devices) = self.rows, place
        self.free[node] -= sign * rows["request"][shape]
        for device in devices:
            self.devices[node, device] -= sign * rows["parts"][shape, rows["kind"][node]]
            if rows["shared"][shape]:
                before = self.sharers[node, device] > 0
                self.sharers[node, device] += sign
                if rows["slots"] != NONE:
                    self.free[node, SLOTS] -= int(self.sharers[node, device] > 0) - int(before)


# -- rules -------------------------------------------------------------------------------------------------------------


def faults(problem: ChainProblem, result: ChainResult) -> list[str]:
    """What is wrong with a result, by plain loops over pods, nodes and groups."""
    return [*_seat_faults(problem, result), *_group_faults(problem, result), *_sum_faults(problem, result)]


def _seat_faults(problem: ChainProblem, result: ChainResult) -> Iterator[str]:
    room, devices, sharers = problem.room.copy(), problem.device_room.copy(), problem.sharers.copy()
    for pod, node in enumerate(result.node.tolist()):
        own = [d for d in result.devices[pod].tolist() if d != NONE]
        shape = int(problem.shape[pod])
        if node == NONE:
            if own:
                yield f"pod {pod} is out and has devices"
            continue
        if len(set(own)) != problem.devices[shape]:
            yield f"pod {pod} has devices {own}"
        if node == problem.home[pod]:
            if own != [d for d in problem.home_devices[pod].tolist() if d != NONE]:
                yield f"pod {pod} stays and has other devices"
        elif not problem.allowed[problem.mask[shape], node]:
            yield f"pod {pod} is where it may not be"
        room[node] -= problem.request[shape]
        for device in own:
            devices[node, device] -= problem.parts[shape, problem.kind[node]]
            if problem.shared[shape]:
                room[node, SLOTS] -= problem.slots != NONE and sharers[node, device] == 0
                sharers[node, device] += 1
    if room.min() < 0 or devices.min() < 0:
        yield f"too much is held: {room.tolist()}, {devices.tolist()}"


def _group_faults(problem: ChainProblem, result: ChainResult) -> Iterator[str]:
    for group in range(len(problem.cost)):
        pods = range(int(problem.first[group]), int(problem.first[group + 1]))
        nodes = [int(result.node[pod]) for pod in pods]
        is_in = bool(result.is_in[group])
        if any((node != NONE) != is_in for node in nodes):
            yield f"group {group} is in with a part of its pods"
        if not is_in:
            if problem.start[pods[0]] != NONE and not problem.may_leave[group]:
                yield f"group {group} left and may not"
            continue
        required = int(problem.requires[group])
        if required != NONE and not result.is_in[required]:
            yield f"group {group} is in without group {required}"
        homes = problem.home[pods].tolist()
        if not problem.may_move[group] and homes[0] != NONE and nodes != homes:
            yield f"group {group} moved and may not"
        domains = {int(problem.domain[problem.level[group], node]) for node in nodes}
        if problem.level[group] != NONE and (len(domains) != 1 or NONE in domains):
            yield f"group {group} is in domains {domains}"


def _sum_faults(problem: ChainProblem, result: ChainResult) -> Iterator[str]:
    moved = (result.node != NONE) & (problem.home != NONE) & (result.node != problem.home)
    if result.moves != moved.sum() or result.cost != problem.cost[~result.is_in].sum() + problem.price[moved].sum():
        yield f"{result.moves} moves at a cost of {result.cost} are not what pods and groups say"
    if problem.moves_limit != UNLIMITED and result.moves > problem.moves_limit:
        yield f"{result.moves} moves are too many"
    at_start = problem.start[problem.first[:-1]] != NONE
    before, after = held(problem, at_start), held(problem, result.is_in)
    if (after > np.maximum(before, problem.ledger_limit)).any():
        yield f"ledgers hold {after.tolist()}"


def held(problem: ChainProblem, is_in: NDArray[np.bool_]) -> IntArray:
    """(L, 3) what ledgers hold where these groups are in."""
    found = np.zeros_like(problem.ledger_limit)
    for group, inside in enumerate(is_in.tolist()):
        for ledger in problem.in_ledgers[group].tolist() if inside else [int(problem.out_ledger[group])]:
            while ledger != NONE:
                found[ledger] += problem.charge[group]
                ledger = int(problem.ledger_above[ledger])
    return found


# -- the best there is -------------------------------------------------------------------------------------------------


def least_cost(problem: ChainProblem, admitted: NDArray[np.bool_]) -> int:
    """The least cost of any result with exactly these of the groups that wait (those of ``turn``) in."""
    model = cp_model.CpModel()
    pods, nodes = len(problem.shape), len(problem.room)
    is_in = [model.new_bool_var(f"in{g}") for g in range(len(problem.cost))]
    at = [[model.new_bool_var(f"at{p}.{n}") for n in range(nodes)] for p in range(pods)]
    _add_groups(problem, model, is_in, at, admitted)
    _add_places(problem, model, at)
    start_in = problem.start[problem.first[:-1]] != NONE
    _add_ledgers(problem, model, is_in, start_in)
    moves = [(p, var) for p in range(pods) for n, var in enumerate(at[p]) if problem.home[p] not in (NONE, n)]
    if problem.moves_limit != UNLIMITED:
        model.add(sum(var for _, var in moves) <= problem.moves_limit)
    costs = sum(int(cost) * (1 - var) for cost, var in zip(problem.cost, is_in, strict=True))
    model.minimize(costs + sum(int(problem.price[p]) * var for p, var in moves))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


Vars = list[cp_model.IntVar]


def _add_groups(
    problem: ChainProblem, model: cp_model.CpModel, is_in: Vars, at: list[Vars], admitted: NDArray[np.bool_]
) -> None:
    for group, var in enumerate(is_in):
        members = range(int(problem.first[group]), int(problem.first[group + 1]))
        if group in problem.turn:
            model.add(var == int(admitted[group]))
        elif problem.start[members[0]] != NONE and not problem.may_leave[group]:
            model.add(var == 1)
        if problem.requires[group] != NONE:
            model.add_implication(var, is_in[int(problem.requires[group])])
        for p in members:
            model.add(sum(at[p]) == var)
            for n, there in enumerate(at[p]):
                may_come = problem.home[p] == NONE or problem.may_move[group]
                if n != problem.home[p] and not (may_come and problem.allowed[problem.mask[problem.shape[p]], n]):
                    model.add(there == 0)
        if problem.level[group] != NONE:
            domain = problem.domain[problem.level[group]].tolist()
            chosen = [model.new_bool_var("") for _ in range(max(domain) + 1)]
            model.add_at_most_one(chosen)
            for p in members:
                for n, there in enumerate(at[p]):
                    model.add(there <= (chosen[domain[n]] if domain[n] != NONE else 0))


def _add_places(problem: ChainProblem, model: cp_model.CpModel, at: list[Vars]) -> None:
    """Resources, devices and reservation pods of each node; pods at home have their own devices."""
    tenth = WHOLE // 10
    for n in range(len(problem.room)):
        on = [[model.new_bool_var("") for _ in range(3)] for _ in at]
        opened = [model.new_bool_var("") for _ in range(3)]
        for p, places in enumerate(at):
            shape = problem.shape[p]
            model.add(sum(on[p]) == int(problem.devices[shape]) * places[n])
            for d in range(3):
                if n == problem.home[p]:
                    model.add(on[p][d] == (places[n] if d in problem.home_devices[p] else 0))
                if problem.shared[shape] and problem.sharers[n, d] == 0:
                    model.add_implication(on[p][d], opened[d])
        for r in range(problem.room.shape[1]):
            asked = sum(int(problem.request[problem.shape[p], r]) * places[n] for p, places in enumerate(at))
            model.add(asked + (sum(opened) if r == problem.slots else 0) <= int(problem.room[n, r]))
        for d in range(3):
            parts = [int(problem.parts[shape, problem.kind[n]]) // tenth for shape in problem.shape]
            free = int(problem.device_room[n, d]) // tenth
            model.add(sum(own * on[p][d] for p, own in enumerate(parts)) <= free)


def _add_ledgers(problem: ChainProblem, model: cp_model.CpModel, is_in: Vars, start_in: NDArray[np.bool_]) -> None:
    before = held(problem, start_in)
    for ledger in range(len(problem.ledger_limit)):
        below = {i for i in range(len(problem.ledger_limit)) if ledger in _path(problem, i)}
        for c in range(3):
            terms = []
            for g, var in enumerate(is_in):
                charge = int(problem.charge[g, c])
                terms += [charge * var for at in problem.in_ledgers[g].tolist() if at in below]
                terms += [charge * (1 - var)] if int(problem.out_ledger[g]) in below else []
            model.add(sum(terms) <= max(int(before[ledger, c]), int(problem.ledger_limit[ledger, c])))


def _path(problem: ChainProblem, ledger: int) -> Iterator[int]:
    while ledger != NONE:
        yield ledger
        ledger = int(problem.ledger_above[ledger])
