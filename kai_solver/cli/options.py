"""Options that several commands share; their help is written once."""

from pathlib import Path
from typing import Annotated

import typer

Instance = Annotated[
    Path,
    typer.Argument(
        help="Own JSON/YAML, KAI snapshot.zip, Kubernetes objects, case file or openb recipe; - reads a pipe."
    ),
]


def _models(begun: str) -> list[str]:
    """Names of models that begin so, for the completion of shells; files are completed by the shell itself."""
    from kai_solver.modelfiles import available_models

    return [name for name in available_models() if name.startswith(begun)]


Model = Annotated[
    str,
    typer.Option(
        "--model", "-m", autocompletion=_models, help="Solver model: a name (see `models list`) or a TOML file."
    ),
]
Budget = Annotated[
    str | None,
    typer.Option("--budget", "-b", help="Time to decide, like 2s, 500ms or 2 (seconds); default: the model's."),
]
Actions = Annotated[
    str | None,
    typer.Option(
        "--actions", help="Ladder instead of the model's: allocate,consolidation,reclaim,preempt,stalegangeviction."
    ),
]
Limit = Annotated[
    list[str] | None,
    typer.Option("--limit", help="Raise a limit of the input: bytes=4Gi, objects=5000000 or depth=100; repeatable."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the search.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")]
Full = Annotated[bool, typer.Option("--full", help="Print every line; by default long lists are cut, with counts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
