"""Variables of the joint model, folded before they are made.

Pods of one shape share one pool: ``place[s, n]`` counts how many of them node n gets, whichever they are. Those under a
required level flow into it through their domain (`model.flows`). Running pods of the same shape, queue, cost and
rights share a class: ``stay[c, n]`` counts how many of those at home on n stay.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kai_solver.model.flows import Taker, flows_of
from kai_solver.model.joint import Arrival, Joint, Mover, Piece
from kai_solver.model.spec import ModelSpec, Term, Var
from kai_solver.problem.capacity import (
    ENDLESS,
    MANY,
    NODE_RULES,
    BoolArray,
    IntArray,
    fitting,
    fitting_beside_gpus,
    limited_by_rules,
)
from kai_solver.problem.rules import ReleaseKey
from kai_solver.units import GPU

ReleasesOfMover = tuple[tuple[ReleaseKey, int], ...]
ClassKey = tuple[
    int, int, int, int, bool, bool, bool, bool, tuple[int, int, int], ReleasesOfMover, tuple[Hashable, ...]
]


Origin = tuple[int, tuple[int, ...], tuple[Any, ...]]
"""Node; the devices there, of shares and where an optional rule minds; and what rules granted: which of several equal
pods stays decides what gets free."""


@dataclass(frozen=True, slots=True)
class MoverClass:
    """Simple movers that nothing tells apart but their home.

    ``members``, ``stay``: the units at each home, last in the victim order first, and how many of them stay.
    ``out_reclaim``, ``out_preempt``: evicted, in all.
    """

    key: ClassKey
    members: dict[Origin, list[Mover]]
    stay: dict[Origin, Var]
    out_reclaim: Var
    out_preempt: Var

    @property
    def shape(self) -> int:
        """Shape of its pods."""
        return self.key[0]

    @property
    def size(self) -> int:
        """Movers in the class."""
        return sum(len(m) for m in self.members.values())

    @property
    def first(self) -> Mover:
        """One of them, for what they have in common."""
        return next(iter(self.members.values()))[0]


@dataclass(slots=True)
class MoverUnit:
    """A mover on its own: ``stay`` Boolean, the two ways to be evicted, and ``moved``; exactly one holds."""

    mover: Mover
    stay: Var
    moved: Var
    out_reclaim: Var
    out_preempt: Var


@dataclass(frozen=True, slots=True)
class DomainChoice:
    """Which domain of a required topology is chosen: ``chosen`` says how many of ``takers`` choose each."""

    takers: tuple[Taker, ...]
    chosen: dict[int, Var]


@dataclass(slots=True)
class ScopedPiece:
    """A piece with places of its own, under several required levels or of a spaced gang: ``place`` by node."""

    owner: int
    piece: Piece
    place: dict[int, Var]


@dataclass(slots=True)
class ShareSlot:
    """One device that shares may use: ``open`` where any does; ``counts`` new pods by shape."""

    node: int
    device: int
    open: Var
    counts: dict[int, Var]


class Variables:
    """All variables of one joint model, and where each came from."""

    def __init__(self, joint: Joint, spec: ModelSpec) -> None:
        self.joint = joint
        self.spec = spec
        self.one = spec.int_var(1, 1, "one")
        self.classes: list[MoverClass] = []
        self.units: list[MoverUnit] = []
        self.admit = [spec.bool_var() if arrival.optional else self.one for arrival in joint.arrivals]
        self.pool_demand: dict[int, list[Term]] = {}
        self.place: dict[int, dict[int, Var]] = {}
        self.scoped: list[ScopedPiece] = []
        self.choices: list[DomainChoice] = []
        self.domains: dict[tuple[int, int], dict[int, Var]] = {}
        """Of choices with one taker: the domains by owner and scope."""
        self.scope_pieces: dict[tuple[int, int], list[ScopedPiece]] = {}
        self.guests: dict[int, dict[int, Var]] = {}
        """As ``place``, of pods that usually arrive and that the rest of each node would still take."""
        self.slots: dict[int, list[ShareSlot]] = {}
        self.of_rule: dict[str, Any] = {}
        """By optional rule, what its rows keep for `RuleFacts.decode`."""
        self._fit: dict[int, IntArray] = {}
        self._by_device = self._nodes_by_device()
        self._make_movers()
        self.flows = flows_of([*joint.arrivals, *(unit.mover for unit in self.units)])
        self._make_places()

    # -- movers --------------------------------------------------------------------------------------------------

    def _make_movers(self) -> None:
        simple = _simple(self.joint.movers)
        for key, members in self._fold(simple).items():
            size = sum(len(m) for m in members.values())
            at_origin = {
                origin: self.spec.int_var(0, len(m), f"stay[{key[0]},{origin}]") for origin, m in members.items()
            }
            out_reclaim, out_preempt = self.spec.int_var(0, size), self.spec.int_var(0, size)
            self.classes.append(MoverClass(key, members, at_origin, out_reclaim, out_preempt))
        folded = {mover.unit for mover in simple}
        for mover in self.joint.movers:
            if mover.unit not in folded:
                stay, moved = self.spec.bool_var(f"stay[u{mover.unit}]"), self.spec.bool_var()
                self.units.append(MoverUnit(mover, stay, moved, self.spec.bool_var(), self.spec.bool_var()))

    def _nodes_by_device(self) -> BoolArray:
        """(N,) nodes on which it matters which devices a pod has that may stay."""
        found = np.zeros(len(self.joint.problem.nodes), dtype=np.bool_)
        for rule in self.joint.problem.rules:
            nodes = rule.by_device(self)
            found = found if nodes is None else found | nodes
        return found

    @property
    def has_devices(self) -> bool:
        """Whether it matters on any node which devices a pod has that may stay."""
        return bool(self._by_device.any())

    def _fold(self, movers: Sequence[Mover]) -> dict[ClassKey, dict[Origin, list[Mover]]]:
        """Simple movers by class and home."""
        found: dict[ClassKey, dict[Origin, list[Mover]]] = {}
        shapes = self.joint.problem.shapes.shapes
        for mover in movers:
            piece = mover.pieces[0]
            is_distinguished = shapes[piece.shape].gpu.is_shared or self._by_device[mover.origin[0]]
            devices = self.joint.device_of.get(piece.pods[0], ()) if is_distinguished else ()
            granted = tuple(rule.held(piece.pods[0]) for rule in self.joint.problem.rules)
            origin = mover.origin[0], devices, granted
            found.setdefault(class_key(mover), {}).setdefault(origin, []).append(mover)
        for origins in found.values():
            for members in origins.values():
                members.sort(key=lambda mover: -mover.rank)
        return found

    # -- places --------------------------------------------------------------------------------------------------

    def _make_places(self) -> None:
        pool_shapes: set[int] = {group.shape for group in self.classes if group.first.may_move}
        for owner, arrival in enumerate(self.joint.arrivals):
            pool_shapes |= self._make_owner(owner, arrival)
            for piece in self.pooled_pieces(owner):
                demand = (len(piece.pods), self.admit[owner])
                self.pool_demand.setdefault(piece.shape, []).append(demand)
        for number, unit in enumerate(self.units):
            if unit.mover.may_move:
                pool_shapes |= self._make_owner(len(self.joint.arrivals) + number, unit.mover)
        for shape in sorted(pool_shapes):
            self.place[shape] = self._places(shape, np.flatnonzero(self.fitting(shape) > 0).tolist(), MANY)
        self._make_kinds()

    def _make_owner(self, owner: int, item: Arrival | Mover) -> set[int]:
        pooled = {piece.shape for piece in self.pooled_pieces(owner)}
        for number, piece in enumerate(item.pieces):
            if piece.is_pooled or self.flows.is_flowing(owner, number):
                continue
            everywhere = np.ones(len(self.joint.problem.nodes), dtype=np.bool_)
            allowed = np.logical_and.reduce([everywhere, *(item.scopes[s].domain_of >= 0 for s in piece.scopes)])
            scoped = ScopedPiece(
                owner, piece, self._places(piece.shape, np.flatnonzero(allowed).tolist(), len(piece.pods))
            )
            self.scoped.append(scoped)
            for scope in piece.scopes:
                self.scope_pieces.setdefault((owner, scope), []).append(scoped)
        for scope in sorted({s for piece in item.pieces for s in piece.scopes}):
            if (owner, scope) not in self.flows.kind_of:
                self._choose((owner, scope))
        return pooled

    def _make_kinds(self) -> None:
        """One choice for all takers of a kind, of those that may need places."""
        kinds: dict[int, list[Taker]] = {}
        for (owner, scope), kind in self.flows.kind_of.items():
            if owner < len(self.joint.arrivals) or self._mover(owner).may_move:
                kinds.setdefault(kind, []).append((owner, scope))
        for takers in kinds.values():
            self._choose(*takers)

    def _choose(self, *takers: Taker) -> None:
        """Make the choice of ``takers``, which are identical."""
        owner, scope = takers[0]
        item = self.owner(owner)
        domain_of = item.scopes[scope].domain_of
        most = np.full(int(domain_of.max(initial=-1)) + 1, len(takers))
        for piece in item.pieces:
            if scope in piece.scopes:
                room = np.zeros_like(most)
                np.add.at(room, domain_of[domain_of >= 0], self.fitting(piece.shape)[domain_of >= 0])
                most = np.minimum(most, room // len(piece.pods))
        name = f"in[{owner},{scope},"
        chosen = {d: self.spec.int_var(0, int(most[d]), f"{name}{d}]") for d in np.flatnonzero(most > 0).tolist()}
        self.choices.append(DomainChoice(takers, chosen))
        if len(takers) == 1:
            self.domains[owner, scope] = chosen

    def _places(self, shape: int, nodes: Iterable[int], most: int) -> dict[int, Var]:
        """``place`` variables of one shape on every node that could take at least one with all others gone."""
        fit = self.fitting(shape)
        slots = self.joint.problem.shapes.shapes[shape].gpu.is_shared and self.joint.binds(GPU)
        made: dict[int, Var] = {}
        for node in nodes:
            upper = min(int(fit[node]), most)
            if upper <= 0:
                continue
            made[node] = self.spec.int_var(0, upper)
            if slots:
                self._make_slots(node, shape)
        return made

    def _make_slots(self, node: int, shape: int) -> None:
        """Per device, how many new pods of a shared shape it takes; made once per node and shape."""
        if node not in self.slots:
            gpus = self.joint.problem.nodes[node].gpus
            self.slots[node] = [ShareSlot(node, d, self.spec.bool_var(), {}) for d in range(gpus)]
        parts = max(1, int(self.joint.problem.shapes.parts(shape)[node]))
        for slot in self.slots[node]:
            most = int(self.joint.device_free[node, slot.device]) // parts
            if shape not in slot.counts and most > 0:
                slot.counts[shape] = self.spec.int_var(0, most)

    def invite(self, shapes: Iterable[int]) -> None:
        """Make guests of ``shapes`` on every node where any pod may come, stay or leave."""
        nodes = self.nodes_concerned()
        self.guests = {shape: self._places(shape, nodes, MANY) for shape in shapes}

    def nodes_concerned(self) -> list[int]:
        """Nodes on which any pod may come, stay or leave."""
        places = [*self.place.values(), *(scoped.place for scoped in self.scoped)]
        origins = {node for mover in self.joint.movers for node in mover.origin}
        return sorted(origins.union(*places))

    def fitting(self, shape: int) -> IntArray:
        """(N,) pods of ``shape`` that fit each node with all arrivals and movers lifted out."""
        found = self._fit.get(shape)
        if found is None:
            joint = self.joint
            found = fitting(joint.problem, joint.free, joint.device_free, shape) if not joint.dropped else None
            found = self._fit[shape] = self._fitting_without(shape) if found is None else found
        return found

    def _fitting_without(self, shape: int) -> IntArray:
        """``fitting`` without what the problem has dropped."""
        joint, free = self.joint, self.joint.free.copy()
        free[[resource for resource in range(len(free)) if not joint.binds(resource)]] = ENDLESS
        admits = joint.problem.shapes.mask(shape)
        if NODE_RULES in joint.dropped:
            admits = np.ones_like(admits)
        if joint.binds(GPU):
            return fitting(joint.problem, free, joint.device_free, shape, admits, joint.dropped)
        count = np.maximum(fitting_beside_gpus(joint.problem.shapes.shapes[shape].request, free, admits), 0)
        return limited_by_rules(joint.problem, count, joint.device_free, shape, joint.dropped)

    def pooled_pieces(self, owner: int) -> list[Piece]:
        """Pieces of an owner whose places are counted in the pool."""
        pieces = enumerate(self.owner(owner).pieces)
        return [piece for number, piece in pieces if piece.is_pooled or self.flows.is_flowing(owner, number)]

    def owner(self, owner: int) -> Arrival | Mover:
        """An arrival, or a mover that is a unit of its own: these are counted on from the arrivals."""
        return self.joint.arrivals[owner] if owner < len(self.joint.arrivals) else self._mover(owner)

    def _mover(self, owner: int) -> Mover:
        return self.units[owner - len(self.joint.arrivals)].mover

    def presence(self, owner: int) -> Var:
        """True where the owner's pods need places: an arrival that is admitted, a mover that moves."""
        first_mover = len(self.joint.arrivals)
        return self.admit[owner] if owner < first_mover else self.units[owner - first_mover].moved


def class_key(mover: Mover) -> ClassKey:
    """What must agree for two simple movers to fold. Where they run is not part of it."""
    return (
        mover.pieces[0].shape,
        mover.queue,
        mover.stratum,
        mover.work,
        mover.breaks,
        mover.may_move,
        mover.reclaimable,
        mover.preemptable,
        mover.charge,
        mover.releases,
        mover.marks,
    )


def _simple(movers: Sequence[Mover]) -> list[Mover]:
    """Those that may fold: what happens to them concerns no other mover of their gang."""
    borne = {unit for mover in movers for unit in mover.bears}
    return [mover for mover in movers if mover.is_simple and mover.unit not in borne]
