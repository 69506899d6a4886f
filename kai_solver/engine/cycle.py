"""One cycle, from a snapshot to a checked plan: a pure function of its inputs and of the clock that it is given.

The greedy always has a valid plan; the solver may only make it better, and nothing leaves unchecked.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from kai_solver import compiled
from kai_solver.check.optional import installed_checks
from kai_solver.domain import SEATING, Action, Plan, Snapshot, SolverModel
from kai_solver.engine.attempts import decided
from kai_solver.engine.cycle_time import Clock, CycleTime, never
from kai_solver.engine.progress import Fault, FaultReporter, OnSlow, Progress
from kai_solver.engine.run import Run
from kai_solver.errors.collector import without_collection
from kai_solver.model.families import family
from kai_solver.model.stages import stages
from kai_solver.problem import Memo
from kai_solver.problem.rules import installed_rules
from kai_solver.search.child import SolverChild

READY_S = 10.0
"""Longest wait for the solver's start: 0.4 s on a quiet machine, a few seconds on a busy one (2026-11-21)."""


class Engine:
    """A solver child kept warm over many cycles of one model. Use as a context manager.

    Raises
    ------
    InputError
        A rule, check, constraint family or stage of an installed package cannot be loaded: found now, since in a cycle
        it would stop every decision.
    """

    def __init__(self, model: SolverModel, *, clock: Clock = time.monotonic, child: SolverChild | None = None) -> None:
        installed_rules()
        installed_checks()
        for name in model.families:
            family(name)
        for name in (stage.name for stage in model.stages if stage.name not in SEATING):
            stages(name)
        self.model = model
        self.clock = clock
        self.memo = Memo()
        self.child = child or SolverChild(memory_mib=model.search.memory_mib, clock=clock)

    def __enter__(self) -> Self:
        if self.model.search.enabled:
            self.child.warm()
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close()

    def wait(self, limit_s: float = READY_S) -> bool:
        """Wait until the solver can be asked, so that its start is not taken off a cycle's budget.

        False where it is not ready within ``limit_s`` seconds; then cycles are the greedy's until it is.
        """
        return not self.model.search.enabled or self.child.wait(limit_s)

    def cycle(self, snapshot: Snapshot, **options: Any) -> Plan:
        """Plan one cycle; options as of the function `cycle`. What did not change since the last one is kept."""
        options.setdefault("memo", self.memo)
        return cycle(snapshot, self.model, clock=self.clock, child=self.child, **options)


def cycle(
    snapshot: Snapshot,
    model: SolverModel,
    *,
    budget_s: float | None = None,
    clock: Clock = time.monotonic,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    child: SolverChild | None = None,
    on_fault: Callable[[Fault], None] | None = None,
    memo: Memo | None = None,
    explain: bool = True,
    on_slow: OnSlow | None = None,
) -> Plan:
    """Decide what to do this cycle. An unexpected error leaves out only the gang or node that causes it.

    Parameters
    ----------
    budget_s
        Seconds for the decision (the model's where None). It ends by 1.2 budgets + 0.2 s whatever the solver does.
    seed
        Of the solver; the greedy has no randomness.
    progress, should_stop
        Told what is found; asked whether to stop with the best plan so far.
    child
        A solver process to use; one is started, and ended, where None.
    on_fault
        Called with every failure of the solver and what is needed to replay it; the cycle goes on without the solver.
    memo
        Of earlier cycles of the same cluster: what did not change since is not worked out again. The plan is the same.
    explain
        False: what blocks is not needed, so smallest sets of it are not searched.
    on_slow
        Receives each gang whose turns took more than its share of the time while others had no turn.

    Returns
    -------
    Plan
        Checked. Where the checker refuses one, greedy's without the gangs that it blames; a note says so.
    """
    seconds = model.budget_s if budget_s is None else budget_s
    is_first = True

    def run_of(found: Snapshot, seconds: float, only_allocates: bool) -> Run:
        nonlocal is_first
        actions = found.policy.enabled(model.actions)
        own = replace(model, actions=tuple(a for a in actions if a is Action.ALLOCATE or not only_allocates))
        run = Run(
            snapshot=found,
            model=own,
            time=CycleTime(model.search, seconds, clock, should_stop or never, progress),
            seed=seed,
            explain=explain,
            may_use_board=is_first,  # After an unexpected error all gangs have their turns one by one.
            faults=FaultReporter(found, own, seconds, seed, on_fault),
        )
        is_first = False
        return run

    if compiled.is_wanted(len(snapshot.nodes)):
        compiled.load_kept()  # Once a process, as imports; not in the budget.
    with without_collection():
        if child is not None or not model.search.enabled:
            return decided(run_of, snapshot, seconds, child, memo, on_slow)
        with SolverChild(memory_mib=model.search.memory_mib, clock=clock) as started:
            return decided(run_of, snapshot, seconds, started, memo, on_slow)
