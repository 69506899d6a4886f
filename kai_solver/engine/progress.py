"""What a cycle tells while it works."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a cycle: the phase or stage, seconds since its start, the stage's incumbent and bound if any."""

    phase: str
    elapsed_s: float
    incumbent: float | None = None
    bound: float | None = None
    text: str = ""
