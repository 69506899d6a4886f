"""Where pods may be, as far as rules between pods are about them: for the rows of such rules.

What counts is where all pods finally are, in whatever order they came; only pods that get a new place are judged
(IgnoredDuringExecution), by those that stay.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Pod, PodStatus
from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import Variables

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Member:
    """``count`` pods like ``pod`` on ``node`` for each unit of ``var``, which is at most ``most``; None: they stay.

    ``is_new``: places to be given, not pods that are there already.
    """

    pod: Pod
    shape: int
    node: int
    var: Var | None
    count: int
    most: int
    is_new: bool

    @property
    def present(self) -> int:
        """Pods of it that are there before anything is decided."""
        return 0 if self.is_new else self.count * self.most


class PlacementTerms:
    """All pods that some rule between pods is about, or ``all_pods``: places to be, homes, pods that cannot leave."""

    def __init__(self, v: Variables, *, all_pods: bool = False) -> None:
        shapes = v.joint.problem.shapes.shapes
        self.v = v
        self._known = [all_pods or bool(shape.affinity_labels) for shape in shapes]
        self.members: list[Member] = []
        if all_pods or any(shape.relates_to_pods for shape in shapes):
            self.members = [*self._places(), *self._origins(), *self._residents()]
        self._by_shape: dict[int, list[Member]] = {}
        for member in self.members:
            self._by_shape.setdefault(member.shape, []).append(member)

    def matching(self, holds: Callable[[Pod], bool]) -> list[Member]:
        """Members for whose pods ``holds``, asked once for every shape."""
        chosen = (members for members in self._by_shape.values() if holds(members[0].pod))
        return [member for members in chosen for member in members]

    def newcomers(self, has_rule: Callable[[Pod], object]) -> dict[int, list[Member]]:
        """New places by shape, of pods for which ``has_rule``."""
        found: dict[int, list[Member]] = {}
        for member in self.members:
            if member.is_new and has_rule(member.pod):
                found.setdefault(member.shape, []).append(member)
        return found

    def _places(self) -> Iterator[Member]:
        v = self.v
        pieces = [piece for arrival in v.joint.arrivals for piece in arrival.pieces]
        pieces += [piece for mover in v.joint.movers for piece in mover.pieces]
        first_pods = {piece.shape: piece.pods[0] for piece in pieces}
        places = [*v.place.items(), *((s.piece.shape, s.place) for s in v.scoped)]
        for shape, at in places:
            if self._known[shape]:
                pod = v.joint.problem.pods[first_pods[shape]]
                for node, var in at.items():
                    yield Member(pod, shape, node, var, 1, v.spec.upper(var), True)

    def _origins(self) -> Iterator[Member]:
        v, pods = self.v, self.v.joint.problem.pods
        for group in v.classes:
            if self._known[group.shape]:
                for (node, _, _), var in group.stay.items():
                    pod = pods[group.first.pieces[0].pods[0]]
                    yield Member(pod, group.shape, node, var, 1, v.spec.upper(var), False)
        for unit in v.units:
            origins = iter(unit.mover.origin)
            for piece in unit.mover.pieces:
                nodes = [next(origins) for _ in piece.pods]
                for node in sorted(set(nodes)) if self._known[piece.shape] else ():
                    yield Member(pods[piece.pods[0]], piece.shape, node, unit.stay, nodes.count(node), 1, False)

    def _residents(self) -> Iterator[Member]:
        """Pods that hold a node, are not on their way out, and are no movers of this problem."""
        problem = self.v.joint.problem
        movers = {pod for mover in self.v.joint.movers for piece in mover.pieces for pod in piece.pods}
        counts: dict[tuple[int, int], list[Pod]] = {}
        for number, pod in enumerate(problem.pods):
            node, shape = problem.pod_node[number], problem.pod_shape[number]
            is_there = node >= 0 and pod.status.holds_resources and pod.status is not PodStatus.RELEASING
            if is_there and number not in movers and self._known[shape]:
                counts.setdefault((shape, node), []).append(pod)
        for (shape, node), pods in counts.items():
            yield Member(pods[0], shape, node, None, len(pods), 1, False)


def fixed(members: Iterable[Member]) -> int:
    """Pods among ``members`` that stay whatever is decided."""
    return sum(member.count for member in members if member.var is None)


def terms(members: Iterable[Member]) -> list[Term]:
    """Sum of the pods among ``members`` that depend on a decision."""
    return [(member.count, member.var) for member in members if member.var is not None]


def by_domain(members: Iterable[Member], code: IntArray) -> dict[int, list[Member]]:
    """Members by the domain of their node; those on nodes without one are left out."""
    found: dict[int, list[Member]] = {}
    for member in members:
        if code[member.node] >= 0:
            found.setdefault(int(code[member.node]), []).append(member)
    return found


def close(v: Variables, members: Iterable[Member], family: str) -> None:
    """No new pod may come to the places of ``members``."""
    for member in members:
        if member.is_new and member.var is not None:
            v.spec.add_le([(1, member.var)], 0, family=family)


def part(v: Variables, ones: list[Member], others: list[Member], code: IntArray, family: str) -> None:
    """No new pod of ``ones`` in a domain with one of ``others``, and the other way round; no pod harms itself."""
    near, far = by_domain(ones, code), by_domain(others, code)
    is_one, is_other = {id(m) for m in ones}, {id(m) for m in others}
    for domain in sorted(near.keys() & far.keys()):
        both = [m for m in near[domain] if id(m) in is_other]
        here = [m for m in near[domain] if id(m) not in is_other]
        there = [m for m in far[domain] if id(m) not in is_one]
        if any(m.is_new for m in (*both, *here, *there)):
            _part_domain(v, both, here, there, family)


def _part_domain(v: Variables, both: list[Member], here: list[Member], there: list[Member], family: str) -> None:
    """At most one of: a pod of ``both``; any number ``here``; any number ``there``."""
    present = sum(m.present for m in both) + any(m.present for m in here) + any(m.present for m in there)
    if present > 1:  # They are beside each other already; new ones go elsewhere (no proof is drawn from this).
        close(v, (*both, *here, *there), family)
        return
    row, taken = terms(both), fixed(both)
    for side in (here, there):
        if fixed(side):
            taken += 1
        elif side:
            row.append((1, some_of(v, side, family)))
    if row and (len(row) > 1 or taken or any(m.most > 1 for m in both)):
        v.spec.add_le(row, 1 - taken, family=family)


def some_of(v: Variables, members: list[Member], family: str) -> Var:
    """A Boolean that is true where any of ``members`` is there."""
    if len(members) == 1 and members[0].most == 1 and members[0].var is not None:
        return members[0].var
    some = v.spec.bool_var()
    for member in members:
        if member.var is not None:
            v.spec.add_le([(1, member.var), (-member.most, some)], 0, family=family)
    return some
