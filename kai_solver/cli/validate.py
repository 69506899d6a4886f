"""``kai-solver validate``: an instance by the importer and the lints, a plan by the rules."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, guarded
from kai_solver.cli.options import Actions, AsJson, InputLimit, Instance, Output, PlanOf, Quiet

if TYPE_CHECKING:
    from kai_solver.check import Violation
    from kai_solver.domain import Snapshot
    from kai_solver.library import Finding


@guarded
def validate(
    instance: Instance,
    given: Annotated[Path | None, typer.Argument(metavar="PLAN", help="The same as --plan.")] = None,
    plan: PlanOf = None,
    actions: Actions = None,
    input_limit: InputLimit = None,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Exit:
    """Judge a plan by every rule, or an instance alone: what was set aside on import, and what looks like a mistake.

    Exit code 1 if the plan breaks a rule, or if an object of the instance was set aside. Also if a lint finds an error:
    something that can never run as it is written.

    \b
    Examples:
      kai-solver validate cluster.yaml
      kai-solver validate snapshot.zip --plan plan.json
    """
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.inputs import choose_actions, parse_limits
    from kai_solver.errors import InputError
    from kai_solver.instances_io import load_instance
    from kai_solver.instances_io.complete import check_complete

    if plan is not None and given is not None:
        raise InputError("two plans are given", field="--plan", cure="Leave one of them out")
    plan = plan or given
    loaded = load_instance(instance, limits=parse_limits(input_limit))
    check_complete(str(instance), loaded)
    snapshot = loaded.snapshot
    allowed, _ = choose_actions(loaded, actions)
    if plan is None:
        from kai_solver.library.validating import SERIOUS, findings_of

        findings = findings_of(snapshot)
        found = [{"level": one.level, "object": one.object, "text": one.text, "cure": one.cure} for one in findings]
        members = {"instance": str(instance), "findings": found}
        if deliver(document("validation", members), as_json=as_json, output=output):
            _print_findings(instance, snapshot, findings, quiet=quiet)
        return Exit.FINDINGS if any(one.level in SERIOUS for one in findings) else Exit.FINE
    from kai_solver.check import check_plan
    from kai_solver.domain import ACTIONS
    from kai_solver.instances_io.plans import read_plan_of

    violations = check_plan(snapshot, read_plan_of(snapshot, plan), actions=allowed or ACTIONS)
    broken = [{"rule": v.rule, "object": v.object, "text": v.text} for v in violations]
    members = {"instance": str(instance), "plan": str(plan), "violations": broken}
    if deliver(document("validation", members), as_json=as_json, output=output):
        _print_violations(plan, violations, quiet=quiet)
    return Exit.FINDINGS if violations else Exit.FINE


def _print_findings(instance: Path, snapshot: "Snapshot", findings: "list[Finding]", *, quiet: bool) -> None:
    from kai_solver.domain.names import names_of, titled
    from kai_solver.units import counted

    names = names_of(snapshot.gangs)
    for found in findings:
        subject = titled(found.object, names)
        typer.echo(_plain(f"{found.level}: {subject}: {found.text}" + (f". {found.cure}" if found.cure else "")))
    if not quiet:
        typer.echo(f"{instance}: {counted(len(findings), 'finding')}" if findings else f"{instance}: fine")


def _print_violations(plan: Path, violations: "tuple[Violation, ...]", *, quiet: bool) -> None:
    from kai_solver.units import counted

    for violation in violations:
        typer.echo(_plain(f"{violation.rule}: {violation.object}: {violation.text}"))
    if not quiet:
        typer.echo(f"{plan}: {counted(len(violations), 'violation')}" if violations else f"{plan}: every rule holds")


def _plain(text: str) -> str:
    from kai_solver.cli.console import clean

    return clean(" ".join(text.split()))
