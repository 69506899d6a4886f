"""``kai-solver models``: list them, show one."""

from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, guarded

if TYPE_CHECKING:
    from kai_solver.domain import SolverModel

models = typer.Typer(help="Solver models: which rules, in which order, how searched.", no_args_is_help=True)


@models.command("list")
@guarded
def list_models() -> Exit:
    """List the models that ship with kai-solver."""
    from kai_solver.modelfiles import available_models, load_model

    for name in available_models():
        typer.echo(f"{name:<18}{load_model(name).summary}")
    return Exit.FINE


@models.command("show")
@guarded
def show_model(name: Annotated[str, typer.Argument(help="Name of a model, or a TOML file.")]) -> Exit:
    """Show what a model says, defaults included.

    \b
    Example:
      kai-solver models show default
    """
    from kai_solver.modelfiles import load_model

    for key, value in _entries(load_model(name)):
        typer.echo(f"{key:<24}{value}")
    return Exit.FINE


def _entries(model: "SolverModel") -> list[tuple[str, str]]:
    from dataclasses import asdict

    entries = [
        ("name", model.name),
        ("summary", model.summary),
        ("hash", model.hash),
        ("ladder", ", ".join(action.value for action in model.actions)),
        ("admission", model.admission),
        ("budget_s", f"{model.budget_s:g}"),
        ("families", ", ".join(model.families)),
    ]
    entries += [(f"stage {s.name}", f"share {s.share:g} of the budget, stops at gap {s.gap:g}") for s in model.stages]
    return entries + [(f"search.{key}", str(value)) for key, value in asdict(model.search).items()]
