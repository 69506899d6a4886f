"""Objective stages of the joint model, all minimised, in lexicographic order.

``disruption`` unfolds into, by priority stratum from the highest down, evicted work; then gangs broken; evicted pods;
moved pods. ``disruption-gpus`` is the same with the GPUs that are evicted in place of the work. ``preference`` counts
wholly free nodes that are opened: what stays whole can take the largest gangs. ``leftover`` may stand in its place: the
worth that the plan takes from pods that usually arrive. ``victim-order`` picks, of plans that are equal so far, the one
whose victims come first in the policy's victim order.

A package of your own may add a stage by an entry point in the group ``kai_solver.objective_stages`` whose object is
a function from `Variables` to a list of `Objective`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kai_solver.errors.extensions import entry_points, loaded
from kai_solver.model.joint import Mover
from kai_solver.model.leftover import worth_lost
from kai_solver.model.rows import NO_LOWER
from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import Variables
from kai_solver.units import GPU
from kai_solver.units.shares import WHOLE

GROUP = "kai_solver.objective_stages"
LEFTOVER = "worth-lost"
EVICTED = ("evicted-work/", "evicted-gpus/")
"""What a plan is to evict the least of, by priority; which, a model says."""
DISRUPTING = (*EVICTED, "gangs-broken", "evicted-pods", "moved-pods")
"""Beginnings of the names of all objectives about evicted or moved pods."""
MOST_RANKED = 150
"""Movers up to which the victim order breaks ties; with more, equal victims are as greedy and search find them.

Proven in 0.4 s for 14 of 100 movers; of 400 (b50, 160 leave) in 1.0 s, more than all other stages took together
(2026-11-21, 2 busy cores).
"""

WORK_WEIGHT, MOVES_WEIGHT = 8.0, 3.0
"""Time for what is evicted, and for what is moved, relative to the counts between them.

These follow from what is evicted almost always; how much work is lost takes most of the time on loaded clusters.
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
        found: Stages = loaded(point)
        return found
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class _Eviction:
    """What may be evicted, by variables that count it; ``gpus`` in thousandths."""

    work: int
    gpus: int
    stratum: int
    breaks: bool
    pods: int
    outs: tuple[Var, ...]


def disruption(v: Variables) -> list[Objective]:
    """Evicted work per stratum, gangs broken, pods evicted, pods moved."""
    return _disruption(v, "evicted-work", lambda eviction: eviction.work)


def disruption_gpus(v: Variables) -> list[Objective]:
    """Evicted thousandths of GPUs per stratum, gangs broken, pods evicted, pods moved."""
    return _disruption(v, "evicted-gpus", lambda eviction: eviction.gpus)


def _disruption(v: Variables, name: str, cost: Callable[[_Eviction], int]) -> list[Objective]:
    found: list[Objective] = []
    evictions = list(_evictions(v))
    for stratum in sorted({e.stratum for e in evictions}, reverse=True):
        lost = tuple((cost(e), var) for e in evictions if e.stratum == stratum for var in e.outs)
        found.append(Objective(f"{name}/{stratum}", lost, weight=WORK_WEIGHT))
    if evictions:
        found.append(Objective("gangs-broken", tuple((1, var) for e in evictions if e.breaks for var in e.outs)))
        found.append(Objective("evicted-pods", tuple((e.pods, var) for e in evictions for var in e.outs)))
    found.append(_moves(v))
    return found


def _evictions(v: Variables) -> Iterator[_Eviction]:
    movers: list[tuple[Mover, tuple[Var, ...]]] = [(g.first, (g.out_reclaim, g.out_preempt)) for g in v.classes]
    movers += [(unit.mover, (unit.out_reclaim, unit.out_preempt)) for unit in v.units]
    for m, outs in movers:
        if m.may_leave:
            yield _Eviction(m.work, m.charge[GPU], m.stratum, m.breaks, len(m.origin), outs)


def _moves(v: Variables) -> Objective:
    """Pods that leave their home, less those evicted."""
    terms: list[Term] = []
    constant = 0
    for group in v.classes:
        constant += group.size
        terms += [(-1, var) for var in group.stay.values()]
        terms += [(-1, group.out_reclaim), (-1, group.out_preempt)]
    for unit in v.units:
        terms.append((len(unit.mover.origin), unit.moved))
    return Objective("moved-pods", tuple(terms), constant, weight=MOVES_WEIGHT, least=0)


def preference(v: Variables) -> list[Objective]:
    """Wholly free GPU nodes that get a pod with GPUs; nodes that movers may leave do not count.

    Pods that are to spread may open as many as they like.

    Each place opens its node by as much as could be there, no more: with a larger factor the LP sees nothing, and the
    bound of d3 (28 nodes) was 24 after 1.9 s instead of 28 at once (2026-11-21).
    """
    origins = {node for mover in v.joint.movers for node in mover.origin}
    gpus = v.joint.problem.gpus
    whole = (v.joint.device_free >= WHOLE).sum(axis=1)
    free = set(np.flatnonzero((gpus > 0) & (whole == gpus)).tolist()) - origins
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
    """Sum of the places in the victim order of all that are evicted or moved (docs/kai-behaviour.md#victim-order).

    At one home those first in the order leave first: their ranks grow, so ``sum leaves = size - stay`` says which.
    """
    if len(v.joint.movers) > MOST_RANKED:
        return []
    terms: list[Term] = [(-unit.mover.rank, unit.stay) for unit in v.units]
    constant = sum(unit.mover.rank for unit in v.units)
    for group in v.classes:
        for origin, members in group.members.items():
            leaves = [v.spec.bool_var() for _ in members]
            counted = [(1, var) for var in leaves]
            v.spec.add_eq([*counted, (1, group.stay[origin])], len(members), family="victim-order")
            terms += [(mover.rank, var) for mover, var in zip(members, leaves, strict=True)]
    return [Objective("victim-order", tuple(terms), constant)]


BUILT_IN: dict[str, Stages] = {
    "disruption": disruption,
    "disruption-gpus": disruption_gpus,
    "preference": preference,
    "leftover": leftover,
    "victim-order": victim_order,
}
