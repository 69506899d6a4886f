"""Numbers as labels, annotations and owners state them."""

from collections import Counter
from collections.abc import Iterable, Mapping

from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.units import parse_whole

_LONGEST = 9


def positive(text: str) -> int | None:
    """A positive whole number; None where ``text`` is none."""
    return natural(text) or None


def natural(text: str) -> int | None:
    """A whole number from zero; None where ``text`` is none."""
    return parse_whole(text, _LONGEST)


def stated_minimum(annotations: Mapping[str, str]) -> int | None:
    """``kai.scheduler/batch-min-member``; None where it is not there.

    Raises
    ------
    InputError
        It is no positive number.
    """
    text = annotations.get(names.BATCH_MIN_MEMBER)
    if text is None:
        return None
    number = positive(text)
    if number is None:
        raise InputError(f"{text!r} is not a number above 0", field=names.BATCH_MIN_MEMBER, cure="Write 1 or more")
    return number


def sizes(values: Iterable[str]) -> dict[str, int]:
    """How often each value occurs, in the order of the values."""
    return dict(sorted(Counter(values).items()))
