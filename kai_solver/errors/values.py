"""What is wrong with a value of a file, in plain words: for all readers that check values with pydantic."""

from collections.abc import Mapping
from typing import Any

from kai_solver.errors import shown

_PROBLEMS = {
    **dict.fromkeys(("missing", "union_tag_not_found"), "is missing"),
    "extra_forbidden": "is not a key of this format",
    "finite_number": "is not a finite number",
    "less_than_equal": "must be {le} or less",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "greater_than": "must be more than {gt}",
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), "must be a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must hold keys with values"),
    "string_type": "must be text",
    "string_too_short": "must not be empty",
}


_KINDS = {"str": "text", "int": "a number", "float": "a number", "bool": "true or false", "NoneType": "null"}


def kind_of_value(value: object) -> str:
    """What ``value`` is in JSON and YAML, with its article: ``a number``."""
    return _KINDS.get(type(value).__name__, "a mapping" if isinstance(value, dict) else "a list")


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def problem_of(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors as the end of a sentence that begins with the field."""
    context = error.get("ctx", {})
    if error["type"] in ("literal_error", "enum"):
        return f"is {shown(error['input'])}, and must be one of {context.get('expected', '')}"
    if error["type"] == "union_tag_invalid":
        return f"'{context['tag']}' is not known"
    words = _PROBLEMS.get(str(error["type"]))
    if words is not None:
        return words.format(**{name: _whole(value) for name, value in context.items()})
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:300]
