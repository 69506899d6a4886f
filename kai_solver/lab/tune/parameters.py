"""Parameters of a model that may be tuned, by their paths in the model file."""

import copy
from collections.abc import Mapping
from typing import Any

from kai_solver.domain import CpSatValue, SolverModel
from kai_solver.errors import InputError, ModelFileError, nearest
from kai_solver.modelfiles import CP_SAT_OWNED, cp_sat_parameters, model_from_document
from kai_solver.search.parameters import SolverParameters

Value = int | float | bool | str

SEARCH = ("question_s", "questions_share", "presolve", "chains")
STAGE = ("share", "gap")
CP_SAT = "search.parameters."

NOT_TUNED: Mapping[str, str] = {
    "budget_s": "what is compared is the same budget: give it as `budget`",
    "search.workers": "CPU time is counted for two workers",
    "search.enabled": "a model without search is another model: name it as `model`",
    "search.deterministic": "runs are timed by the clock",
    "search.memory_mib": "it is a limit, which no plan is better for",
    "moves": "it says what plans are compared by",
    "leftover": "it says what plans are compared by",
    "admission": "it says which plans are allowed",
    "ladder": "it says which plans are allowed",
    "families": "it says which plans are allowed",
}
"""Parts of a model that are not tuned, and why."""


def known_paths(model: SolverModel) -> list[str]:
    """Paths that may be tuned in ``model``, those of CP-SAT's own parameters left out: there are 280 of them."""
    stages = [f"stages.{stage.name}.{key}" for stage in model.stages for key in STAGE]
    return [*(f"search.{key}" for key in SEARCH), *stages]


def present_value(model: SolverModel, path: str) -> Value:
    """The value of a parameter in ``model``, said or by default.

    Raises
    ------
    InputError
        The path is unknown, or may not be tuned.
    """
    room, _, key = path.rpartition(".")
    if path.startswith(CP_SAT):
        return _of_cp_sat(model, path.removeprefix(CP_SAT))
    if path in known_paths(model):
        if room == "search":
            found: Value = getattr(model.search, key)
            return found
        stage = next(stage for stage in model.stages if stage.name == room.removeprefix("stages."))
        return stage.share if key == "share" else stage.gap
    reason = next((why for part, why in NOT_TUNED.items() if f"{path}.".startswith(f"{part}.")), "")
    if reason:
        raise InputError(f"is not tuned: {reason}", field=f"parameters.{path}", cure="Delete it")
    near = nearest(path, known_paths(model))
    known = f"Known: {', '.join(known_paths(model))}, and {CP_SAT}NAME with CP-SAT's names"
    cure = f"Did you mean {near}? {known}" if near else known
    raise InputError(f"is not a parameter of the model {model.name!r}", field=f"parameters.{path}", cure=cure)


def _of_cp_sat(model: SolverModel, name: str) -> Value:
    if name in CP_SAT_OWNED:
        problem = f"is not tuned: {CP_SAT_OWNED[name]}"
        raise InputError(problem, field=f"parameters.{CP_SAT}{name}", cure="Delete it")
    fields = cp_sat_parameters()
    if name not in fields or fields[name].is_repeated:
        near = nearest(name, [known for known, field in fields.items() if not field.is_repeated])
        known = "Known: those with one value in sat_parameters.proto"
        cure = f"Did you mean {CP_SAT}{near}?" if near else known
        raise InputError("is not a parameter of CP-SAT to tune", field=f"parameters.{CP_SAT}{name}", cure=cure)
    field = fields[name]
    chosen: Mapping[str, CpSatValue] = SolverParameters.choose(model.search, variables=0).as_mapping()
    value = chosen.get(name, field.default_value)
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if not isinstance(value, Value):
        raise TypeError(value)
    return value


def document_with(document: Mapping[str, Any], model: SolverModel, values: Mapping[str, Value]) -> dict[str, Any]:
    """The document of ``model`` with other values; those that are the present ones change nothing in it."""
    changed = copy.deepcopy(dict(document))
    for path, value in values.items():
        if value == present_value(model, path):
            continue
        room, _, key = path.rpartition(".")
        if room.startswith("stages."):
            tables = [one for one in changed["stages"] if one["name"] == room.removeprefix("stages.")]
        else:
            table = changed
            for part in room.split("."):
                table = table.setdefault(part, {})
            tables = [table]
        for one in tables:
            one[key] = value
    return changed


def check_value(document: Mapping[str, Any], model: SolverModel, path: str, value: Value) -> None:
    """See whether a model file may have the value.

    Raises
    ------
    InputError
        It may not; names the parameter, and says what the model file's error says.
    """
    try:
        model_from_document(document_with(document, model, {path: value}))
    except ModelFileError as error:
        raise InputError(f"{value!r}: {error.problem}", field=f"parameters.{path}", cure=error.cure) from None
