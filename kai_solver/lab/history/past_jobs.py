"""Jobs that ran, whatever the file that says so."""

from dataclasses import dataclass

LONGEST_S = 1e9


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job of a history.

    Attributes
    ----------
    place
        Where the file has it: ``line 17``, or ``Job team/train``.
    submit_s, start_s, end_s
        Epoch seconds; ``end_s`` None: it still runs.
    gpu_milli
        Thousandths of GPUs of one pod, up to 1000 for a part of one; else whole GPUs.
    cpu_milli, memory_bytes
        Of one pod.
    queue, user
        Empty where the file does not say.
    """

    place: str
    name: str
    submit_s: float
    start_s: float
    end_s: float | None
    pods: int
    gpu_milli: int
    cpu_milli: int
    memory_bytes: int
    queue: str = ""
    user: str = ""


def times_fault(submit_s: float, start_s: float, end_s: float | None) -> str:
    """Why a job cannot have these times; empty: it can."""
    if start_s < submit_s:
        return "time goes backwards: it started before it was submitted"
    if end_s is not None and end_s < start_s:
        return "time goes backwards: it ended before it started"
    if end_s is not None and end_s - start_s > LONGEST_S:
        return "it would have run for more than 30 years: are the times of one unit?"
    return ""
