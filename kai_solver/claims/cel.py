"""CEL selectors of devices (DRA, KEP-4381).

The library that evaluates them is loaded when the first selector needs it; the one selector that nearly every
DeviceClass has (``device.driver == "gpu.nvidia.com"``) does not.
"""

import re
from collections.abc import Callable
from functools import cache

from kai_solver.claims.errors import SelectorError
from kai_solver.domain import ClaimDevice

_DRIVER_ONLY = re.compile(r"""\s*device\.driver\s*==\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*""")
_LONGEST = 10 * 1024
"""Kubernetes allows expressions of so many bytes (``CELSelectorExpressionMaxLength``)."""


def selects(expression: str, device: ClaimDevice) -> bool:
    """Whether ``device`` matches.

    Raises
    ------
    SelectorError
        The expression cannot be evaluated, or gives no truth value.
    """
    plain = _DRIVER_ONLY.fullmatch(expression)
    if plain is not None:
        return device.driver == (plain[1] if plain[1] is not None else plain[2])
    return _program(expression)(device)


@cache
def _program(expression: str) -> Callable[[ClaimDevice], bool]:
    """The compiled expression; one that cannot be compiled fails again for every device."""
    if len(expression.encode()) > _LONGEST:
        error = SelectorError(f"a selector of more than {_LONGEST} bytes is not evaluated")
    else:
        try:
            from kai_solver.claims.library import compiled  # 0.1 s that only such selectors pay

            return compiled(unbound(expression))
        except SelectorError as found:
            error = found

    def refuse(_: ClaimDevice) -> bool:
        raise error

    return refuse


_BIND = "cel.bind("


def unbound(expression: str) -> str:
    """``cel.bind(x, value, body)`` written as ``[value].map(x, body)[0]``, which is the same and which CEL has.

    The library lacks the macro, and the examples of DRA use it. Inner ones are rewritten too.
    """
    start = _outside_strings(expression, _BIND)
    if start < 0:
        return expression
    parts, end = _arguments(expression, start + len(_BIND))
    if len(parts) != 3:
        return expression
    name, bound, body = (unbound(part) for part in parts)
    return f"{expression[:start]}[{bound}].map({name.strip()}, {body})[0]{unbound(expression[end:])}"


def _outside_strings(text: str, wanted: str) -> int:
    quote, position = "", 0
    while position < len(text):
        if not quote and text.startswith(wanted, position):
            return position
        quote, position = _step(text, quote, position)
    return -1


def _step(text: str, quote: str, position: int) -> tuple[str, int]:
    """One character on; the quote that is open after it."""
    char = text[position]
    if quote and char == "\\":
        return quote, position + 2
    if char in "\"'" and quote in ("", char):
        return ("" if quote else char), position + 1
    return quote, position + 1


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """Arguments from ``start`` to the closing bracket, and the place behind it; no arguments where it never closes."""
    depth, quote, position, begin = 0, "", start, start
    parts: list[str] = []
    while position < len(text):
        char = text[position]
        if not quote and char in "([{":
            depth += 1
        elif not quote and char in ")]}":
            depth -= 1
            if depth < 0:
                return [*parts, text[begin:position]], position + 1
        elif not quote and char == "," and depth == 0:
            parts.append(text[begin:position])
            begin = position + 1
        quote, position = _step(text, quote, position)
    return [], len(text)
