"""Task states in KAI's words, before and after a plan."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kai_solver.domain import Device, Plan, Pod, Snapshot, ZoneShare
from kai_solver.problem.devices import assign_running

PENDING = "Pending"
BINDING = "Binding"
PIPELINED = "Pipelined"
RELEASING = "Releasing"
RUNNING = "Running"

PLACED = frozenset({"Binding", "Bound", "Running", "Pipelined"})
"""States that count as served: the task runs, or has been promised its place."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """Status, node, devices (indices on the node) and NUMA zones of one task."""

    status: str
    node: str = ""
    devices: frozenset[int] = frozenset()
    zones: tuple[ZoneShare, ...] = ()

    def __str__(self) -> str:
        return f"{self.status} on {self.node}" if self.node else self.status

    @property
    def served(self) -> bool:
        """True where the task runs or has been promised a place."""
        return self.status in PLACED


States = Mapping[str, TaskState]
"""By pod key."""


def seat_devices(snapshot: Snapshot) -> Snapshot:
    """Snapshot in which every pod that holds GPUs names its devices, so that sharing can be followed by index."""
    on_node: dict[str, list[tuple[int, Pod]]] = defaultdict(list)
    pods = [pod for gang in snapshot.gangs for pod in gang.pods] + list(snapshot.foreign)
    for index, pod in enumerate(pods):
        if pod.node and pod.status.holds_resources:
            on_node[pod.node].append((index, pod))
    seats: dict[int, tuple[int, ...]] = {}
    for node in snapshot.nodes:
        if node.name in on_node:
            seats.update(assign_running(node, on_node[node.name])[0])
    by_key = {pods[index].key: devices for index, devices in seats.items() if devices}

    def seated(pod: Pod) -> Pod:
        return replace(pod, devices=by_key[pod.key]) if pod.key in by_key else pod

    return replace(
        snapshot,
        gangs=tuple(replace(gang, pods=tuple(seated(pod) for pod in gang.pods)) for gang in snapshot.gangs),
        foreign=tuple(seated(pod) for pod in snapshot.foreign),
    )


def states_of(snapshot: Snapshot) -> dict[str, TaskState]:
    """State of every pod of a gang as the snapshot has it."""
    return {pod.key: _state(pod) for gang in snapshot.gangs for pod in gang.pods}


def states_after(snapshot: Snapshot, plan: Plan) -> dict[str, TaskState]:
    """States at the end of the cycle that made ``plan``, before anything has happened in the cluster.

    A bound pod is ``Binding``, a nominated one ``Pipelined``, an evicted one ``Releasing``, a moved one
    ``Pipelined`` at its new place (KAI evicts it and pipelines it in the same cycle).
    """
    states = states_of(snapshot)
    for eviction in plan.evictions:
        states[eviction.pod] = replace(states[eviction.pod], status=RELEASING)
    for move in plan.moves:
        states[move.pod] = TaskState(PIPELINED, move.target, _indices(move.devices), move.zones)
    for bind in plan.binds:
        status = PIPELINED if bind.nominated else BINDING
        states[bind.pod] = TaskState(status, bind.node, _indices(bind.devices), bind.zones)
    return states


def _state(pod: Pod) -> TaskState:
    return TaskState(pod.status.value, pod.node, frozenset(pod.devices), pod.zones)


def _indices(devices: tuple[Device, ...]) -> frozenset[int]:
    return frozenset(device.index for device in devices)
