"""From the state of a climb to the input of the model: what is flexible is lifted out, the rest is taken off."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Rung, TopologyConstraint
from kai_solver.formulation.joint import Arrival, Cap, Joint, Mover, Piece, QueueSurplus, Scope
from kai_solver.greedy import Chunk, Outcome, Part, State, VictimPool
from kai_solver.greedy.units import charge_of
from kai_solver.greedy.victims import part_of_unit
from kai_solver.reduction import Problem
from kai_solver.units import QUEUE_RESOURCES, UNLIMITED

IntArray = NDArray[np.int64]


class Joiner:
    """Builds joint problems on one state."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.state: State = outcome.state
        self.problem: Problem = outcome.state.problem

    def join(
        self,
        chunks: Sequence[tuple[Chunk, Rung]],
        units: Iterable[int],
        reclaimable: frozenset[int],
        preemptable: frozenset[int],
        surplus: Sequence[QueueSurplus],
        *,
        may_move: bool,
    ) -> Joint:
        """The problem in which ``chunks`` must have places and ``units`` may be disturbed.

        ``chunks`` may have places now (then these are lifted) or not yet. ``units`` may run, be moved, or be evicted
        at present; all of that is open again.
        """
        pool = self.outcome.pool
        movers = tuple(
            self._mover(pool, u, reclaimable, preemptable, may_move=may_move) for u in (units if pool else ()) if pool
        )
        arrivals = tuple(self._arrival(chunk, rung) for chunk, rung in chunks)
        free, device_free = self._lifted(arrivals, movers)
        seats = self.problem.seats
        return Joint(
            problem=self.problem,
            free=free,
            device_free=device_free,
            arrivals=arrivals,
            movers=movers,
            device_of={pod: seats[pod] for m in movers for piece in m.pieces for pod in piece.pods if pod in seats},
            caps=tuple(self._caps(arrivals, movers)),
            surplus=tuple(surplus),
        )

    # -- arrivals and movers -------------------------------------------------------------------------------------

    def _arrival(self, chunk: Chunk, rung: Rung) -> Arrival:
        gang = self.problem.gangs[chunk.gang]
        pieces, scopes = self._pieces(chunk.root)
        charge = charge_of(self.problem, chunk.pods)
        return Arrival(chunk.gang, gang.queue, rung, charge, pieces, scopes, gang.gang.preemptible)

    def _mover(
        self, pool: VictimPool, unit: int, reclaimable: frozenset[int], preemptable: frozenset[int], *, may_move: bool
    ) -> Mover:
        u = pool.units[unit]
        gang = self.problem.gangs[u.gang]
        stay = [[p for p in leaf.active if p not in self.state.gone and p not in u.pods] for leaf in gang.leaves]
        pieces, scopes = self._pieces(part_of_unit(gang, u.pods, stay))
        pods = [p for piece in pieces for p in piece.pods]
        return Mover(
            unit=unit,
            gang=u.gang,
            queue=gang.queue,
            charge=u.charge,
            pieces=pieces,
            home=tuple(self.problem.pod_node[p] for p in pods),
            after=tuple(pool.of_gang[u.gang][: u.step]),
            scopes=scopes,
            may_move=may_move,
            reclaimable=unit in reclaimable,
            preemptable=unit in preemptable,
            work=max(1, round(u.work)),
            stratum=gang.gang.priority,
            breaks=u.is_core,
        )

    def _pieces(self, root: Part) -> tuple[tuple[Piece, ...], tuple[Scope, ...]]:
        scopes: list[Scope] = []
        pieces: list[Piece] = []

        def walk(part: Part, above: tuple[int, ...]) -> None:
            scope = self._scope(part, part.topology)
            if scope is not None:
                above = (*above, len(scopes))
                scopes.append(scope)
            by_shape: dict[int, list[int]] = {}
            for pod in part.pods:
                by_shape.setdefault(self.problem.pod_shape[pod], []).append(pod)
            pieces.extend(Piece(shape, tuple(pods), above) for shape, pods in by_shape.items())
            for child in part.parts:
                walk(child, above)

        walk(root, ())
        return tuple(pieces), tuple(scopes)

    def _scope(self, part: Part, topology: TopologyConstraint | None) -> Scope | None:
        if topology is None or not topology.required:
            return None
        tree = self.problem.domains.get(topology.topology)
        level = tree.level_index(topology.required) if tree is not None else None
        if tree is None or level is None:
            return Scope(np.full(len(self.problem.nodes), -1, dtype=np.int64))
        domain_of = tree.domain_of[level].astype(np.int64)
        anchored = {int(domain_of[self._node_of(p)]) for p in part.anchors if self._node_of(p) >= 0}
        if anchored:
            keep = anchored if len(anchored) == 1 else set()
            domain_of = np.where(np.isin(domain_of, sorted(keep)), domain_of, -1)
        return Scope(domain_of)

    def _node_of(self, pod: int) -> int:
        place = self.state.places.get(pod)
        return place.node if place is not None else self.problem.pod_node[pod]

    # -- capacity ------------------------------------------------------------------------------------------------

    def _lifted(self, arrivals: Sequence[Arrival], movers: Sequence[Mover]) -> tuple[IntArray, IntArray]:
        """What is free with all of them out of the way, wherever they are now."""
        free = self.state.future.copy()
        device_free = self.state.device_future.copy()
        for arrival in arrivals:
            for piece in arrival.pieces:
                for pod in piece.pods:
                    self._lift_place(pod, free, device_free)
        for mover in movers:
            for piece in mover.pieces:
                for pod in piece.pods:
                    if not self._lift_place(pod, free, device_free) and pod not in self.state.gone:
                        self._lift_running(pod, free, device_free)
        return free, device_free

    def _lift_place(self, pod: int, free: IntArray, device_free: IntArray) -> bool:
        place = self.state.places.get(pod)
        if place is None:
            return False
        free[:, place.node] += self.problem.shapes.shapes[self.problem.pod_shape[pod]].request
        for device in place.devices:
            device_free[place.node, device] += place.milli
        return True

    def _lift_running(self, pod: int, free: IntArray, device_free: IntArray) -> None:
        node, shape = self.problem.pod_node[pod], self.problem.pod_shape[pod]
        free[:, node] += self.problem.shapes.shapes[shape].request
        milli = self.problem.shapes.milli(shape)[node]
        for device in self.problem.seats.get(pod, ()):
            device_free[node, device] += milli

    # -- queues --------------------------------------------------------------------------------------------------

    def _caps(self, arrivals: Sequence[Arrival], movers: Sequence[Mover]) -> Iterable[Cap]:
        """Caps that the arrivals' queues have, with what arrivals hold now and movers lost now put back."""
        tree = self.problem.queues
        pool = self.outcome.pool
        queues = {q for a in arrivals for q in tree.path[a.queue]}
        for queue in sorted(queues):
            held, fixed = [0, 0, 0], [0, 0, 0]
            for a in arrivals:
                if queue in tree.path[a.queue] and self._is_placed(a):
                    held = [h + c for h, c in zip(held, a.charge, strict=True)]
                    if not a.preemptible:
                        fixed = [h + c for h, c in zip(fixed, a.charge, strict=True)]
            lost = [0, 0, 0]
            for m in movers:
                if pool is not None and queue in tree.path[m.queue] and pool.has_left(m.unit):
                    lost = [h + c for h, c in zip(lost, m.charge, strict=True)]
            for r in range(len(QUEUE_RESOURCES)):
                if tree.limits[queue][r] != UNLIMITED:
                    before = self.state.allocated[queue][r] - held[r] + lost[r]
                    yield Cap("limit", queue, r, tree.limits[queue][r] - before)
                if tree.quotas[queue][r] != UNLIMITED:
                    yield Cap(
                        "quota", queue, r, tree.quotas[queue][r] - (self.state.allocated_fixed[queue][r] - fixed[r])
                    )

    def _is_placed(self, arrival: Arrival) -> bool:
        return any(pod in self.state.places for piece in arrival.pieces for pod in piece.pods)
