"""When a cycle found and proved what: heard from its progress."""

from dataclasses import dataclass, field

from kai_solver.engine import Progress


@dataclass(frozen=True, slots=True)
class Moment:
    """Of one stage, seconds since the cycle began: the last improvement, and the proof; None where none came."""

    best_s: float | None = None
    proof_s: float | None = None


@dataclass(slots=True)
class Moments:
    """Give it to a cycle as ``progress``."""

    stages: dict[str, Moment] = field(default_factory=dict)
    _best: dict[str, float] = field(default_factory=dict)

    def __call__(self, progress: Progress) -> None:
        """Take notice."""
        if progress.bound is None:
            return
        name, best = progress.phase, progress.incumbent
        known = self.stages.get(name, Moment())
        best_s, proof_s = known.best_s, known.proof_s
        if best is not None and (name not in self._best or best < self._best[name]):
            self._best[name] = best
            best_s = progress.elapsed_s
        if proof_s is None and best is not None and progress.bound >= best:
            proof_s = progress.elapsed_s
        self.stages[name] = Moment(best_s, proof_s)
