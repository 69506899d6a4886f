"""Counts back to pods: which mover stays, moves or leaves, and which node every new place is on.

Identical movers are interchangeable, so those that stay at a node are the ones that would be evicted last there; of
those that leave, any may be the evicted ones. A hint goes the other way: from a plan to values.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kai_solver.model.flows import Taker
from kai_solver.model.joint import Arrival, IntArray, Mover, Piece
from kai_solver.model.variables import MoverClass, Variables

Values = NDArray[np.int64]


@dataclass(slots=True)
class Decision:
    """What a solution says, by unit and pod.

    ``reclaimed``, ``preempted``: units evicted; ``moved``: units that take other places; all others stay. ``places``:
    node by pod, for pods of arrivals and of moved units. ``devices``: of the pods that share devices or for which a
    rule names some, ``grants``: of rules, by name. ``admitted``: positions of the arrivals that come.
    """

    admitted: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    reclaimed: list[int] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    devices: dict[int, tuple[int, ...]] = field(default_factory=dict)
    grants: dict[int, dict[str, Any]] = field(default_factory=dict)


def expand(v: Variables, values: Values) -> Decision:
    """Read a solution. Every count becomes pods; the order of pods is that of the pieces."""
    decision = Decision()
    waiting: dict[int, list[int]] = {}
    for number, arrival in enumerate(v.joint.arrivals):
        if not values[v.admit[number]]:
            continue
        decision.admitted.append(number)
        _wait(arrival, waiting)
    for group in v.classes:
        _expand_class(v, group, values, decision, waiting)
    for unit in v.units:
        if values[unit.moved]:
            decision.moved.append(unit.mover.unit)
            _wait(unit.mover, waiting)
        elif values[unit.out_reclaim]:
            decision.reclaimed.append(unit.mover.unit)
        elif values[unit.out_preempt]:
            decision.preempted.append(unit.mover.unit)
    _expand_places(v, values, decision, waiting)
    _expand_devices(v, values, decision)
    for rule in v.joint.problem.rules:
        rule.decode(v, values, decision)
    return decision


def _expand_class(
    v: Variables, group: MoverClass, values: Values, decision: Decision, waiting: dict[int, list[int]]
) -> None:
    leaving: list[Mover] = []
    for node, members in group.members.items():
        leaving.extend(members[int(values[group.stay[node]]) :])
    if v.has_devices:  # Evicted are first those whose nodes get others of the shape: a pod moves to another node.
        places = v.place.get(group.shape, {})
        leaving.sort(key=lambda mover: mover.origin[0] not in places or not values[places[mover.origin[0]]])
    reclaimed = int(values[group.out_reclaim])
    preempted = int(values[group.out_preempt])
    for number, mover in enumerate(leaving):
        if number < reclaimed:
            decision.reclaimed.append(mover.unit)
        elif number < reclaimed + preempted:
            decision.preempted.append(mover.unit)
        else:
            decision.moved.append(mover.unit)
            waiting.setdefault(group.shape, []).extend(mover.pieces[0].pods)


def _wait(item: Arrival | Mover, waiting: dict[int, list[int]]) -> None:
    """Those of its pods that may be anywhere wait for places of their shape."""
    for piece in item.pieces:
        if piece.is_pooled:
            waiting.setdefault(piece.shape, []).extend(piece.pods)


def _expand_places(v: Variables, values: Values, decision: Decision, waiting: dict[int, list[int]]) -> None:
    flowing = _flowing(v, values)
    for shape, places in v.place.items():
        nodes = [node for node, var in places.items() for _ in range(int(values[var]))]
        if shape in flowing:
            nodes = _place_flowing(v.flows.partition[shape], flowing[shape], nodes, decision)
        if v.has_devices:
            _send_away(v, waiting.get(shape, []), nodes)
        decision.places.update(zip(waiting.get(shape, ()), nodes, strict=False))
    for scoped in v.scoped:
        nodes = [node for node, var in scoped.place.items() for _ in range(int(values[var]))]
        decision.places.update(zip(scoped.piece.pods, nodes, strict=False))


def _send_away(v: Variables, pods: Sequence[int], nodes: list[int]) -> None:
    """Exchange ``nodes``, one for each of ``pods``, so that no pod that moves is sent to where it ran."""
    origin = [v.joint.problem.pod_node[pod] for pod in pods]
    for at in (at for at, node in enumerate(nodes[: len(pods)]) if node == origin[at]):
        for other in range(min(len(pods), len(nodes))):
            if nodes[other] != origin[at] and origin[other] != nodes[at]:
                nodes[at], nodes[other] = nodes[other], nodes[at]
                break


def _flowing(v: Variables, values: Values) -> dict[int, dict[int, list[int]]]:
    """By shape and domain, the pods that must go there; domain -1 where nothing says where (topology is left out)."""
    found: dict[int, dict[int, list[int]]] = {}
    for choice in v.choices:
        coming = [taker for taker in choice.takers if values[v.presence(taker[0])]]
        chosen = [domain for domain, var in choice.chosen.items() for _ in range(int(values[var]))]
        for (owner, scope), domain in _paired(coming, chosen):
            for number, piece in enumerate(v.owner(owner).pieces):
                if scope in piece.scopes and v.flows.is_flowing(owner, number):
                    found.setdefault(piece.shape, {}).setdefault(domain, []).extend(piece.pods)
    return found


def _paired(takers: Sequence[Taker], domains: Sequence[int]) -> Iterator[tuple[Taker, int]]:
    """A domain for each taker; -1 where there are not enough."""
    return zip(takers, chain(domains, repeat(-1)), strict=False)


def _place_flowing(
    domain_of: IntArray, pods_in: Mapping[int, list[int]], nodes: list[int], decision: Decision
) -> list[int]:
    """Place pods that must be in a domain; return what is left for the others."""
    queues = {domain: iter(pods) for domain, pods in pods_in.items() if domain >= 0}
    left: list[int] = []
    for node in nodes:
        pod = next(queues.get(int(domain_of[node]), iter(())), None)
        if pod is None:
            left.append(node)
        else:
            decision.places[pod] = node
    anywhere = pods_in.get(-1, [])
    decision.places.update(zip(anywhere, left, strict=False))
    return left[len(anywhere) :]


def _expand_devices(v: Variables, values: Values, decision: Decision) -> None:
    """Hand the places on each shared device to the pods of the node: for several devices, the least used first."""
    problem = v.joint.problem
    sharing: dict[tuple[int, int], list[int]] = {}
    for pod, node in decision.places.items():
        shape = problem.modelled_shape(pod)
        if node in v.slots and problem.shapes.shapes[shape].gpu.is_shared:
            sharing.setdefault((node, shape), []).append(pod)
    for (node, shape), pods in sharing.items():
        left = {slot.device: int(values[slot.counts[shape]]) for slot in v.slots[node] if shape in slot.counts}
        count = problem.shapes.shapes[shape].gpu.devices
        for pod in pods:
            chosen = sorted(left, key=lambda device: (-left[device], device))[:count]
            for device in chosen:
                left[device] -= 1
            decision.devices[pod] = tuple(sorted(chosen))


def hint_values(
    v: Variables, places: Mapping[int, int], reclaimed: set[int], preempted: set[int], moved: set[int]
) -> dict[int, int]:
    """Values of the main variables for a plan: node by pod, and the units that do not stay."""
    hint: dict[int, int] = {v.one: 1}
    counts: dict[tuple[int, int], int] = {}
    for group in v.classes:
        _hint_class(group, hint, counts, places, reclaimed, preempted, moved)
    for position, unit in enumerate(v.units):
        number = unit.mover.unit
        gone = number in reclaimed or number in preempted or number in moved
        hint[unit.stay], hint[unit.moved] = int(not gone), int(number in moved)
        hint[unit.out_reclaim], hint[unit.out_preempt] = int(number in reclaimed), int(number in preempted)
        if number in moved:
            _count(v.pooled_pieces(len(v.joint.arrivals) + position), places, counts)
    for number, arrival in enumerate(v.joint.arrivals):
        comes = all(pod in places for piece in arrival.pieces for pod in piece.pods)
        hint[v.admit[number]] = int(comes)
        if comes:
            _count(v.pooled_pieces(number), places, counts)
    for shape, variables in v.place.items():
        for node, var in variables.items():
            hint[var] = counts.get((shape, node), 0)
    _hint_scoped(v, places, hint)
    return hint


def _hint_class(
    group: MoverClass,
    hint: dict[int, int],
    counts: dict[tuple[int, int], int],
    places: Mapping[int, int],
    reclaimed: set[int],
    preempted: set[int],
    moved: set[int],
) -> None:
    out = [0, 0]
    for node, members in group.members.items():
        staying = 0
        for mover in members:
            if mover.unit in reclaimed:
                out[0] += 1
            elif mover.unit in preempted:
                out[1] += 1
            elif mover.unit in moved:
                _count(mover.pieces, places, counts)
            else:
                staying += 1
        hint[group.stay[node]] = staying
    hint[group.out_reclaim], hint[group.out_preempt] = out


def _count(pieces: Sequence[Piece], places: Mapping[int, int], counts: dict[tuple[int, int], int]) -> None:
    for piece in pieces:
        for pod in piece.pods:
            key = (piece.shape, places[pod])
            counts[key] = counts.get(key, 0) + 1


def _hint_scoped(v: Variables, places: Mapping[int, int], hint: dict[int, int]) -> None:
    for scoped in v.scoped:
        at: dict[int, int] = {}
        for pod in scoped.piece.pods:
            if pod in places:
                at[places[pod]] = at.get(places[pod], 0) + 1
        for node, var in scoped.place.items():
            hint[var] = at.get(node, 0)
    for choice in v.choices:
        chosen = Counter(_domain_at(v, owner, scope, places) for owner, scope in choice.takers)
        for domain, var in choice.chosen.items():
            hint[var] = chosen[domain]


def _domain_at(v: Variables, owner: int, scope: int, places: Mapping[int, int]) -> int | None:
    """The domain where the plan has an owner's pods under one scope; None where it gives them no places."""
    item = v.owner(owner)
    pods = (pod for piece in item.pieces if scope in piece.scopes for pod in piece.pods)
    pod = next((pod for pod in pods if pod in places), None)
    return None if pod is None else int(item.scopes[scope].domain_of[places[pod]])
