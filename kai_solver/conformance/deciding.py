"""The real engine as a decider: one warm solver child for all cases, whatever their ladders."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from kai_solver.conformance.runner import Decide
from kai_solver.domain import Plan, Rung, Snapshot, SolverModel
from kai_solver.engine import Engine, cycle

READY_S = 30.0
"""Longest wait of the first case for the solver's start."""


@contextmanager
def open_decider(model: SolverModel, budget_s: float, seed: int = 0) -> Iterator[Decide]:
    """Decider that runs cycles of ``model`` on the ladder of each case."""
    with Engine(model) as engine:
        engine.wait(READY_S)

        def decide(snapshot: Snapshot, ladder: tuple[Rung, ...]) -> Plan:
            on_ladder = replace(model, ladder=ladder)
            return cycle(snapshot, on_ladder, budget_s=budget_s, seed=seed, child=engine.child)

        yield decide
