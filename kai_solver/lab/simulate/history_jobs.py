"""Jobs of one's own history: what was submitted when, how large it was, and how long it ran."""

from collections import Counter
from pathlib import Path

from kai_solver.domain import Notice
from kai_solver.errors import InputError
from kai_solver.instances_io.limits import Limits
from kai_solver.instances_io.scenario_schema import HistoryDoc
from kai_solver.lab.history import PastJob, read_history
from kai_solver.lab.simulate.generate import pick, stream
from kai_solver.lab.simulate.making import JobMaker, PodSize
from kai_solver.lab.simulate.scenario import Job
from kai_solver.units import MILLI


def history_jobs(
    doc: HistoryDoc, maker: JobMaker, folder: Path, limits: Limits, *, seed: int, leaves: frozenset[str]
) -> tuple[list[Job], list[Notice]]:
    """Jobs of a history, the first at 0 s, and what was left out: rows that say nothing, jobs that still run.

    Parameters
    ----------
    leaves
        Queues of the cluster that may have jobs; jobs of others go to ``doc.queue``, with a notice.

    Raises
    ------
    InputError
        It cannot be read, or no job of it has ended.
    """
    history = read_history(folder / doc.file, doc, limits=limits)
    notices = list(history.notices)
    ended = [job for job in history.jobs if job.end_s is not None]
    if len(ended) < len(history.jobs):
        text = f"{len(history.jobs) - len(ended):,} jobs have not ended: nothing says how long they run"
        notices.append(Notice("set-aside", f"workload {doc.name}", text))
    if not ended:
        raise InputError("no job has ended", file=str(folder / doc.file), cure="Give jobs with start and end")
    ended = ended[: doc.first]
    draw = stream(seed, doc.name)
    unknown: Counter[str] = Counter()
    jobs = []
    for number, job in enumerate(ended):
        queue = doc.queues.get(job.queue, job.queue)
        if queue not in leaves:
            unknown.update([queue] if queue else [])
            queue = str(pick(doc.queue, draw, f"{doc.name}.queue"))
        arrival_s = (job.submit_s - ended[0].submit_s) * doc.time_scale
        runtime_s = ((job.end_s or 0.0) - job.start_s) * doc.stretch
        name = f"{doc.name}-{number:06}"
        sizes = [_size(job, doc)] * job.pods
        jobs.append(maker.job(doc, name, arrival_s, runtime_s, sizes, queue=queue, min_member=job.pods))
    for name, count in sorted(unknown.items()):
        text = f"{count:,} jobs of queue {name!r} go to queue: the cluster has no such leaf. Map it with queues"
        notices.append(Notice("warning", f"workload {doc.name}", text))
    return jobs, notices


def _size(job: PastJob, doc: HistoryDoc) -> PodSize:
    labels = {doc.user_label: job.user} if job.user else {}
    whole = job.gpu_milli >= MILLI
    devices = job.gpu_milli // MILLI if whole else min(job.gpu_milli, 1)
    return PodSize(devices, MILLI if whole else job.gpu_milli or MILLI, job.cpu_milli, job.memory_bytes, labels=labels)
