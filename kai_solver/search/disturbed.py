"""Who is disturbed, pod by pod: the model counts units, of which some pods may find their own places again."""

from dataclasses import dataclass
from typing import Self

from kai_solver.greedy import State
from kai_solver.greedy.homes import is_at_home


@dataclass(frozen=True, slots=True)
class Disturbed:
    """Pods evicted, and how many are moved."""

    evicted: frozenset[int]
    moved: int

    @classmethod
    def of(cls, state: State) -> Self:
        """As the plan stands."""
        moving = state.gone & state.places.keys()
        moved = sum(not is_at_home(state.problem, pod, state.places[pod]) for pod in moving)
        return cls(frozenset(state.gone - moving), moved)

    def is_more_than(self, other: Self) -> bool:
        """Whether as many are evicted, and the very same, but more are moved: fewer units may be more pods."""
        return self.evicted == other.evicted and self.moved > other.moved
