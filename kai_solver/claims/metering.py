"""What an evaluation of a selector costs, and where it ends.

The costs are those of Kubernetes' runtime (``cel-go`` v0.26.0, ``interpreter/runtimecost.go`` and ``common/cost.go``):
1 for a variable, a field or a call, 10 for a list, 30 for a map, 1 for ten characters of a text that is scanned.
Lists and maps are charged by all that they hold, not by their own length: a list may hold one other list many times,
and a comparison walks through it each time.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from celpy.evaluation import CELEvalError

LIST, MAP, TURN = 10, 30, 3
_END = object()


class CostExceeded(Exception):  # noqa: N818  (an end, as StopIteration; no error of the expression's own)
    """The evaluation has cost more than its limit."""


class Meter:
    """Counts the cost of one evaluation."""

    __slots__ = ("cost", "limit")

    def __init__(self, limit: int) -> None:
        self.cost = 0
        self.limit = limit

    def charge(self, cost: int) -> None:
        """Add ``cost``; raises `CostExceeded` beyond the limit."""
        self.cost += cost
        if self.cost > self.limit:
            raise CostExceeded

    def charge_value(self, value: Any) -> None:
        """Charge everything that ``value`` holds; takes no more time than it charges."""
        if not isinstance(value, list | dict):
            self.charge(1 + len(value) // 10 if isinstance(value, str | bytes) else 1)
            return
        open_: list[Iterator[Any]] = [_held(value)]
        while open_:
            inner = next(open_[-1], _END)
            if inner is _END:
                open_.pop()
                continue
            self.charge(1 + len(inner) // 10 if isinstance(inner, str | bytes) else 1)
            if isinstance(inner, list | dict):
                open_.append(_held(inner))


def _held(value: list[Any] | dict[Any, Any]) -> Iterator[Any]:
    return iter((*value, *value.values())) if isinstance(value, dict) else iter(value)


_WALKS = frozenset(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_in_", "_+_", "contains", "string", "list", "map"))
"""Functions that look at all that their arguments hold."""
_WALKS_TEXT = frozenset(("startsWith", "endsWith", "lowerAscii", "upperAscii", "bytes"))


def call(meter: Meter, name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """``function(*arguments)``, charged before it runs; an error that cel-python gives as a value is raised."""
    if name in _WALKS:
        for argument in arguments:
            meter.charge_value(argument)
    else:
        meter.charge(_cost(name, arguments))
    made = function(*arguments)
    if isinstance(made, Exception):
        raise made
    if made is NotImplemented:
        raise CELEvalError("no such overload")
    return made


def _cost(name: str, arguments: Sequence[Any]) -> int:
    lengths = [len(a) if isinstance(a, str | bytes) else 0 for a in arguments]
    if name == "matches" and len(lengths) == 2:
        return -(-(1 + lengths[0]) // 10) * -(-lengths[1] // 4)
    return 1 + (sum(lengths) // 10 if name in _WALKS_TEXT else 0)
