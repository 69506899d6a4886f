"""Objective stages of the joint model, all minimised, in lexicographic order.

``disruption`` unfolds into, by priority stratum from the highest down, evicted work; then gangs broken; evicted pods;
moved pods. ``preference`` counts wholly free nodes that are opened: what stays whole can take the largest gangs.
``leftover`` may stand in its place: the worth that the plan takes from pods that usually arrive. ``victim-order``
picks, of plans that are equal so far, the one whose victims come first in the policy's victim order.

A package of your own may add a stage by an entry point in the group ``kai_solver.objective_stages`` whose object is
a function from `Variables` to a list of `Objective`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points

import numpy as np

from kai_solver.formulation.leftover import worth_lost
from kai_solver.formulation.rows import NO_LOWER
from kai_solver.formulation.spec import Term, Var
from kai_solver.formulation.variables import Variables
from kai_solver.units import MILLI

GROUP = "kai_solver.objective_stages"
LEFTOVER = "worth-lost"
MOST_RANKED = 150
"""Movers up to which the victim order breaks ties; with more, equal victims are as greedy and search find them.

Proven in 0.4 s for 14 of 100 movers; of 400 (b50, 160 leave) in 1.0 s, more than all other stages took together
(2026-11-21, 2 busy cores).
"""

WORK_WEIGHT, MOVES_WEIGHT = 8.0, 3.0
"""Time for who is evicted, and for who is moved, relative to the counts between them.

These follow from who is evicted almost always; how much work is lost takes most of the time on loaded clusters.
"""


@dataclass(frozen=True, slots=True)
class Objective:
    """One stage: minimise ``sum terms + constant``.

    ``weight``: its part of the time that the model gives to the stage which it unfolds, relative to the others'.
    ``least``: a bound that its meaning gives, beyond what the domains of its variables say.
    """

    name: str
    terms: tuple[Term, ...]
    constant: int = 0
    weight: float = 1.0
    least: int = NO_LOWER


Stages = Callable[[Variables], list[Objective]]


def stages(name: str) -> Stages:
    """The stage called ``name``; raises ``KeyError`` where neither we nor an installed package has it."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    for point in entry_points(group=GROUP, name=name):
        loaded: Stages = point.load()
        return loaded
    raise KeyError(name)


def disruption(v: Variables) -> list[Objective]:
    """Evicted work per stratum, gangs broken, pods evicted, pods moved."""
    found: list[Objective] = []
    outs = list(_evictions(v))
    for stratum in sorted({s for _, s, _, _, _ in outs}, reverse=True):
        work = tuple((w, var) for w, s, _, _, vs in outs if s == stratum for var in vs)
        found.append(Objective(f"evicted-work/{stratum}", work, weight=WORK_WEIGHT))
    if outs:
        found.append(Objective("gangs-broken", tuple((1, var) for _, _, b, _, vs in outs if b for var in vs)))
        found.append(Objective("evicted-pods", tuple((n, var) for _, _, _, n, vs in outs for var in vs)))
    found.append(_moves(v))
    return found


def _evictions(v: Variables) -> list[tuple[int, int, bool, int, tuple[Var, ...]]]:
    """(work, stratum, breaks a gang, pods, variables) of everything that may be evicted."""
    outs: list[tuple[int, int, bool, int, tuple[Var, ...]]] = []
    for group in v.classes:
        first = group.first
        if first.reclaimable or first.preemptable:
            outs.append((first.work, first.stratum, first.breaks, 1, (group.out_reclaim, group.out_preempt)))
    for unit in v.units:
        m = unit.mover
        if m.reclaimable or m.preemptable:
            outs.append((m.work, m.stratum, m.breaks, len(m.home), (unit.out_reclaim, unit.out_preempt)))
    return outs


def _moves(v: Variables) -> Objective:
    """Pods that leave their home, less those evicted."""
    terms: list[Term] = []
    constant = 0
    for group in v.classes:
        constant += group.size
        terms += [(-1, var) for var in group.stay.values()]
        terms += [(-1, group.out_reclaim), (-1, group.out_preempt)]
    for unit in v.units:
        terms.append((len(unit.mover.home), unit.moved))
    return Objective("moved-pods", tuple(terms), constant, weight=MOVES_WEIGHT, least=0)


def preference(v: Variables) -> list[Objective]:
    """Wholly free GPU nodes that get a pod with GPUs; nodes that movers may leave do not count.

    Pods that are to spread may open as many as they like.

    Each place opens its node by as much as could be there, no more: with a larger factor the LP sees nothing, and the
    bound of d3 (28 nodes) was 24 after 1.9 s instead of 28 at once (2026-11-21).
    """
    homes = {node for mover in v.joint.movers for node in mover.home}
    gpus = v.joint.problem.gpus
    whole = (v.joint.device_free >= MILLI).sum(axis=1)
    free = set(np.flatnonzero((gpus > 0) & (whole == gpus)).tolist()) - homes
    landing: dict[int, list[Term]] = {}
    for shape, places in [*v.place.items(), *((s.piece.shape, s.place) for s in v.scoped)]:
        spec = v.joint.problem.shapes.shapes[shape]
        for node, var in places.items() if spec.gpu.devices and spec.nodes == "binpack" else ():
            if node in free:
                landing.setdefault(node, []).append((int(v.fitting(shape)[node]), var))
    terms: list[Term] = []
    for arrivals in landing.values():
        opened = v.spec.bool_var()
        for most, var in arrivals:
            v.spec.add_le([(1, var), (-most, opened)], 0, family="preference")
        terms.append((1, opened))
    return [Objective("nodes-opened", tuple(terms))] if terms else []


def leftover(v: Variables) -> list[Objective]:
    """Worth of what was free before, less that of the guests that the rest still takes."""
    return [Objective(LEFTOVER, *worth_lost(v))] if v.guests else []


def victim_order(v: Variables) -> list[Objective]:
    """Sum of the places in the victim order of all that are evicted or moved (reference 3.8).

    At one home those first in the order leave first: their ranks grow, so ``sum leaves = size - stay`` says who.
    """
    if len(v.joint.movers) > MOST_RANKED:
        return []
    terms: list[Term] = [(-unit.mover.rank, unit.stay) for unit in v.units]
    constant = sum(unit.mover.rank for unit in v.units)
    for group in v.classes:
        for home, members in group.members.items():
            leaves = [v.spec.bool_var() for _ in members]
            counted = [(1, var) for var in leaves]
            v.spec.add_eq([*counted, (1, group.stay[home])], len(members), family="victim-order")
            terms += [(mover.rank, var) for mover, var in zip(members, leaves, strict=True)]
    return [Objective("victim-order", tuple(terms), constant)]


BUILT_IN: dict[str, Stages] = {
    "disruption": disruption,
    "preference": preference,
    "leftover": leftover,
    "victim-order": victim_order,
}
