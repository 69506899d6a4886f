"""Kubernetes quantities and Go durations, to integers and seconds, exactly."""

import re
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation, Overflow
from functools import lru_cache

from kai_solver.errors import InputError
from kai_solver.units.words import form

_SUFFIX: dict[str, Decimal] = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{s: Decimal(10) ** (3 * i) for i, s in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{s: Decimal(1024) ** i for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(|[numkMGTPE]|[KMGTPE]i)")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_DURATION_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

LARGEST = 2**53
"""Largest amount accepted, in thousandths or bytes: beyond it doubles lose integers (8 PiB, 9e12 cores)."""

LARGEST_DURATION_S = (2**63 - 1) / 1e9
"""Longest accepted duration: that of Go's ``time.Duration`` (292 years)."""

LONGEST_NUMBER = 100
"""Characters of a quantity or duration. A signed 64-bit number has 20; the rest is room for zeros."""

_EXACT = Context(prec=LONGEST_NUMBER + 40, rounding=ROUND_CEILING, traps=[InvalidOperation, Overflow])
"""Holds every accepted text times every suffix and scale without rounding; very small amounts round up."""


def parse_quantity(text: str | float, scale: int = 1) -> int:
    """Amount of a Kubernetes quantity times ``scale``, rounded up as Kubernetes does.

    ``parse_quantity("1500m", 1000) == 1500``; ``parse_quantity("1Gi") == 2**30``.

    Raises
    ------
    InputError
        Not a quantity, negative, or absurdly large (over ``LARGEST``).
    """
    if isinstance(text, int) and abs(text) > LARGEST:
        raise InputError("the quantity is absurdly large", cure="Check its digits")
    if isinstance(text, str) and len(text) > LONGEST_NUMBER:
        raise InputError(f"a quantity of {len(text)} characters is not read", cure=f"Write {LONGEST_NUMBER} at most")
    return _parse_quantity(text, scale)


@lru_cache(maxsize=65536)
def _parse_quantity(text: str | float, scale: int) -> int:
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise InputError(f"{text!r} is not a quantity", cure='Write it as Kubernetes does: "500m", "2", "64Gi"')
    try:
        amount = _EXACT.multiply(_EXACT.multiply(_EXACT.create_decimal(match[1]), _SUFFIX[match[2]]), Decimal(scale))
        if amount < 0:
            raise InputError(f"the quantity {text!r} is negative", cure="Quantities are zero or more")
        if amount > LARGEST:
            raise InputError(f"the quantity {text!r} is absurdly large", cure="Check its suffix")
        return int(amount.to_integral_value(rounding=ROUND_CEILING))
    except (InvalidOperation, Overflow) as error:
        raise InputError(f"{text!r} is not a quantity", cure="Check its exponent") from error


def parse_duration_s(text: str) -> float:
    """Seconds of a Go duration such as ``1h30m`` or ``-1s``.

    Raises
    ------
    InputError
        Not a duration, or one that Go cannot hold (over ``LARGEST_DURATION_S``).
    """
    if len(text) > LONGEST_NUMBER:
        raise InputError(f"a duration of {len(text)} characters is not read", cure=f"Write {LONGEST_NUMBER} at most")
    return _parse_duration_s(text)


@lru_cache(maxsize=4096)
def _parse_duration_s(text: str) -> float:
    body = text.strip()
    sign = -1.0 if body.startswith("-") else 1.0
    body = body.lstrip("+-")
    if body == "0":
        return 0.0
    parts = _DURATION.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        raise InputError(f"{text!r} is not a duration", cure='Write "90s", "1h30m" or "500ms"')
    seconds = sum(float(number) * _DURATION_S[unit] for number, unit in parts)
    if seconds > LARGEST_DURATION_S:
        raise InputError(f"the duration {text!r} is absurdly long", cure="Check its number")
    return sign * seconds


def parse_whole(text: str, digits: int = 15) -> int | None:
    """A whole number of at most ``digits`` digits 0 to 9; None for any other ``text``.

    For labels and annotations, which may have any text: ``int`` also takes digits of other scripts, and fails on more
    than 4,300 digits.
    """
    return int(text) if 0 < len(text) <= digits and text.isascii() and text.isdecimal() else None


def format_amount(resource: str, amount: int) -> str:
    """``amount`` of ``resource`` for people: GPUs, cores, GB, or a bare count; -1 is ``unlimited``."""
    if amount == -1:
        return "unlimited"
    if resource == "gpu":
        return f"{amount / 1000:g} {form(amount / 1000, 'GPU')}"
    if resource == "cpu":
        return f"{amount / 1000:g} {form(amount / 1000, 'CPU core')}"
    if resource == "memory":
        return f"{amount / 1e9:.4g} GB"
    return "1 pod" if (amount, resource) == (1, "pods") else f"{amount} {resource}"
