"""The files of the fragmentation experiment: nodes, pods by shape, and the order in which they arrive.

Source: "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC
2023).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kai_solver.errors import InputError
from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits
from kai_solver.instances_io.openb import NodeRow, PodRow, read_arrivals, read_nodes, read_pods
from kai_solver.units import MILLI

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

NODE_FILE = "openb_node_list_gpu_node.csv"
TYPICAL_SHARE = 0.95
"""Typical pods are the most frequent shapes until this share of the trace's pods (the paper's setting)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pod asks for; ``models`` empty: any. ``gpu_milli`` is of each of its GPUs."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        """Thousandths of GPUs in all."""
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace in the order of one seed.

    Attributes
    ----------
    models
        Names of GPU models; ``model`` holds indices into it.
    cpu, memory, gpus, model
        Of nodes, shape (N,): thousandths of CPUs, MiB, number of GPUs, index of the model.
    shapes
        Distinct requests.
    frequency
        Pods of the whole trace by shape, shape (S,).
    arrivals
        Shape of every arrival, shape (E,).
    """

    name: str
    seed: int
    models: tuple[str, ...]
    cpu: Ints
    memory: Ints
    gpus: Ints
    model: Ints
    shapes: tuple[Shape, ...]
    frequency: Ints
    arrivals: Ints

    @property
    def capacity_milli(self) -> int:
        """Thousandths of GPUs of all nodes."""
        return int(self.gpus.sum()) * MILLI

    def allowed(self, shape: Shape) -> Bools:
        """Models on which ``shape`` may run, shape (M,)."""
        return np.array([not shape.models or model in shape.models for model in self.models], dtype=np.bool_)

    def arrived(self) -> Ints:
        """Thousandths of GPUs asked for up to and with every arrival, shape (E,)."""
        return np.cumsum(np.array([shape.total_milli for shape in self.shapes], dtype=np.int64)[self.arrivals])


def load_trace(folder: Path, name: str, seed: int, limits: Limits = DEFAULT_LIMITS) -> Trace:
    """Read a trace from the three files that it needs.

    Raises
    ------
    InputError
        A file is missing or a line of it cannot be used.
    """
    pod_file, arrival_file = f"openb_pod_list_{name}.csv", f"arrivals_{name}_seed{seed}.txt.gz"
    for file in (NODE_FILE, pod_file, arrival_file):
        _must_exist(folder, file)
    nodes = list(read_nodes(folder / NODE_FILE, limits))
    pods = {pod.name: pod for pod in read_pods(folder / pod_file, limits)}
    arrivals = list(read_arrivals(folder / arrival_file, pods, pod_file, limits))
    return make_trace(name, seed, nodes, list(pods.values()), arrivals)


def make_trace(
    name: str, seed: int, nodes: Sequence[NodeRow], pods: Sequence[PodRow], arrivals: Sequence[PodRow]
) -> Trace:
    """Put rows in the order of the protocol: nodes in a random order that ``seed`` fixes, pods by shape.

    Among equal scores the authors' simulator takes the first node of a random order; so does everything here.
    """
    order = np.random.default_rng(seed).permutation(len(nodes))
    nodes = [sorted(nodes, key=lambda node: node.name)[i] for i in order]
    models = tuple(sorted({node.model for node in nodes}))
    counted = Counter(_shape(pod) for pod in pods)
    shapes = tuple(counted)
    index = {shape: i for i, shape in enumerate(shapes)}
    return Trace(
        name=name,
        seed=seed,
        models=models,
        cpu=np.array([node.cpu_milli for node in nodes], dtype=np.int64),
        memory=np.array([node.memory_mib for node in nodes], dtype=np.int64),
        gpus=np.array([node.gpus for node in nodes], dtype=np.int64),
        model=np.array([models.index(node.model) for node in nodes], dtype=np.int64),
        shapes=shapes,
        frequency=np.array(list(counted.values()), dtype=np.int64),
        arrivals=np.array([index[_shape(pod)] for pod in arrivals], dtype=np.int64),
    )


def typical(shapes: Sequence[Shape], frequency: Ints, share: float = TYPICAL_SHARE) -> list[tuple[Shape, float]]:
    """Most frequent shapes until ``share`` of the pods, with their frequency among those; memory is not looked at."""
    counted: Counter[Shape] = Counter()
    for shape, pods in zip(shapes, frequency, strict=True):
        counted[Shape(shape.cpu_milli, 0, shape.gpus, shape.gpu_milli, shape.models)] += int(pods)
    taken: list[tuple[Shape, int]] = []
    for shape, pods in counted.most_common():
        if sum(count for _, count in taken) >= share * counted.total():
            break
        taken.append((shape, pods))
    total = sum(count for _, count in taken)
    return [(shape, count / total) for shape, count in taken]


def _shape(pod: PodRow) -> Shape:
    return Shape(pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli, tuple(sorted(set(pod.models))))


def _must_exist(folder: Path, file: str) -> None:
    if not (folder / file).is_file():
        cure = "Name a folder with the files of the openb trace, a trace and seeds that are in it"
        raise InputError("does not exist", file=str(folder / file), cure=cure)
