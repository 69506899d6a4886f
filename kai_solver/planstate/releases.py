"""Which units of running pods may leave, alone and together, by the rules that have an opinion about it."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Blocker
from kai_solver.planstate.eviction_units import Unit
from kai_solver.planstate.state import State
from kai_solver.problem.rules import ReleaseKey, Releases

BoolArray = NDArray[np.bool_]

Exhausted = tuple[frozenset[int], ...]
"""By rule, the caps that let no more pods go."""


class _PodsOf(Sequence[Sequence[int]]):
    """The pods of each unit, taken when they are asked for: most rules ask for none."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = units

    def __len__(self) -> int:
        return len(self._units)

    @overload
    def __getitem__(self, index: int) -> Sequence[int]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Sequence[int]]: ...
    def __getitem__(self, index: int | slice) -> Sequence[int] | Sequence[Sequence[int]]:
        if isinstance(index, slice):
            return [unit.pods for unit in self._units[index]]
        return self._units[index].pods


class UnitReleases:
    """What all rules say of the units of a pool; most clusters have no such rule."""

    def __init__(self, state: State, units: Sequence[Unit]) -> None:
        pods = _PodsOf(units)
        every = ((rule.name, rule.releases(state, pods)) for rule in state.problem.rules)
        self._of: dict[str, Releases] = {name: found for name, found in every if found is not None}

    @cached_property
    def held(self) -> BoolArray | None:
        """(U,) units that never leave; None where no rule says anything."""
        return self._any(lambda rule: rule.held)

    @cached_property
    def divisible(self) -> BoolArray | None:
        """(U,) units of which a part could move where the whole may not; None where no rule says anything."""
        return self._any(lambda rule: rule.divisible)

    @cached_property
    def counted(self) -> BoolArray | None:
        """(U,) units that some rule counts; None where no rule says anything."""
        return self._any(lambda rule: ~rule.free)

    def _any(self, of: Callable[[Releases], BoolArray]) -> BoolArray | None:
        masks = [of(rule) for rule in self._of.values()]
        return np.any(masks, axis=0) if masks else None

    def use(self, unit: int) -> tuple[tuple[ReleaseKey, int], ...]:
        """How many of the pods of ``unit`` are counted by which caps."""
        if not self._of:
            return ()
        return tuple(((name, cap), pods) for name, rule in self._of.items() for cap, pods in rule.use(unit))

    def left(self) -> dict[ReleaseKey, int]:
        """How many more pods each cap lets go."""
        return {(name, cap): left for name, rule in self._of.items() for cap, left in enumerate(rule.left().tolist())}

    def fits(self, units: Iterable[int]) -> bool:
        """May all of ``units``, which have not left, go too?"""
        if not self._of:
            return True
        chosen = list(units)
        return all(rule.fits(chosen) for rule in self._of.values())

    def exhausted(self) -> Exhausted:
        """Caps that let no more pods go, though at first they let some; empty where there are none."""
        if not self._of:
            return ()
        found = tuple(rule.exhausted() for rule in self._of.values())
        return found if any(found) else ()

    def open_units(self, exhausted: Exhausted) -> BoolArray:
        """(U,) units of which the caps ``exhausted``, some at least, count nothing."""
        pairs = zip(self._of.values(), exhausted, strict=True)
        found: BoolArray = np.all([rule.open_units(caps) for rule, caps in pairs], axis=0)
        return found

    def binding(self, units: BoolArray) -> tuple[Blocker, ...]:
        """What keeps some of ``units`` (U,) from leaving, as elements of what blocks."""
        every = (rule.binding(units) for rule in self._of.values())
        return tuple(blocker for blocker in every if blocker is not None)
