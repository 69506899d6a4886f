"""How many pods of a shape fit on every node, kept up to date as places are taken."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.linking import STEPS, Links
from kai_solver.planstate.losses import Losses
from kai_solver.planstate.state import State
from kai_solver.problem.capacity import MANY, fitting_beside_gpus
from kai_solver.problem.rules import Ledger, Weight, answering
from kai_solver.units import CPU, GPU, MILLI, PODS
from kai_solver.units.shares import WHOLE

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_WISH, _LATER, _UNSHARED, _RANK = 1 << 34, 1 << 40, 1 << 44, 1 << 48
"""Weights of a node's key, far above any free amount: a point of what the pod prefers of nodes (at most 700); not free
now; no shared device to join; a step of the preferred topology's rank (docs/kai-behaviour.md#scoring)."""
_ONE_BY_ONE = 4
"""Touched nodes up to which counts are made without arrays: 5 µs a node, arrays take 60 µs (2026-11-21)."""
RANKS = 200
"""Largest rank of a preferred topology's domain: the roomiest so many are told apart, the rest tie. One point of pod
affinity (100 at most) outweighs them all, as in KAI (docs/kai-behaviour.md#scoring), and the key still fits 63 bits."""
_NODE_TYPE = 1 << 36
_POINT = _NODE_TYPE // 10
_BEST = 100
"""That a pod without GPUs keeps off GPU nodes is worth ten points of KAI's, the best score of a rule a hundred."""
_OF_WORKLOAD = 1 << 21
"""A pod of its workload that is there (4,096 at most): above any share of what is free (2^20), below a wish for the
node (2^34)."""

_LOSS = 1 << 21
"""A step of what the pod takes from usual ones (4095 at most): as one of the same workload, which are for pods that
spread, and those look at no losses."""

_IDLE, _AVOIDED = 1 << 32, 1 << 33
"""That a node is idle comes before the bandwidth lost there (`Links`); that an optional rule avoids it, before both.
All below node wishes (2^34)."""


@dataclass(slots=True)
class _Counts:
    """Pods of one shape that fit per node, now and later, and its score by rules (empty where none says any).

    ``seen``: how far in ``State.touched`` they are right. ``rules``: optional rules that limit the counts.
    ``has_room``: whether any fits, later; None: to be counted.
    """

    now: IntArray
    later: IntArray
    seen: int
    score: IntArray
    rules: tuple[Ledger, ...]
    has_room: bool | None = None


