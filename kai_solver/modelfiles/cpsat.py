"""CP-SAT's own parameters in a model file: ``[search.parameters]``, by the names of OR-tools' ``SatParameters``."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic_core import PydanticCustomError

from kai_solver.domain import CpSatValue
from kai_solver.errors import nearest

CP_SAT_OWNED: Mapping[str, str] = {
    "max_time_in_seconds": "the time of a question follows from budget_s and the shares",
    "max_deterministic_time": "the time of a question follows from budget_s and the shares",
    "num_workers": "it is search.workers",
    "num_search_workers": "it is search.workers",
    "max_memory_in_mb": "it is search.memory_mib",
    "random_seed": "it is the seed of the cycle (--seed)",
    "interleave_search": "it follows from search.deterministic",
    "relative_gap_limit": "it is the gap of each of the stages",
    "catch_sigint_signal": "the solver's process leaves signals to its parent",
    "log_search_progress": "the solver's process speaks over its standard output",
    "log_subsolver_statistics": "the solver's process speaks over its standard output",
    "log_to_stdout": "the solver's process speaks over its standard output",
    "log_to_response": "the solver's process speaks over its standard output",
    "log_prefix": "the solver's process speaks over its standard output",
    "fix_variables_to_their_hinted_value": "CP-SAT would then prove what is not true of the whole model",
    "stop_after_presolve": "CP-SAT would then not search",
    "stop_after_root_propagation": "CP-SAT would then not search",
}
"""Parameters that a model may not give, and why."""


def checked_parameters(said: Mapping[str, object]) -> dict[str, CpSatValue]:
    """Return the parameters as the solver's process sets them: an enum by its number, all else as it is.

    Raises
    ------
    PydanticCustomError
        A parameter is unknown, is not for models, or has a value of another type; says which, and the cure.
    """
    return {name: _value(name, value) for name, value in sorted(said.items())}


@cache
def cp_sat_parameters() -> Mapping[str, Any]:
    """Return those of the installed OR-tools that a model may give: protobuf's descriptor of the field, by name."""
    from ortools.sat.sat_parameters_pb2 import SatParameters  # 0.1 s, for models that need it

    fields = {field.name: field for field in SatParameters.DESCRIPTOR.fields}
    return {
        name: field
        for name, field in fields.items()
        if name not in CP_SAT_OWNED and not name.startswith("debug_") and field.message_type is None
    }


def _value(name: str, value: object) -> CpSatValue:
    if name in CP_SAT_OWNED:
        raise _fault(name, f"is not for models: {CP_SAT_OWNED[name]}", f"Delete {name}")
    field = cp_sat_parameters().get(name)
    if field is None:
        near = nearest(name, cp_sat_parameters())
        cure = f"Did you mean {near}?" if near else "Known: the fields of sat_parameters.proto of OR-tools 9.15"
        raise _fault(name, "is not a parameter of CP-SAT", cure)
    if not field.is_repeated:
        return _single(field, value)
    if not isinstance(value, list | tuple):
        raise _fault(name, f"{value!r} is not a list", "Give a list of names")
    return [_single(field, one) for one in value]


def _single(field: Any, value: object) -> int | float | bool | str:
    if field.enum_type is not None:
        numbers = {one.name: one.number for one in field.enum_type.values}
        if isinstance(value, str) and value in numbers:
            return int(numbers[value])
        if value in numbers.values() and not isinstance(value, bool):
            return int(str(value))  # what an earlier reading of it has made
        raise _fault(field.name, f"{value!r} is none of its values", f"One of: {', '.join(numbers)}")
    match field.cpp_type:
        case field.CPPTYPE_BOOL:
            if isinstance(value, bool):
                return value
            wanted = "true or false"
        case field.CPPTYPE_STRING:
            if isinstance(value, str):
                return value
            wanted = "text"
        case field.CPPTYPE_INT32 | field.CPPTYPE_INT64:
            most = 2 ** (31 if field.cpp_type == field.CPPTYPE_INT32 else 63)
            if isinstance(value, int) and not isinstance(value, bool) and -most <= value < most:
                return value
            wanted = f"a whole number of less than {most:,}"
        case _:
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
            wanted = "a number"
    raise _fault(field.name, f"{value!r} has the wrong type", f"Give {wanted}")


def _fault(name: str, problem: str, cure: str) -> PydanticCustomError:
    return PydanticCustomError("cp_sat", "{text}", {"text": problem, "name": name, "cure": cure})
