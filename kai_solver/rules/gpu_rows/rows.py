"""gpurows: a pod that must have GPUs in a row has some that no other pod has.

Where any pod on node n may leave or stay, or rows of several kinds meet, ``row[w, n, i]`` says that a row of kind w (so
many GPUs, contiguous or aligned) begins at GPU i. For every GPU d that a row may take::

    sum_i row[w, n, i]                        =   sum_s place[s, n]        over the shapes s of kind w
    sum of the rows over d                    <=  1
    stay[c] + most sum of the rows over d     <=  most                     for c on d (at most ``most``)
    open[n, d] + sum of the rows over d       <=  1                        shares, new ones and those that stay
    stay[c] + most open[n, d]                 <=  most                     for c that holds d whole

Where no pod's GPUs change, counts say as much without such variables: of one kind at most as many as there are rows
side by side; of contiguous rows in one stretch nothing beside its length; of aligned ones whose lengths divide each
other, level by level, as many as there are free blocks.

Pods with *unidentified* GPUs all leave a node where a row is given: ``rowed[n]`` stands for the 1 above, and
``stay[c] + unidentified(c) rowed[n] <= most``. No pod changes GPUs in place: it moves to another node, so of each shape
as many places are elsewhere as its pods move from here.

Nodes on which no row is asked for have none of this. Beyond `MOST_STARTS` the rest of the nodes is left out, which asks
for less: what then cannot be is refused when a solution is put into effect.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.links import gpus_of, largest_free_row, mask_of, masks_of, row_masks, row_wish
from kai_solver.model.decode import Decision, Values
from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import Variables
from kai_solver.rules.gpu_rows.problem import KIND, NAME, rows_in
from kai_solver.units.shares import WHOLE

BoolArray = NDArray[np.bool_]

MOST_STARTS = 20_000
"""Variables of one model; 500 nodes of 8 GPUs have 3,500 for one kind of two in a row."""


class RowKind(NamedTuple):
    """GPUs that must be in a row: how many, and ``contiguous`` or ``aligned``."""

    length: int
    row: str


@dataclass(slots=True)
class _Sitter:
    """Pods that may stay: ``devices`` for each of at most ``most``, ``unidentified`` of them with unidentified GPUs."""

    var: Var
    devices: tuple[int, ...]
    most: int
    unidentified: int
    is_whole: bool


@dataclass(slots=True)
class _Site:
    """A node on which rows are asked for: places by kind, and pods that may stay."""

    node: int
    landing: dict[RowKind, list[Var]] = field(default_factory=dict)
    sitters: list[_Sitter] = field(default_factory=list)


def row_kind(v: Variables, shape: int) -> RowKind | None:
    """The row that pods of ``shape`` cannot do without; None where any devices will do."""
    gpu = v.joint.problem.shapes.shapes[shape].gpu
    wish = row_wish(gpu)
    if wish is None or not wish.is_required or KIND in v.joint.dropped:
        return None
    return RowKind(gpu.devices, wish.row)


def nodes_of_rows(v: Variables) -> BoolArray:
    """(N,) nodes with room for a row that any pod may ask for."""
    shapes = {piece.shape for arrival in v.joint.arrivals for piece in arrival.pieces}
    shapes |= {piece.shape for mover in v.joint.movers if mover.may_move for piece in mover.pieces}
    nodes = np.zeros(len(v.joint.problem.nodes), dtype=np.bool_)
    for shape in shapes:
        if row_kind(v, shape) is not None:
            nodes |= v.fitting(shape) > 0
    return nodes


def decode(v: Variables, values: Values, decision: Decision) -> None:
    """Give the rows of each node to the pods that must have one: those of one kind are interchangeable."""
    made: Mapping[int, dict[RowKind, dict[int, Var]]] = v.of_rule.get(NAME, {})
    rows = {
        (node, kind): [gpus_of(mask) for mask, var in starts.items() if values[var]]
        for node, kinds in made.items()
        for kind, starts in kinds.items()
    }
    for pod, node in decision.places.items() if rows else ():
        kind = row_kind(v, v.joint.problem.pod_shape[pod])
        if kind is not None and rows.get((node, kind)):
            decision.devices[pod] = rows[node, kind].pop()


def add(v: Variables, unidentified: frozenset[int]) -> None:
    """Add the variables and rows; ``unidentified``: pods with such GPUs."""
    v.of_rule[NAME] = {}
    sites, left = _sites(v, unidentified), MOST_STARTS
    for site in sites.values():
        if site.sitters or v.slots.get(site.node) or not _count(v, site):
            left -= _start(v, site, left)
    if sites:
        _elsewhere(v, sites)


def _sites(v: Variables, unidentified: frozenset[int]) -> dict[int, _Site]:
    sites: dict[int, _Site] = {}
    counted = [*v.place.items(), *((scoped.piece.shape, scoped.place) for scoped in v.scoped)]
    for shape, places in counted:
        kind = row_kind(v, shape)
        if kind is None:
            continue
        for node, var in places.items():
            sites.setdefault(node, _Site(node)).landing.setdefault(kind, []).append(var)
    for node, sitter in _sitters(v, unidentified) if sites else ():
        if node in sites:
            sites[node].sitters.append(sitter)
    return sites


def _sitters(v: Variables, unidentified: frozenset[int]) -> Iterator[tuple[int, _Sitter]]:
    problem = v.joint.problem
    for group in v.classes:
        is_whole = problem.shapes.shapes[group.shape].gpu.is_whole
        for origin, var in group.stay.items():
            members = group.members[origin]
            unknown = sum(member.pieces[0].pods[0] in unidentified for member in members)
            if origin[1]:
                yield origin[0], _Sitter(var, origin[1], len(members), unknown, is_whole)
    for unit in v.units:
        pods = (pod for piece in unit.mover.pieces for pod in piece.pods)
        for pod, node in zip(pods, unit.mover.origin, strict=True):
            devices, gpu = v.joint.device_of.get(pod, ()), problem.pods[pod].gpu
            if devices:
                yield node, _Sitter(unit.stay, devices, 1, int(pod in unidentified), gpu.is_whole)


def _free(v: Variables, node: int) -> int:
    """Mask of the devices that are wholly free with all pods lifted out."""
    free = v.joint.device_free[node, : v.joint.problem.nodes[node].gpus] >= WHOLE
    return mask_of(free.nonzero()[0].tolist())


# -- where no pod's GPUs change --------------------------------------------------------------------------------------


def _count(v: Variables, site: _Site) -> bool:
    """Add rows that say how many fit, by counts alone; False where counts do not say it."""
    kinds = sorted(site.landing)
    free = v.joint.device_free[[site.node]] >= WHOLE
    if len(kinds) == 1:
        levels = kinds
    elif all(kind.row == "contiguous" for kind in kinds):
        return int(largest_free_row(masks_of(free))[0]) == int(free.sum())
    elif all(kind.row == "aligned" for kind in kinds) and _is_chain([kind.length for kind in kinds]):
        levels = kinds
    else:
        return False
    for level in levels:
        larger = [kind for kind in kinds if kind.length >= level.length]
        terms: list[Term] = [(kind.length // level.length, var) for kind in larger for var in site.landing[kind]]
        if len(terms) > 1:  # One alone has no more places than that.
            v.spec.add_le(terms, int(rows_in(free, level.length, level.row)[0]), family=NAME)
    return True


def _is_chain(sizes: list[int]) -> bool:
    """True where each of ``sizes``, in order, divides the next."""
    return all(large % small == 0 for small, large in pairwise(sizes))


# -- where they may --------------------------------------------------------------------------------------------------


def _start(v: Variables, site: _Site, most: int) -> int:
    """Add variables for where rows begin, if these are at most ``most``, and rows about them; how many."""
    free, gpus = _free(v, site.node), v.joint.problem.nodes[site.node].gpus
    masks = {kind: [m for m in row_masks(gpus, kind.length, kind.row) if m & ~free == 0] for kind in site.landing}
    made = sum(map(len, masks.values()))
    if made > most:
        return 0
    over: dict[int, list[Term]] = {}
    starts: dict[RowKind, dict[int, Var]] = {}
    v.of_rule[NAME][site.node] = starts
    for kind, rows in masks.items():
        starts[kind] = {mask: v.spec.bool_var() for mask in rows}
        terms: list[Term] = [(1, var) for var in starts[kind].values()]
        v.spec.add_eq([*terms, *((-1, var) for var in site.landing[kind])], 0, family=NAME)
        for mask, var in starts[kind].items():
            for device in gpus_of(mask):
                over.setdefault(device, []).append((1, var))
    _apart(v, site, over)
    return made


def _apart(v: Variables, site: _Site, over: Mapping[int, list[Term]]) -> None:
    """No device is in two rows, or in one while a pod holds it: ``over``, the rows by device."""
    rowed = _rowed(v, site)
    opened = {slot.device: slot.open for slot in v.slots.get(site.node, ())}
    for device, rows in over.items():
        if rowed is not None:
            v.spec.add_le([*rows, (-1, rowed)], 0, family=NAME)
        if device in opened:
            v.spec.add_le([*rows, (1, opened[device])], 1, family=NAME)
        elif len(rows) > 1 and rowed is None:
            v.spec.add_le(rows, 1, family=NAME)
        for sitter in site.sitters:
            if device in sitter.devices:
                taken = [(sitter.most * coefficient, var) for coefficient, var in rows]
                v.spec.add_le([(1, sitter.var), *taken], sitter.most, family=NAME)
                if sitter.is_whole and device in opened:
                    v.spec.add_le([(1, sitter.var), (sitter.most, opened[device])], sitter.most, family=NAME)


def _rowed(v: Variables, site: _Site) -> Var | None:
    """True where a row is given on a node with unidentified GPUs, whose pods all leave then; None without any."""
    unidentified = [sitter for sitter in site.sitters if sitter.unidentified]
    if not unidentified:
        return None
    rowed = v.spec.bool_var()
    for sitter in unidentified:
        v.spec.add_le([(1, sitter.var), (sitter.unidentified, rowed)], sitter.most, family=NAME)
    return rowed


# -- no pod changes GPUs in place -------------------------------------------------------------------------------------


def _elsewhere(v: Variables, sites: Mapping[int, _Site]) -> None:
    """``total[s] - place[s, n]  >=  those of shape s that leave n  -  all evicted of their classes``."""
    problem = v.joint.problem
    for shape, places in v.place.items():
        groups = [group for group in v.classes if group.shape == shape and group.first.may_move]
        origins = {origin[0] for group in groups for origin in group.members} & sites.keys() & places.keys()
        if not origins or not problem.shapes.shapes[shape].gpu.is_whole:
            continue
        total = v.spec.int_var(0, sum(int(v.fitting(shape)[node]) for node in places))
        v.spec.add_eq([*((1, var) for var in places.values()), (-1, total)], 0, family=NAME)
        for node in sorted(origins):
            terms: list[Term] = [(1, total), (-1, places[node])]
            at_origin = 0
            for group in groups:
                here = [origin for origin in group.members if origin[0] == node]
                if here:
                    at_origin += sum(len(group.members[origin]) for origin in here)
                    terms += [(1, group.stay[origin]) for origin in here]
                    terms += [(1, group.out_reclaim), (1, group.out_preempt)]
            v.spec.add_ge(terms, at_origin, family=NAME)
