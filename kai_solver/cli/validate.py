"""``kai-solver validate``: an instance by the importer and the lints, a plan by the rules."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, guarded
from kai_solver.cli.options import Actions, AsJson, Instance

if TYPE_CHECKING:
    from kai_solver.check import Violation
    from kai_solver.domain import Notice


@guarded
def validate(
    instance: Instance,
    plan: Annotated[
        Path | None, typer.Argument(help="Plan file (JSON of `solve --output`); none: the instance.")
    ] = None,
    actions: Actions = None,
    as_json: AsJson = False,
) -> Exit:
    """Judge a plan by every rule, or an instance alone: what was set aside on import, and what looks like a mistake.

    Exit code 1 when the plan breaks a rule, or when something of the instance had to be set aside.

    \b
    Examples:
      kai-solver validate cluster.yaml
      kai-solver validate snapshot.zip plan.json
    """
    from kai_solver.instances_io import load_instance
    from kai_solver.instances_io.lints import lint

    loaded = load_instance(instance)
    snapshot = loaded.snapshot
    if plan is None:
        notices = (*snapshot.notices, *lint(snapshot))
        _print_notices(instance, notices, as_json)
        return Exit.FINDINGS if any(notice.kind == "set-aside" for notice in notices) else Exit.FINE
    from kai_solver.check import check_plan
    from kai_solver.cli.inputs import choose_ladder
    from kai_solver.cli.planfiles import read_plan
    from kai_solver.domain import LADDER

    ladder, _ = choose_ladder(loaded, actions)
    violations = check_plan(snapshot, read_plan(plan), ladder=ladder or LADDER)
    _print_violations(plan, violations, as_json)
    return Exit.FINDINGS if violations else Exit.FINE


def _print_notices(instance: Path, notices: "tuple[Notice, ...]", as_json: bool) -> None:
    if as_json:
        _print_json([{"kind": n.kind, "object": n.object, "text": n.text} for n in notices])
        return
    for notice in notices:
        typer.echo(_plain(f"{notice.kind}: {notice.object}: {notice.text}"))
    typer.echo(f"{instance}: {len(notices)} notices" if notices else f"{instance}: fine")


def _print_violations(plan: Path, violations: "tuple[Violation, ...]", as_json: bool) -> None:
    if as_json:
        _print_json([{"rule": v.rule, "object": v.object, "text": v.text} for v in violations])
        return
    for violation in violations:
        typer.echo(_plain(f"{violation.rule}: {violation.object}: {violation.text}"))
    typer.echo(f"{plan}: {len(violations)} violations" if violations else f"{plan}: every rule holds")


def _print_json(entries: list[dict[str, str]]) -> None:
    import orjson

    typer.echo(orjson.dumps(entries, option=orjson.OPT_INDENT_2).decode())


def _plain(text: str) -> str:
    from kai_solver.cli.console import clean

    return clean(" ".join(text.split()))
