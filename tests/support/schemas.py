"""JSON Schema, imported where a test needs it: that takes longer than most tests."""

from typing import Any


def violations(value: Any, schema: dict[str, Any]) -> list[str]:
    """What a value does that its schema does not allow."""
    from jsonschema.validators import validator_for

    return [error.message for error in validator_for(schema)(schema).iter_errors(value)]


def check_schema(schema: dict[str, Any]) -> None:
    """Raise where a schema is none."""
    from jsonschema.validators import validator_for

    validator_for(schema).check_schema(schema)
