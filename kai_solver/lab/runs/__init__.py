"""Runs of the solver: what one measured, as a row of one table that every command writes; and studies of many."""

from kai_solver.lab.runs.definition import Definition, tasks_of
from kai_solver.lab.runs.executing import RunStoppedError, execute
from kai_solver.lab.runs.frames import Frames, frames_of
from kai_solver.lab.runs.kept import KeptRuns, read_runs, replay_of, write_runs
from kai_solver.lab.runs.paired import PairedDifference, PairedVerdict, paired_difference
from kai_solver.lab.runs.places import DaskCluster, Feed
from kai_solver.lab.runs.record import Improvement, RunRecord, StageResult, Status
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
from kai_solver.lab.runs.verdicts import PLAN, Comparison, ModelFigures, comparisons, model_figures

__all__ = [
    "KUBE_DEFAULT",
    "PLAN",
    "Comparison",
    "DaskCluster",
    "Definition",
    "Feed",
    "Frames",
    "Generated",
    "Improvement",
    "InstanceFile",
    "KeptRuns",
    "Limits",
    "ModelFigures",
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
    "comparisons",
    "content_hash",
    "execute",
    "family_of",
    "frames_of",
    "model_figures",
    "paired_difference",
    "read_runs",
    "replay_of",
    "run_study",
    "runs_here",
    "task_of",
    "tasks_of",
    "write_runs",
]
