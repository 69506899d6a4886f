"""The input of the model: what must get places, what may leave or move, and what bounds them.

Plain data, prepared by `search`; everything here is what any solution may change. What may not change is already taken
off ``free`` and ``device_free``.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Action
from kai_solver.fairness import QueueSurplus
from kai_solver.problem import Problem
from kai_solver.problem.charges import Charge
from kai_solver.problem.rules import ReleaseKey

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scope:
    """A required topology level over some parts of one arrival or mover.

    Attributes
    ----------
    domain_of
        (N,) domain of each node at that level, -1 where no pod under the scope may go (outside the tree, or another
        domain than that of pods under it that this problem leaves in their places).
    part
        Gang, and the path of names to the part of its tree that the level is asked of: scopes of one part, of several
        arrivals and movers of the gang, mean one and the same domain.
    """

    domain_of: NDArray[np.int64]
    part: tuple[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Pods of one shape under one leaf of a gang: ``pods`` are interchangeable. ``scopes`` index the owner's.

    ``own``: it matters which node gets how many of them (`GangShape.is_spaced`), so they share no pool.
    """

    shape: int
    pods: tuple[int, ...]
    scopes: tuple[int, ...] = ()
    own: bool = False

    @property
    def is_pooled(self) -> bool:
        """True where its places are counted together with those of all other pods of the shape."""
        return not self.scopes and not self.own


@dataclass(frozen=True, slots=True)
class Arrival:
    """An allocation unit that must get all its places, or may get none of them where it is ``optional``.

    ``charge``, ``least``: what it costs its queue on the smallest devices, and at least (requests by GPU memory).
    """

    gang: int
    queue: int
    action: Action
    charge: Charge
    least: Charge
    pieces: tuple[Piece, ...]
    scopes: tuple[Scope, ...] = ()
    preemptible: bool = True
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Mover:
    """A unit of running pods that may stay, move, or be evicted.

    Attributes
    ----------
    unit
        Index in the pool.
    home
        Node of each pod, in the order of the pieces' pods.
    bears
        Units of the same gang that cannot run without this one: it holds the minimum that they are above.
    quorum
        That many of ``bears`` are a minimum of their own, and may stay when this one is evicted; 0: never.
    stuck
        How many of ``bears`` are no movers: they stay, whatever happens.
    may_move
        Its pods may take places elsewhere.
    reclaimable, preemptable
        May be evicted by that action for some arrival.
    work
        Lost when evicted, GPU-seconds, at least 1. ``stratum``: priority of its gang.
    breaks
        The eviction ends its gang (a core) and not only its surplus.
    saves
        Most by which its queue pays less when it moves (requests by GPU memory).
    rank
        Its place in the policy's victim order, 0 first to leave.
    tested
        (podset, its pods here, most of that podset that reclaim tests as one allocation unit): the podset's minimum, at
        least 1.
    releases
        (Cap of an optional rule on how many running pods leave, its pods here that it counts).
    marks
        What tells its pods apart for optional rules (`RuleFacts.tells_apart`).
    """

    unit: int
    gang: int
    queue: int
    charge: Charge
    pieces: tuple[Piece, ...]
    origin: tuple[int, ...]
    bears: tuple[int, ...]
    quorum: int
    scopes: tuple[Scope, ...]
    may_move: bool
    reclaimable: bool
    preemptable: bool
    work: int
    stratum: int
    breaks: bool
    saves: Charge = (0, 0, 0)
    rank: int = 0
    tested: tuple[tuple[int, int, int], ...] = ()
    releases: tuple[tuple[ReleaseKey, int], ...] = ()
    marks: tuple[Hashable, ...] = ()
    stuck: int = 0

    @property
    def may_leave(self) -> bool:
        """Whether some action may evict it."""
        return self.reclaimable or self.preemptable

    def used(self, cap: ReleaseKey) -> int:
        """Pods that ``cap`` counts."""
        return next((pods for key, pods in self.releases if key == cap), 0)

    @property
    def is_simple(self) -> bool:
        """One pod that any node may take, and that bears none: identical ones that none bears fold into a count."""
        return len(self.origin) == 1 and not self.scopes and not self.bears and not self.pieces[0].own


@dataclass(frozen=True, slots=True)
class Joint:
    """One question, or the disruption problem of one cycle.

    Attributes
    ----------
    free, device_free
        (R, N) and (N, D) capacity with all arrivals and movers lifted out.
    device_of
        Devices on which movers' pods sit at home, by pod.
    free_of
        By optional rule that grants something of nodes, what is free of that with all arrivals and movers lifted out.
    caps
        Queue limits and quotas that bind: (family, queue, resource, cap less what is not in this problem). What
        arrivals bring and movers hold counts against it, evicted movers do not.
    surplus
        By levelled queue that reclaim takes from: its leaf queues, and per resource how much may go before the last
        unit (a set is allowed where some resource stays below).
    of_rules
        By optional rule, what its rows have to know of the working state (`Ledger.for_rows`).
    releases
        Caps of optional rules that count pods of movers, with how many of these may leave home.
    dropped
        Resources by name, and ``node-rules``, that no place has to heed: for questions of what blocks.
    """

    problem: Problem
    free: IntArray
    device_free: IntArray
    arrivals: tuple[Arrival, ...]
    movers: tuple[Mover, ...]
    device_of: Mapping[int, tuple[int, ...]]
    caps: tuple["Cap", ...] = ()
    surplus: tuple[QueueSurplus, ...] = ()
    free_of: Mapping[str, Any] = field(default_factory=dict)
    of_rules: Mapping[str, Any] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    releases: tuple[tuple[ReleaseKey, int], ...] = ()

    @property
    def to_place(self) -> Counter[int]:
        """Pods by shape of all arrivals and movers."""
        found: Counter[int] = Counter()
        owners: tuple[Arrival | Mover, ...] = (*self.arrivals, *self.movers)
        for piece in (piece for owner in owners for piece in owner.pieces):
            found[piece.shape] += len(piece.pods)
        return found

    def binds(self, resource: int) -> bool:
        """Must places heed the resource?"""
        return not self.dropped or self.problem.snapshot.schema.names[resource] not in self.dropped


@dataclass(frozen=True, slots=True)
class Cap:
    """Limit (``family`` limit) or quota of non-preemptible work (``family`` quota) of one queue and resource."""

    family: str
    queue: int
    resource: int
    room: int
