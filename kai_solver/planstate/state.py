"""The working state of one cycle: what is free, where pods are, and a journal to take steps back.

Two views of capacity are kept. ``idle`` is free now; ``future`` is what is free once all leaving pods have
left. A pod that fits ``idle`` and ``future`` can be bound at once; one that fits ``future`` alone is nominated
(KAI: pipelined). ``future`` is never above what the node has, so nothing is promised twice.
"""

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.errors import InternalError
from kai_solver.fairness import QueueOrder
from kai_solver.planstate.devices import best_ones, choose_devices
from kai_solver.planstate.gang_states import GangStates, leaf_positions
from kai_solver.planstate.overload import Overload
from kai_solver.problem import Problem
from kai_solver.problem.charges import Charge, charge
from kai_solver.problem.rules import Spacing, answering
from kai_solver.units import MILLI, PODS
from kai_solver.units.rows import row_sums
from kai_solver.units.shares import PARTS_OF_MILLI, WHOLE, floor_milli

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


Grants = Mapping[str, Any]
NO_GRANTS: Grants = MappingProxyType({})


class Place(NamedTuple):
    """Where a pod is to run: node, devices and parts of each, whether it can be bound now, cost, grants by rule."""

    node: int
    devices: tuple[int, ...]
    parts: int
    now: bool
    charge: Charge
    grants: Grants = NO_GRANTS


