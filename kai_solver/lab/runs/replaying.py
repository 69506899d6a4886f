"""The one command that does a run again."""

import shlex
from pathlib import Path

from kai_solver.lab.runs.record import RunRecord


def replay_command(record: RunRecord, folder: Path, has_bundle: bool) -> str:
    """Of a run whose bundle, if there is one, is in ``folder``.

    A bundle has the model inside; without one the instance could not be read, and the command shows why.
    """
    if not has_bundle:
        return shlex.join(["kai-solver", "solve", record.source])
    options = ["--budget", f"{record.budget_s:g}", "--seed", str(record.seed)]
    return shlex.join(["kai-solver", "solve", str(folder / "bundle.zip"), *options])
