"""Jobs of the openb trace: its requests, its times or its arrival files, run times stretched to reach a load.

By its own times the trace never has more than 56 pods alive at once: it is a sample of requests, not of load. So a
replay states how far it stretches; the factor is told in a notice.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from kai_solver.domain import NO_CONSTRAINTS, Constraints, Notice, Requirement
from kai_solver.errors import InputError
from kai_solver.instances_io.fields import MIB
from kai_solver.instances_io.limits import Limits
from kai_solver.instances_io.openb import PRODUCT_LABEL, PodRow, read_arrivals, read_pods
from kai_solver.instances_io.scenario_schema import OpenbDoc
from kai_solver.lab.simulate.generate import arrivals, pick, stream
from kai_solver.lab.simulate.making import JobMaker, PodSize
from kai_solver.lab.simulate.scenario import Job
from kai_solver.units import MILLI


def openb_jobs(
    doc: OpenbDoc, maker: JobMaker, folder: Path, limits: Limits, *, seed: int, duration_s: float | None, gpus: int
) -> tuple[list[Job], list[Notice]]:
    """Jobs in order of arrival, and what was left out or stretched.

    Parameters
    ----------
    gpus
        Of the cluster: what a load is measured by.

    Raises
    ------
    InputError
        A file cannot be used, has no times, or a pod's times go backwards; or no load can be reached.
    """
    file = str(folder / doc.pods)
    rows = list(read_pods(folder / doc.pods, limits))
    for row in rows:
        _check_times(row, file)
    ran = [row for row in _in_order(doc, rows, folder, limits) if row.started_s is not None]
    notices = _left_out(doc, len(rows) - sum(row.started_s is not None for row in rows))
    ran = ran[: doc.first] if doc.first is not None else ran
    draw = stream(seed, doc.name)
    if doc.process is None:
        first_s = min((row.created_s or 0 for row in ran), default=0)
        times = sorted(((row.created_s or 0) - first_s) * doc.time_scale for row in ran)
        ran.sort(key=lambda row: row.created_s or 0)
    else:
        times = list(arrivals(doc.process, len(ran), duration_s, draw, doc.name))
    pairs = list(zip(ran, times, strict=False))
    stretch = doc.stretch if doc.load is None else _stretch(doc, doc.load, pairs, gpus)
    if doc.load is not None:
        text = f"run times are stretched by {stretch:.4g} to reach a load of {doc.load:g}"
        notices.append(Notice("warning", f"workload {doc.name}", text))
    names = _unique_names()
    jobs = [
        maker.job(
            doc,
            f"{doc.name}-{names(row.name)}",
            at_s,
            _ran_s(row, doc.longest) * stretch,
            [_size(row)],
            queue=str(pick(doc.queue, draw, f"{doc.name}.queue")),
            min_member=1,
        )
        for row, at_s in pairs
    ]
    return jobs, notices


def _in_order(doc: OpenbDoc, rows: list[PodRow], folder: Path, limits: Limits) -> Iterator[PodRow]:
    if not doc.arrivals:
        yield from rows
        return
    if doc.process is None:
        cure = "Say when they come: process: {perHour: 1000}"
        raise InputError("a list of arrivals has no times", field=f"workloads.{doc.name}.process", cure=cure)
    yield from read_arrivals(folder / doc.arrivals, {row.name: row for row in rows}, doc.pods, limits)


def _check_times(row: PodRow, file: str) -> None:
    if row.created_s is None or row.deleted_s is None:
        cure = "Give a pod list with creation_time, scheduled_time and deletion_time"
        raise InputError("has no times", file=file, field=row.name, cure=cure)
    started_s = row.created_s if row.started_s is None else row.started_s
    if not row.created_s <= started_s <= row.deleted_s:
        problem = f"time goes backwards: created {row.created_s}, started {started_s}, deleted {row.deleted_s}"
        raise InputError(problem, file=file, field=row.name, cure="Correct the times, or leave the pod out")


def _left_out(doc: OpenbDoc, count: int) -> list[Notice]:
    text = f"{count} pods of the list never ran in the trace, so that nothing says for how long; they are left out"
    return [Notice("set-aside", f"workload {doc.name}", text)] if count else []


def _ran_s(row: PodRow, longest_s: float | None) -> float:
    ran_s = float((row.deleted_s or 0) - (row.started_s or 0))
    return ran_s if longest_s is None else min(ran_s, longest_s)


def _stretch(doc: OpenbDoc, load: float, pairs: list[tuple[PodRow, float]], gpus: int) -> float:
    """Factor for run times, so that what is asked for is ``load`` of the GPU seconds from first to last arrival."""
    asked = sum(row.total_gpu_milli / MILLI * _ran_s(row, doc.longest) for row, _ in pairs)
    span_s = pairs[-1][1] - pairs[0][1] if pairs else 0.0
    if not pairs:
        return 1.0
    if not asked or not span_s or not gpus:
        cure = "Give a stretch instead, or arrivals over some time, on a cluster with GPUs"
        raise InputError("no load can be reached", field=f"workloads.{doc.name}.load", cure=cure)
    return load * gpus * span_s / asked


def _size(row: PodRow) -> PodSize:
    where = Constraints(node_terms=(((Requirement(PRODUCT_LABEL, "In", row.models),),),)) if row.models else None
    return PodSize(row.gpus, row.gpu_milli or MILLI, row.cpu_milli, row.memory_mib * MIB, where or NO_CONSTRAINTS)


def _unique_names() -> Callable[[str], str]:
    """The name, or from its second use on the name with a number."""
    seen: Counter[str] = Counter()

    def unique(name: str) -> str:
        seen[name] += 1
        return name if seen[name] == 1 else f"{name}-{seen[name]}"

    return unique
