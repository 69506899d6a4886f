"""``kai-solver explain``: why a gang is pending, or what a plan does to it."""

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, guarded
from kai_solver.cli.options import (
    Actions,
    AsJson,
    Budget,
    InputLimit,
    Model,
    Output,
    PlanOf,
    Quiet,
    Seed,
    Verbose,
    instance_path,
)
from kai_solver.errors import InputError

if TYPE_CHECKING:
    from kai_solver.cli.inputs import Request
    from kai_solver.domain import Plan, Snapshot
    from kai_solver.explaining import Explanation


@guarded
def explain(
    instance: Annotated[
        Path,
        typer.Argument(
            metavar="INSTANCE",
            parser=instance_path,
            help="Instance, in any form that `solve` takes; with --server what GANG says.",
        ),
    ],
    gang: Annotated[
        str | None,
        typer.Argument(
            metavar="GANG", help="Name of a gang, pod or workload, or how it begins; none: every pending gang."
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="Ask a running controller about a pod: http://localhost:8082."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="With --server: file with the bearer token to show; none: the kubeconfig's.",
        ),
    ] = None,
    plan: PlanOf = None,
    model: Model = "default",
    budget: Budget = None,
    seed: Seed = 0,
    actions: Actions = None,
    input_limit: InputLimit = None,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> Exit:
    """Explain why a gang is pending: its queues, the nodes, the proof, and what would have to change.

    For a gang that is not pending: what the plan does to its pods, and for which gang. For one named pending gang,
    everything that blocks it is eased in turn, and the cluster is planned again, to see what would make it fit.

    With --server, a running controller answers from its newest decision. It tries nothing out.

    \b
    Examples:
      kai-solver explain snapshot.zip team-a/train-7
      kai-solver explain cluster.yaml --plan plan.json --json
      kai-solver explain team-a/train-7-0 --server http://localhost:8082
    """
    if server is not None:
        if gang is not None or plan is not None:
            raise InputError(
                "--server goes with neither an instance nor a plan",
                cure="Name the gang or pod alone: explain GANG --server URL",
            )
        return _ask(server, str(instance), token_file, as_json=as_json, output=output, verbose=verbose)
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.inputs import read_request
    from kai_solver.domain.names import names_of
    from kai_solver.modelfiles import load_model

    request = read_request(instance, load_model(model), budget, actions, input_limit, is_own_first=model == "default")
    found = _explained(request, gang, plan, seed, quiet)
    documents = [explanation.document() for explanation in found]
    if deliver(document("explanation", {"gangs": documents}), as_json=as_json, output=output):
        _print(found, names_of(request.loaded.snapshot.gangs), verbose=verbose)
    return Exit.FINE


def _explained(request: "Request", gang: str | None, plan: Path | None, seed: int, quiet: bool) -> "list[Explanation]":
    """The named gang with what would help tried out, else all that wait."""
    from kai_solver.engine import Engine
    from kai_solver.explaining import Explainer, find_gang

    if gang is not None:
        find_gang(request.loaded.snapshot, gang)  # a wrong name is told before anything is solved
    found = _plan(request, plan, seed, quiet)
    if gang is None:
        explainer = Explainer(request.loaded.snapshot, found)
        return [explainer.explain(name) for name in explainer.pending_gangs()]
    numbers = count(1)
    with Engine(request.model) as engine:
        engine.wait()

        def replan(changed: "Snapshot") -> "Plan":
            if not quiet:
                typer.echo(f"trying out change {next(numbers)}, {request.budget_s:g} s at most", err=True)
            return engine.cycle(changed, budget_s=request.budget_s, seed=seed)

        return [Explainer(request.loaded.snapshot, found, replan).explain(gang)]


def _ask(server: str, pod: str, token_file: Path | None, *, as_json: bool, output: Path | None, verbose: bool) -> Exit:
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.served import ask, explanation_of
    from kai_solver.domain.names import short_name

    answer = ask(server, pod, token_file)
    if deliver(document("explanation", {"gangs": [answer]}), as_json=as_json, output=output):
        _print([explanation_of(answer)], {answer["gang"]: short_name(answer["gang"])}, verbose=verbose)
    return Exit.FINE


def _print(explanations: "list[Explanation]", names: dict[str, str], *, verbose: bool) -> None:
    from kai_solver.cli.explained import print_explanations

    if explanations:
        print_explanations(explanations, names, verbose=verbose)
    else:
        typer.echo("no gang is pending")


def _plan(request: "Request", plan: Path | None, seed: int, quiet: bool) -> "Plan":
    if plan is not None:
        from kai_solver.instances_io.plans import read_plan_of

        return read_plan_of(request.loaded.snapshot, plan)
    from kai_solver.cli.interrupt import stopping_on_interrupt
    from kai_solver.cli.solve import decide

    with stopping_on_interrupt() as stop:
        return decide(request, seed, stop.is_set, quiet=quiet)
