"""Kubernetes quantities and Go durations, to integers and seconds, exactly."""

import re
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from kai_solver.errors import InputError

_SUFFIX: dict[str, Decimal] = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{s: Decimal(10) ** (3 * i) for i, s in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{s: Decimal(1024) ** i for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(|[numkMGTPE]|[KMGTPE]i)")
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_DURATION_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

LARGEST = 2**53
"""Largest amount accepted, in thousandths or bytes: beyond it doubles lose integers (8 PiB, 9e12 cores)."""


@lru_cache(maxsize=65536)
def parse_quantity(text: str | float, scale: int = 1) -> int:
    """Amount of a Kubernetes quantity times ``scale``, rounded up as Kubernetes does.

    ``parse_quantity("1500m", 1000) == 1500``; ``parse_quantity("1Gi") == 2**30``.

    Raises
    ------
    InputError
        Not a quantity, negative, or absurdly large (over ``LARGEST``).
    """
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise InputError(f"{text!r} is not a quantity", cure='Write it as Kubernetes does: "500m", "2", "64Gi"')
    try:
        amount = Decimal(match[1]) * _SUFFIX[match[2]] * scale
        if amount < 0:
            raise InputError(f"the quantity {text!r} is negative", cure="Quantities are zero or more")
        if amount > LARGEST:
            raise InputError(f"the quantity {text!r} is absurdly large", cure="Check its suffix")
        return int(amount.to_integral_value(rounding="ROUND_CEILING"))
    except (InvalidOperation, OverflowError) as error:
        raise InputError(f"{text!r} is not a quantity", cure="Check its exponent") from error


@lru_cache(maxsize=4096)
def parse_duration_s(text: str) -> float:
    """Seconds of a Go duration such as ``1h30m`` or ``-1s``.

    Raises
    ------
    InputError
        Not a duration.
    """
    body = text.strip()
    sign = -1.0 if body.startswith("-") else 1.0
    body = body.lstrip("+-")
    if body == "0":
        return 0.0
    parts = _DURATION.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        raise InputError(f"{text!r} is not a duration", cure='Write it as Go does: "90s", "1h30m"')
    return sign * sum(float(number) * _DURATION_S[unit] for number, unit in parts)


def format_amount(resource: str, amount: int) -> str:
    """``amount`` of ``resource`` for people: GPUs, cores, GB, or a bare count; -1 is ``unlimited``."""
    if amount == -1:
        return "unlimited"
    if resource == "gpu":
        return f"{amount / 1000:g} GPU" + ("s" if amount != 1000 else "")
    if resource == "cpu":
        return f"{amount / 1000:g} CPU core" + ("s" if amount != 1000 else "")
    if resource == "memory":
        return f"{amount / 1e9:.4g} GB"
    return f"{amount} {resource}"
