"""Instances: a cluster and what waits in it, at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kai_solver.domain import PodStatus, Snapshot
from kai_solver.errors import InputError, shown
from kai_solver.instances_io import load_instance, native_from_snapshot
from kai_solver.instances_io.complete import check_complete
from kai_solver.instances_io.importers import Loaded
from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits
from kai_solver.instances_io.load import instance_of
from kai_solver.library.tables import Table, chosen, page
from kai_solver.units import CPU, GPU, MEMORY, MILLI, UNLIMITED

if TYPE_CHECKING:
    import polars as pl

GIB = 2**30
InstanceTable = Literal["gangs", "nodes", "notices", "queues"]


@dataclass(frozen=True)
class Instance:
    """A cluster at one moment: nodes, queues, and gangs that run or wait. `load` makes it.

    Attributes
    ----------
    name
        Of the instance, or of its file.
    source
        The file or folder; empty where it was made from a document.
    """

    name: str
    source: str
    _loaded: Loaded = field(repr=False)

    @property
    def snapshot(self) -> Snapshot:
        """All of it, as the engine sees it; its fields may change between releases."""
        return self._loaded.snapshot

    @property
    def notices(self) -> tuple[str, ...]:
        """What was set aside, or not used as it is written, one sentence each."""
        return tuple(f"{notice.kind}: {notice.object}: {notice.text}" for notice in self.snapshot.notices)

    def document(self) -> dict[str, Any]:
        """A new native document of it (``docs/instances.md``), plain JSON types. Change it and `load` it again."""
        return native_from_snapshot(self.snapshot)

    def frame(self, table: InstanceTable = "gangs") -> "pl.DataFrame":
        """One of its tables as polars' data frame.

        ``gangs``: pods and GPUs in units of one. ``nodes``: CPU cores and memory in GiB. ``queues``: GPUs; unlimited is
        infinity; ``past_usage`` is a part of the cluster's capacity. ``notices``: what was set aside.

        Raises
        ------
        InputError
            There is no such table, or polars is not installed.
        """
        return self._table(table).frame()

    def _table(self, name: str) -> Table:
        match chosen(name, ("gangs", "nodes", "queues", "notices")):
            case "gangs":
                return self._gangs
            case "nodes":
                return self._nodes
            case "queues":
                return self._queues
            case _:
                rows = [(notice.kind, notice.object, notice.text) for notice in self.snapshot.notices]
                return Table({"kind": str, "object": str, "text": str}, rows)

    @cached_property
    def _gangs(self) -> Table:
        rows = [
            (
                gang.key,
                gang.queue,
                gang.priority,
                gang.preemptible,
                len(gang.pods),
                sum(pod.status.is_active for pod in gang.pods),
                sum(pod.status in (PodStatus.PENDING, PodStatus.GATED) for pod in gang.pods),
                sum(pod.gpu.devices * (pod.gpu.milli or MILLI) for pod in gang.pods) / MILLI,
            )
            for gang in self.snapshot.gangs
        ]
        names = {"gang": str, "queue": str, "priority": int, "preemptible": bool}
        return Table(names | {"pods": int, "running": int, "waiting": int, "gpus": float}, rows)

    @cached_property
    def _nodes(self) -> Table:
        rows = [
            (
                node.name,
                node.gpus,
                node.allocatable[CPU] / MILLI,
                node.allocatable[MEMORY] / GIB,
                node.schedulable,
            )
            for node in self.snapshot.nodes
        ]
        return Table({"node": str, "gpus": int, "cpus": float, "memory_gib": float, "schedulable": bool}, rows)

    @cached_property
    def _queues(self) -> Table:
        from kai_solver.explaining import fair_share_lines

        parents = {queue.name: queue.parent for queue in self.snapshot.queues}
        rows = [
            (
                line.name,
                parents.get(line.name, ""),
                line.priority,
                _gpus(line.quota[GPU]),
                _gpus(line.limit[GPU]),
                float(line.weight[GPU]),
                float(line.usage[GPU]),
                _gpus(line.requested[GPU]),
                _gpus(line.fair_share[GPU]),
                _gpus(line.allocated[GPU]),
            )
            for line in fair_share_lines(self.snapshot)
        ]
        names = {"queue": str, "parent": str, "priority": int}
        amounts = ("quota", "limit", "weight", "past_usage", "requested", "fair_share", "allocated")
        return Table(names | dict.fromkeys(amounts, float), rows)

    def _summary(self) -> str:
        gangs = self.snapshot.gangs
        waiting = sum(pod.status in (PodStatus.PENDING, PodStatus.GATED) for gang in gangs for pod in gang.pods)
        gpus = sum(node.gpus for node in self.snapshot.nodes)
        aside = f", {len(self.notices):,} notices" if self.notices else ""
        return (
            f"{self.name}: {len(self.snapshot.nodes):,} nodes, {gpus:,} GPUs, {len(self.snapshot.queues):,} queues, "
            f"{len(gangs):,} gangs, {waiting:,} pods waiting{aside}"
        )

    def __repr__(self) -> str:
        return f"<Instance {self._summary()}>"

    def _repr_html_(self) -> str:
        return page(self._summary(), ("Notices", self._table("notices")), ("Queues (GPUs)", self._queues))


def _gpus(milli: int) -> float:
    return inf if milli == UNLIMITED else milli / MILLI


def _path_of(source: str | PathLike[str]) -> Path:
    """The path that ``source`` names; of an empty text, `Path` would make the folder here."""
    try:
        if source != "":
            return Path(source)
    except TypeError:
        pass
    cure = "Give the path of a file or folder, or a document as a dict"
    raise InputError(f"{shown(source)} is not an instance", field="source", cure=cure)


def load(
    source: str | PathLike[str] | Mapping[str, Any],
    *,
    now_s: float | None = None,
    history: str | PathLike[str] | None = None,
    mapping: str | PathLike[str] | Mapping[str, Any] | None = None,
    limits: Mapping[str, int] | None = None,
) -> Instance:
    """Read an instance.

    Parameters
    ----------
    source
        A file or folder in any form that ``kai-solver solve`` takes: own YAML or JSON, KAI snapshot, Kubernetes
        objects, behaviour case, openb recipe. Or a document of one of them as Python objects.
    now_s
        Epoch seconds of the moment, in place of the one that the instance states.
    history
        Jobs that ran, as past usage of the queues: a CSV file, or Jobs and PodGroups from ``kubectl get -o json``.
    mapping
        Which column says what, and how the past counts: a file of the format ``kai-history/v1``, or its keys.
    limits
        Of the input, where the usual ones are too small: ``bytes``, ``objects``, ``depth``.

    Returns
    -------
    Instance
        What could not be used is in its ``notices``.

    Raises
    ------
    InputError
        It cannot be used, has no nodes, or has nothing to schedule since that was set aside; names file, field and
        cure.
    """
    bounds = _limits(limits or {})
    if isinstance(source, Mapping):
        file, name = "", "instance"
        loaded = instance_of(source, limits=bounds, now_s=now_s)
    else:
        path = _path_of(source)
        file, name = str(source), path.name
        loaded = load_instance(path, limits=bounds, now_s=now_s)
    check_complete(file or name, loaded)
    if history is not None:
        from kai_solver.lab.history import read_history, read_mapping, with_past_usage

        reading = read_mapping(mapping if mapping is None or isinstance(mapping, Mapping) else Path(mapping))
        past = read_history(Path(history), reading, limits=bounds)
        loaded = replace(loaded, snapshot=with_past_usage(loaded.snapshot, past, reading))
    elif mapping is not None:
        raise InputError("says how to read a history", field="mapping", cure="Give the history too")
    return Instance(loaded.snapshot.name or name, file, loaded)


def as_instance(instance: Instance | str | PathLike[str] | Mapping[str, Any]) -> Instance:
    """The instance, which is read where it is not one yet."""
    return instance if isinstance(instance, Instance) else load(instance)


def _limits(limits: Mapping[str, int]) -> Limits:
    for name, most in limits.items():
        if name not in ("bytes", "objects", "depth") or type(most) is not int or most < 1:
            cure = "Write bytes, objects or depth, with a whole number above 0"
            raise InputError(f"{name}: {most!r} is not a limit", field="limits", cure=cure)
    found = {f"max_{name}": most for name, most in limits.items()}
    if "objects" in limits:
        found["max_json_objects"] = limits["objects"]
    return replace(DEFAULT_LIMITS, **found)
