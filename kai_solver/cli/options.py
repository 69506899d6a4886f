"""Options that several commands share; their help is written once."""

from pathlib import Path
from typing import Annotated

import typer


def instance_path(text: str) -> Path:
    """The instance that ``text`` names.

    Raises
    ------
    InputError
        It names nothing.
    """
    return _path(text, "INSTANCE")


def manifest_path(text: str) -> Path:
    """The manifest that ``text`` names; raises as `instance_path`."""
    return _path(text, "MANIFEST")


def _path(text: str, argument: str) -> Path:
    """Of nothing, such as a variable that is not set, ``Path`` would make the folder here."""
    if not text:
        from kai_solver.errors import InputError

        raise InputError("is empty", field=argument, cure="Name a file or folder; . is the folder here")
    return Path(text)


Instance = Annotated[
    Path,
    typer.Argument(
        metavar="INSTANCE",
        parser=instance_path,
        help="Own JSON/YAML, KAI snapshot.zip, Kubernetes objects, case file or openb recipe; - reads a pipe.",
    ),
]


def _models(begun: str) -> list[str]:
    """Names of models that begin so, for the completion of shells; files are completed by the shell itself."""
    from kai_solver.modelfiles import available_models

    return [name for name in available_models() if name.startswith(begun)]


def json_place(output: Path | None) -> Path | None:
    """``output``, where a JSON document can be written; looked at before any work.

    Raises
    ------
    InputError
        No file can be there, or its name says that it is YAML.
    """
    if output is not None:
        from kai_solver.instances_io.output import check_json_place

        check_json_place(output)
    return output


def check_versions_option(scheduler: str | None, *, any_versions: bool) -> None:
    """Refuse ``--allow-other-versions`` where the runs are not sent to workers.

    Raises
    ------
    InputError
        It is given alone.
    """
    if any_versions and scheduler is None:
        from kai_solver.errors import InputError

        cure = "Leave it out, or write --scheduler ADDRESS as well"
        raise InputError("says nothing about this machine", field="--allow-other-versions", cure=cure)


Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        autocompletion=_models,
        help="Solver model: a name (see `models list`) or a TOML file.",
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget", "-b", metavar="TIME", help="Time to decide, like 2s, 500ms or 2 (seconds); default: the model's."
    ),
]
Actions = Annotated[
    str | None,
    typer.Option(
        "--actions",
        metavar="LIST",
        help="Actions instead of the model's, of allocate, consolidation, reclaim, preempt, stalegangeviction; "
        "commas between them.",
    ),
]
InputLimit = Annotated[
    list[str] | None,
    typer.Option(
        "--input-limit",
        metavar="NAME=NUMBER",
        help="Raise a limit of the input: bytes=4Gi, objects=5000000 or depth=100; repeatable.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, max=2**31 - 1, help="Seed of the search.")]
PlanOf = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Plan of the instance, from `solve --output`.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        callback=json_place,
        help="Write the result here as well, as JSON; .zst compresses.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
AnyVersions = Annotated[
    bool,
    typer.Option(
        "--allow-other-versions", help="With --scheduler: workers may have other versions of what runs are done with."
    ),
]
Full = Annotated[bool, typer.Option("--full", help="Print every line. By default, long lists are cut, with counts.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say by which methods something is proven.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result alone: no progress, hints or remarks.")]
