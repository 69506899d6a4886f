"""Runs that failed: what commands say of them, all in the same words."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kai_solver.cli.exits import Exit, complain

if TYPE_CHECKING:
    from kai_solver.lab.runs import Outcome


def tell_failed(outcomes: "Iterable[Outcome]", folder: Path) -> Exit:
    """Name each run that failed, and the command that does it again, which ``folder`` keeps."""
    from kai_solver.lab.runs import replay_of

    code = Exit.FINE
    for record in (outcome.record for outcome in outcomes):
        if record.has_failed:
            code = Exit.FINDINGS
            complain(f"{record.instance} with {record.model}, seed {record.seed}: {record.status}: {record.error}")
            if command := replay_of(folder, record.run):
                complain(f"to repeat it: {command}")
    return code
