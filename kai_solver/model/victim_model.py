"""Victims: the joint model without nodes, to find what leaves and a bound on its cost.

Moves cost nothing in the stages about evictions, so a mover that is kept is only demand that must be placed somewhere
(docs/large-clusters.md#large-cycles: decide, then place). With ``keep[u]`` for all units that may be evicted,
``place[s, g]`` pods of shape s on site g (nodes folded, `model.sites`) and ``lie[k, d]`` owners of kind k (shape, pods,
level) in domain d::

    sum_s weight[s, g] place[s, g] <= capacity[g]                     rows of the sites
    sum_g place[s, g] >= sum_u pods[u, s] keep[u]                     all that is kept or comes has a place
    sum_{g in d} place[s, g] >= sum_k pods[k] lie[k, d]               in its domain
    sum_d lie[k, d] = sum_{u of k} keep[u],   and no parts of blocks (`model.blocks`)
    charges of arrivals below q - charges of what leaves <= limit

Every solution of the joint model gives one of this, at the same cost: what is minimised here bounds the stages there.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import NamedTuple

import numpy as np

from kai_solver.domain import Action
from kai_solver.model.blocks import keep_whole
from kai_solver.model.joint import Arrival, IntArray, Mover
from kai_solver.model.sites import Sites, fold
from kai_solver.model.spec import ModelSpec, Term, Var
from kai_solver.model.stages import Objective
from kai_solver.model.variables import MoverClass, MoverUnit, Variables
from kai_solver.units import GPU

LARGEST = 100_000
"""Coefficients of the rows about resources are at most as large."""
MOST_PLACES = 100
"""Sites times shapes above which nodes that differ only in what is free share a site."""

Evictions = Mapping[int, Action]
"""Units that leave, and the action that takes them."""
Kind = tuple[int, int, bytes]
"""Shape, pods, domains of the nodes."""


@dataclass(slots=True)
class VictimModel:
    """The model; ``gone`` by what may leave (a class, or a unit): how many of it leave; ``objectives`` in order.

    ``path``: by queue, it and all above it. ``has_rows``: whether `add_rows` has been called.
    """

    spec: ModelSpec
    path: Sequence[Sequence[int]]
    gone: list[tuple[MoverClass | MoverUnit, Var]] = field(default_factory=list)
    objectives: tuple[Objective, ...] = ()
    has_rows: bool = False

    def evicted(self, values: IntArray) -> list[Mover]:
        """Movers that leave; of identical ones, any."""
        found: list[Mover] = []
        for item, var in self.gone:
            members = [m for at in item.members.values() for m in at] if isinstance(item, MoverClass) else [item.mover]
            found += members[: int(values[var])]
        return found

    def keep(self, units: Container[int]) -> None:
        """Ask that none of ``units`` leaves; of identical ones, so many fewer may."""
        _, high = self.spec.domains
        for item, var in self.gone:
            members = [m for at in item.members.values() for m in at] if isinstance(item, MoverClass) else [item.mover]
            kept = sum(mover.unit in units for mover in members)
            if kept:
                self.spec.add_le([(1, var)], int(high[var]) - kept, family="leavers")

    def spare(self, spared: "Iterable[Spared]") -> None:
        """Ask that less is taken where victims have no taker."""
        for one in spared:
            paid = [(_mover(item).charge[one.resource], var) for item, var in self.gone if one.counts(_mover(item))]
            terms, least = coarse([term for term in paid if term[0]], max(0, one.most))
            self.spec.add_le(terms, least, family="leavers")


class Spared(NamedTuple):
    """The ``most`` of a resource that other queues may take from these leaf queues, by ``less`` than they would."""

    leaves: frozenset[int]
    resource: int
    most: int
    less: int

    def counts(self, mover: Mover) -> bool:
        """Whether what the mover charges counts."""
        return mover.queue in self.leaves and mover.reclaimable and not mover.preemptable


def sparing(
    path: Sequence[Sequence[int]],
    movers: Sequence[Mover],
    evicted: Sequence[Mover],
    left: Container[int],
    short: Mapping[int, tuple[int, int]],
    *,
    again: bool = False,
) -> Iterator[Spared]:
    """What is to be taken less, where the units ``left`` have no taker among those ``evicted``.

    ``short``: by queue, of which resource how much more it would have to hold. Where that is more than what is left,
    and where nothing is known to be short, no more may go from the leaf queues than has found takers.

    Of the queues above a leaf, the one that is short of least is spared first; for all leaves that have the same,
    together. ``again``: the leaf itself, or without a shortage of its own just those leaves, since others below that
    queue may have been spared in their place. On a real twin of 1,000 nodes (seed 21) two victims came back a round,
    and after four rounds takers were still missing; so they are there after two (2026-11-30).
    """
    unserved = [m for m in evicted if m.unit in left]
    by_queue: dict[int, list[int]] = {}
    for leaf in sorted({m.queue for m in unserved}):
        above = [q for q in path[leaf] if q in short]
        queue = leaf if again and leaf in short else min(above, key=lambda q: short[q][1], default=leaf)
        by_queue.setdefault(queue, []).append(leaf)
    for queue, own in by_queue.items():
        resource, missing = short.get(queue, (GPU, 1 << 40))
        theirs = {leaf: sum(m.charge[resource] for m in unserved if m.queue == leaf) for leaf in own}
        if missing >= sum(theirs.values()):
            rows = [(frozenset((leaf,)), amount) for leaf, amount in theirs.items()]
        else:
            below = own if again else (m.queue for m in movers if queue in path[m.queue])
            rows = [(frozenset(below), missing)]
        for leaves, amount in rows:
            goes = sum(m.charge[resource] for m in evicted if m.queue in leaves and not m.preemptable)
            yield Spared(leaves, resource, goes - max(1, amount), max(1, amount))


def _mover(item: MoverClass | MoverUnit) -> Mover:
    return item.first if isinstance(item, MoverClass) else item.mover


@dataclass(slots=True)
class _Demand:
    """Places asked for: by shape; by kind, the presences that add to it (with how much is there in any case)."""

    anywhere: dict[int, list[Term]] = field(default_factory=dict)
    fixed: dict[int, int] = field(default_factory=dict)
    kinds: dict[Kind, list[Term]] = field(default_factory=dict)
    kinds_fixed: dict[Kind, int] = field(default_factory=dict)
    arrays: dict[bytes, IntArray] = field(default_factory=dict)

    def add(self, shape: int, pods: int, domain_of: IntArray | None, gone: Term | None, copies: int = 1) -> None:
        """``copies`` times ``pods`` that are there, less those that are ``gone``."""
        if gone is not None:
            self.anywhere.setdefault(shape, []).append((pods * gone[0], gone[1]))
        self.fixed[shape] = self.fixed.get(shape, 0) + pods * copies
        if domain_of is not None:
            kind = (shape, pods, domain_of.tobytes())
            self.arrays[kind[2]] = domain_of
            self.kinds_fixed[kind] = self.kinds_fixed.get(kind, 0) + copies
            if gone is not None:
                self.kinds.setdefault(kind, []).append(gone)


def formulate_victim_model(v: Variables, objectives: tuple[Objective, ...]) -> VictimModel:
    """Build the model for the joint problem of ``v`` and those of its ``objectives`` that are about evictions.

    It has no rows until `add_rows`: to know what a plan costs, none is needed, and they are two thirds of the work.
    """
    spec = ModelSpec()
    form = VictimModel(spec, v.joint.problem.queues.path)
    for item in _items(v):
        first, size = (item.first, item.size) if isinstance(item, MoverClass) else (item.mover, 1)
        form.gone.append((item, spec.int_var(0, size if first.may_leave else 0)))
    form.objectives = tuple(found for o in objectives if (found := _translated(form, o)) is not None)
    return form


def add_rows(v: Variables, form: VictimModel) -> None:
    """Add the rows of the joint problem of ``v`` to its model."""
    form.has_rows = True
    demand = _Demand()
    classes, units = form.gone[: len(v.classes)], form.gone[len(v.classes) :]
    for group, (_, gone) in zip(v.classes, classes, strict=True):
        welcome = sum(len(m) for (node, _, _), m in group.members.items() if _is_welcome(v, group.shape, node))
        if welcome == group.size:
            demand.add(group.shape, 1, None, (1, gone), group.size)
    for number, (unit, (_, gone)) in enumerate(zip(v.units, units, strict=True)):
        for shape, pods, domain_of in _loads(v, len(v.joint.arrivals) + number, unit.mover):
            demand.add(shape, pods, domain_of, (1, gone))
    for owner, arrival in enumerate(v.joint.arrivals):
        for shape, pods, domain_of in _loads(v, owner, arrival) if not arrival.optional else ():
            demand.add(shape, pods, domain_of, None)
    _bear(form)
    _releases(v, form)
    _limits(v, form)
    _places(v, form, demand)


def _is_welcome(v: Variables, shape: int, node: int) -> bool:
    """A pod may stay where it could not come now; then no places are asked for it."""
    return bool(v.fitting(shape)[node] > 0)


def _loads(v: Variables, owner: int, item: Arrival | Mover) -> Iterator[tuple[int, int, IntArray | None]]:
    """(shape, pods, domains of the nodes where they must lie together) of every piece."""
    origins = iter(item.origin) if isinstance(item, Mover) else iter(())
    for number, piece in enumerate(item.pieces):
        nodes = [next(origins) for _ in piece.pods] if isinstance(item, Mover) else []
        if not all(_is_welcome(v, piece.shape, node) for node in nodes):
            continue
        domain_of = item.scopes[piece.scopes[0]].domain_of if v.flows.is_flowing(owner, number) else None
        if domain_of is not None and nodes:
            domains = set(domain_of[nodes].tolist())
            domain_of = domain_of if len(domains) == 1 and -1 not in domains else None
        yield piece.shape, len(piece.pods), domain_of


def _bear(form: VictimModel) -> None:
    """What holds a minimum leaves only with what is above it, or where so much of that stays that it is a minimum."""
    spec, gone = form.spec, {item.mover.unit: var for item, var in form.gone if isinstance(item, MoverUnit)}
    for item, var in form.gone:
        if not isinstance(item, MoverUnit):
            continue
        mover = item.mover
        above = [gone[unit] for unit in mover.bears if unit in gone]
        if not 0 < mover.quorum <= len(mover.bears):
            for other in above:
                spec.add_le([(1, var), (-1, other)], 0, family="units")
            continue
        go_on, terms = spec.bool_var(), [(-1, other) for other in above]
        for term in terms:
            spec.add_le([(1, var), term, (-1, go_on)], 0, family="units")
        if mover.stuck:
            spec.add_le([(1, var), (-1, go_on)], 0, family="units")
        least = -mover.quorum - len(mover.bears)
        spec.add_ge([*terms, (-mover.quorum, var), (-mover.quorum, go_on)], least, family="units")


def _releases(v: Variables, form: VictimModel) -> None:
    """No more pods are evicted than optional rules let go; moves are not known here."""
    for cap, left in v.joint.releases:
        uses = [(_mover(item).used(cap), var) for item, var in form.gone]
        form.spec.add_le([term for term in uses if term[0]], left, family=cap[0])


def _limits(v: Variables, form: VictimModel) -> None:
    path = v.joint.problem.queues.path
    for cap in v.joint.caps:
        if cap.family != "limit" or cap.room < 0:
            continue
        coming = [a for a in v.joint.arrivals if cap.queue in path[a.queue] and not a.optional]
        charged = sum(a.least[cap.resource] for a in coming)
        terms: list[Term] = []
        for item, var in form.gone:
            mover = _mover(item)
            if cap.queue in path[mover.queue] and mover.charge[cap.resource]:
                charged -= mover.saves[cap.resource] * (item.size if isinstance(item, MoverClass) else 1)
                terms.append((mover.charge[cap.resource], var))
        if charged > cap.room and terms:
            losses, most = coarse([(-amount, var) for amount, var in terms], cap.room - charged)
            form.spec.add_le(losses, most, family="limit")


def _places(v: Variables, form: VictimModel, demand: _Demand) -> None:
    """Sites, and the demand on them."""
    joint, spec = v.joint, form.spec
    partitions = list(demand.arrays.values())
    sites = fold(joint.problem, joint.free, joint.device_free, sorted(demand.fixed), partitions, MOST_PLACES)
    place = np.full(sites.most.shape, -1, dtype=np.int64)
    place[sites.most > 0] = spec.int_vars(0, sites.most[sites.most > 0])
    for row in sites.rows:
        used = (row.weight > 0) & (place >= 0)
        for site in np.flatnonzero(used.any(axis=0)).tolist():
            shapes = np.flatnonzero(used[:, site])
            weighed = zip(row.weight[shapes, site].tolist(), place[shapes, site].tolist(), strict=True)
            terms, most = coarse(list(weighed), int(row.capacity[site]))
            spec.add_le(terms, most, family="sites")
    for index, shape in enumerate(sites.shapes):
        terms = [(1, int(var)) for var in place[index] if var >= 0]
        spec.add_ge([*terms, *demand.anywhere.get(shape, ())], demand.fixed[shape], family="demand")
    _kinds(form, demand, sites, place)


def coarse(terms: list[Term], most: int) -> tuple[list[Term], int]:
    """``sum terms <= most`` in small numbers, over variables that are not negative: every solution is one of it too.

    SCIP's tolerance does not bear bytes: with coefficients of 2.5e9 it called 2,234,656 the least evicted work of 250
    loaded nodes, where it is 553,744 (2026-11-22).
    """
    step = gcd(*(weight for weight, _ in terms)) or 1
    step *= -(-max((abs(weight) for weight, _ in terms), default=0) // (step * LARGEST)) or 1
    return [(weight // step, var) for weight, var in terms], most // step


def _kinds(form: VictimModel, demand: _Demand, sites: Sites, place: IntArray) -> None:
    index = {shape: row for row, shape in enumerate(sites.shapes)}
    into: dict[tuple[bytes, int, int], list[Term]] = {}
    for kind, copies in demand.kinds_fixed.items():
        shape, pods, key = kind
        domain_of = sites.domain_of(demand.arrays[key])
        room = np.zeros(int(domain_of.max(initial=-1)) + 1, dtype=np.int64)
        np.add.at(room, domain_of[domain_of >= 0], sites.most[index[shape], domain_of >= 0])
        lie = {
            d: form.spec.int_var(0, min(copies, int(room[d]) // pods)) for d in np.flatnonzero(room >= pods).tolist()
        }
        terms: list[Term] = [(1, var) for var in lie.values()]
        form.spec.add_eq([*terms, *demand.kinds.get(kind, ())], copies, family="domains")
        for domain, var in lie.items():
            into.setdefault((key, shape, int(domain)), []).append((-pods, var))
    for (key, shape, domain), terms in into.items():
        inside = sites.domain_of(demand.arrays[key]) == domain
        spots: list[Term] = [(1, int(var)) for var in place[index[shape], inside] if var >= 0]
        form.spec.add_ge([*spots, *terms], 0, family="domains")
        keep_whole(form.spec, terms, int(sites.most[index[shape], inside].sum()), "domains")


def _translated(form: VictimModel, objective: Objective) -> Objective | None:
    """The same cost over units that leave; None where it is not about evictions alone."""
    cost: Mapping[Var, int] = {var: coefficient for coefficient, var in objective.terms}
    terms = [(cost[item.out_reclaim], var) for item, var in form.gone if item.out_reclaim in cost]
    both = all(cost.get(item.out_reclaim) == cost.get(item.out_preempt) for item, _ in form.gone)
    if not both or 2 * len(terms) != len(cost):
        return None
    return Objective(objective.name, tuple(terms), objective.constant)


def units_of(item: MoverClass | MoverUnit) -> list[int]:
    """Units of what may leave."""
    if isinstance(item, MoverUnit):
        return [item.mover.unit]
    return [mover.unit for members in item.members.values() for mover in members]


def _items(v: Variables) -> list[MoverClass | MoverUnit]:
    return [*v.classes, *v.units]


def pin(spec: ModelSpec, v: Variables, evictions: Evictions) -> None:
    """Ask that just the units of ``evictions`` leave, or as many identical ones, by the same actions."""
    for item in _items(v):
        actions = [evictions[unit] for unit in units_of(item) if unit in evictions]
        spec.add_eq([(1, item.out_reclaim)], actions.count(Action.RECLAIM), family="leavers")
        spec.add_eq([(1, item.out_preempt)], actions.count(Action.PREEMPT), family="leavers")
