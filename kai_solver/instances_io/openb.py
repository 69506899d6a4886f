"""The openb trace (Alibaba, 2023): real nodes and real requests, and the cluster that they make.

The trace states neither placements nor a load: arrivals come in the authors' order, no pod departs, each is placed at
once by a stated policy or stays pending (as in their experiment), until the arrived requests reach a chosen
share of the cluster's GPUs. Every pod is a gang of its own, preemptible where its priority is below 100.

Quality of service becomes KAI's priority classes: ``LS`` (latency sensitive: services that users wait for) the
interactive one that can be preempted, 75; ``BE`` (best effort) and ``Burstable`` training, 50; ``Guaranteed`` build,
100, which is never preempted. A recipe may say otherwise.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kai_solver.domain import (
    NO_CONSTRAINTS,
    NO_GPU,
    Constraints,
    Gang,
    Node,
    Notice,
    Pod,
    PodStatus,
    Queue,
    Requirement,
    Snapshot,
    flat_gang,
    gpus_asked,
)
from kai_solver.errors import InputError
from kai_solver.instances_io.fields import MIB, Strict, validate
from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits
from kai_solver.instances_io.openb_placement import Demand, Place, Placement, Policy
from kai_solver.instances_io.unpack import read_members
from kai_solver.instances_io.validate import sanitize
from kai_solver.units import MILLI, UNLIMITED, ResourceSchema

PRODUCT_LABEL = "nvidia.com/gpu.product"
_NOW_S = 1_700_000_000.0
_MAX_PODS = 110
_ROOT, _LEAF = "openb", "openb-all"
_SCHEMA = ResourceSchema()


class Recipe(Strict):
    """How a cluster is made of the trace's files; paths are relative to the recipe."""

    kind: Literal["openb-recipe"]
    name: str = ""
    description: str = ""
    nodes: str
    pods: str
    arrivals: str = ""
    """Pod names in arrival order, one a line; default: the order of the pod file, once."""
    arrived: float = Field(default=1.0, gt=0, le=10)
    """Arrivals until their requests are this share of the cluster's GPUs."""
    policy: Literal["best-fit", "first-fit"] = "best-fit"
    least_pending_priority: int = 0
    """Pods that find no place and have a lower priority are left out."""
    priorities: dict[str, int] = Field(default_factory=lambda: {"LS": 75, "BE": 50, "Burstable": 50, "Guaranteed": 100})


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A line of the node list."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class PodRow:
    """A line of the pod list."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]
    qos: str
    created_s: int | None = None
    started_s: int | None = None
    deleted_s: int | None = None
    """The trace's times, seconds from its begin; None where the file, or the pod, has none."""

    @property
    def total_gpu_milli(self) -> int:
        """Thousandths of GPUs that it asks for in all."""
        return self.gpus * self.gpu_milli


def load_recipe(document: Mapping[str, Any], file: str, folder: Path, limits: Limits = DEFAULT_LIMITS) -> Snapshot:
    """Build the snapshot that a recipe describes.

    Raises
    ------
    InputError
        The recipe, or a line of a file that it names, cannot be used.
    """
    recipe = validate(Recipe, document, file)
    nodes = sorted(read_nodes(folder / recipe.nodes, limits), key=lambda node: node.name)
    pods = {pod.name: pod for pod in read_pods(folder / recipe.pods, limits)}
    arrivals = list(_arrivals(recipe, pods, folder, limits))
    taken = list(_up_to(arrivals, round(recipe.arrived * MILLI * sum(node.gpus for node in nodes))))
    return openb_snapshot(
        nodes,
        taken,
        policy=recipe.policy,
        priorities=recipe.priorities,
        name=recipe.name,
        least_pending_priority=recipe.least_pending_priority,
    )


