"""Leaves out the claims, classes and devices that make the lowering of all claims fail."""

from collections.abc import Callable
from dataclasses import replace

from kai_solver.domain import Claims, Notice, Snapshot
from kai_solver.errors.barrier import caught
from kai_solver.errors.culprits import without_culprits

_TEXT = "an unexpected error stopped its evaluation"


def without_spoilers(snapshot: Snapshot, lower: Callable[[Snapshot], Snapshot], error: Exception) -> Snapshot:
    """What ``lower`` makes of ``snapshot`` without what makes it fail: pods that need that wait, with a reason.

    Raises
    ------
    Exception
        No claim, class or device causes the error, or too many do.
    """
    claims = snapshot.claims
    if claims is None:
        raise error
    names = [
        *(f"resource claim {claim.key}" for claim in claims.claims),
        *(f"device class {known.name}" for known in claims.classes),
        *(f"device {device.name} of node {device.node}" for device in claims.devices),
    ]

    def attempt(left_out: frozenset[int]) -> Snapshot:
        return lower(replace(snapshot, claims=_without(claims, left_out)))

    found, blamed = without_culprits(len(names), attempt, error)
    if not blamed:
        caught("reading", "all resource claims", error)
    told = tuple(
        Notice("set-aside", names[number], f"{_TEXT} ({caught('reading', names[number], cause)})")
        for number, cause in blamed.items()
    )
    return replace(found, notices=(*found.notices, *told))


def _without(claims: Claims, left_out: frozenset[int]) -> Claims:
    """The same with a problem on each claim and class that is left out, which keeps what it holds; devices are gone."""
    first_class = len(claims.claims)
    first_device = first_class + len(claims.classes)
    return replace(
        claims,
        claims=tuple(
            replace(claim, requests=(), problem=_TEXT) if number in left_out else claim
            for number, claim in enumerate(claims.claims)
        ),
        classes=tuple(
            replace(known, selectors=(), problem=_TEXT) if number in left_out else known
            for number, known in enumerate(claims.classes, first_class)
        ),
        devices=tuple(device for number, device in enumerate(claims.devices, first_device) if number not in left_out),
    )
