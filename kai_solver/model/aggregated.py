"""The aggregated model: counts of pods by shape and site, without nodes.

Source: docs/how-a-cycle-decides.md#oracle.

Everything admitted keeps its right to run but not its place, so what may move is only demand that must be placed
somewhere, and what may be evicted is demand that may be dropped. With ``place[s, g]`` pods of shape s on site g, and
for every group k of identical gangs ``keep[k]`` of them that run, ``lie[k, d]`` of them in each domain d of its level::

    sum_s weight[s, g] place[s, g] <= capacity[g]                           rows of the sites
    sum_g place[s, g] >= sum_k pods[k, s] keep[k]                           every pod has a place
    sum_{g in d} place[s, g] >= sum_k pods[k, s] lie[k, d]                  in its domain
    sum_d lie[k, d] = keep[k],   least[k] <= keep[k] <= copies[k]
    sum_k charge[k, r] (copies[k] - keep[k]) <= allowance[V, r]             evictions of queue V, for a chosen r

Implied rows say that no domain takes parts of blocks (`model.blocks`). All rules that are left out (spread,
affinity, ports, zones, which devices) only forbid more: the master is a relaxation, and its "no" is a proof.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.model.blocks import keep_whole
from kai_solver.model.rows import Ints
from kai_solver.model.sites import Sites
from kai_solver.model.spec import ModelSpec, Term, Var
from kai_solver.problem.charges import Charge

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Partition:
    """A level of a topology over the sites: (G,) domain of each, -1 outside. ``below``: finer levels of its tree.

    ``below`` has for each such level its number and, by domain there, the domain of this level around it.
    """

    domain_of: IntArray
    below: Mapping[int, IntArray]


@dataclass(frozen=True, slots=True)
class Group:
    """``copies`` gangs, or parts of them, that nothing in question tells apart.

    Attributes
    ----------
    pods
        (shape, count) of one copy.
    partition
        Number of the level whose domains hold a copy each; -1 where any places will do.
    domains
        Domains that are allowed; None for all.
    least
        Copies that must run.
    charge
        What the eviction of one copy takes from its queue's surplus.
    surplus
        Number of the allowance that pays for evictions; -1 for none.
    """

    pods: tuple[tuple[int, int], ...]
    partition: int = -1
    domains: frozenset[int] | None = None
    copies: int = 1
    least: int = 1
    charge: Charge = (0, 0, 0)
    surplus: int = -1


@dataclass(frozen=True, slots=True)
class Master:
    """One question. ``allowances``: by surplus and resource, the most that evictions may charge; None: no right there.

    ``anywhere``: pods by shape that must have places anywhere, beside the groups.
    """

    sites: Sites
    partitions: tuple[Partition, ...]
    groups: tuple[Group, ...]
    anywhere: Mapping[int, int]
    allowances: tuple[tuple[int | None, int | None, int | None], ...] = ()


@dataclass(slots=True)
class MasterForm:
    """The model and its variables: ``place`` is (S, G) with -1 where nothing fits; ``lie`` by group and domain."""

    spec: ModelSpec
    place: IntArray
    keep: list[Var | int]
    lie: list[dict[int, Var]]
    is_hopeless: bool = False


def formulate_master(master: Master) -> MasterForm:
    """Build the model. ``is_hopeless`` where some group that must run has no domain that could hold it."""
    spec = ModelSpec()
    sites = master.sites
    place = np.full(sites.most.shape, -1, dtype=np.int64)
    open_places = sites.most > 0
    place[open_places] = spec.int_vars(0, sites.most[open_places])
    form = MasterForm(spec, place, [], [])
    _site_rows(form, sites)
    for group in master.groups:
        _add_group(form, master, group)
    _demand(form, master)
    _demand_by_domain(form, master)
    _allow(form, master)
    return form


def _site_rows(form: MasterForm, sites: Sites) -> None:
    for row in sites.rows:
        used = (row.weight > 0) & (form.place >= 0)
        binding = ((row.weight * np.where(used, sites.most, 0)).sum(axis=0) > row.capacity) & used.any(axis=0)
        for site in np.flatnonzero(binding).tolist():
            shapes = np.flatnonzero(used[:, site])
            weights = row.weight[shapes, site]
            divisor = int(np.gcd.reduce(weights))
            terms = zip((weights // divisor).tolist(), form.place[shapes, site].tolist(), strict=True)
            form.spec.add_le(terms, int(row.capacity[site]) // divisor, family="sites")


def _add_group(form: MasterForm, master: Master, group: Group) -> None:
    """Variables of one group: how many run, and where."""
    keep = form.spec.int_var(group.least, group.copies) if group.least < group.copies else -1
    lie: dict[int, Var] = {}
    if group.partition >= 0:
        room = _room(master, group)
        lie = {domain: form.spec.int_var(0, most) for domain, most in room.items()}
        form.is_hopeless |= group.least > 0 and sum(room.values()) < group.least
        terms = [(1, var) for var in lie.values()]
        if keep >= 0:
            form.spec.add_eq([*terms, (-1, keep)], 0, family="domains")
        elif terms:
            form.spec.add_eq(terms, group.copies, family="domains")
    form.keep.append(keep)
    form.lie.append(lie)


def _room(master: Master, group: Group) -> dict[int, int]:
    """Most copies by domain, each shape alone."""
    sites, domain_of = master.sites, master.partitions[group.partition].domain_of
    index = {shape: row for row, shape in enumerate(sites.shapes)}
    count = int(domain_of.max(initial=-1)) + 1
    most = np.full(count, group.copies, dtype=np.int64)
    inside = domain_of >= 0
    for shape, pods in group.pods:
        room = np.zeros(count, dtype=np.int64)
        np.add.at(room, domain_of[inside], sites.most[index[shape], inside])
        np.minimum(most, room // pods, out=most)
    allowed = range(count) if group.domains is None else sorted(group.domains)
    return {domain: int(most[domain]) for domain in allowed if domain < count and most[domain] > 0}


def _demand(form: MasterForm, master: Master) -> None:
    """All running pods have places."""
    asked: dict[int, list[Term]] = {}
    fixed = dict(master.anywhere)
    for group, keep in zip(master.groups, form.keep, strict=True):
        for shape, pods in group.pods:
            if keep >= 0:
                asked.setdefault(shape, []).append((-pods, keep))
            else:
                fixed[shape] = fixed.get(shape, 0) + pods * group.copies
    for row, shape in enumerate(master.sites.shapes):
        need = fixed.get(shape, 0)
        if need or shape in asked:
            terms = [(1, int(var)) for var in form.place[row] if var >= 0]
            form.spec.add_ge([*terms, *asked.get(shape, ())], need, family="demand")


def _demand_by_domain(form: MasterForm, master: Master) -> None:
    """In every domain, places for those that lie in it, or in a finer domain inside it."""
    index = {shape: row for row, shape in enumerate(master.sites.shapes)}
    asked: list[dict[tuple[int, int], list[Term]]] = [{} for _ in master.partitions]
    for group, lie in zip(master.groups, form.lie, strict=True):
        for domain, var in lie.items():
            for number, at in _around(master.partitions, group.partition, domain):
                for shape, pods in group.pods:
                    asked[number].setdefault((at, index[shape]), []).append((-pods, var))
    for partition, rows in zip(master.partitions, asked, strict=True):
        inside: dict[int, Ints] = {d: np.flatnonzero(partition.domain_of == d) for d, _ in rows}
        for (domain, row), terms in rows.items():
            places = form.place[row, inside[domain]]
            form.spec.add_ge([*((1, int(v)) for v in places if v >= 0), *terms], 0, family="domains")
            keep_whole(form.spec, terms, int(master.sites.most[row, inside[domain]].sum()), "domains")


def _around(partitions: Sequence[Partition], number: int, domain: int) -> list[tuple[int, int]]:
    """The domain itself and those around it at coarser levels of its tree that some gang is bound to."""
    found = [(number, domain)]
    for other, partition in enumerate(partitions):
        around = partition.below.get(number)
        if around is not None and around[domain] >= 0:
            found.append((other, int(around[domain])))
    return found


def _allow(form: MasterForm, master: Master) -> None:
    """Evictions stay within what their queue may be taken from, in one resource at least."""
    for number, allowance in enumerate(master.allowances):
        pairs = zip(master.groups, form.keep, strict=True)
        counted = [(group, keep) for group, keep in pairs if group.surplus == number and keep >= 0]
        if not counted:
            continue
        chosen = [(r, most, form.spec.bool_var()) for r, most in enumerate(allowance) if most is not None]
        for group, keep in counted if not chosen else ():
            form.spec.add_ge([(1, keep)], group.copies, family="allowance")
        if chosen:
            form.spec.bool_or([is_chosen for _, _, is_chosen in chosen], family="allowance")
        for resource, most, is_chosen in chosen:
            charged = [(g.charge[resource], g.copies, keep) for g, keep in counted if g.charge[resource]]
            total = sum(charge * copies for charge, copies, _ in charged)
            terms = [(-charge, keep) for charge, _, keep in charged]
            guard = (is_chosen,) if len(chosen) > 1 else ()
            form.spec.add_le(terms, most - total, family="allowance", only_if=guard)