def openb_snapshot(
    nodes: list[NodeRow],
    arrivals: list[PodRow],
    *,
    policy: Policy = "best-fit",
    priorities: Mapping[str, int] | None = None,
    name: str = "openb",
    least_pending_priority: int = 0,
) -> Snapshot:
    """Place ``arrivals`` one after the other on ``nodes``; a pod that fits nowhere stays pending.

    Pods that stay pending with a priority below ``least_pending_priority`` are left out.
    """
    placement = Placement(
        cpu_milli=np.array([node.cpu_milli for node in nodes]),
        memory_mib=np.array([node.memory_mib for node in nodes]),
        gpus=np.array([node.gpus for node in nodes]),
        max_pods=_MAX_PODS,
        models=[node.model for node in nodes],
    )
    builder = _Builder(nodes, len(arrivals), priorities or {})
    every = [builder.gang(pod, placement.place(_demand(pod), policy)) for pod in arrivals]
    gangs = tuple(gang for gang in every if gang.pods[0].node or gang.priority >= least_pending_priority)
    running = sum(gang.pods[0].status is PodStatus.RUNNING for gang in gangs)
    text = f"made of the trace: {running} of {len(every)} arrivals placed by {policy}, no departures"
    return sanitize(
        Snapshot(
            now_s=_NOW_S,
            schema=_SCHEMA,
            nodes=tuple(_node(node) for node in nodes),
            queues=_queues(),
            gangs=gangs,
            notices=(Notice("warning", "openb", text),),
            name=name,
        )
    )


