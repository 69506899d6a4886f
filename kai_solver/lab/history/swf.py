"""Logs in the Standard Workload Format (Feitelson's Parallel Workloads Archive): 18 numbers a line, ``;`` comments.

Used of each line: submit time (2), wait (3), run time (4), processors allocated (5) or else requested (8), user (12),
queue (15). -1 means unknown. A line that does not tell when, how long and how large is set aside.
"""

import math
import re
from dataclasses import dataclass

from kai_solver.domain import Notice
from kai_solver.errors import InputError
from kai_solver.instances_io.history_schema import HistoryReadingDoc
from kai_solver.lab.history.past_jobs import PastJob, times_fault
from kai_solver.units import MILLI

FIELDS = 18
_MOST_PROCESSORS = 1_000_000
_LONGEST_S = 1e9
_BEGIN = re.compile(r"^;\s*UnixStartTime:\s*(\d{1,11})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SwfRow:
    """A usable line; times in seconds. ``queue``, ``user``: -1 where the log does not say."""

    line: int
    submit_s: float
    runtime_s: float
    processors: int
    queue: int
    wait_s: float = 0.0
    user: int = -1


def is_swf(name: str, data: bytes) -> bool:
    """Whether a file is such a log: by its name, or since it begins with a comment of one."""
    return name.lower().removesuffix(".gz").removesuffix(".zst").endswith(".swf") or data.lstrip()[:1] == b";"


def swf_past(text: str, file: str, doc: HistoryReadingDoc) -> tuple[list[PastJob], list[tuple[str, str]]]:
    """Jobs of a log, and (place, reason) of every line that was set aside.

    A job's queue is the log's number of it. Its pods are of one size, the largest that divides its GPUs.

    Raises
    ------
    InputError
        No line is usable, or its times go backwards.
    """
    rows, notices = read_swf(text, file)
    found = _BEGIN.search(text)
    begin_s = doc.zero_s() if doc.time_zero is not None else float(found[1]) if found else 0.0
    aside = [(notice.object.rpartition(": ")[2], notice.text) for notice in notices]
    jobs: list[PastJob] = []
    for row in rows:
        gpus = row.processors * doc.gpus_per_processor
        size = next(size for size in range(min(gpus, doc.gpus_per_pod), 0, -1) if gpus % size == 0)
        submit_s = begin_s + row.submit_s
        start_s = submit_s + row.wait_s
        end_s = start_s + row.runtime_s
        if fault := times_fault(submit_s, start_s, end_s):
            aside.append((f"line {row.line}", f"{fault}. Correct it, or leave the line out"))
            continue
        queue, user = (str(number) if number >= 0 else "" for number in (row.queue, row.user))
        pods, place = gpus // size, f"line {row.line}"
        jobs.append(PastJob(place, "", submit_s, start_s, end_s, pods, size * MILLI, doc.cpu, doc.memory, queue, user))
    return jobs, aside


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
    queue, user = (number if math.isfinite(number) else -1 for number in (numbers[14], numbers[11]))
    wait_s = numbers[2] if 0 <= numbers[2] <= _LONGEST_S else 0.0  # of jobs of which it is not known: none
    if not 1 <= processors <= _MOST_PROCESSORS:
        return f"has no number of processors: {words[4]} allocated, {words[7]} requested"
    return SwfRow(line, submit_s, runtime_s, int(processors), int(queue), wait_s, int(user))
