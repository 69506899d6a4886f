"""Logs in the Standard Workload Format (Feitelson's Parallel Workloads Archive): 18 numbers a line, ``;`` comments.

Used of each line: submit time (2), run time (4), processors allocated (5) or else requested (8), and
the queue (15). -1 means unknown. A line that does not tell when, how long and how large is set aside with its number.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kai_solver.domain import Notice
from kai_solver.errors import InputError
from kai_solver.instances_io.limits import Limits
from kai_solver.instances_io.scenario_schema import MOST_PODS, SwfDoc
from kai_solver.instances_io.unpack import read_members
from kai_solver.lab.simulate.generate import pick, stream
from kai_solver.lab.simulate.making import JobMaker, PodSize
from kai_solver.lab.simulate.scenario import Job
from kai_solver.units import MILLI

FIELDS = 18
_MOST_PROCESSORS = 1_000_000
_LONGEST_S = 1e9


@dataclass(frozen=True, slots=True)
class SwfRow:
    """A usable line; times in seconds."""

    line: int
    submit_s: float
    runtime_s: float
    processors: int
    queue: int


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
    large = [row for row in rows if row.processors * doc.gpus_per_processor > MOST_PODS * doc.gpus_per_pod]
    text = f"would have more than {MOST_PODS} pods"
    notices += [Notice("set-aside", f"{file}: line {row.line}", text) for row in large]
    rows = [row for row in rows if row not in large]
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


def read_swf(text: str, file: str) -> tuple[list[SwfRow], list[Notice]]:
    """Usable lines, and a notice for each other one that is no comment."""
    rows: list[SwfRow] = []
    notices: list[Notice] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith(";"):
            continue
        row = _row(number, stripped.split())
        if isinstance(row, str):
            notices.append(Notice("set-aside", f"{file}: line {number}", row))
            continue
        if rows and row.submit_s < rows[-1].submit_s:
            before = rows[-1]
            problem = (
                f"time goes backwards: submitted at {row.submit_s:g}, after line {before.line} at {before.submit_s:g}"
            )
            raise InputError(problem, file=file, field=f"line {number}", cure="Sort the log by submit time")
        rows.append(row)
    if notices and not rows:
        cure = "Give a log in the Standard Workload Format: 18 numbers a line"
        raise InputError(f"has no usable line; the first: {notices[0].text}", file=file, cure=cure)
    return rows, notices


def split(gpus: int, per_pod: int) -> Iterator[int]:
    """GPUs of the pods of a job: full ones, and the rest."""
    yield from [per_pod] * (gpus // per_pod)
    if gpus % per_pod:
        yield gpus % per_pod


def _row(line: int, words: list[str]) -> SwfRow | str:
    """The row, or why there is none."""
    if len(words) < FIELDS:
        return f"has {len(words)} fields, not {FIELDS}"
    try:
        numbers = [float(word) for word in words[:FIELDS]]
    except ValueError as error:
        return f"holds something that is no number: {error}"
    submit_s, runtime_s = numbers[1], numbers[3]
    processors = numbers[4] if numbers[4] > 0 else numbers[7]
    if not 0 <= submit_s <= _LONGEST_S * 10:
        return f"has no submit time: {words[1]}"
    if not 0 <= runtime_s <= _LONGEST_S:
        return f"has no run time: {words[3]}"
    queue = numbers[14] if math.isfinite(numbers[14]) else -1
    if not 1 <= processors <= _MOST_PROCESSORS:
        return f"has no number of processors: {words[4]} allocated, {words[7]} requested"
    return SwfRow(line, submit_s, runtime_s, int(processors), int(queue))
