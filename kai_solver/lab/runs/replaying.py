"""What does a run again: its bundle, and the one command."""

import shlex
from dataclasses import replace

from kai_solver.instances_io import Loaded
from kai_solver.instances_io.bundle import Bundle, bundle_bytes
from kai_solver.lab.runs.running import model_for
from kai_solver.lab.runs.task import BUNDLE, KUBE_DEFAULT, MODEL, PLACE, STUDY, Generated, Outcome, ScenarioFile, Task
from kai_solver.modelfiles import model_text


def bundle_of(task: Task, loaded: Loaded) -> bytes:
    """The zip that ``kai-solver solve`` replays: the instance, the model, the budget and the seed."""
    return bundle_bytes(Bundle(loaded.snapshot, model_for(task, loaded), task.budget_s, task.seed))


def with_replay(task: Task, outcome: Outcome) -> Outcome:
    """The outcome of a run that failed, with the command that does it again, and what that needs beside the bundle."""
    command = _command(task, has_bundle=outcome.bundle is not None)
    text = model_text(task.model) if task.model is not None and MODEL in command else ""
    return replace(outcome, replay=shlex.join(command), model=text)


def _command(task: Task, *, has_bundle: bool) -> list[str]:
    """In words, of which some stand for paths, see `Outcome`.

    A bundle has the model inside; without one the instance could not be read, and the command shows why. Empty where a
    generator failed outside of a study.
    """
    if has_bundle:
        return ["kai-solver", "solve", BUNDLE, "--budget", f"{task.budget_s:g}", "--seed", str(task.seed)]
    if isinstance(task.source, ScenarioFile):
        options = ["--policies", KUBE_DEFAULT if task.model is None else MODEL, "--seed", str(task.seed)]
        if task.model is not None:
            options += ["--budget", f"{task.budget_s:g}"]
        return ["kai-solver", "simulate", str(task.source.path), *options, "--output", PLACE]
    if isinstance(task.source, Generated):
        return ["kai-solver", "compare", "--study", STUDY, "--retry"] if task.command == "compare" else []
    return ["kai-solver", "solve", str(task.source.path)]
