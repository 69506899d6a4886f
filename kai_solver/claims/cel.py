"""CEL selectors of devices (DRA, KEP-4381): which are evaluated, their cost limit, and the results that are kept.

The library that evaluates them is loaded when the first selector needs it; the one selector that nearly every
DeviceClass has (``device.driver == "gpu.nvidia.com"``) does not.

Kubernetes allows 10 KiB and a cost of 1,000,000 an evaluation (``CELSelectorExpressionMaxLength`` and
``CELSelectorExpressionMaxCost`` in k8s.io/api v0.34.4, resource/v1/types.go), about 0.1 s there. A unit of cost takes
about 2 µs here (2026-11-22), and a scheduler evaluates for every pod that waits. So one evaluation may cost
`SELECTOR_COST`, several hundred times what examples of DRA drivers cost, and the new evaluations of one cycle
``SELECTORS_COST`` together (`kai_solver.claims.matching`). The others wait for a later cycle, as answers are kept.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from kai_solver.claims.errors import SelectorError
from kai_solver.domain import ClaimDevice
from kai_solver.domain.object_limits import SELECTOR_BYTES, SELECTOR_COST

if TYPE_CHECKING:
    from kai_solver.claims.metering import Meter

_DRIVER_ONLY = re.compile(r"""\s*device\.driver\s*==\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*""")
_KEPT = 1024
"""Compiled expressions; one of 10 KiB takes about 1 MiB."""

Evaluate = Callable[[ClaimDevice, "Meter"], bool]


def selects(expression: str, device: ClaimDevice) -> bool:
    """Whether ``device`` matches; errors as of `evaluated`."""
    return evaluated(expression, device)[0]


def evaluated(expression: str, device: ClaimDevice, most: int = SELECTOR_COST) -> tuple[bool, int]:
    """Whether ``device`` matches, and the cost of the evaluation; ``most``: its limit.

    Raises
    ------
    SelectorError
        The expression cannot be evaluated, costs more than ``most``, or gives no truth value.
    """
    plain = _DRIVER_ONLY.fullmatch(expression)
    if plain is not None:
        return device.driver == (plain[1] if plain[1] is not None else plain[2]), 0
    from kai_solver.claims.metering import Meter

    meter = Meter(most)
    try:
        return _program(expression)(device, meter), meter.cost
    except SelectorError as error:
        raise SelectorError(*error.args, cost=meter.cost) from error


@lru_cache(_KEPT)
def _program(expression: str) -> Evaluate:
    """The compiled expression; one that cannot be compiled fails again for every device."""
    try:
        check_text(expression)
        from kai_solver.claims.library import compiled  # 0.1 s that only such selectors pay

        return compiled(unbound(expression))
    except SelectorError as found:
        error = found

    def refuse(*_: object) -> bool:
        raise error

    return refuse


def check_text(expression: str) -> None:
    """Raise `SelectorError` for an unclosed text: the parser reads each escape in it in two ways, and does not end."""
    if len(expression.encode(errors="replace")) > SELECTOR_BYTES:
        raise SelectorError(f"a selector of more than {SELECTOR_BYTES} bytes is not evaluated")
    quote, position = "", 0
    while position < len(expression):
        if not quote and expression.startswith(('"""', "'''"), position):
            raise SelectorError("a selector with a text in three quotes is not evaluated. Write it in one quote")
        if quote and expression[position] in "\n\r":
            break
        quote, position = _step(expression, quote, position)
    if quote:
        raise SelectorError("a selector with a text that is not closed on its line is not evaluated")


_BIND = "cel.bind("


def unbound(expression: str) -> str:
    """``cel.bind(x, value, body)`` written as ``[value].map(x, body)[0]``, which is the same and which CEL has.

    The library lacks the macro, and the examples of DRA use it. Inner ones are rewritten too, in one pass.
    """
    if _BIND not in expression:
        return expression
    return _Rewriting(expression).text()


class _Rewriting:
    """One pass over an expression: open brackets, and the content of those of ``cel.bind``."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._parts: list[list[str]] = [[""]]
        self._opened: list[bool] = []

    def text(self) -> str:
        """The expression rewritten; unchanged if its brackets do not match, which the parser reports."""
        quote, position, text = "", 0, self._expression
        while position < len(text):
            if not quote and text.startswith(_BIND, position):
                self._opened.append(True)
                self._parts.append([""])
                position += len(_BIND)
                continue
            before, was = position, quote
            quote, position = _step(text, quote, position)
            piece = text[before:position]
            if was or quote or not self._brackets(piece):
                self._parts[-1][-1] += piece
        return self._parts[0][0] if not self._opened else text

    def _brackets(self, piece: str) -> bool:
        """Process a bracket or comma; True if nothing else is to be done with it."""
        if piece in tuple("([{"):
            self._opened.append(False)
        elif piece in tuple(")]}") and self._opened:
            if self._opened.pop():
                self._close()
                return True
        elif piece == "," and self._opened and self._opened[-1]:
            self._parts[-1].append("")
            return True
        return False

    def _close(self) -> None:
        arguments = self._parts.pop()
        if len(arguments) == 3:
            name, bound, body = arguments
            self._parts[-1][-1] += f"[{bound}].map({name.strip()}, {body})[0]"
        else:
            self._parts[-1][-1] += f"{_BIND}{','.join(arguments)})"


def _step(text: str, quote: str, position: int) -> tuple[str, int]:
    """One character on; the quote that is open after it."""
    char = text[position]
    if quote and char == "\\":
        return quote, position + 2
    if char in "\"'" and quote in ("", char):
        return ("" if quote else char), position + 1
    return quote, position + 1
