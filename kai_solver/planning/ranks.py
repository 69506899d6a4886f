"""Ranks along the domain tree: identical pods exchange their places, so that neighbours in rank are near.

A plan says how many pods of a kind are in which domain; which pod is which is left to chance until here. The places of
each podset are handed out in the order of the tree (zone, block, clique, node), so every domain holds a run of ranks,
and at no level could fewer neighbours be apart. Identical parts of a gang (segments) exchange all their places first.

Only new places of the plan are exchanged, between pods of one shape that start together by one action: every count that
rules and stages look at stays as it is.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np

from kai_solver.planstate.origins import moved_pods
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import Place
from kai_solver.problem import GangShape, Leaf, Problem, TreeNode
from kai_solver.problem.gangs import leaves_below
from kai_solver.topology import Rank, named_topology, rank_of

Part = TreeNode | Leaf
Kind = tuple[int, str, bool]
"""Shape, what places the pod (an action, or a move), whether it starts now: pods of one kind are interchangeable."""
Likeness = tuple[object, ...]

_MOVE = "move"


def places_by_rank(problem: Problem, outcome: Outcome) -> Mapping[int, Place]:
    """Place by pod as in ``outcome``, exchanged among pods of gangs whose labels tell their ranks."""
    places = dict(outcome.state.places)
    for index, kinds in _coming(problem, outcome).items():
        ranks = {pod: rank for pod in kinds if (rank := rank_of(problem.pods[pod].labels)) is not None}
        if len(ranks) > 1:
            gang = problem.gangs[index]
            _Exchange(places, kinds, ranks, _positions(problem, gang)).order(gang.root)
    return places


def _coming(problem: Problem, outcome: Outcome) -> dict[int, dict[int, Kind]]:
    """By gang, the kind of each pod that gets a new place; pods that were promised a place keep it.

    Where some of a gang move to where others of it are, an exchange could bring one home: they stay as they are.
    """
    state = outcome.state
    found: dict[int, dict[int, Kind]] = {}
    for admission in outcome.admissions:
        asking = problem.gangs[admission.allocation_unit.gang].gang
        if len(asking.pods) < 2 or not any(pod.labels for pod in asking.pods):
            continue
        mine = found.setdefault(admission.allocation_unit.gang, {})
        for pod in admission.allocation_unit.pods:
            place = state.places.get(pod)
            if place is not None and not problem.pods[pod].nominated_node:
                mine[pod] = problem.pod_shape[pod], admission.action.value, place.now
    moved = moved_pods(state)
    for gang, pods in groupby(moved, key=problem.pod_gang.__getitem__):
        movers = list(pods)
        if not {problem.pod_node[pod] for pod in movers} & {state.places[pod].node for pod in movers}:
            found.setdefault(gang, {}).update({pod: (problem.pod_shape[pod], _MOVE, False) for pod in movers})
    return found


def _positions(problem: Problem, gang: GangShape) -> Sequence[int]:
    """(N,) place of each node in the order of the tree, or of the nodes' names where the gang has none."""
    name = named_topology(gang.gang.root, problem.domains)
    nodes = len(problem.nodes)
    if name is None:
        return range(nodes)
    order = np.lexsort((np.arange(nodes), *reversed(problem.domains[name].domain_of)))
    positions = np.empty(nodes, dtype=np.int64)
    positions[order] = np.arange(nodes)
    found: list[int] = positions.tolist()
    return found


class _Exchange:
    """Exchanges places of one gang's pods."""

    def __init__(
        self,
        places: dict[int, Place],
        kinds: Mapping[int, Kind],
        ranks: Mapping[int, Rank],
        position: Sequence[int],
    ) -> None:
        self._places, self._kinds, self._ranks, self._position = places, kinds, ranks, position

    def order(self, part: Part) -> None:
        """Bring the places under ``part`` into the order of ranks."""
        if isinstance(part, Leaf):
            for pods in self._by_kind(part):
                self._sort(pods)
            return
        for identical in self._identical(part.children):
            if isinstance(identical[0], Leaf) and identical[0].topology is None:
                for of_kind in zip(*(self._by_kind(leaf) for leaf in identical), strict=True):
                    self._sort([pod for pods in of_kind for pod in pods])
            else:
                self._swap(identical)
        for child in part.children:
            self.order(child)

    def _by_kind(self, part: Part) -> list[list[int]]:
        """Pods that get places, leaf by leaf and kind by kind."""
        found: list[list[int]] = []
        for leaf in leaves_below(part):
            mine = sorted(pod for pod in (*leaf.active, *leaf.pending) if pod in self._kinds)
            mine.sort(key=self._kinds.__getitem__)
            found += [list(pods) for _, pods in groupby(mine, key=self._kinds.__getitem__)]
        return found

    def _identical(self, parts: Sequence[Part]) -> list[list[Part]]:
        """Parts that may exchange all their places; those that no other part is like, or that may not, are left out."""
        groups: dict[Likeness, list[Part]] = {}
        for part in parts:
            likeness = self._likeness(part)
            if likeness is not None:
                groups.setdefault(likeness, []).append(part)
        return [group for group in groups.values() if len(group) > 1]

    def _likeness(self, part: Part) -> Likeness | None:
        """What two parts must have in common; None where one of its pods keeps its place or has no rank."""
        if isinstance(part, Leaf):
            pods = [pod for group in self._by_kind(part) for pod in group]
            placed = [pod for pod in part.pending if pod in self._places]
            if (
                not pods
                or not all(pod in self._kinds for pod in (*part.active, *placed))
                or any(p not in self._ranks for p in pods)
            ):
                return None
            return part.topology, *((self._kinds[group[0]], len(group)) for group in self._by_kind(part))
        inner = [self._likeness(child) for child in part.children]
        return None if any(found is None for found in inner) else (part.topology, *inner)

    def _sort(self, pods: Sequence[int]) -> None:
        if all(pod in self._ranks for pod in pods):
            given = sorted((self._places[pod] for pod in pods), key=lambda place: self._position[place.node])
            takers = sorted(pods, key=lambda pod: (self._ranks[pod], pod))
            self._places.update(zip(takers, given, strict=True))

    def _swap(self, parts: Sequence[Part]) -> None:
        """The part with the least ranks gets the places that come first in the tree, all of them."""
        pods = {number: [pod for group in self._by_kind(part) for pod in group] for number, part in enumerate(parts)}
        takers = sorted(pods, key=lambda n: min(self._ranks[pod] for pod in pods[n]))
        givers = sorted(pods, key=lambda n: min(self._position[self._places[pod].node] for pod in pods[n]))
        given = {giver: [self._places[pod] for pod in pods[giver]] for giver in givers}
        for taker, giver in zip(takers, givers, strict=True):
            self._places.update(zip(pods[taker], given[giver], strict=True))
