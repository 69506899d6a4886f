"""What decides in a replay: a solver model of ours, or ``kube-default``."""

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol, Self

from kai_solver.domain import Action, Plan, Snapshot, SolverModel
from kai_solver.engine import Engine
from kai_solver.lab.simulate.bundles import bundled
from kai_solver.lab.simulate.kube import KubeDefault


class Decider(Protocol):
    """A snapshot in, a plan out."""

    @property
    def name(self) -> str:
        """What tables call it."""

    def decide(self, snapshot: Snapshot) -> Plan:
        """Plan one cycle."""


class ModelPolicy:
    """The pure cycle with one model, its solver child kept warm. Use as a context manager.

    Where the model does not search, its clock stands still: the greedy never runs out of time, and the same seed gives
    the same tables on every machine. A model that searches under a budget promises that only where it is
    deterministic.

    Parameters
    ----------
    bundles
        Where the model does not search: try first with running gangs bundled (``simulate.bundles``). The plans are the
        same, and made faster.
    """

    def __init__(
        self, model: SolverModel, *, budget_s: float | None = None, seed: int = 0, bundles: bool = True
    ) -> None:
        self.name = model.name
        clock = time.monotonic if model.search.enabled else _standing_still
        self._engine = Engine(model, clock=clock)
        first = model.actions[:1] == (Action.ALLOCATE,) and model.admission == "rank"
        self._quick: Engine | None = None
        if bundles and first and not model.search.enabled:
            self._quick = Engine(replace(model, actions=(Action.ALLOCATE,)), clock=clock)
        self._budget_s = budget_s
        self._seed = seed
        self._crowded = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._engine)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def decide(self, snapshot: Snapshot) -> Plan:
        """One cycle; with bundles first, unless a gang stayed pending in the one before."""
        small = bundled(snapshot) if self._quick is not None and not self._crowded else None
        if self._quick is not None and small is not None:
            plan = self._quick.cycle(small, budget_s=self._budget_s, seed=self._seed, explain=False)
            if not plan.pending and not plan.notes:
                return plan
        plan = self._engine.cycle(snapshot, budget_s=self._budget_s, seed=self._seed, explain=False)
        self._crowded = bool(plan.pending)
        return plan


def _standing_still() -> float:
    return 0.0


__all__ = ["Decider", "KubeDefault", "ModelPolicy"]
