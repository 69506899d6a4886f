"""``kai-solver conformance``: behaviour cases, one line each."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kai_solver.cli.exits import Exit, guarded
from kai_solver.cli.options import AsJson, Budget, Model, Output, Quiet, Seed

if TYPE_CHECKING:
    from kai_solver.lab.conformance import CaseResult


@guarded
def conformance(
    directory: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of case files, searched with its subfolders, or one case.")
    ],
    model: Model = "default",
    budget: Budget = None,
    seed: Seed = 0,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes", "-p", metavar="N", min=1, help="Number of cases to run at a time; default: half the cores."
        ),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Print every difference, and each case's statement about KAI and kai-solver."
        ),
    ] = False,
) -> Exit:
    """Run behaviour cases and compare with what they expect: as expected, better, or different.

    It prints one line for each case, and the totals in the last line. "better" compares with the outcome recorded of
    KAI. The checker accepts our plan, and every queue is served at least as much in job order. In addition, less is
    disturbed (rule fewer-victims), or more is served and no more is disturbed (rule serves-more). Exit code 1 if any
    case is different. Cases may say that they need the solver. With a model without one they may be different, and are
    marked. Each cycle has ten seconds unless a budget is given, because cases are about decisions and not about the
    machine.

    \b
    Examples:
      kai-solver conformance instances/cases
      kai-solver conformance instances/cases --model greedy-only --json
      kai-solver conformance instances/behaviour/victims -v
    """
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.inputs import parse_budget_s
    from kai_solver.lab.conformance import find_cases, run_suite
    from kai_solver.lab.conformance.deciding import WIDE_S, open_decider
    from kai_solver.modelfiles import load_model

    chosen = load_model(model)
    decider = partial(open_decider, chosen, parse_budget_s(budget) if budget else WIDE_S, seed)
    paths = list(find_cases(directory))
    results = []
    for result in run_suite(paths, decider, root=directory, processes=processes or _half_the_cores()):
        results.append(result)
        if not as_json:
            typer.echo(_words(result, verbose))
        elif not quiet:
            _tell(len(results), len(paths))
    if deliver(document("conformance", _members(results, chosen.name)), as_json=as_json, output=output):
        typer.echo(_totals(results))
    if any(result.verdict.kind == "different" and not result.is_unreadable for result in results):
        return Exit.FINDINGS
    return Exit.INPUT if any(result.is_unreadable for result in results) else Exit.FINE


def _half_the_cores() -> int:
    """A cycle keeps two processes busy: its own, and the solver's."""
    return max(1, (os.cpu_count() or 1) // 2)


def _tell(done: int, of: int) -> None:
    """Progress of the run on a terminal, while lines are kept for the document."""
    from kai_solver.units import counted

    if sys.stderr.isatty():
        typer.echo(f"\r{done} of {counted(of, 'case')}" + ("\n" if done == of else ""), nl=False, err=True)


def _words(result: "CaseResult", verbose: bool) -> str:
    verdict = result.verdict
    rule = f" [{verdict.rule}]" if verdict.rule else ""
    reason = f": {' '.join(verdict.reason.split())}" if verdict.reason else ""
    marked = " (needs the solver)" if result.needs_solver and verdict.kind == "different" else ""
    text = f"{verdict.kind:<12}{result.path}{marked}{rule}{reason}"
    rest = _more(result) if verbose else ()
    return "\n".join([text, *(f"            - {' '.join(difference.split())}" for difference in rest)])


def _more(result: "CaseResult") -> tuple[str, ...]:
    said, verdict = result.statement, result.verdict
    statement = () if said is None else (f"KAI ({said.known_by}, {said.reference}): {said.kai}", f"ours: {said.ours}")
    return (*statement, *verdict.differences, *(f"note: {note}" for note in verdict.notes))


def _totals(results: "list[CaseResult]") -> str:
    from kai_solver.lab.conformance import totals
    from kai_solver.units import counted

    counts = ", ".join(f"{count} {kind}" for kind, count in totals(results).items())
    return f"{counted(len(results), 'case')}: {counts}"


def _members(results: "list[CaseResult]", model: str) -> dict[str, Any]:
    from kai_solver.lab.conformance import totals

    return {
        "model": model,
        "cases": [
            {
                "path": result.path,
                "name": result.name,
                "verdict": result.verdict.kind,
                "rule": result.verdict.rule,
                "reason": result.verdict.reason,
                "differences": list(result.verdict.differences),
                "notes": list(result.verdict.notes),
                "seconds": round(result.seconds, 4),
                "statement": result.statement.model_dump() if result.statement else None,
            }
            for result in results
        ],
        "totals": totals(results),
    }
