"""Jobs of a log in the Standard Workload Format; queues by the log's own numbers."""

from collections.abc import Iterator
from pathlib import Path

from kai_solver.domain import Notice
from kai_solver.instances_io.limits import Limits
from kai_solver.instances_io.scenario_schema import MOST_PODS, SwfDoc
from kai_solver.instances_io.unpack import read_members
from kai_solver.lab.history import read_swf
from kai_solver.lab.simulate.generate import pick, stream
from kai_solver.lab.simulate.making import JobMaker, PodSize
from kai_solver.lab.simulate.scenario import Job
from kai_solver.units import MILLI


def swf_jobs(
    doc: SwfDoc, maker: JobMaker, folder: Path, limits: Limits, *, seed: int
) -> tuple[list[Job], list[Notice]]:
    """Jobs of a log, the first at 0 s, and a notice for every line that could not be used.

    Raises
    ------
    InputError
        It cannot be read, no line is usable, or its times go backwards.
    """
    file = str(folder / doc.file)
    [member] = read_members(folder / doc.file, limits)[:1]
    rows, notices = read_swf(member.data.decode("utf-8", errors="replace"), file)
    most = MOST_PODS * doc.gpus_per_pod
    text = f"would have more than {MOST_PODS} pods"
    large = [row.line for row in rows if row.processors * doc.gpus_per_processor > most]
    notices += [Notice("set-aside", f"{file}: line {line}", text) for line in large]
    rows = [row for row in rows if row.processors * doc.gpus_per_processor <= most]
    rows = rows[: doc.first] if doc.first is not None else rows
    draw = stream(seed, doc.name)
    first_s = rows[0].submit_s if rows else 0.0
    jobs = [
        maker.job(
            doc,
            f"{doc.name}-{row.line}",
            (row.submit_s - first_s) * doc.time_scale,
            row.runtime_s * doc.stretch,
            [PodSize(gpus, MILLI, doc.cpu, doc.memory) for gpus in pods],
            queue=doc.queues.get(row.queue) or str(pick(doc.queue, draw, f"{doc.name}.queue")),
            min_member=len(pods),
        )
        for row in rows
        for pods in [list(split(row.processors * doc.gpus_per_processor, doc.gpus_per_pod))]
    ]
    return jobs, notices


def split(gpus: int, per_pod: int) -> Iterator[int]:
    """GPUs of the pods of a job: full ones, and the rest."""
    yield from [per_pod] * (gpus // per_pod)
    if gpus % per_pod:
        yield gpus % per_pod
