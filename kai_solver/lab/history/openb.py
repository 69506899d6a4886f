"""Pods of the openb trace as jobs that ran: a job for each pod. The quality of service stands for the queue."""

import csv
from collections.abc import Iterable

from kai_solver.instances_io.fields import MIB
from kai_solver.instances_io.history_schema import HistoryReadingDoc
from kai_solver.instances_io.openb import PodRow
from kai_solver.lab.history.past_jobs import PastJob, times_fault
from kai_solver.units import MILLI

_COLUMNS = {
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
    *("creation_time", "scheduled_time", "deletion_time"),
}


def is_openb(data: bytes) -> bool:
    """Whether a CSV file is a pod list of the trace, by its header."""
    header = next(csv.reader([data.partition(b"\n")[0].decode("utf-8-sig", errors="replace")]), [])
    return {name.strip() for name in header} >= _COLUMNS


def openb_past(rows: Iterable[PodRow], doc: HistoryReadingDoc) -> tuple[list[PastJob], list[tuple[str, str]]]:
    """Pods that ran, and (place, reason) of every one that was set aside."""
    zero_s = doc.zero_s()
    jobs: list[PastJob] = []
    aside: list[tuple[str, str]] = []
    idle = 0
    for row in rows:
        if row.created_s is None or row.started_s is None or row.deleted_s is None:
            idle += 1
            continue
        if fault := times_fault(row.created_s, row.started_s, row.deleted_s):
            aside.append((row.name, f"{fault}. Correct its times, or leave the pod out"))
            continue
        submit_s, start_s, end_s = (zero_s + at for at in (row.created_s, row.started_s, row.deleted_s))
        gpu_milli = row.gpus * (row.gpu_milli if row.gpus == 1 else MILLI)
        memory = row.memory_mib * MIB
        jobs.append(PastJob(row.name, row.name, submit_s, start_s, end_s, 1, gpu_milli, row.cpu_milli, memory, row.qos))
    if idle:
        aside.append((f"{idle:,} pods", "never ran in the trace: they lack a time of creation, start or end"))
    return jobs, aside