class FitTable:
    """Counts per shape and node, refreshed for the touched nodes only."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._same_room = state.problem.shapes.same_room
        self._preferring = answering(state.rules, "preferences")
        self._counts: dict[int, _Counts] = {}
        outlook = state.problem.outlook
        self._losses = Losses(state, outlook) if outlook is not None else None
        fabric = state.problem.fabric
        self._links = Links(state, fabric) if fabric is not None and outlook is None else None

    def counts(self, shape: int) -> tuple[IntArray, IntArray]:
        """(N,) pods of ``shape`` that fit now, and later (now included). Do not write to them."""
        touched, shape = self.state.touched, self._same_room(shape)
        found = self._counts.get(shape)
        if found is None:
            rules = tuple(rule for rule in self.state.rules if rule.limits(shape))
            now, later = self._compute(shape, None, rules)
            everywhere = np.arange(len(now))
            found = self._counts[shape] = _Counts(now, later, len(touched), self.state.score(shape, everywhere), rules)
        elif found.seen < len(touched):
            self._refresh(shape, found, sorted(set(touched[found.seen :])))
            found.seen = len(touched)
        return found.now, found.later

    def has_room(self, shape: int) -> bool:
        """True where one more pod of ``shape`` fits some node later."""
        later = self.counts(shape)[1]
        found = self._counts[self._same_room(shape)]
        if found.has_room is None:
            found.has_room = bool(later.any())
        return found.has_room

    def _refresh(self, shape: int, found: _Counts, nodes: list[int]) -> None:
        """Count again on ``nodes``."""
        is_one_by_one = len(nodes) <= _ONE_BY_ONE and self._is_counted_alone(shape)
        if is_one_by_one and not any(_is_limited(rule, shape, nodes) for rule in found.rules):
            fits = False
            for node in nodes:
                now, later = self._count_at(shape, node, found.rules)
                found.now[node], found.later[node] = now, later
                fits = fits or later > 0
            if fits:
                found.has_room = True
            elif found.has_room:
                found.has_room = None
            return
        found.has_room = None
        rows = np.array(nodes, dtype=np.int64)
        found.now[rows], found.later[rows] = self._compute(shape, rows, found.rules)
        if len(found.score):
            found.score[rows] = self.state.score(shape, rows)

    def _is_counted_alone(self, shape: int) -> bool:
        gpu = self.state.problem.shapes.shapes[shape].gpu
        return gpu.devices < 2 or gpu.is_whole

    def _count_at(self, shape: int, node: int, rules: tuple[Ledger, ...]) -> tuple[int, int]:
        """As ``_compute``, of one node that no rule limits: now, and later."""
        state = self.state
        if not state.problem.shapes.mask(shape)[node]:
            return 0, 0
        later, now = MANY, MANY
        future, idle = state.future[:, node].tolist(), state.idle[:, node].tolist()
        for resource, amount in state.asked[shape]:
            if resource != GPU:
                later, now = min(later, future[resource] // amount), min(now, idle[resource] // amount)
        gpu = state.problem.shapes.shapes[shape].gpu
        if gpu.devices and gpu.is_whole:
            later = min(later, int(state.whole_later[node]) // gpu.devices)
            now = min(now, int(state.whole_now[node]) // gpu.devices)
        elif gpu.devices:
            parts = max(int(state.problem.shapes.parts(shape)[node]), 1)
            finally_free = state.device_future[node].tolist()
            shares = [max(free, 0) // parts for free in finally_free]
            present = [
                min(free, then) for free, then in zip(state.device_idle[node].tolist(), finally_free, strict=True)
            ]
            if min(future[PODS], idle[PODS]) < sum(shares) + len(shares):  # Reservation pods may lack slots.
                one_now, one_later = self._compute(shape, np.array([node]), rules)
                return int(one_now[0]), int(one_later[0])
            later, now = min(later, sum(shares)), min(now, sum(max(free, 0) // parts for free in present))
        later = max(later, 0)
        return max(min(now, later), 0), later

    def took(self, shape: int, node: int, *, now: bool) -> None:
        """One pod of ``shape`` was just put on ``node`` and nothing else happened since ``counts``: one less fits."""
        found = self._counts.get(self._same_room(shape))
        if found is None or found.seen != len(self.state.touched) - 1 or self._is_uneven(shape, node, found):
            return
        if not now and found.now[node]:
            return
        found.later[node] -= 1
        found.has_room = found.has_room if found.later[node] else None
        if now:
            found.now[node] -= 1
        found.seen += 1

    def took_many(self, shape: int, nodes: IntArray, counts: IntArray) -> None:
        """As ``took``, of ``counts`` pods of a plain shape on each of ``nodes``, which start now."""
        found = self._counts.get(self._same_room(shape))
        if found is not None and found.seen == len(self.state.touched) - len(nodes):
            found.has_room = None
            np.subtract.at(found.later, nodes, counts)
            np.subtract.at(found.now, nodes, counts)
            found.seen += len(nodes)

    def _is_uneven(self, shape: int, node: int, counts: _Counts) -> bool:
        """True where one more pod may cost the room of several: shares of several devices, few pod slots, rules."""
        if not all(rule.counts_alike(shape) for rule in counts.rules):
            return True
        gpu, state = self.state.problem.shapes.shapes[shape].gpu, self.state
        slots = min(state.future[PODS, node], state.idle[PODS, node])
        return gpu.is_shared and (gpu.devices > 1 or slots <= counts.later[node] + state.device_future.shape[1])

    def _compute(self, shape: int, rows: IntArray | None, rules: tuple[Ledger, ...]) -> tuple[IntArray, IntArray]:
        state = self.state
        at = slice(None) if rows is None else rows
        mask = state.problem.shapes.mask(shape)[at]
        request = state.problem.shapes.shapes[shape].request
        later = fitting_beside_gpus(request, state.future[:, at], mask)
        now = fitting_beside_gpus(request, state.idle[:, at], mask)
        self._limit_by_gpus(shape, at, now, later)
        np.maximum(later, 0, out=later)
        np.minimum(now, later, out=now)
        np.maximum(now, 0, out=now)
        for rule in rules:
            rule.limit(shape, np.arange(len(mask)) if rows is None else rows, now, later)
        return np.minimum(now, later, out=now), later

    def _limit_by_gpus(self, shape: int, at: slice | IntArray, now: IntArray, later: IntArray) -> None:
        state = self.state
        gpu = state.problem.shapes.shapes[shape].gpu
        if not gpu.devices:
            return
        if gpu.is_whole:
            np.minimum(later, state.whole_later[at] // gpu.devices, out=later)
            np.minimum(now, state.whole_now[at] // gpu.devices, out=now)
            return
        parts = state.problem.shapes.parts(shape)[at][:, None]
        future = state.device_future[at]
        present = np.minimum(state.device_idle[at], future)
        slots, kept = state.future[PODS, at], state.sharers_later[at] > 0
        np.minimum(later, _shares(future, parts, gpu.devices, kept, slots), out=later)
        slots, kept = np.minimum(state.idle[PODS, at], slots), kept & (state.sharers_now[at] > 0)
        np.minimum(now, _shares(present, parts, gpu.devices, kept, slots), out=now)

    def choose(
        self,
        shape: int,
        allowed: BoolArray | None = None,
        rank: IntArray | None = None,
        pod: int | None = None,
    ) -> tuple[int, bool] | None:
        """The best node for one pod, and whether it can be bound now; None where it fits nowhere.

        Order (docs/kai-behaviour.md#scoring): neighbours that ``pod`` prefers; ``rank`` (N,), smaller first (preferred
        topology); a device already shared; nodes that it prefers; free now; the fewest pods of its own workload, where
        that is spread; packed or spread by what is free; then name. Of packed nodes whose links make a
        difference those that are in use go first, then those that lose the least bandwidth (`Links`), then the fullest.
        Where the problem has an outlook, what is packed goes first where it takes the least worth from usual pods.
        """
        if not self.has_room(shape):
            return None
        now, later = self.counts(shape)
        candidates = later > 0
        if allowed is not None:
            candidates &= allowed
        nodes = np.flatnonzero(candidates)
        if not len(nodes):
            return None
        key = self._key(shape, now, nodes)
        if rank is not None:
            key += rank[nodes] * _RANK
        self._prefer(key, shape, pod, candidates, nodes)
        node = int(nodes[key.argmin()])
        return node, bool(now[node] > 0)

    def fill(
        self, shape: int, count: int, allowed: BoolArray | None = None, rank: IntArray | None = None
    ) -> tuple[IntArray, IntArray] | None:
        """Nodes, and pods on each in this order, that ``choose`` would take for ``count`` pods of a plain shape.

        All of them start now; None where not so many can, or some would rather wait for room of a better ``rank``.
        Packed, the best node stays the best until it is full. Spread, a node's key grows with every pod, so that all
        keys that there will be need only be sorted.
        """
        now, later = self.counts(shape)
        room = now if allowed is None else np.where(allowed, now, 0)
        if rank is not None:
            waiting = rank[later > now] if allowed is None else rank[(later > now) & allowed]
            room = np.where(rank <= waiting.min(initial=RANKS), room, 0)
        nodes = np.flatnonzero(room)
        room = np.minimum(room[nodes], count)
        if int(room.sum()) < count:
            return None
        key = self._key(shape, now, nodes)
        if rank is not None:
            key += rank[nodes] * _RANK
        if self.state.problem.shapes.shapes[shape].nodes == "spread":
            return self._spread(shape, count, nodes, room, key)
        order = _smallest(key, count) if count <= _FEW else np.argsort(key, kind="stable")
        ends = np.cumsum(room[order])
        last = int(np.searchsorted(ends, count))
        times = room[order[: last + 1]]
        times[-1] -= ends[last] - count
        return nodes[order[: last + 1]], times

    def _spread(
        self, shape: int, count: int, nodes: IntArray, room: IntArray, key: IntArray
    ) -> tuple[IntArray, IntArray]:
        """The same for pods that spread: nodes may come more than once."""
        at = np.repeat(np.arange(len(nodes)), room)
        before = np.arange(len(at)) - np.repeat(np.cumsum(room) - room, room)
        free, total, each = self._free(shape)
        free, total = free[nodes], np.maximum(total[nodes], 1)
        key = key[at] + free[at] * 1_000_000 // total[at] - (free[at] - before * each) * 1_000_000 // total[at]
        order = np.lexsort((at, key))[:count]
        return nodes[at[order]], np.ones(count, dtype=np.int64)

    def _free(self, shape: int) -> tuple[IntArray, IntArray, int]:
        """(N,) of what is free and (N,) of what there is, by which nodes are packed and spread; what one pod takes."""
        state, spec = self.state, self.state.problem.shapes.shapes[shape]
        if spec.gpu.devices:
            return state.gpu_free, state.problem.gpus * MILLI, spec.gpu.devices * MILLI
        return state.future[CPU], state.problem.capacity[CPU], spec.request[CPU]

    def _key(self, shape: int, now: IntArray, nodes: IntArray) -> IntArray:
        """(M,) what orders ``nodes``, for all pods of ``shape``; ``now``: (N,) pods that fit now."""
        state = self.state
        spec = state.problem.shapes.shapes[shape]
        all_free, all_total, _ = self._free(shape)
        free, total = all_free[nodes], all_total[nodes]
        key: IntArray = -(free * 1_000_000 // np.maximum(total, 1)) if spec.nodes == "spread" else free
        if self._links is not None and spec.nodes == "binpack" and state.is_linked(shape):
            key = key * STEPS + self._links.losses(shape)[nodes] + (free == total) * _IDLE
        for rule in state.rules:
            avoided = rule.avoided(shape)
            if avoided is not None:
                key = key + avoided[nodes] * _AVOIDED
        if not spec.gpu.devices:
            key = key + np.where(state.problem.gpus[nodes] > 0, _NODE_TYPE, 0)
        key = key + np.where(now[nodes] > 0, 0, _LATER)
        score = self._counts[self._same_room(shape)].score
        if len(score):
            key += (_BEST - score[nodes]) * _POINT
        if self._losses is not None and spec.nodes == "binpack":
            # What a pod takes from usual ones comes before what is free; this tells also which GPU it may share.
            key += self._losses.steps(shape)[nodes] * _LOSS
        elif spec.gpu.is_shared and spec.nodes == "binpack":
            parts = state.problem.shapes.parts(shape)[nodes, None]
            future = state.device_future[nodes]
            joins = ((future >= parts) & (future < WHOLE)).any(axis=1)
            key += np.where(joins, 0, _UNSHARED)
        return key

    def _prefer(self, key: IntArray, shape: int, pod: int | None, candidates: BoolArray, nodes: IntArray) -> None:
        """Take from the ``key`` (M,) of ``nodes`` what the pod prefers, of the nodes themselves and of the pods there.

        ``candidates``: (N,) True at ``nodes``.
        """
        predicates, constraints = self.state.problem.predicates, self.state.problem.shapes.shapes[shape].constraints
        if predicates.has_preference(constraints):
            key -= predicates.preference(constraints, candidates)[nodes] * _WISH
        if pod is not None:
            for rule in self._preferring:
                for weight, points in rule.preferences(shape, pod, candidates):
                    key -= points[nodes] * _WEIGHTS[weight]


_WEIGHTS = {Weight.NEIGHBOURS: RANKS * _RANK, Weight.NODES: _WISH, Weight.WORKLOAD: _OF_WORKLOAD}

_NEVER = np.iinfo(np.int64).max
"""Key of a node that is not to be taken."""
_FEW = 8
"""Nodes up to which the smallest keys are looked for one by one: 4 µs each with 5,000 nodes, sorting takes 250 µs."""


def _smallest(key: IntArray, count: int) -> IntArray:
    """Positions of the ``count`` smallest keys, smallest first, of equal ones the first."""
    left = key.copy()
    found = np.empty(min(count, len(key)), dtype=np.int64)
    for number in range(len(found)):
        found[number] = left.argmin()
        left[found[number]] = _NEVER
    return found


def _is_limited(rule: Ledger, shape: int, nodes: list[int]) -> bool:
    """Whether ``rule``, which limits pods of ``shape``, may do so on some of ``nodes``."""
    limited = rule.limited_nodes(shape)
    return limited is None or bool(limited[nodes].any())


def _shares(free: IntArray, parts: IntArray, devices: int, kept: BoolArray, slots: IntArray) -> IntArray:
    """Pods that fit the free parts of devices (N, D), each taking ``parts`` (N, 1) of ``devices`` of them.

    Each pod's devices are distinct: k pods fit exactly where ``sum_d min(each_d, k) >= k * devices``. A device that is
    not yet shared (``kept``, (N, D)) takes one of the pod slots (N,) beside its pods'. Where slots are scarce, the
    count of pods on several devices is exact as to whether one fits.
    """
    each: IntArray = np.maximum(free, 0) // np.maximum(parts, 1)
    total: IntArray = each.sum(axis=1)
    if devices > 1:
        most = int((total // devices).max(initial=0))
        total = np.zeros(len(each), dtype=np.int64)
        for pods in range(1, most + 1):
            total += np.minimum(each, pods).sum(axis=1) >= pods * devices
    if bool((slots >= total + each.shape[1]).all()):
        return total
    joined = ((each > 0) & kept).sum(axis=1)
    total = np.where(slots >= 1 + np.maximum(0, devices - joined), total, 0)
    return total if devices > 1 else np.minimum(total, _within_slots(each, kept, slots))


def _within_slots(each: IntArray, kept: BoolArray, slots: IntArray) -> IntArray:
    """Pods (N,) that the slots allow: on shared devices one each, on new ones one more for each device."""
    join = np.where(kept, each, 0).sum(axis=1)
    per_device = np.where(kept, 0, each).max(axis=1, initial=0)
    rest = np.maximum(slots - join, 0)
    fresh: IntArray = rest // (per_device + 1) * per_device + np.maximum(rest % (per_device + 1) - 1, 0)
    return np.where(slots <= join, slots, join + fresh)
