"""Rule ``capacity``: every resource of every node, at once and when everything released is gone."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kai_solver.check.columns import Column
from kai_solver.check.parts import devices_of, memory_of
from kai_solver.check.scene import Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import Node, Pod
from kai_solver.units import GPU, MILLI, form

Amounts = npt.NDArray[np.int64]

_UNITS = {"cpu": "m", "memory": " bytes"}


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


def weigh(scene: Scene) -> tuple[Load, Load]:
    """Load now, and finally.

    Now: what is held, by victims too, and the binds that do not wait. Finally: releasing pods, victims and moved pods
    have left, nominated and moved ones have arrived.
    """
    index = {name: row for row, name in enumerate(scene.concerned)}
    size = scene.snapshot.schema.size
    allocatable = np.array([node.allocatable for node in scene.concerned.values()], dtype=np.int64).reshape(-1, size)
    memory = np.array([memory_of(node) for node in scene.concerned.values()], dtype=np.int64)
    allocatable[:, GPU] *= memory
    held, got = _demands(scene, scene.held), _demands(scene, scene.got)
    standing, leaving = _sums(scene.held, held, memory.size), _sums(scene.held, held, memory.size, ~scene.held.end)
    everything, immediate = _sums(scene.got, got, memory.size), _sums(scene.got, got, memory.size, scene.got.now)
    now = Load(index, standing + immediate, immediate, allocatable)
    return now, Load(index, standing - leaving + everything, everything, allocatable)


def room_for_one(scene: Scene, end: Load) -> list[Pod]:
    """Pods that leave, for each of which alone its node would finally have room."""
    leaving = np.flatnonzero(~scene.held.end)
    wanted, free = _demands(scene, scene.held)[leaving], (end.allocatable - end.used)[scene.held.rows[leaving]]
    fitting = leaving[~((wanted > free) & (wanted > 0)).any(axis=1)]
    return [scene.held.pods[place] for place in fitting.tolist()]


def _demands(scene: Scene, pods: Column) -> Amounts:
    """``[pods, resources]`` what each takes of its node, as `scene.demand` says of one."""
    # Only of these pods: a pod that waits may ask for more than fits any number.
    met, kind = np.unique(pods.kinds, return_inverse=True)
    one_of = [scene.kinds.pods[number] for number in met.tolist()]
    gpus = [pod.gpu for pod in one_of]
    requests = np.array([pod.request for pod in one_of], dtype=np.int64).reshape(-1, scene.snapshot.schema.size)
    found = requests[kind]
    memory = np.array([memory_of(node) for node in scene.concerned.values()], dtype=np.int64)[pods.rows]
    milli = np.array([devices_of(gpu) * (0 if gpu.memory_mib else gpu.milli) for gpu in gpus], dtype=np.int64)
    fixed = np.array([devices_of(gpu) * gpu.memory_mib * MILLI for gpu in gpus], dtype=np.int64)
    found[:, GPU] = (found[:, GPU] + milli[kind]) * memory + fixed[kind]
    return found


def _sums(pods: Column, amounts: Amounts, nodes: int, chosen: npt.NDArray[np.bool_] | None = None) -> Amounts:
    """``[nodes, resources]`` of all pods, or the ``chosen``."""
    totals = np.zeros((nodes, amounts.shape[1]), dtype=np.int64)
    if chosen is None:
        np.add.at(totals, pods.rows, amounts)
    elif chosen.any():
        np.add.at(totals, pods.rows[chosen], amounts[chosen])
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
        says = f"{resource} {used:.15g}{unit} used of {of:.15g}{unit}"
        if column == GPU:
            says = f"{used / MILLI:.15g} {form(used / MILLI, 'GPU')} used of {of / MILLI:.15g}"
        name = nodes[row].name
        yield Violation("capacity", name, f"node {name}: {says}{when}")
