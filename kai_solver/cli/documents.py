"""Results as JSON documents: every one says its format, and keys are in snake_case."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import typer

from kai_solver.instances_io.output import write_bytes


def document(kind: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """``members`` after ``"format": "kai-<kind>/v1"``."""
    return {"format": f"kai-{kind}/v1", **members}


def deliver(result: Mapping[str, Any], *, as_json: bool, output: Path | None) -> bool:
    """Write ``result`` to ``output``, and print it if ``as_json``; whether it is left to print words.

    Raises
    ------
    InputError
        ``output`` cannot be written.
    """
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    if output is not None:
        write_bytes(text + b"\n", output)
    if as_json:
        typer.echo(text.decode())
    return not as_json
