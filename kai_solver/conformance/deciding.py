"""The real engine as a decider: one warm engine for as long as the ladder stays the same."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from kai_solver.conformance.runner import Decide
from kai_solver.domain import Plan, Rung, Snapshot, SolverModel
from kai_solver.engine import Engine


@contextmanager
def open_decider(model: SolverModel, budget_s: float, seed: int = 0) -> Iterator[Decide]:
    """Decider that runs cycles of ``model`` on the ladder of each case."""
    with ExitStack() as stack:
        warm: dict[tuple[Rung, ...], Engine] = {}

        def decide(snapshot: Snapshot, ladder: tuple[Rung, ...]) -> Plan:
            if ladder not in warm:
                stack.pop_all().close()
                warm.clear()
                warm[ladder] = stack.enter_context(Engine(replace(model, ladder=ladder)))
            return warm[ladder].cycle(snapshot, budget_s=budget_s, seed=seed)

        yield decide
