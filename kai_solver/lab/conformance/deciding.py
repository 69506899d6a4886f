"""The real engine as a decider: one warm solver child for all cases, whatever their ladders."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from kai_solver.domain import Action, Plan, Snapshot, SolverModel
from kai_solver.engine import Engine, cycle
from kai_solver.lab.conformance.runner import Decide

READY_S = 60.0
"""Longest wait of a cycle for the solver's start."""

WIDE_S = 10.0
"""Budget of a cycle where none is stated: cases are about what is decided, and no busy machine is to decide it."""


@contextmanager
def open_decider(model: SolverModel, budget_s: float = WIDE_S, seed: int = 0) -> Iterator[Decide]:
    """Decider that runs cycles of ``model`` on the ladder of each case."""
    with Engine(model) as engine:

        def decide(snapshot: Snapshot, actions: tuple[Action, ...]) -> Plan:
            engine.wait(READY_S)  # each time: a cycle before may have cost the solver its process
            on_actions = replace(model, actions=actions)
            return cycle(snapshot, on_actions, budget_s=budget_s, seed=seed, child=engine.child)

        yield decide
