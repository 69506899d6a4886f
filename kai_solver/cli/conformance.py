"""``kai-solver conformance``: behaviour cases, one line each."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, guarded
from kai_solver.cli.options import AsJson, Budget, Model, Seed

if TYPE_CHECKING:
    from kai_solver.conformance import CaseResult


@guarded
def conformance(
    directory: Annotated[Path, typer.Argument(help="Folder of case files (searched below as well), or one case.")],
    model: Model = "default",
    budget: Budget = None,
    seed: Seed = 0,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, help="Cases run at a time.")] = 1,
    as_json: AsJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print every difference, not the first.")] = False,
) -> Exit:
    """Run behaviour cases and compare with what they expect: as expected, better, or different.

    One line a case; the last line gives the totals. "better" means that the checker accepts our plan, that every queue
    is served at least as much in job order, and that less is disturbed (rule fewer-victims) or more is served with no
    more disturbed (rule serves-more) than in the outcome recorded of KAI. Exit code 1 when any case is different.

    \b
    Examples:
      kai-solver conformance instances/cases
      kai-solver conformance instances/cases --model greedy-only --json
    """
    from kai_solver.cli.inputs import parse_budget_s
    from kai_solver.conformance import find_cases, run_suite
    from kai_solver.conformance.deciding import open_decider
    from kai_solver.modelfiles import load_model

    chosen = load_model(model)
    decider = partial(open_decider, chosen, parse_budget_s(budget) if budget else chosen.budget_s, seed)
    results = []
    for result in run_suite(list(find_cases(directory)), decider, root=directory, processes=processes):
        results.append(result)
        if not as_json:
            typer.echo(_words(result, verbose))
    if as_json:
        _print_json(results, chosen.name)
    else:
        typer.echo(_totals(results))
    return Exit.FINDINGS if any(result.verdict.kind == "different" for result in results) else Exit.FINE


def _words(result: "CaseResult", verbose: bool) -> str:
    verdict = result.verdict
    rule = f" [{verdict.rule}]" if verdict.rule else ""
    reason = f": {' '.join(verdict.reason.split())}" if verdict.reason else ""
    text = f"{verdict.kind:<12}{result.path}{rule}{reason}"
    rest = (*verdict.differences, *(f"note: {note}" for note in verdict.notes)) if verbose else ()
    return "\n".join([text, *(f"            - {' '.join(difference.split())}" for difference in rest)])


def _totals(results: "list[CaseResult]") -> str:
    from kai_solver.conformance import totals

    counts = ", ".join(f"{count} {kind}" for kind, count in totals(results).items())
    return f"{len(results)} cases: {counts}"


def _print_json(results: "list[CaseResult]", model: str) -> None:
    import orjson

    from kai_solver.conformance import totals

    document = {
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
            }
            for result in results
        ],
        "totals": totals(results),
    }
    typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
