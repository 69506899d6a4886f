"""One task in a process of its own."""

import time
from dataclasses import replace

from kai_solver.errors import KaiSolverError
from kai_solver.lab.runs.instance import read_instance
from kai_solver.lab.runs.running import blank, decide_once
from kai_solver.lab.runs.task import Outcome, ScenarioFile, Task


def execute(task: Task) -> Outcome:
    """Run ``task``; whatever it does, an outcome comes back, and its status says what happened."""
    start_s = time.monotonic()
    try:
        if isinstance(task.source, ScenarioFile):
            return Outcome(blank(task, "failed", "scenarios cannot be run yet"))
        loaded = read_instance(task.source)
        read_s = time.monotonic() - start_s
        record, improvements = decide_once(task, loaded)
    except (KaiSolverError, ValueError) as error:
        return Outcome(blank(task, "failed", str(error)))
    return Outcome(replace(record, read_s=read_s, wall_s=time.monotonic() - start_s), improvements)
