"""Field types of the file formats, and pydantic's errors in our words: file, field and cure."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from kai_solver.errors import InputError, nearest, printable, shown
from kai_solver.errors.values import problem_of
from kai_solver.units import MILLI, UNLIMITED, parse_duration_s, parse_quantity

MIB = 2**20
LARGEST_COUNT = 10_000_000
LARGEST_SECONDS = 1e12

M = TypeVar("M", bound=BaseModel)

_CURES = {
    "missing": "Add it",
    "finite_number": "Numbers must be finite; write unlimited where that is meant",
    "greater_than_equal": "Give a larger number",
    "greater_than": "Give a larger number",
    "less_than_equal": "Give a smaller number",
}


class Strict(BaseModel):
    """Part of a published format: keys in camel case, none unknown, no NaN."""

    model_config = ConfigDict(
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        allow_inf_nan=False,
        frozen=True,
        defer_build=True,
    )


def _said(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``function`` with our errors turned into pydantic's, so that they get a field."""

    def validate(value: Any) -> Any:
        try:
            return function(value)
        except InputError as error:
            context = {"cure": error.cure}
            raise PydanticCustomError("kai_value", "{problem}", context | {"problem": error.problem}) from None

    return validate


def _scaled(scale: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise InputError(f"{value!r} is not a quantity", cure='Write it as Kubernetes does: "500m", "2", "64Gi"')
        return parse_quantity(value, scale)

    return read


def _scaled_or_unlimited(scale: int) -> Callable[[Any], int]:
    read = _scaled(scale)

    def read_or_unlimited(value: Any) -> int:
        return UNLIMITED if value in ("unlimited", UNLIMITED) and value is not True else read(value)

    return read_or_unlimited


def _mebibytes(value: Any) -> int:
    """A bare number counts MiB, as in KAI's annotation ``gpu-memory``; a quantity counts bytes."""
    return _scaled(1)(value) if not isinstance(value, str) or value.isdigit() else -(-parse_quantity(value) // MIB)


def _moment(value: Any) -> Any:
    """Epoch seconds stay numbers; a duration such as ``10m`` stays text and means that long ago."""
    return _checked_moment(value, 'how long ago: "10m"')


def _coming(value: Any) -> Any:
    """Epoch seconds stay numbers; a duration such as ``2h`` stays text and means in so long."""
    return _checked_moment(value, 'in how long: "2h"')


def _checked_moment(value: Any, relative: str) -> Any:
    """``value``, or the epoch seconds of a time with a zone, as Kubernetes writes it."""
    if isinstance(value, str) and "-" in value[1:]:
        from kai_solver.kubeobjects.raw import parse_time_s

        stamp_s = parse_time_s(value)
        if stamp_s is not None:
            return stamp_s
    cure = f"Give a time with its zone (2026-11-01T08:00:00Z), epoch seconds, or {relative}"
    try:
        _checked_seconds(value, "moment", cure)
    except InputError as error:
        if "is not a duration" not in error.problem:
            raise
        raise InputError(f"{shown(value)} is not a moment", cure=cure) from None
    return value


def _seconds(value: Any) -> float:
    return _checked_seconds(value, "duration", 'Give seconds, or a duration: "10m"')


def _checked_seconds(value: Any, meaning: str, cure: str) -> float:
    """Seconds of a number or a Go duration, within what clocks can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"{value!r} is not a {meaning}", cure=cure)
    seconds = parse_duration_s(value) if isinstance(value, str) else value
    if not abs(seconds) <= LARGEST_SECONDS:
        raise InputError(f"{value!r} is absurd for a {meaning}", cure=cure)
    return float(seconds)


Whole = Annotated[int, Field(ge=-(2**31), le=2**31)]
"""A priority, a weight, a count: what Kubernetes keeps in 32 bits."""

_QuantityInput = int | float | str
Millis = Annotated[int, BeforeValidator(_said(_scaled(MILLI)), json_schema_input_type=_QuantityInput)]
Amount = Annotated[int, BeforeValidator(_said(_scaled(1)), json_schema_input_type=_QuantityInput)]
MillisOrUnlimited = Annotated[
    int, BeforeValidator(_said(_scaled_or_unlimited(MILLI)), json_schema_input_type=_QuantityInput)
]
AmountOrUnlimited = Annotated[
    int, BeforeValidator(_said(_scaled_or_unlimited(1)), json_schema_input_type=_QuantityInput)
]
Mebibytes = Annotated[int, BeforeValidator(_said(_mebibytes), json_schema_input_type=_QuantityInput)]
Moment = Annotated[Any, BeforeValidator(_said(_moment), json_schema_input_type=_QuantityInput)]
Coming = Annotated[Any, BeforeValidator(_said(_coming), json_schema_input_type=_QuantityInput)]
Seconds = Annotated[float, BeforeValidator(_said(_seconds), json_schema_input_type=_QuantityInput)]


_LINES = frozenset(("selectors", "gpuTopology", "description"))
"""Keys of texts that may have lines: expressions, matrices, prose."""


_MESSAGES = frozenset(("message", "messages", "detailed"))
"""Keys of texts of ours in plans, which have lines as KAI's texts have; what else cannot be printed is escaped."""


def _is_printable(value: Any) -> bool:
    if isinstance(value, str):
        return value.isprintable()
    if isinstance(value, dict):
        return all(map(_is_printable, value)) and all(map(_is_printable, value.values()))
    return not isinstance(value, list) or all(map(_is_printable, value))


def _printable(value: Any) -> Any:
    """``value`` with each name in it as one printable line."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_printable(key): _value_of(key, inner) for key, inner in value.items()}
    return [_printable(inner) for inner in value] if isinstance(value, list) else value


def _value_of(key: Any, value: Any) -> Any:
    if key in _MESSAGES:
        return [_value_of(key, inner) for inner in value] if isinstance(value, list) else _printable_lines(value)
    return value if key in _LINES else _printable(value)


def _printable_lines(value: Any) -> Any:
    return "\n".join(map(printable, value.split("\n"))) if isinstance(value, str) else _printable(value)


def validate(model: type[M], document: Any, file: str, error: type[InputError] = InputError) -> M:
    """``document`` as a ``model``; the first of pydantic's errors becomes ours.

    Texts are escaped to what can be printed (`printable`), all but those that may have lines.

    Raises
    ------
    InputError
        Naming ``file``, the field's path and a cure.
    """
    try:
        return model.model_validate(document if _is_printable(document) else _printable(document))
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False)
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise error(problem_of(first) + more, file=file, field=_field(first, model), cure=_cure(first, model)) from None


def _field(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Where the error is in the file; of a kind that is not known, the key that names it."""
    location = tuple(part for part, is_tag, _ in _steps(model, error["loc"]) if not is_tag)
    if error["type"] in _OF_KINDS:
        location = (*location, str(error["ctx"]["discriminator"]).strip("'"))
    return path_of(location)


_OF_KINDS = ("union_tag_invalid", "union_tag_not_found")
"""Errors of parts that a key (``kind``) tells apart."""


def path_of(location: tuple[int | str, ...]) -> str:
    """``gangs[3].pods[0].gpus`` of pydantic's location, without the names that it gives to the parts of a union."""
    path = ""
    for part in location:
        if isinstance(part, str) and ("[" in part or part.startswith("constrained-")):
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _cure(error: ErrorDetails, model: type[BaseModel]) -> str:
    if error["type"] == "extra_forbidden":
        wrong, known = str(error["loc"][-1]), sorted(_keys_at(model, error["loc"][:-1]))
        close = nearest(wrong, known)
        return f"Did you mean {close!r}?" if close else f"Allowed here: {', '.join(known)}" if known else "Remove it"
    if error["type"] in _OF_KINDS:
        kinds = re.findall(r"'(.+?)'", error["ctx"].get("expected_tags", "")) or list(_kinds_at(model, error["loc"]))
        close = nearest(str(error["ctx"].get("tag", "")), kinds)
        return f"Did you mean {close}?" if close else f"Write one of {', '.join(kinds)}"
    if error["type"] == "string_type" and isinstance(error["input"], bool | int | float):
        return "Write it in quotes"  # YAML reads no, on and 5 as other things than names
    cure = error.get("ctx", {}).get("cure")
    return str(cure) if cure else _CURES.get(error["type"], "Correct the value")


def _keys_at(model: type[BaseModel], location: tuple[int | str, ...]) -> set[str]:
    """Keys that the model at ``location`` below ``model`` allows; empty where that cannot be told."""
    return set(_schema_at(model, location).get("properties", {}))


def _kinds_at(model: type[BaseModel], location: tuple[int | str, ...]) -> Iterable[str]:
    """Kinds of the parts that ``location`` may hold."""
    found: dict[str, str] = _schema_at(model, location).get("discriminator", {}).get("mapping", {})
    return found


def _schema_at(model: type[BaseModel], location: tuple[int | str, ...]) -> dict[str, Any]:
    return deque(_steps(model, ("", *location)), maxlen=1)[0][2]


def _steps(model: type[BaseModel], location: tuple[int | str, ...]) -> Iterator[tuple[int | str, bool, dict[str, Any]]]:
    """Each part of pydantic's ``location``, whether it is the kind of what is there and no key, and what is there.

    The empty part is the model itself.
    """
    schema = model.model_json_schema(by_alias=True, mode="validation")
    definitions, here = schema.get("$defs", {}), schema
    for part in location:
        kinds = here.get("discriminator", {}).get("mapping", {})
        if part in kinds:
            here = _resolve({"$ref": kinds[part]}, definitions)
        elif part != "":
            inner = here.get("items", {}) if isinstance(part, int) else here.get("properties", {}).get(part, {})
            here = _resolve(inner, definitions)
        yield part, part in kinds, here


def _resolve(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """``schema`` behind its reference, or behind the first branch that is one."""
    for branch in (schema, *schema.get("anyOf", ()), *schema.get("allOf", ())):
        if "$ref" in branch:
            found: dict[str, Any] = definitions.get(branch["$ref"].rsplit("/", 1)[-1], {})
            return found
        if branch.get("type") == "array":
            array: dict[str, Any] = branch
            return array
    return schema
