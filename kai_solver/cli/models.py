"""``kai-solver models``: list them, show one."""

from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, guarded
from kai_solver.cli.options import AsJson, Output
from kai_solver.cli.usage import Command

if TYPE_CHECKING:
    from kai_solver.domain import SolverModel

models = typer.Typer(help="Show solver models: rules, stages and search parameters.", no_args_is_help=True)


@models.command("list", cls=Command)
@guarded
def list_models(output: Output = None, as_json: AsJson = False) -> Exit:
    """List the models that ship with kai-solver."""
    from kai_solver.cli.documents import deliver, document
    from kai_solver.modelfiles import available_models, load_model

    found = {name: load_model(name).summary for name in available_models()}
    entries = [{"name": name, "summary": summary} for name, summary in found.items()]
    if deliver(document("models", {"models": entries}), as_json=as_json, output=output):
        for name, summary in found.items():
            typer.echo(f"{name:<18}{summary}")
    return Exit.FINE


@models.command("show", cls=Command)
@guarded
def show_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a model, or a TOML file.")],
    output: Output = None,
    as_json: AsJson = False,
) -> Exit:
    """Show a model with all its keys, including defaults.

    \b
    Example:
      kai-solver models show default
    """
    from dataclasses import asdict

    from kai_solver.cli.documents import deliver, document
    from kai_solver.modelfiles import load_model

    model = load_model(name)
    members = asdict(model) | {"actions": [action.value for action in model.actions], "hash": model.hash}
    if deliver(document("model", members), as_json=as_json, output=output):
        for key, value in _entries(model):
            typer.echo(f"{key:<24}{value}")
    return Exit.FINE


def _entries(model: "SolverModel") -> list[tuple[str, str]]:
    from dataclasses import asdict

    entries = [
        ("name", model.name),
        ("summary", model.summary),
        ("hash", model.hash),
        ("actions", ", ".join(action.value for action in model.actions)),
        ("admission", model.admission),
        ("budget_s", f"{model.budget_s:g}"),
        ("families", ", ".join(model.families)),
    ]
    entries += [(f"stage {s.name}", f"share {s.share:g} of the budget, stops at gap {s.gap:g}") for s in model.stages]
    return entries + [(f"search.{key}", str(value)) for key, value in asdict(model.search).items()]