def read_nodes(path: Path, limits: Limits = DEFAULT_LIMITS) -> Iterator[NodeRow]:
    """Rows of a node list (``sn,cpu_milli,memory_mib,gpu,model``)."""
    for line in _rows(_data(path, limits), str(path), ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        numbers = line.number("cpu_milli"), line.number("memory_mib"), line.number("gpu", most=1000)
        yield NodeRow(line.text("sn"), *numbers, line.text("model"))


def read_pods(path: Path, limits: Limits = DEFAULT_LIMITS) -> Iterator[PodRow]:
    """Rows of a pod list; columns after ``gpu_milli`` may be absent (the multigpu files)."""
    yield from pods_of(_data(path, limits), str(path))


def pods_of(data: bytes, file: str) -> Iterator[PodRow]:
    """`read_pods` of unpacked ``data``, which was read from ``file``."""
    for line in _rows(data, file, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")):
        models = tuple(part for part in line.text("gpu_spec").split("|") if part)
        gpus, milli = line.number("num_gpu", most=1000), line.number("gpu_milli", most=MILLI)
        numbers = line.number("cpu_milli"), line.number("memory_mib"), gpus, milli
        times = (line.optional(name) for name in ("creation_time", "scheduled_time", "deletion_time"))
        yield PodRow(line.text("name"), *numbers, models, line.text("qos"), *times)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a CSV file, with what an error must name."""

    file: str
    number_in_file: int
    values: Mapping[str, str | None]

    def text(self, column: str) -> str:
        return (self.values.get(column) or "").strip()

    def optional(self, column: str) -> int | None:
        return self.number(column) if self.text(column) else None

    def number(self, column: str, most: int = 2**40) -> int:
        text = self.text(column)
        if not text.isdecimal() or len(text) > 15 or int(text) > most:
            field = f"line {self.number_in_file}, {column}"
            raise InputError(f"{text!r} is not a whole number up to {most}", file=self.file, field=field)
        return int(text)


def _rows(data: bytes, file: str, needed: tuple[str, ...]) -> Iterator[_Line]:
    reader = csv.DictReader(_lines(data, file))
    missing = set(needed) - set(reader.fieldnames or ())
    if missing:
        problem = f"has no column {', '.join(sorted(missing))}"
        raise InputError(problem, file=file, cure="Give a file of the openb trace, with its header")
    try:
        for values in reader:
            yield _Line(file, reader.line_num, values)
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", file=file, field=f"line {reader.line_num}") from None


def _data(path: Path, limits: Limits) -> bytes:
    [member] = read_members(path, limits)[:1]
    return member.data


def _lines(data: bytes, file: str) -> list[str]:
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError:
        raise InputError("is not text", file=file, cure="Give a file of the openb trace") from None


def _arrivals(recipe: Recipe, pods: Mapping[str, PodRow], folder: Path, limits: Limits) -> Iterator[PodRow]:
    if not recipe.arrivals:
        yield from pods.values()
        return
    yield from read_arrivals(folder / recipe.arrivals, pods, recipe.pods, limits)


def read_arrivals(path: Path, pods: Mapping[str, PodRow], pod_file: str, limits: Limits) -> Iterator[PodRow]:
    """Rows of ``pods`` in the order in which a file names them, one a line; a name may repeat.

    Raises
    ------
    InputError
        A name is not in ``pod_file``.
    """
    for number, line in enumerate(_lines(_data(path, limits), str(path)), 1):
        if line.strip() not in pods:
            problem = f"{line.strip()[:80]!r} is not in {pod_file}"
            raise InputError(problem, file=str(path), field=f"line {number}", cure="Use the arrivals of the same trace")
        yield pods[line.strip()]


def _up_to(arrivals: Iterable[PodRow], gpu_milli: int) -> Iterator[PodRow]:
    """Arrivals until the next one would ask for more than ``gpu_milli`` in all."""
    total = 0
    for pod in arrivals:
        total += pod.total_gpu_milli
        if total > gpu_milli:
            return
        yield pod


def _demand(pod: PodRow) -> Demand:
    return Demand(pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli, pod.models)


def _node(row: NodeRow) -> Node:
    amounts = {"cpu": row.cpu_milli, "memory": row.memory_mib * MIB, "gpu": row.gpus * MILLI, "pods": _MAX_PODS}
    return Node(row.name, _SCHEMA.vector(amounts), row.gpus, labels={PRODUCT_LABEL: row.model})


def _queues() -> tuple[Queue, Queue]:
    free = (UNLIMITED, UNLIMITED, UNLIMITED)
    even = (1.0, 1.0, 1.0)
    return Queue(_ROOT, quota=free, weight=even), Queue(_LEAF, parent=_ROOT, quota=free, weight=even)


class _Builder:
    """Turns arrivals and their places into gangs of one pod, under unique names."""

    def __init__(self, nodes: list[NodeRow], arrivals: int, priorities: Mapping[str, int]) -> None:
        self._nodes = nodes
        self._priorities = priorities
        self._began_s = _NOW_S - arrivals
        self._seen: Counter[str] = Counter()
        self._constraints: dict[tuple[str, ...], Constraints] = {(): NO_CONSTRAINTS}
        self._arrived = 0

    def gang(self, row: PodRow, place: Place | None) -> Gang:
        self._seen[row.name] += 1
        times = self._seen[row.name]
        name = row.name if times == 1 else f"{row.name}-{times}"
        self._arrived += 1
        created_s = self._began_s + self._arrived
        priority = self._priorities.get(row.qos, 50)
        return Gang(
            namespace="openb",
            name=name,
            queue=_LEAF,
            root=flat_gang(1),
            pods=(self._pod(row, name, place),),
            priority=priority,
            preemptible=priority < 100,
            created_s=created_s,
            last_start_s=None if place is None else created_s,
        )

    def _pod(self, row: PodRow, name: str, place: Place | None) -> Pod:
        amounts = {"cpu": row.cpu_milli, "memory": row.memory_mib * MIB, "pods": 1}
        return Pod(
            namespace="openb",
            name=name,
            request=_SCHEMA.vector(amounts),
            gpu=gpus_asked(row.gpus, row.gpu_milli) if row.gpus else NO_GPU,
            status=PodStatus.PENDING if place is None else PodStatus.RUNNING,
            node="" if place is None else self._nodes[place.node].name,
            devices=() if place is None else place.devices,
            constraints=self._on_models(row.models),
            order=(0, 0.0, name),
        )

    def _on_models(self, models: tuple[str, ...]) -> Constraints:
        if models not in self._constraints:
            term = (Requirement(PRODUCT_LABEL, "In", models),)
            self._constraints[models] = Constraints(node_terms=((term,),))
        return self._constraints[models]
