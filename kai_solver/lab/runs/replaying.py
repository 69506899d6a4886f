"""What does a run again: its bundle, and the one command."""

import shlex

from kai_solver.instances_io import Loaded
from kai_solver.instances_io.bundle import Bundle, bundle_bytes
from kai_solver.lab.runs.running import model_for
from kai_solver.lab.runs.task import BUNDLE, KUBE_DEFAULT, STUDY, Generated, ScenarioFile, Task


def bundle_of(task: Task, loaded: Loaded) -> bytes:
    """The zip that ``kai-solver solve`` replays: the instance, the model, the budget and the seed."""
    return bundle_bytes(Bundle(loaded.snapshot, model_for(task, loaded), task.budget_s, task.seed))


def replay_command(task: Task, *, has_bundle: bool) -> str:
    """Of a run that failed; `BUNDLE` stands for its bundle's path, `STUDY` for the folder that keeps the run.

    A bundle has the model inside; without one the instance could not be read, and the command shows why. Empty where a
    generator failed outside of a study.
    """
    if has_bundle:
        options = ["--budget", f"{task.budget_s:g}", "--seed", str(task.seed)]
        return shlex.join(["kai-solver", "solve", BUNDLE, *options])
    if isinstance(task.source, ScenarioFile):
        options = ["--policies", KUBE_DEFAULT if task.model is None else task.model.name, "--seed", str(task.seed)]
        if task.model is not None:
            options += ["--budget", f"{task.budget_s:g}"]
        return shlex.join(["kai-solver", "simulate", str(task.source.path), *options])
    if isinstance(task.source, Generated):
        return shlex.join(["kai-solver", "compare", "--study", STUDY, "--retry"]) if task.command == "compare" else ""
    return shlex.join(["kai-solver", "solve", str(task.source.path)])
