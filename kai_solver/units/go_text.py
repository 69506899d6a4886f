"""Numbers and times written as Go programs write them, since tools match on KAI's texts character by character."""

import datetime as dt
import math

from kai_solver.units.resources import UNLIMITED

CORES = 1000
"""Thousandths of a core in a core."""

GB = 10**9
"""Bytes in the GB of KAI's messages."""

FIRST_S, LAST_S = -62_135_596_800.0, 253_402_300_799.0
"""The years 1 to 9999, beyond which there is no RFC 3339."""


def humanized(amount: float, scale: int = 1) -> str:
    """``amount / scale`` with at most three decimals, cut off and not rounded; -1 is ``Unlimited``.

    KAI writes the amounts of its messages so: six decimals first, then the fourth and further are dropped.
    """
    if amount == UNLIMITED:
        return "Unlimited"
    whole, _, decimals = f"{amount / scale:.6f}".partition(".")
    return f"{whole}.{decimals[:3]}".rstrip("0").rstrip(".")


def go_float(value: float) -> str:
    """Shortest text that reads back as ``value``: Go's ``%v`` of a float64 (``4``, ``1.2000000000000002``)."""
    if 1e16 <= abs(value) < 1e21:
        return f"{value:.0f}"  # Python turns to exponents at 1e16, Go at 1e21.
    return repr(float(value)).removesuffix(".0")


def go_duration(seconds: float) -> str:
    """A duration as Go prints it: ``10m0s``, ``1h0m0s``, ``90s`` is ``1m30s``, ``0s``."""
    if seconds < 0:
        return "-" + go_duration(-seconds)
    if 0 < seconds < 1:
        return f"{go_float(round(seconds * 1000, 6))}ms"
    minutes, rest = divmod(round(seconds, 9), 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{go_float(round(rest, 9))}s"
    if minutes or hours:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def rfc3339(epoch_s: float) -> str:
    """A moment in UTC to the second, ``2026-11-21T03:23:15Z``."""
    moment = dt.datetime.fromtimestamp(math.floor(epoch_s), tz=dt.UTC)
    return moment.isoformat().replace("+00:00", "Z")  # years before 1000, too, have four digits
