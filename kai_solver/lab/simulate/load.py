"""Scenario files into scenarios."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kai_solver.domain import Notice, Snapshot
from kai_solver.errors import InputError
from kai_solver.instances_io import DEFAULT_LIMITS, Limits, load_instance, read_documents, snapshot_from_native
from kai_solver.instances_io.fields import validate
from kai_solver.instances_io.load import refuse_other_files
from kai_solver.instances_io.native_schema import FORMAT
from kai_solver.instances_io.openb import openb_snapshot, read_nodes
from kai_solver.instances_io.scenario_schema import (
    SCENARIO_FORMAT,
    ClusterDoc,
    GenerateDoc,
    HistoryDoc,
    OpenbDoc,
    ScenarioDoc,
    SwfDoc,
)
from kai_solver.lab.simulate.generate import generated_jobs, outages
from kai_solver.lab.simulate.history_jobs import history_jobs
from kai_solver.lab.simulate.hopeless import hopeless
from kai_solver.lab.simulate.making import JobMaker
from kai_solver.lab.simulate.openb_jobs import openb_jobs
from kai_solver.lab.simulate.scenario import Job, Outage, Scenario
from kai_solver.lab.simulate.swf_jobs import swf_jobs


def load_scenario(path: Path, *, seed: int | None = None, limits: Limits = DEFAULT_LIMITS) -> Scenario:
    """Read a scenario file; ``seed`` in place of its own.

    Raises
    ------
    InputError
        Names file, field and cure.
    """
    if not path.is_file():
        raise InputError("is not a file", file=str(path), cure="Give a scenario: docs/simulate.md shows one")
    [(name, document), *more] = read_documents(path, limits)
    if more:
        raise InputError("holds several documents", file=name, cure="Give one scenario a file")
    return scenario_of(document, name, path.parent, seed=seed, limits=limits)


def scenario_of(
    document: Mapping[str, Any],
    file: str = "",
    folder: Path = Path(),
    *,
    seed: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Scenario:
    """Scenario of a document; paths in it are relative to ``folder``."""
    if document.get("format") != SCENARIO_FORMAT:
        refuse_other_files(document, file, "a scenario")
        problem = f"{document.get('format')!r} is not a scenario"
        raise InputError(problem, file=file, field="format", cure=f"Write format: {SCENARIO_FORMAT}")
    doc = validate(ScenarioDoc, document, file)
    try:
        return _Loader(doc, document, file, folder, doc.seed if seed is None else seed, limits).scenario()
    except InputError as error:
        raise error.in_file(file) from None


class _Loader:
    def __init__(
        self, doc: ScenarioDoc, raw: Mapping[str, Any], file: str, folder: Path, seed: int, limits: Limits
    ) -> None:
        self._doc = doc
        self._raw = raw
        self._file = file
        self._folder = folder
        self._seed = seed
        self._limits = limits
        self._notices: list[Notice] = []

    def scenario(self) -> Scenario:
        doc, cluster = self._doc, self._cluster()
        names = [workload.name for workload in doc.workloads]
        twice = next((name for name in names if names.count(name) > 1), "")
        if twice:
            raise InputError(f"two workloads are named {twice!r}", field="workloads", cure="Give each its own name")
        jobs = [job for number in range(len(doc.workloads)) for job in self._jobs(number, cluster)]
        self._notices += hopeless(cluster.nodes, jobs, doc.duration)
        return Scenario(
            name=doc.name,
            cluster=cluster,
            jobs=tuple(sorted(self._known(jobs, cluster), key=lambda job: (job.arrival_s, job.key))),
            outages=tuple(self._outages(cluster)),
            period_s=doc.period,
            duration_s=doc.duration,
            releasing_s=doc.releasing,
            gpu_hour_price=doc.gpu_hour_price,
            seed=self._seed,
            notices=tuple(self._notices),
        )

    def _cluster(self) -> Snapshot:
        doc: ClusterDoc = self._doc.cluster
        if sum(map(bool, (doc.file, doc.openb_nodes, doc.nodes))) > 1:
            cure = "Give one of file, openbNodes and nodes"
            raise InputError("is said in more than one way", field="cluster", cure=cure)
        if doc.openb_nodes:
            nodes = sorted(read_nodes(self._folder / doc.openb_nodes, self._limits), key=lambda node: node.name)
            snapshot = openb_snapshot(nodes, [])
            queues = self._inline().queues or snapshot.queues
            return replace(snapshot, queues=queues, notices=(), name=self._doc.name)
        if not doc.file:
            return self._inline()
        snapshot = load_instance(self._folder / doc.file, limits=self._limits).snapshot
        if snapshot.gangs:
            text = f"{len(snapshot.gangs)} gangs of the instance take no part: a scenario begins empty"
            self._notices.append(Notice("warning", doc.file, text))
        if snapshot.claims is not None:
            self._notices.append(Notice("warning", doc.file, "resource claims take no part in simulations"))
        self._notices += snapshot.notices
        return replace(snapshot, gangs=(), claims=None, notices=())

    def _inline(self) -> Snapshot:
        given = self._raw["cluster"]
        keys = ("nodes", "queues", "topologies", "policy")
        document = {"format": FORMAT, "name": self._doc.name} | {key: given[key] for key in keys if key in given}
        try:
            snapshot = snapshot_from_native(document)
        except InputError as error:
            raise InputError(error.problem, field=f"cluster.{error.field}", cure=error.cure) from None
        self._notices += snapshot.notices
        return replace(snapshot, notices=())

    def _jobs(self, number: int, cluster: Snapshot) -> list[Job]:
        doc, maker = self._doc.workloads[number], JobMaker(cluster)
        duration_s = self._doc.duration
        match doc:
            case GenerateDoc():
                return list(generated_jobs(doc, maker, self._seed, duration_s))
            case OpenbDoc():
                gpus = sum(node.gpus for node in cluster.nodes)
                jobs, notices = openb_jobs(
                    doc, maker, self._folder, self._limits, seed=self._seed, duration_s=duration_s, gpus=gpus
                )
            case HistoryDoc():
                inner = {queue.parent for queue in cluster.queues}
                leaves = frozenset(queue.name for queue in cluster.queues) - inner
                jobs, notices = history_jobs(doc, maker, self._folder, self._limits, seed=self._seed, leaves=leaves)
            case SwfDoc():
                jobs, notices = swf_jobs(doc, maker, self._folder, self._limits, seed=self._seed)
        self._notices += notices
        return jobs

    def _known(self, jobs: list[Job], cluster: Snapshot) -> list[Job]:
        """All jobs; whose queue does not exist is an error: it could never run."""
        queues = {queue.name for queue in cluster.queues}
        inner = {queue.parent for queue in cluster.queues}
        for job in jobs:
            if job.gang.queue not in queues - inner:
                what = "is not a leaf" if job.gang.queue in queues else "does not exist"
                leaves = ", ".join(sorted(queues - inner)[:8]) or "none"
                problem = f"queue {job.gang.queue!r} {what}"
                raise InputError(problem, field=f"workloads.{job.workload}.queue", cure=f"Leaf queues: {leaves}")
        return jobs

    def _outages(self, cluster: Snapshot) -> list[Outage]:
        names = tuple(node.name for node in cluster.nodes)
        failures, found = self._doc.failures, list[Outage]()
        for number, doc in enumerate(failures.outages):
            if doc.node not in names:
                problem = f"unknown node {doc.node!r}"
                raise InputError(problem, field=f"failures.outages[{number}].node", cure="Name a node of the cluster")
            found.append(Outage(doc.node, doc.at, doc.at + doc.lasts))
        if failures.random is not None:
            found += outages(failures.random, names, self._seed, self._doc.duration)
        return found
