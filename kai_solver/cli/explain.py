"""``kai-solver explain``: why a gang is pending, or what a plan does to it."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, guarded
from kai_solver.cli.options import Actions, AsJson, Budget, Instance, Limit, Model, Quiet, Seed

if TYPE_CHECKING:
    from kai_solver.cli.inputs import Request
    from kai_solver.domain import Plan


@guarded
def explain(
    instance: Instance,
    gang: Annotated[
        str | None, typer.Argument(help="Gang as namespace/name, or its name alone; none: every pending gang.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Plan file to explain; none: the instance is solved first.")
    ] = None,
    model: Model = "default",
    budget: Budget = None,
    seed: Seed = 0,
    actions: Actions = None,
    limit: Limit = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Exit:
    """Explain why a gang waits: its queues, the nodes, the proof, and what would have to change.

    Of a gang that does not wait: what the plan does to its pods, and for whom. Of one named gang that waits, everything
    that blocks it is eased in turn and the cluster planned anew, to see what would make it fit.

    \b
    Examples:
      kai-solver explain snapshot.zip team-a/train-7
      kai-solver explain cluster.yaml --plan plan.json --json
    """
    from kai_solver.cli.explained import print_explanations
    from kai_solver.cli.inputs import read_request
    from kai_solver.engine import Engine
    from kai_solver.explain import Explainer, find_gang

    request = read_request(instance, model, budget, actions, limit)
    if gang is not None:
        find_gang(request.loaded.snapshot, gang)  # a wrong name is told before anything is solved
    found = _plan(request, plan, seed, quiet)
    if gang is not None:
        with Engine(request.model) as engine:
            engine.wait()
            replan = partial(engine.cycle, budget_s=request.budget_s, seed=seed)
            explanations = [Explainer(request.loaded.snapshot, found, replan).explain(gang)]
    else:
        explainer = Explainer(request.loaded.snapshot, found)
        explanations = [explainer.explain(name) for name in explainer.pending_gangs()]
    if as_json:
        import orjson

        documents = [explanation.document() for explanation in explanations]
        document = documents[0] if gang is not None else documents
        typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    elif explanations:
        print_explanations(explanations)
    else:
        typer.echo("no gang is pending")
    return Exit.FINE


def _plan(request: "Request", plan: Path | None, seed: int, quiet: bool) -> "Plan":
    if plan is not None:
        from kai_solver.cli.planfiles import read_plan

        return read_plan(plan)
    from kai_solver.cli.interrupt import stopping_on_interrupt
    from kai_solver.cli.solve import decide

    with stopping_on_interrupt() as stop:
        return decide(request, seed, stop.is_set, quiet=quiet)
