"""Which pods under a required topology level are counted with all others of their shape.

A gang of 8 identical pods that wants one rack needs no count of its own on every node. It chooses a rack, and its pods
join the common pool of their shape: ``gang -> (shape, domain) -> (shape, node)``. With ``place[s, n]`` the pods of
shape s that node n gets and ``into[s, d]`` those that must be in domain d,

    sum_{n in d} place[s, n]  >=  into[s, d]        for every domain d

is enough to place all pods, because the domains of one level do not overlap: pods that may be anywhere fill up the
rest. So all flowing pods of one shape must ask for the same level. Parts of gangs that are one piece each, of one size
(whole gangs, or their segments), are of one kind: they need no choice of their own, only how many of them choose each
domain. On 500 loaded nodes (160 gangs
admitted, 322 that may move, 20 racks; 2026-11-21) the model has 4,500 variables instead of 64,400, on 1,000 nodes 9,600
instead of 251,000.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kai_solver.model.joint import Arrival, IntArray, Mover, Piece, Scope

Owner = Arrival | Mover
Taker = tuple[int, int]
"""What takes a domain: an owner, and the number of one of its scopes."""


@dataclass(frozen=True, slots=True)
class Flows:
    """How pods flow.

    Attributes
    ----------
    partition
        By shape, (N,) the domain of each node at the level that its flowing pods ask for; -1: outside of all.
    flowing
        (owner, number of its piece) that flow.
    kind_of
        Scopes of owners that are interchangeable, but for whose they are, share a number.
    """

    partition: dict[int, IntArray]
    flowing: frozenset[tuple[int, int]]
    kind_of: dict[Taker, int]

    def is_flowing(self, owner: int, piece: int) -> bool:
        """True where the places of that piece are counted in the pool of its shape, by domain."""
        return (owner, piece) in self.flowing


def flows_of(owners: Sequence[Owner]) -> Flows:
    """Find the pieces that flow; the others keep places of their own."""
    candidates = list(_candidates(owners))
    partition = _partitions(candidates)
    fits: dict[tuple[int, bytes], bool] = {}
    flowing: set[tuple[int, int]] = set()
    for owner, number, piece, scope in candidates:
        key = (piece.shape, scope.domain_of.tobytes())
        if key not in fits:
            fits[key] = _is_part(scope.domain_of, partition[piece.shape])
        if fits[key]:
            flowing.add((owner, number))
    return Flows(partition, frozenset(flowing), _kinds(owners, flowing))


def _candidates(owners: Sequence[Owner]) -> Iterator[tuple[int, int, Piece, Scope]]:
    """(owner, number of the piece, piece, its scope) of pieces under one required level, and none of a spaced gang."""
    for owner, item in enumerate(owners):
        for number, piece in enumerate(item.pieces):
            if len(piece.scopes) == 1 and not piece.own:
                yield owner, number, piece, item.scopes[piece.scopes[0]]


def _partitions(candidates: Sequence[tuple[int, int, Piece, Scope]]) -> dict[int, IntArray]:
    """By shape, the level that most of its pods ask for."""
    pods: dict[int, Counter[bytes]] = {}
    arrays: dict[bytes, IntArray] = {}
    for _, _, piece, scope in candidates:
        key = scope.domain_of.tobytes()
        arrays[key] = scope.domain_of
        pods.setdefault(piece.shape, Counter())[key] += len(piece.pods)
    return {shape: arrays[counts.most_common(1)[0][0]] for shape, counts in pods.items()}


def _is_part(domain_of: IntArray, partition: IntArray) -> bool:
    """True where the domains are some of the partition's, each of them whole."""
    allowed = np.unique(domain_of[domain_of >= 0])
    return np.array_equal(domain_of, np.where(np.isin(partition, allowed), partition, -1))


def _kinds(owners: Sequence[Owner], flowing: set[tuple[int, int]]) -> dict[Taker, int]:
    """Scopes over one flowing piece, of a part of a gang's tree that no other has, by shape, size and domains."""
    pieces: dict[Taker, list[int]] = {}
    for owner, item in enumerate(owners):
        for number, piece in enumerate(item.pieces):
            for index in piece.scopes:
                pieces.setdefault((owner, index), []).append(number)
    parts = Counter(owners[owner].scopes[index].part for owner, index in pieces)
    numbers: dict[tuple[int, int, bytes], int] = {}
    kinds: dict[Taker, int] = {}
    for (owner, index), (first, *others) in pieces.items():
        scope, piece = owners[owner].scopes[index], owners[owner].pieces[first]
        if not others and (owner, first) in flowing and parts[scope.part] == 1:
            key = (piece.shape, len(piece.pods), scope.domain_of.tobytes())
            kinds[owner, index] = numbers.setdefault(key, len(numbers))
    return kinds
