"""What is disturbed, pod by pod: the model counts units, of which some pods may find their own places again."""

from dataclasses import dataclass
from typing import Self

from kai_solver.planstate.origins import moved_pods
from kai_solver.planstate.state import State


@dataclass(frozen=True, slots=True)
class Disturbed:
    """Pods evicted, and how many are moved."""

    evicted: frozenset[int]
    moved: int

    @classmethod
    def of(cls, state: State) -> Self:
        """As the plan stands."""
        return cls(frozenset(state.gone - state.places.keys()), len(moved_pods(state)))

    def is_more_than(self, other: Self) -> bool:
        """Whether as many are evicted, and the very same, but more are moved: fewer units may be more pods."""
        return self.evicted == other.evicted and self.moved > other.moved
