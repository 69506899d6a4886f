"""Runs of the solver: what one measured, as a row of one table that every command writes; and studies of many."""

from kai_solver.lab.runs.definition import Definition, tasks_of
from kai_solver.lab.runs.executing import RunStoppedError, execute
from kai_solver.lab.runs.frames import Frames, frames_of
from kai_solver.lab.runs.paired import PairedDifference, PairedVerdict, paired_difference
from kai_solver.lab.runs.record import FORMAT, Improvement, RunRecord, StageResult, Status
from kai_solver.lab.runs.study import Study
from kai_solver.lab.runs.studying import Runner, Standing, check_tasks, run_study, runs_here
from kai_solver.lab.runs.task import (
    KUBE_DEFAULT,
    Generated,
    InstanceFile,
    Limits,
    Outcome,
    ScenarioFile,
    Source,
    Task,
    content_hash,
    family_of,
    task_of,
)

__all__ = [
    "FORMAT",
    "KUBE_DEFAULT",
    "Definition",
    "Frames",
    "Generated",
    "Improvement",
    "InstanceFile",
    "Limits",
    "Outcome",
    "PairedDifference",
    "PairedVerdict",
    "RunRecord",
    "RunStoppedError",
    "Runner",
    "ScenarioFile",
    "Source",
    "StageResult",
    "Standing",
    "Status",
    "Study",
    "Task",
    "check_tasks",
    "content_hash",
    "execute",
    "family_of",
    "frames_of",
    "paired_difference",
    "run_study",
    "runs_here",
    "task_of",
    "tasks_of",
]
