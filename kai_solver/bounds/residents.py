"""Running pods as arrays, and what is free once some of them are out of the way: no victim is looked at one by one."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.counting import Relaxed
from kai_solver.problem import Problem
from kai_solver.units import PODS
from kai_solver.units.rows import row_sums

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Residents:
    """Pods of gangs that hold a node when the cycle begins: P pods of G gangs.

    Attributes
    ----------
    pods, node, owner
        (P,) index of the pod, its node, its gang.
    queue, priority, preemptible, runs
        (G,) of every gang of the problem, also of those that only wait; ``runs``: it has pods here.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        gangs = problem.gang_columns
        active, _ = gangs.active_pods
        origin = problem.columns.node[active]
        self.pods: IntArray = active[origin >= 0]
        self.node: IntArray = origin[origin >= 0]
        self.owner: IntArray = problem.columns.gang[self.pods]
        self.queue, self.priority, self.preemptible = gangs.queue, gangs.priority, gangs.preemptible
        self.runs: BoolArray = np.bincount(self.owner, minlength=len(self.queue)) > 0
        self._lifts: dict[tuple[bytes, bytes], Relaxed] = {}

    @cached_property
    def charge(self) -> IntArray:
        """(G, 3) what the running pods of each gang cost its queue."""
        total = np.zeros((len(self.queue), 3), dtype=np.int64)
        np.add.at(total, self.owner, self.problem.columns.charge[self.pods])
        return total

    @cached_property
    def _requests(self) -> IntArray:
        """(P, R) what each pod asks for."""
        return self.problem.shapes.requests[self.shape]

    @cached_property
    def shape(self) -> IntArray:
        """(P,) shape of each pod, preferences aside: 2,040 shapes on 20,000 unequal nodes are 9 so (2026-11-28)."""
        found, own = np.unique(self.problem.columns.shape[self.pods], return_inverse=True)
        same = [self.problem.shapes.without_wishes(shape) for shape in found.tolist()]
        return np.array(same, dtype=np.int64)[own.reshape(-1)]

    @cached_property
    def _held_devices(self) -> tuple[IntArray, IntArray, IntArray]:
        """Devices in use: row among the pods, device, parts of it."""
        return self.problem.columns.held(self.pods)

    def room_at_origins(self, moving: BoolArray, barred: BoolArray | None = None) -> dict[int, int]:
        """Pods by shape of the gangs ``moving`` (G,) that run on nodes that would take them now: they need a place.

        Others (on nodes cordoned, tainted or over-committed since) may stay there all the same. ``barred``: (P,) pods
        that stay where they are.
        """
        mine = self.welcome & moving[self.owner]
        mine = mine if barred is None else mine & ~barred
        shapes, counts = np.unique(self.shape[mine], return_counts=True)
        return dict(zip(shapes.tolist(), counts.tolist(), strict=True))

    @cached_property
    def welcome(self) -> BoolArray:
        """(P,) pods on nodes that would take them now, with the GPUs that they have."""
        problem, welcome = self.problem, np.zeros(len(self.pods), dtype=np.bool_)
        nothing = np.zeros(0, dtype=np.int64)
        bounds = [bound for rule in problem.rules if (bound := rule.bound(problem, nothing)) is not None]
        for shape in np.unique(self.shape).tolist():
            here = self.shape == shape
            welcome[here] = problem.shapes.mask(shape)[self.node[here]]
            for closed in (bound.closed(shape) for bound in bounds):
                if closed is not None:
                    welcome[here] &= ~closed[self.node[here]]
        over = np.any(problem.capacity < problem.held - problem.releasing, axis=0)
        over |= np.any(problem.device_free + problem.device_releasing < 0, axis=1)
        for rule in problem.rules:
            exempt = rule.exempt(problem)
            for nodes in (rule.uncounted(problem), rule.tolerated(problem)):
                over = over if nodes is None else over | nodes
            if exempt:
                welcome &= ~np.isin(self.pods, sorted(exempt))
        found: BoolArray = welcome & ~over[self.node]
        return found

    def without(self, leaving: BoolArray, barred: BoolArray | None = None) -> Relaxed:
        """Capacity with the gangs ``leaving`` (G,) gone, and with all that was placed in this cycle out of the way.

        ``barred``: (P,) pods that stay all the same; None: none.
        """
        key = leaving.tobytes(), b"" if barred is None else barred.tobytes()
        found = self._lifts.get(key)
        if found is None:
            found = self._lifts[key] = self._lift(leaving, barred)
        return found

    @cached_property
    def _room(self) -> tuple[IntArray, IntArray]:
        """(R, N) and (N, D) free once those that are leaving have left."""
        return self.problem.room

    @cached_property
    def _shared(self) -> IntArray:
        """(N,) devices that some pod shares."""
        return row_sums(self.problem.sharers > 0)

    def _lift(self, leaving: BoolArray, barred: BoolArray | None) -> Relaxed:
        problem = self.problem
        free, device_free = (table.copy() for table in self._room)
        gone = leaving[self.owner] if barred is None else leaving[self.owner] & ~barred
        if gone.any():
            nodes, requests = self.node[gone], self._requests[gone]
            for resource, amounts in enumerate(free):  # By two indices it takes four to seven times as long.
                np.add.at(amounts, nodes, requests[:, resource])
            row, device, parts = self._held_devices
            mine = gone[row]
            devices = self.node[row[mine]] * device_free.shape[1] + device[mine]
            np.add.at(device_free.reshape(-1), devices, parts[mine])
            # A reservation pod goes with the last of the pods that share its device: at most as many as are shared.
            free[PODS] += self._shared
        left = self.pods[gone]
        rules = (rule.bound(problem, left) for rule in problem.rules)
        return Relaxed(free, device_free, tuple(rule for rule in rules if rule is not None))
