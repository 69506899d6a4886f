"""Keeps what the greedy decided while the solver changes it, and restores it if a step of the solver fails."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kai_solver.errors import InternalError
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import Place


@dataclass(slots=True)
class Floor:
    """An outcome as it is now."""

    outcome: Outcome
    _mark: int = field(init=False)
    _places: Mapping[int, Place] = field(init=False)
    _gone: frozenset[int] = field(init=False)
    _parts: Mapping[str, Any] = field(init=False)
    _pinned: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        outcome, state = self.outcome, self.outcome.state
        self._mark, self._places, self._gone = state.mark(), dict(state.places), frozenset(state.gone)
        self._parts = {part.name: _copied(getattr(outcome, part.name)) for part in fields(outcome)}
        self._pinned = frozenset(outcome.pool.pinned) if outcome.pool is not None else frozenset()

    def restore(self) -> None:
        """Undo what was done since.

        Raises
        ------
        InternalError
            The journal of the state cannot undo the changes.
        """
        outcome, state = self.outcome, self.outcome.state
        state.rollback(self._mark)
        if len(state.journal) != self._mark or state.places != self._places or state.gone != self._gone:
            raise InternalError("the journal does not lead back to what the greedy decided")
        version = outcome.version + 1  # What was worked out of the outcome meanwhile holds no longer.
        for name, value in self._parts.items():
            setattr(outcome, name, value)
        outcome.version = version
        if outcome.pool is not None:
            outcome.pool.pin_only(self._pinned)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: dict(inner) if isinstance(inner, dict) else inner for key, inner in value.items()}
    return value.copy() if isinstance(value, list | set) else value