class State:
    """Mutable, by its own methods alone: other rooms read its attributes and never write them.

    Steps (`put`, `lift`, `evict`, `restore`, `swap`, `join` with `place_joined`) are journalled; `rollback` undoes them
    to a `mark`. Suppositions (`supposing`, `supposed_to_wait`) end with their block.

    Attributes
    ----------
    idle, future
        (R, N) free amounts by resource and node: now, and once all that is leaving has left.
    device_idle, device_future
        (N, D) the same by device, in parts of it. ``sharers_now``, ``sharers_later``: pods that share each.
    whole_now, whole_later, gpu_free
        (N,) devices that are free whole, now and later; thousandths of devices that are free later.
    allocated, allocated_fixed
        By queue, (CPU, memory, GPU) that it holds; of work that is not preemptible.
    places
        By pod, the place that it got in this cycle.
    gone, is_gone, is_out
        Running pods that left, with or without a new place; (P,) the same; (P,) those of them that have none.
    gangs, leaf_of
        By gang, which of its pods run or will, and which wait; by pod, its leaf in the gang.
    touched
        Nodes in the order in which steps changed them: tables by node are renewed from it.
    paid
        Queues, leaves as a rule, in the order in which steps changed what they, and those above them, hold.
    refusing
        Those of ``rules`` that may refuse pods wherever they go.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.idle: IntArray = problem.capacity - problem.held
        self.future: IntArray = self.idle + problem.releasing
        self.device_idle: IntArray = problem.device_free.copy()
        self.device_future: IntArray = problem.device_free + problem.device_releasing
        self.sharers_now: IntArray = problem.sharers.copy()
        self.sharers_later: IntArray = problem.sharers - problem.sharers_leaving
        self.whole_now: IntArray = row_sums(np.minimum(self.device_idle, self.device_future) == WHOLE)
        self.whole_later: IntArray = row_sums(self.device_future == WHOLE)
        self.gpu_free: IntArray = row_sums(floor_milli(self.device_future))
        self.allocated = [list(row) for row in problem.allocated]
        self.allocated_fixed = [list(row) for row in problem.allocated_fixed]
        self.places: dict[int, Place] = {}
        self.gone: set[int] = set()
        self.is_gone: BoolArray = np.zeros(len(problem.pods), dtype=np.bool_)
        self.is_out: BoolArray = np.zeros(len(problem.pods), dtype=np.bool_)
        self.gangs = GangStates(problem.gangs)
        self.leaf_of = leaf_positions(problem)
        self.order = QueueOrder(problem.queues, problem.share, problem.allocatable, problem.total)
        self.touched: list[int] = []
        self.paid: list[int] = []
        self.journal: list[tuple[str, int, Place | None]] = []
        ledgers = (facts.ledger(self) for facts in problem.rules)
        self.rules = tuple(ledger for ledger in ledgers if ledger is not None)
        self.granting = {rule.kind: rule for rule in self.rules if rule.grants}
        self.refusing = answering(self.rules, "refuses")
        self._counting = answering(self.rules, "join")
        self._placing = answering(self.rules, "place")
        self.by_device = any(rule.by_device for rule in self.rules)
        self.overload = Overload(problem)
        self._plain: dict[int, bool] = {}
        self._linked: dict[int, bool] = {}
        self._requests = [np.array(s.request, dtype=np.int64) for s in problem.shapes.shapes]
        self.asked = [[(r, a) for r, a in enumerate(s.request) if a > 0] for s in problem.shapes.shapes]

    # -- steps -------------------------------------------------------------------------------------------------

    def put(
        self, pod: int, node: int, *, now: bool, wanted: tuple[int, ...] = (), wanted_grants: Grants = NO_GRANTS
    ) -> Place:
        """Give ``pod`` a place on ``node``; the caller knows that it fits. What is ``wanted`` is taken if free.

        It waits, even if asked to start ``now``, for leaving pods that may not be beside it, pods that it requires
        beside it and that come later, or where an optional rule says so.
        """
        problem, shape = self.problem, self.problem.pod_shape[pod]
        gpu = problem.shapes.shapes[shape].gpu
        now = now and all(rule.may_start(shape, pod, node) for rule in self.rules)
        parts = gpu.parts_on(problem.nodes[node].gpu_memory_mib) if gpu.devices else 0
        if self.by_device and node == problem.pod_node[pod]:
            wanted = wanted or problem.held_devices.get(pod, ())
        devices = choose_devices(self, node, shape, parts, wanted, now=now) if gpu.devices else ()
        cost = charge(problem.pods[pod], problem.nodes[node].gpu_memory_mib)
        grants = self._grants(pod, node, wanted_grants, now=now) if self.granting else NO_GRANTS
        self._apply_put(pod, place := Place(node, devices, parts, now, cost, grants))
        self.journal.append(("put", pod, place))
        return place

    def is_plain(self, shape: int) -> bool:
        """True for shapes that add up and that prefer no nodes: where a pod goes is a matter of counting.

        As far as no rule or wish between pods is about it (``Problem.related``).
        """
        if shape not in self._plain:
            said = self.problem.shapes.shapes[shape].constraints
            is_counted = not self.is_linked(shape) and self.adds_up(shape)
            is_counted &= all(rule.counts_alike(shape) for rule in self.rules)
            self._plain[shape] = is_counted and not self.problem.predicates.has_preference(said)
        return self._plain[shape]

    def adds_up(self, shape: int) -> bool:
        """True where a node has room for one more pod of ``shape`` with each that leaves it, whatever else is asked."""
        gpu = self.problem.shapes.shapes[shape].gpu
        return (gpu.is_whole or not gpu.devices) and all(rule.adds_up(shape) for rule in self.rules)

    def is_linked(self, shape: int) -> bool:
        """True for shapes of several whole GPUs, but not all, of some node whose links make a difference."""
        if shape not in self._linked:
            fabric, shapes = self.problem.fabric, self.problem.shapes
            gpu, nodes = shapes.shapes[shape].gpu, shapes.mask(shape)
            self._linked[shape] = fabric is not None and gpu.is_whole and fabric.leaves_choice(gpu.devices, nodes)
        return self._linked[shape]

    def join(self, pods: Sequence[int], cost: Charge) -> None:
        """``pods`` of one leaf, of plain shapes, are to run at this cost; `place_joined` has to follow."""
        self._pay(self._start(pods), cost, +1)

    def join_each(self, coming: Iterable[tuple[Sequence[int], Charge]]) -> None:
        """As `join`, one after the other: what gangs of one queue cost is added to it at once, at the end."""
        payers: dict[tuple[int, bool, Charge], list[int]] = {}
        for pods, cost in coming:
            gang = self.problem.gangs[self._start(pods)]
            payers.setdefault((gang.queue, gang.gang.preemptible, cost), []).append(gang.index)
        for (_, _, cost), gangs in payers.items():
            self._pay(gangs[0], cost, len(gangs))

    def _start(self, pods: Sequence[int]) -> int:
        """``pods`` of one leaf are no longer those that wait, but those that run or will; their gang."""
        gang, leaf = self.problem.pod_gang[pods[0]], self.leaf_of[pods[0]]
        state = self.gangs[gang]
        state.active[leaf].extend(pods)
        pending = state.pending[leaf]
        if len(pods) == 1 and pending and pending[0] == pods[0]:
            del pending[0]
        elif pending[: len(pods)] == list(pods):
            del pending[: len(pods)]
        else:
            coming = set(pods)
            pending[:] = [pod for pod in pending if pod not in coming]
        for rule in self._counting:
            rule.join(gang, pods, +1)
        return gang

    def place_joined(
        self, pods: Sequence[int], nodes: Sequence[int], counts: Sequence[int], *, now: bool = True
    ) -> None:
        """Place ``pods`` of one plain shape, joined already: ``counts`` of them on each of ``nodes``.

        The same as ``put`` one after the other, where no rule minds which devices a pod has; a node may come more than
        once. The caller knows that they may start ``now``.
        """
        shape = self.problem.pod_shape[pods[0]]
        width = self.problem.shapes.shapes[shape].gpu.devices
        at, times = np.array(nodes, dtype=np.int64), np.array(counts, dtype=np.int64)
        amounts = times[:, None] * self._requests[shape]
        np.subtract.at(self.future.T, at, amounts)
        if now:
            np.subtract.at(self.idle.T, at, amounts)
        self.is_out[list(pods)] = False
        parts, cost = (WHOLE if width else 0), self.problem.charges
        left = iter(pods)
        for node, count in zip(nodes, counts, strict=True):
            devices = self._take_whole(node, count * width, now=now) if width else ()
            for rule in self._placing:
                rule.place(shape, pods[0], node, count, +1, now=now)
            is_granted = bool(self.granting) and any(rule.grants_at(node) for rule in self.granting.values())
            for number, pod in enumerate(islice(left, count)):
                own = devices[number * width : (number + 1) * width]
                grants = self._take_grants(pod, node, now=now) if is_granted else NO_GRANTS
                self.places[pod] = place = Place(node, own, parts, now, cost[pod], grants)
                self.journal.append(("put", pod, place))
        self.touched.extend(nodes)

    def swap(self, victim: int, pod: int) -> None:
        """``pod`` is to run where ``victim``, which holds the same, does: ``evict`` and ``put`` in one, not now."""
        node, held_devices = self.problem.pod_node[victim], self.problem.held_devices.get(victim, ())
        self._leave(victim, self.problem.charges[victim])
        self.gone.add(victim)
        self.is_gone[victim] = self.is_out[victim] = True
        for rule in self.rules:
            rule.leave(self.problem.pod_shape[victim], victim, node, 1, +1)
        devices = tuple(sorted(held_devices))
        grants = self._take_grants(pod, node, now=False) if self.granting else NO_GRANTS
        place = Place(node, devices, WHOLE if devices else 0, False, self.problem.charges[pod], grants)
        self.places[pod] = place
        self._join(pod, place.charge)
        for rule in self._placing:
            rule.place(self.problem.pod_shape[pod], pod, node, 1, +1, now=False)
        self.journal += (("evict", victim, None), ("put", pod, place))
        self.touched.append(node)

    def _take_grants(self, pod: int, node: int, *, now: bool) -> Grants:
        """What rules grant ``pod`` of ``node``, taken."""
        grants = self._grants(pod, node, NO_GRANTS, now=now)
        for name, grant in grants.items():
            self.granting[name].take(node, grant, +1, now=now)
        return grants

    def _grants(self, pod: int, node: int, wanted: Grants, *, now: bool) -> Grants:
        found = NO_GRANTS
        for name, rule in self.granting.items():
            grant = rule.grant(pod, node, wanted.get(name), now=now)
            found = found if grant is None else {**found, name: grant}
        return found

    def _take_whole(self, node: int, count: int, *, now: bool) -> tuple[int, ...]:
        """The first ``count`` devices of ``node`` that are free, now or later, taken."""
        idle, future = self.device_idle[node].tolist(), self.device_future[node].tolist()
        free = [d for d, f in enumerate(future) if f == WHOLE and (not now or idle[d] == WHOLE)]
        free = best_ones(self, node, free, count)
        self.device_future[node, free] = 0
        self.whole_now[node] -= sum([idle[device] == WHOLE for device in free])
        if now:
            self.device_idle[node, free] = 0
        self.whole_later[node] -= count
        self.gpu_free[node] -= count * MILLI
        return tuple(free)

    @cached_property
    def by_memory(self) -> list[int]:
        """Pods that ask for GPU memory: what they take and cost depends on the node."""
        shapes = {index for index, shape in enumerate(self.problem.shapes.shapes) if shape.gpu.memory_mib}
        return [pod for pod, shape in enumerate(self.problem.pod_shape) if shape in shapes] if shapes else []

    @cached_property
    def is_crossed(self) -> bool:
        """True where running pods are where an optional rule would not let new pods like them be."""
        return any(rule.is_crossed(self.problem) for rule in self.problem.rules)

    def lift(self, pod: int) -> None:
        """Take back the place that ``put`` gave."""
        place = self.places[pod]
        self._apply_lift(pod, place)
        self.journal.append(("lift", pod, place))

    def evict(self, pod: int) -> None:
        """A running pod leaves: what it held is free in the future."""
        self._apply_evict(pod)
        self.journal.append(("evict", pod, None))

    def restore(self, pod: int) -> None:
        """Undo ``evict``: the pod stays where it runs."""
        self._apply_restore(pod)
        self.journal.append(("restore", pod, None))

    def mark(self) -> int:
        """A point in the journal to roll back to."""
        return len(self.journal)

    def steps_since(self, mark: int) -> list[tuple[str, int, Place | None]]:
        """The steps taken since ``mark``, for `replay`."""
        return self.journal[mark:]

    def rollback(self, mark: int) -> None:
        """Undo everything since ``mark``."""
        while len(self.journal) > mark:
            step, pod, place = self.journal.pop()
            if step == "evict":
                self._apply_restore(pod)
            elif step == "restore":
                self._apply_evict(pod)
            elif place is None:
                raise InternalError(f"journal step {step} without a place")
            elif step == "put":
                self._apply_lift(pod, place)
            else:
                self._apply_put(pod, place)

    def replay(self, steps: Iterable[tuple[str, int, Place | None]]) -> None:
        """Take ``steps`` of the journal, which were undone, once more; the state is as it was before them."""
        for step, pod, place in steps:
            if place is None:
                (self._apply_evict if step == "evict" else self._apply_restore)(pod)
            else:
                (self._apply_put if step == "put" else self._apply_lift)(pod, place)
            self.journal.append((step, pod, place))

    # -- suppositions ------------------------------------------------------------------------------------------

    @contextmanager
    def supposing(self) -> Iterator[None]:
        """Within, `suppose` may change what queues hold; afterwards that is as before. No step is taken within."""
        now = self.allocated, self.allocated_fixed
        self.allocated, self.allocated_fixed = ([list(row) for row in table] for table in now)
        try:
            yield
        finally:
            self.allocated, self.allocated_fixed = now

    def suppose(self, queues: Iterable[int], cost: Charge, times: int = 1, *, is_fixed: bool = False) -> None:
        """Suppose that each of ``queues`` holds ``times`` the ``cost`` more, ``is_fixed``: of work not preemptible.

        Until `supposing` ends; for good only in a state that is made for a supposition.
        """
        table = self.allocated_fixed if is_fixed else self.allocated
        for queue in queues:
            table[queue] = [held + times * amount for held, amount in zip(table[queue], cost, strict=True)]
            self.paid.append(queue)

    @contextmanager
    def supposed_to_wait(self, evicted: Iterable[int]) -> Iterator[set[int]]:
        """Within, the pods ``evicted`` wait again, as in the next cycle; their gangs. Steps taken within are undone."""
        pods = list(evicted)
        victims = {self.problem.pod_gang[pod] for pod in pods}
        kept = {gang: [list(pods) for pods in self.gangs[gang].pending] for gang in victims}
        for pod in pods:
            self._wait_again(self.problem.pod_gang[pod], self.leaf_of[pod], pod)
        mark = self.mark()
        try:
            yield victims
        finally:
            self.rollback(mark)
            for gang, pending in kept.items():
                self.gangs[gang].pending[:] = pending

    # -- effects -----------------------------------------------------------------------------------------------

    def _apply_put(self, pod: int, place: Place) -> None:
        self._shift_placed(pod, place, -1)
        self.places[pod] = place
        self.is_out[pod] = False
        self._join(pod, place.charge)

    def _apply_lift(self, pod: int, place: Place) -> None:
        self._shift_placed(pod, place, +1)
        del self.places[pod]
        self.is_out[pod] = self.is_gone[pod]
        self._leave(pod, place.charge)

    def _shift_placed(self, pod: int, place: Place, sign: int) -> None:
        """Give back (+1) or take (-1) what a pod with ``place`` holds of its node."""
        node, amounts = place.node, sign * self._requests[self.problem.pod_shape[pod]]
        self.future[:, node] += amounts
        if place.now:
            self.idle[:, node] += amounts
        for device in place.devices:
            self.device_future[node, device] += sign * place.parts
            if place.now:
                self.device_idle[node, device] += sign * place.parts
        for name, grant in place.grants.items():
            self.granting[name].take(node, grant, -sign, now=place.now)
        self._share(pod, node, place.devices, -sign, now=place.now)
        for rule in self._placing:
            rule.place(self.problem.pod_shape[pod], pod, node, 1, -sign, now=place.now)
        self._note(node, gpus=bool(place.devices))

    def _apply_evict(self, pod: int) -> None:
        self._leave(pod, self.problem.charges[pod])
        self._shift_running(pod, +1)
        self.gone.add(pod)
        self.is_gone[pod] = self.is_out[pod] = True

    def _apply_restore(self, pod: int) -> None:
        self._join(pod, self.problem.charges[pod])
        self._shift_running(pod, -1)
        self.gone.discard(pod)
        self.is_gone[pod] = self.is_out[pod] = False

    def _shift_running(self, pod: int, sign: int) -> None:
        problem = self.problem
        node = problem.pod_node[pod]
        for rule in self.rules:
            rule.leave(problem.pod_shape[pod], pod, node, 1, sign)
        self.future[:, node] += sign * self._requests[problem.pod_shape[pod]]
        held_devices = problem.held_devices.get(pod, ())
        if held_devices:
            parts = problem.shapes.parts(problem.pod_shape[pod])[node]
            for device in held_devices:
                self.device_future[node, device] += sign * parts
            self._share(pod, node, held_devices, -sign, now=False)
        self._note(node, gpus=bool(held_devices))

    def _share(self, pod: int, node: int, devices: tuple[int, ...], sign: int, *, now: bool) -> None:
        """Count sharers; a device's first takes a pod slot for the reservation pod, its last gives it back."""
        if not self.problem.pods[pod].gpu.is_shared:
            return
        views = [(self.sharers_later, self.future), (self.sharers_now, self.idle)]
        for sharers, free in views if now else views[:1]:
            for device in devices:
                before = int(sharers[node, device])
                sharers[node, device] = before + sign
                free[PODS, node] += (before > 0) - (before + sign > 0)

    def _note(self, node: int, *, gpus: bool) -> None:
        self.touched.append(node)
        if gpus:
            now = later = free = 0
            for idle, future in zip(self.device_idle[node].tolist(), self.device_future[node].tolist(), strict=True):
                if future > 0:
                    free += future // PARTS_OF_MILLI
                    if future == WHOLE:
                        later += 1
                        now += idle == WHOLE
            self.whole_now[node], self.whole_later[node], self.gpu_free[node] = now, later, free

    def _join(self, pod: int, cost: Charge) -> None:
        gang, leaf = self.problem.pod_gang[pod], self.leaf_of[pod]
        self._pay(gang, cost, +1)
        pods = self.gangs[gang]
        pods.active[leaf].append(pod)
        if pod in pods.pending[leaf]:
            pods.pending[leaf].remove(pod)
        for rule in self._counting:
            rule.join(gang, (pod,), +1)

    def _leave(self, pod: int, cost: Charge) -> None:
        gang, leaf = self.problem.pod_gang[pod], self.leaf_of[pod]
        self._pay(gang, cost, -1)
        self.gangs[gang].active[leaf].remove(pod)
        for rule in self._counting:
            rule.join(gang, (pod,), -1)
        if self.problem.pod_node[pod] < 0:
            self._wait_again(gang, leaf, pod)

    def _wait_again(self, gang: int, leaf: int, pod: int) -> None:
        pending = self.gangs[gang].pending[leaf]
        bisect.insort(pending, pod)  # Numbers are in the order in which pods are served.

    def _pay(self, payer: int, cost: Charge, times: int) -> None:
        gang = self.problem.gangs[payer]
        self.paid.append(gang.queue)
        cpu, memory, gpus = times * cost[0], times * cost[1], times * cost[2]
        for ledger in (self.allocated,) if gang.gang.preemptible else (self.allocated, self.allocated_fixed):
            for queue in self.problem.queues.path[gang.queue]:
                row = ledger[queue]
                row[0] += cpu
                row[1] += memory
                row[2] += gpus

    # -- optional rules ------------------------------------------------------------------------------------------

    def admitting(self, pod: int, allowed: BoolArray | None, *, without: str = "") -> BoolArray | None:
        """``allowed`` (N,) without the nodes that rules close to ``pod``; None: all nodes.

        ``without``: the kind of a rule that is not asked.
        """
        masks = [allowed] if allowed is not None else []
        for rule in self.rules:
            mask = rule.mask(self.problem.pod_shape[pod], pod) if rule.kind != without else None
            if mask is not None:
                masks.append(mask)
        if len(masks) < 2:
            return masks[0] if masks else None
        every: BoolArray = np.logical_and.reduce(masks)
        return every

    def score(self, shape: int, nodes: IntArray) -> IntArray:
        """(K,) points of ``nodes`` by rules, by how well they suit one more pod; (0,) where no rule says any."""
        scores = [score for rule in self.rules if (score := rule.score(shape, nodes)) is not None]
        return sum(scores[1:], start=scores[0]) if scores else np.zeros(0, dtype=np.int64)

    def keeps_spacing(self, gang: int) -> bool:
        """True where the pods of ``gang`` lie as rules ask."""
        return not self.problem.gangs[gang].is_spaced or all(rule.keeps_spacing(gang) for rule in self.rules)

    def spacings(self, gang: int) -> tuple[Spacing, ...]:
        """What rules ask of how waiting pods of ``gang`` lie, wherever others are."""
        if not self.problem.gangs[gang].is_spaced:
            return ()
        every = (rule.spacing(gang) for rule in self.rules)
        return tuple(spacing for spacing in every if spacing is not None)

    # -- devices -----------------------------------------------------------------------------------------------

    def reserved(self, node: int, *, now: bool) -> tuple[list[bool], int]:
        """Devices of ``node`` that have their reservation pod already, and free pod slots; now, or finally.

        Now counts only what is there both now and finally.
        """
        kept, slots = self.sharers_later[node] > 0, int(self.future[PODS, node])
        if now:
            kept, slots = kept & (self.sharers_now[node] > 0), min(slots, int(self.idle[PODS, node]))
        return kept.tolist(), slots

    # -- questions ---------------------------------------------------------------------------------------------

    def returns_to_origin(self, pods: Iterable[int], *, rules: bool = True) -> bool:
        """Put evicted ``pods`` back where they ran if there is room for all; else change nothing.

        ``rules``: only where no rule of a pod placed since is broken by it.
        """
        mark, are_welcome = self.mark(), True
        for pod in pods:
            if not self.fits_origin(pod):
                self.rollback(mark)
                return False
            are_welcome = are_welcome and (not rules or all(rule.may_return(pod) for rule in self.rules))
            self.restore(pod)
        if not are_welcome and not self.keeps_rules():
            self.rollback(mark)
            return False
        return True

    def keeps_rules(self) -> bool:
        """Whether the plan so far keeps every optional rule."""
        return all(rule.holds() for rule in self.rules)

    def may_be_gone(self) -> bool:
        """Whether the running pods that left or moved may all have done so, by the rules that protect them."""
        return all(rule.may_be_gone(self.is_gone) for rule in self.problem.rules)

    def keeps_devices(self, pod: int, node: int) -> bool:
        """False where a pod would stay on its node with other devices than its own, and a rule minds which it has."""
        if not self.by_device or node != self.problem.pod_node[pod]:
            return True
        if self.problem.pods[pod].gpu.is_whole:
            return self.fits_origin(pod)
        return all(rule.has_room_at_origin(pod) for rule in self.rules if rule.by_device)

    def fits_origin(self, pod: int) -> bool:
        """True where there is room for an evicted ``pod`` where it ran."""
        problem = self.problem
        node, shape = problem.pod_node[pod], problem.pod_shape[pod]
        held_devices, excused = problem.held_devices.get(pod, ()), self.overload.excused(node, self.places)
        if held_devices:
            parts, free = problem.shapes.parts(shape)[node], self.device_future[node]
            has_slots = PODS in excused or self._has_slots(pod, node, held_devices)
            if not has_slots or any(free[d] < parts for d in held_devices):
                return False
        if any(self.future[r, node] < amount and r not in excused for r, amount in self.asked[shape]):
            return False
        return all(rule.has_room_at_origin(pod) for rule in self.rules)

    def _has_slots(self, pod: int, node: int, held_devices: tuple[int, ...]) -> bool:
        """True where the reservation pods of the devices that ``pod`` would share again find pod slots too."""
        if not self.problem.pods[pod].gpu.is_shared:
            return True
        kept, slots = self.reserved(node, now=False)
        asked = self.problem.shapes.shapes[self.problem.pod_shape[pod]].request[PODS]
        return slots - asked >= sum(not kept[d] for d in held_devices)
