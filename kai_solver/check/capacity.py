"""Rule ``capacity``: every resource of every node, at once and when everything released is gone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kai_solver.check.parts import memory_of
from kai_solver.check.scene import Holder, Scene, demand
from kai_solver.check.violation import Violation
from kai_solver.domain import Node, Pod, PodStatus
from kai_solver.units import GPU, Vector

Amounts = npt.NDArray[np.int64]

_UNITS = {"cpu": "m", "gpu": "m", "memory": " bytes"}


@dataclass(frozen=True, slots=True)
class Load:
    """Load of the nodes that the plan names, at one moment.

    Attributes
    ----------
    used
        ``[nodes, resources]``, in the order of ``Scene.concerned`` and the schema's units; GPUs as in `check.parts`.
    added
        The part of ``used`` that the plan brought.
    """

    index: dict[str, int]
    used: Amounts
    added: Amounts
    allocatable: Amounts

    def free(self) -> dict[str, list[int]]:
        """What is left by node and resource; negative where too much is used."""
        left: list[list[int]] = (self.allocatable - self.used).tolist()
        return dict(zip(self.index, left, strict=True))


def stays(holder: Holder, leaving: set[str]) -> bool:
    """True if the pod still holds its resources finally: it stays, or it is stuck in releasing."""
    if holder.active:
        return holder.key not in leaving
    return holder.pod.status is PodStatus.STUCK_IN_RELEASING


def weigh(scene: Scene) -> tuple[Load, Load]:
    """Load now, and finally.

    Now: what is held, by victims too, and the binds that do not wait. Finally: releasing pods, victims and moved pods
    have left, nominated and moved ones have arrived.
    """
    index = {name: row for row, name in enumerate(scene.concerned)}
    allocatable = np.array([node.allocatable for node in scene.concerned.values()], dtype=np.int64)
    allocatable = allocatable.reshape(len(index), scene.snapshot.schema.size)
    allocatable[:, GPU] *= np.array([memory_of(node) for node in scene.concerned.values()], dtype=np.int64)
    leaving = scene.leaving()
    held = _Weights.of(scene, index, [(holder.pod, scene.nodes[holder.pod.node]) for holder in scene.holders])
    come = _Weights.of(scene, index, [(arrival.pod, arrival.node) for arrival in scene.come])
    kept = held.sum([stays(holder, leaving) for holder in scene.holders])
    immediate = come.sum([arrival.at_once for arrival in scene.come])
    everybody, everything = held.sum(), come.sum()
    now = Load(index, everybody + immediate, immediate, allocatable)
    return now, Load(index, kept + everything, everything, allocatable)


@dataclass(frozen=True, slots=True)
class _Weights:
    """Demands ``[pods, resources]`` and their nodes' rows ``[pods]``."""

    rows: npt.NDArray[np.int64]
    demands: Amounts
    nodes: int

    @classmethod
    def of(cls, scene: Scene, index: dict[str, int], placed: Sequence[tuple[Pod, Node]]) -> "_Weights":
        # Pods share what they ask for: by identity, each request is written down once.
        number: dict[tuple[int, int, int], int] = {}
        demands: list[Vector] = []
        kinds: list[int] = []
        for pod, node in placed:
            key = id(pod.request), id(pod.gpu), node.gpu_memory_mib
            kind = number.get(key)
            if kind is None:
                kind = number[key] = len(demands)
                demands.append(demand(pod, node))
            kinds.append(kind)
        rows = [index[node.name] for _, node in placed]
        table = np.array(demands, dtype=np.int64).reshape(-1, scene.snapshot.schema.size)
        return cls(np.array(rows, dtype=np.int64), table[np.array(kinds, dtype=np.int64)], len(index))

    def sum(self, chosen: Sequence[bool] | None = None) -> Amounts:
        """Total by node and resource, of all pods or the ``chosen``."""
        totals = np.zeros((self.nodes, self.demands.shape[1]), dtype=np.int64)
        if chosen is None or all(chosen):
            np.add.at(totals, self.rows, self.demands)
        elif any(chosen):
            mask = np.array(chosen, dtype=np.bool_)
            np.add.at(totals, self.rows[mask], self.demands[mask])
        return totals


def judge_capacity(scene: Scene, now: Load, end: Load) -> Iterator[Violation]:
    """No node gets more of a resource than it has, neither now nor finally.

    A node that was over-committed before may stay so; new pods there in that resource are violations.
    """
    broken = _broken(end)
    yield from _say(scene, end, broken, "")
    yield from _say(scene, now, _broken(now) & ~broken, " while victims and releasing pods still hold theirs")


def _broken(load: Load) -> npt.NDArray[np.bool_]:
    return (load.used > load.allocatable) & (load.added > 0)


def _say(scene: Scene, load: Load, broken: npt.NDArray[np.bool_], when: str) -> Iterator[Violation]:
    nodes: list[Node] = list(scene.concerned.values())
    for row, column in zip(*np.nonzero(broken), strict=True):
        resource = scene.snapshot.schema.names[column]
        unit = _UNITS.get(resource, "")
        scale = memory_of(nodes[row]) if column == GPU else 1
        used, of = (amounts[row, column] / scale for amounts in (load.used, load.allocatable))
        name = nodes[row].name
        yield Violation("capacity", name, f"node {name}: {resource} {used:.15g}{unit} used of {of:.15g}{unit}{when}")
