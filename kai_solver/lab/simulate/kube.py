"""``kube-default``: what a cluster without a batch scheduler does. Pod by pod, no gangs, no queues.

Order: priority, then creation. Filters: node selectors, affinity to nodes, taints, CPU, memory, pods, extended
resources and whole GPUs (a share of a GPU takes a whole device, as the device plugin counts). Scores: kube-scheduler's
``NodeResourcesFit`` (least allocated) and ``NodeResourcesBalancedAllocation`` over CPU and memory, weight 1 each; ties
go to the first name, where kube-scheduler draws. A pod that fits nowhere preempts pods of lower priority on one node:
the node whose highest victim is lowest, then the least sum of priorities, then the fewest (kube-scheduler's
``DefaultPreemption``); it does not look at what is preemptible. Rules between pods (affinity, spread) are not looked
at.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from kai_solver.domain import Bind, Device, Eviction, Gang, Node, Plan, Pod, PodStatus, Snapshot
from kai_solver.predicates import NodePredicates
from kai_solver.units import CPU, GPU, MEMORY, MILLI

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


class KubeDefault:
    """The policy; it remembers nothing from one cycle to the next but what never changes about nodes."""

    name = "kube-default"

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] = ()
        self._predicates = NodePredicates(())

    def decide(self, snapshot: Snapshot) -> Plan:
        """Binds, and evictions by priority, of one cycle."""
        nodes = tuple(sorted(snapshot.nodes, key=lambda node: node.name))
        if nodes != self._nodes:
            self._nodes, self._predicates = nodes, NodePredicates(nodes)
        return _Round(snapshot, nodes, self._predicates).plan()


class _Round:
    """One cycle: what is free, and which pods take it."""

    def __init__(self, snapshot: Snapshot, nodes: tuple[Node, ...], predicates: NodePredicates) -> None:
        self.nodes = nodes
        self.predicates = predicates
        self.index = {node.name: i for i, node in enumerate(nodes)}
        self.capacity: Ints = np.array([n.allocatable for n in nodes], dtype=np.int64).reshape(
            len(nodes), snapshot.schema.size
        )
        self.free = self.capacity.copy()
        self.free[:, GPU] //= MILLI
        self.busy: list[set[int]] = [set() for _ in nodes]
        self.leaving: set[int] = set()
        self.running: dict[int, list[tuple[Gang, Pod]]] = defaultdict(list)
        self.binds: list[Bind] = []
        self.evictions: list[Eviction] = []
        self.waiting: list[tuple[Gang, Pod]] = []
        for gang in snapshot.gangs:
            for pod in gang.pods:
                self._see(gang, pod)

    def plan(self) -> Plan:
        """Every pod that waits, in order; of identical pods that find nothing one is asked."""
        self.waiting.sort(key=lambda gp: (-gp[0].priority, gp[0].created_s, gp[0].key, gp[1].order, gp[1].key))
        hopeless: set[tuple[object, ...]] = set()
        for gang, pod in self.waiting:
            identical = (pod.request, pod.gpu, pod.constraints, gang.priority, gang.never_preempts, pod.nominated_node)
            if identical in hopeless:
                continue
            fits = self._fits(pod)
            if fits.any():
                self._bind(gang, pod, self._best(pod, np.flatnonzero(fits)))
            elif not self._waits_for_its_place(pod) and not self._preempt(gang, pod):
                hopeless.add(identical)
        return Plan(binds=tuple(self.binds), evictions=tuple(self.evictions), model=KubeDefault.name)

    def _see(self, gang: Gang, pod: Pod) -> None:
        if pod.status is PodStatus.PENDING and not gang.set_aside:
            self.waiting.append((gang, pod))
        node = self.index.get(pod.node, -1)
        if node < 0 or not pod.status.holds_resources:
            return
        self.free[node] -= _needs(pod)
        self.busy[node].update(pod.devices)
        if pod.status.is_active:
            self.running[node].append((gang, pod))
        else:
            self.leaving.add(node)

    def _fits(self, pod: Pod) -> Bools:
        enough: Bools = np.asarray((self.free >= _needs(pod)).all(axis=1), dtype=np.bool_)
        return enough & self.predicates.node_mask(pod.constraints)

    def _best(self, pod: Pod, nodes: Ints) -> int:
        """Scores are whole numbers 0 .. 100 as in kube-scheduler, and added."""
        capacity = np.maximum(self.capacity[nodes][:, [CPU, MEMORY]], 1)
        left = self.free[nodes][:, [CPU, MEMORY]] - _needs(pod)[[CPU, MEMORY]]
        least = (left * 100 // capacity).sum(axis=1) // 2
        used = 1 - left / capacity
        balanced = ((1 - np.abs(used[:, 0] - used[:, 1]) / 2) * 100).astype(np.int64)
        return int(nodes[np.argmax(least + balanced)])

    def _bind(self, gang: Gang, pod: Pod, node: int) -> None:
        spare = (i for i in range(self.nodes[node].gpus) if i not in self.busy[node])
        taken = [index for index, _ in zip(spare, range(pod.gpu.devices), strict=False)]
        self.free[node] -= _needs(pod)
        self.busy[node].update(taken)
        milli = pod.gpu.milli_on(self.nodes[node].gpu_memory_mib)
        devices = tuple(Device(index, milli) for index in taken)
        self.binds.append(Bind(pod.key, gang.key, self.nodes[node].name, devices))

    def _waits_for_its_place(self, pod: Pod) -> bool:
        """A pod that has preempted holds what its victims leave, and preempts no other pod meanwhile."""
        node = self.index.get(pod.nominated_node, -1)
        if node not in self.leaving or not self.nodes[node].schedulable:
            return False
        self.free[node] -= _needs(pod)
        return True

    # -- preemption ----------------------------------------------------------------------------------------------

    def _preempt(self, gang: Gang, pod: Pod) -> bool:
        if gang.never_preempts:
            return False
        allowed = np.flatnonzero(self.predicates.node_mask(pod.constraints)).tolist()
        options = [(node, self._victims(node, gang.priority, pod)) for node in allowed]
        worth = [(_cost(victims), node, victims) for node, victims in options if victims]
        if not worth:
            return False
        _, node, victims = min(worth, key=lambda option: option[:2])
        freed = np.zeros_like(self.free[node])
        for owner, victim in victims:
            message = f"Preempted by pod {pod.key} on node {self.nodes[node].name}"
            self.evictions.append(
                Eviction(victim.key, owner.key, self.nodes[node].name, "preempt", (gang.key,), message)
            )
            self.running[node].remove((owner, victim))
            freed += _needs(victim)
        # What victims leave over is not there before they have left.
        self.free[node] = np.minimum(self.free[node], self.free[node] + freed - _needs(pod))
        self.binds.append(Bind(pod.key, gang.key, self.nodes[node].name, nominated=True))
        return True

    def _victims(self, node: int, priority: int, pod: Pod) -> list[tuple[Gang, Pod]]:
        """Pods of lower priority without which ``pod`` fits, as few as kube-scheduler's reprieve finds."""
        lower = [(owner, other) for owner, other in self.running[node] if owner.priority < priority]
        room = self.free[node] + sum((_needs(other) for _, other in lower), start=np.zeros_like(self.free[node]))
        room -= _needs(pod)
        if not lower or (room < 0).any():
            return []
        victims = []
        for owner, other in sorted(lower, key=lambda gp: (-gp[0].priority, gp[0].last_start_s or 0.0, gp[1].key)):
            if (room >= _needs(other)).all():
                room -= _needs(other)
            else:
                victims.append((owner, other))
        return victims


def _needs(pod: Pod) -> Ints:
    """Its request with GPUs as whole devices."""
    needs: Ints = np.array(pod.request, dtype=np.int64)
    needs[GPU] = pod.gpu.devices
    return needs


def _cost(victims: Sequence[tuple[Gang, Pod]]) -> tuple[int, int, int, float]:
    """Smaller is better: highest priority, sum of priorities, count, then the pod that started last goes first."""
    priorities = [gang.priority for gang, _ in victims]
    started = min(gang.last_start_s or 0.0 for gang, _ in victims)
    return (max(priorities, default=0), sum(priorities), len(victims), -started)
