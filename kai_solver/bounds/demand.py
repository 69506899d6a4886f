"""What a bound is asked: one allocation unit of a gang, beside what must have a place too, on one action."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Action
from kai_solver.problem import GangShape
from kai_solver.problem.charges import Charge, sum_of
from kai_solver.problem.rules import Spacing
from kai_solver.units import GPU

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Domains of which one must hold everything: the level's label, and of every domain its name and nodes (N,)."""

    level: str
    names: tuple[str, ...]
    masks: Sequence[BoolArray]

    def part(self, first: int, last: int) -> "Scope":
        """The domains from ``first`` up to ``last``, which is not one of them."""
        return Scope(self.level, self.names[first:last], self.masks[first:last])


@dataclass(frozen=True, slots=True, eq=False)
class Grown:
    """What a gang that ran before got in this cycle: where its core may be taken, that goes with it."""

    gang: int
    pods: Mapping[int, int]
    charge: Charge


@dataclass(slots=True, eq=False)
class Kept:
    """Pods by shape of each gang that may move but not leave: many questions have the same."""

    rooms: Mapping[int, Mapping[int, int]]
    _total: Counter[int] | None = None

    def mask(self, gangs: int) -> BoolArray:
        """(G,) these gangs, of so many."""
        found = np.zeros(gangs, dtype=np.bool_)
        found[list(self.rooms)] = True
        return found

    def without(self, spared: BoolArray | None) -> Counter[int]:
        """Pods by shape of those that are not ``spared`` (G,); None: of all, which are counted once."""
        if spared is None:
            if self._total is None:
                self._total = _sum(self.rooms.values())
            return self._total
        return _sum(pods for gang, pods in self.rooms.items() if not spared[gang])


def _sum(rooms: Iterable[Mapping[int, int]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for pods in rooms:
        for shape, count in pods.items():
            total[shape] += count
    return total


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """One question.

    Attributes
    ----------
    charge, least
        What the allocation unit costs its queue: by requests on the smallest devices, and the least that it may cost.
    device_milli
        Thousandths of devices that it takes at the least.
    needed, beside
        Pods by shape: of the allocation unit, and of those that must have a place too.
    scope
        The required topology level over all of ``needed``; None without one.
    spacings
        How the pods of ``needed`` must lie, by optional rules.
    grown
        Of those admitted, what gangs got that ran before: it counts beside ``needed`` where they stay.
    kept
        Pods of those that may move but not leave, if that is known exactly; None: as far as masks tell.
    deep
        Flow is asked too where counts say nothing: milliseconds, where those cost microseconds.
    spare_charge
        What admissions cost that this action may undo altogether; they are not in ``beside``.
    pods, undone
        Pods of the allocation unit, and gangs of what this action may undo altogether.
    """

    action: Action
    gang: GangShape
    charge: Charge
    least: Charge
    device_milli: int
    needed: Mapping[int, int]
    beside: Mapping[int, int]
    scope: Scope | None = None
    spacings: tuple[Spacing, ...] = ()
    grown: tuple[Grown, ...] = ()
    kept: Kept | None = None
    deep: bool = False
    spare_charge: Charge = (0, 0, 0)
    pods: tuple[int, ...] = ()
    undone: tuple[int, ...] = ()

    def beside_of(self, leaving: BoolArray) -> Mapping[int, int]:
        """Pods by shape that must have a place beside the allocation unit's if the gangs ``leaving`` (G,) may go."""
        stays = [grown.pods for grown in self.grown if not leaving[grown.gang]]
        if not stays:
            return self.beside
        total = dict(self.beside)
        for pods in stays:
            for shape, count in pods.items():
                total[shape] = total.get(shape, 0) + count
        return total

    def returned_milli(self, leaving: BoolArray) -> int:
        """Thousandths of devices that the gangs ``leaving`` got in this cycle and would give back."""
        return self.returned_charge(leaving)[GPU]

    def returned_charge(self, leaving: BoolArray) -> Charge:
        """What the gangs ``leaving`` got in this cycle, as their queues pay for it."""
        gone = [self.spare_charge, *(grown.charge for grown in self.grown if leaving[grown.gang])]
        return sum_of(gone)
