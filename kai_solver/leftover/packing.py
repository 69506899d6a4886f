"""What a node's leftover capacity is worth: the best packing of usual pods into it, in integers.

Largest pods first, by branch and bound. After `STEPS` steps the best packing so far is taken: it is a packing all the
same, so it never says more than is there. Shares go to the fullest device that takes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kai_solver.units import MILLI

STEPS = 400
"""Packings of up to six kinds on nodes of 8 GPUs mostly end by themselves within 100 steps of some 3 µs."""

Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Guest:
    """A usual pod, as far as its room on a node goes.

    Attributes
    ----------
    kind
        Position among the kinds that are usual.
    asked
        (resource, amount), GPUs aside; amounts are positive.
    devices, milli
        GPUs, and thousandths of each; both 0 where it needs none.
    worth
        Thousandths of a GPU.
    """

    kind: int
    asked: tuple[tuple[int, int], ...]
    devices: int
    milli: int
    worth: int


def pack(guests: Sequence[Guest], free: Sequence[int], devices: Sequence[int]) -> tuple[int, Counts]:
    """The most that ``guests`` are worth on one node, and how many of each (by position) that takes.

    ``free``: by resource; ``devices``: free thousandths of each GPU.
    """
    order = sorted(range(len(guests)), key=lambda g: (-guests[g].devices * guests[g].milli, -guests[g].worth, g))
    search = _Search([guests[g] for g in order])
    search.branch(0, list(free), sorted(max(device, 0) for device in devices), 0)
    counts = [0] * len(guests)
    for position, count in zip(order, search.best_counts, strict=True):
        counts[position] = count
    return search.best, tuple(counts)


@dataclass(slots=True)
class _Search:
    guests: list[Guest]
    best: int = 0
    best_counts: list[int] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)
    _rates: list[tuple[float, float, int]] = field(default_factory=list)
    _steps: int = 0

    def __post_init__(self) -> None:
        self.best_counts = [0] * len(self.guests)
        self._counts = [0] * len(self.guests)
        self._rates = [_rates(self.guests[first:]) for first in range(len(self.guests))]

    def branch(self, at: int, free: list[int], devices: list[int], value: int) -> None:
        """Choose how many of guest ``at``, most first, then the later ones."""
        self._steps += 1
        if value > self.best:
            self.best, self.best_counts = value, list(self._counts)
        if at == len(self.guests) or self._steps > STEPS or value + self._most(at, free, devices) <= self.best:
            return
        guest = self.guests[at]
        states = [(free, devices)]
        while (after := _seated(guest, *states[-1])) is not None:
            states.append(after)
        for count in reversed(range(len(states))):
            self._counts[at] = count
            self.branch(at + 1, *states[count], value + count * guest.worth)
        self._counts[at] = 0

    def _most(self, at: int, free: list[int], devices: list[int]) -> float:
        """An upper bound on what guests from ``at`` on can add."""
        per_milli, per_amount, resource = self._rates[at]
        return per_milli * sum(devices) + (per_amount * max(free[resource], 0) if per_amount else 0.0)


def _rates(guests: list[Guest]) -> tuple[float, float, int]:
    """Most worth per thousandth of a GPU, and, of guests without GPUs, per unit of the first resource asked for."""
    with_gpus = [g.worth / (g.devices * g.milli) for g in guests if g.devices]
    others = [g for g in guests if not g.devices and g.worth]
    if not others:
        return max(with_gpus, default=0.0), 0.0, 0
    resource = others[0].asked[0][0]
    amounts = [dict(g.asked).get(resource, 0) for g in others]
    # Where some guest does not ask for the resource, nothing bounds it by that.
    rate = float("inf") if not all(amounts) else max(g.worth / a for g, a in zip(others, amounts, strict=True))
    return max(with_gpus, default=0.0), rate, resource


def _seated(guest: Guest, free: list[int], devices: list[int]) -> tuple[list[int], list[int]] | None:
    """What is left with one more ``guest``; None where it does not fit. ``devices`` ascend."""
    if not guest.worth or any(free[resource] < amount for resource, amount in guest.asked):
        return None
    fitting = [d for d, milli in enumerate(devices) if milli >= guest.milli][: guest.devices]
    if len(fitting) < guest.devices or (guest.milli == MILLI and any(devices[d] < MILLI for d in fitting)):
        return None
    left, after = list(free), list(devices)
    for resource, amount in guest.asked:
        left[resource] -= amount
    for device in fitting:
        after[device] -= guest.milli
    after.sort()
    return left, after
