"""Writing a model's file."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kai_solver.domain import SolverModel
from kai_solver.errors import ModelFileError
from kai_solver.units import MILLI


def write_model(document: Mapping[str, Any], path: Path) -> None:
    """Write what `complete_document` gives as TOML, in one step.

    Raises
    ------
    ModelFileError
        The file cannot be written.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        partial.write_text(_text(document), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise ModelFileError(problem, file=str(path), cure="Make room, or name a writable place") from None


def model_text(model: SolverModel) -> str:
    """The model as a file that `load_model` reads to the same model."""
    usual = [
        {
            "cpu_milli": pod.cpu_milli,
            "memory_mib": pod.memory_mib,
            "num_gpu": pod.gpus,
            "gpu_milli": pod.gpu_milli if pod.gpus else MILLI,
            "gpu_spec": "|".join(pod.models),
            "pods": pod.pods,
        }
        for pod in model.usual
    ]
    return _text(
        {
            "name": model.name,
            "summary": model.summary,
            "ladder": [action.value for action in model.actions],
            "admission": model.admission,
            "families": model.families,
            "budget_s": model.budget_s,
            "stages": [asdict(stage) for stage in model.stages],
            "search": asdict(model.search),
            "leftover": {"usual": usual},
            "moves": asdict(model.moves),
        }
    )


def _text(document: Mapping[str, Any]) -> str:
    return "\n".join(_lines(document)).strip() + "\n"


def _lines(table: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Keys of a table, then the tables in it."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping) or _is_tables(value)}
    yield from (f"{key} = {_value(value)}" for key, value in table.items() if key not in inner)
    for key, value in inner.items():
        name = f"{path}{key}"
        if isinstance(value, Mapping):
            yield from ("", f"[{name}]", *_lines(value, f"{name}."))
        else:
            for one in value:
                yield from ("", f"[[{name}]]", *_lines(one, f"{name}."))


def _is_tables(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")
    return json.dumps(value) if isinstance(value, bool) else repr(value)
