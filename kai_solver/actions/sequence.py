"""The actions of one cycle in order: allocate, consolidate, reclaim, preempt, then stale gangs.

Within an action gangs come in policy order, which is evaluated again as allocations grow. The greedy answers first.
Where it finds no way, an ``Oracle`` may be asked: it proves that there is none, or finds one.
"""

from collections.abc import Callable, Iterable, Sequence

from kai_solver.actions.allocate import Admitter, Allocate
from kai_solver.actions.consolidate import still_asking, still_ready
from kai_solver.actions.context import Context, Oracle, Pace
from kai_solver.actions.disrupt import disrupt
from kai_solver.actions.paces import UntilLate
from kai_solver.actions.stale import evict_stale_gangs
from kai_solver.domain import Action
from kai_solver.errors import GangError
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import Problem
from kai_solver.reasons.refusals import LEFT_OUT, not_ready

_RESUMED = (Action.CONSOLIDATION, Action.RECLAIM)
"""Actions that may give way to those after them while they serve no gang, and go on afterwards."""


def consolidate_late(
    outcome: Outcome, oracle: Oracle, is_late: Callable[[], bool], afterwards: Sequence[Action] = ()
) -> None:
    """Run consolidation, gang by gang, for those gangs of ``outcome`` that wait and were not asked about.

    ``afterwards``: actions that follow it for gangs that wait still, where it served some: what moved may have made
    room that they can use. On one of 150 random clusters of 100 to 300 nodes preemption served a gang only then
    (2026-11-29).
    """
    context = Context(outcome.state.problem, oracle, UntilLate(is_late), "rank", outcome=outcome)
    candidates = [
        gang
        for gang in still_asking(outcome, context.gang_units)
        if Action.CONSOLIDATION not in outcome.refusals.get(gang, {})
    ]
    before = outcome.version
    if candidates:
        disrupt(context, Action.CONSOLIDATION, candidates)
    for action in afterwards if outcome.version != before else ():
        ready = still_ready(outcome, context.gang_units)
        waiting = [gang for gang in ready if action in outcome.refusals.get(gang, {})]
        if waiting and not context.is_over():
            disrupt(context, action, waiting)


class Actions:
    """All actions of one cycle, on one working state.

    Parameters
    ----------
    actions
        Those that run, in their order.
    admission
        ``rank``: gangs come in queue order; ``max-gpus``: by priority, then by GPUs.
    admitter
        Chooses again which gangs allocate admits, once the greedy has; None: the greedy's choice stays.
    left_out
        Keys of gangs that are refused in this cycle.
    between_attempts
        Called with the outcome before each action and after each attempt that may disturb others: no gang is placed in
        part then.
    by_board
        Whether plain gangs have their turns on flat arrays (`actions.board`).
    """

    def __init__(
        self,
        problem: Problem,
        actions: Iterable[Action],
        oracle: Oracle,
        pace: Pace | None = None,
        *,
        admission: str = "rank",
        admitter: Admitter | None = None,
        left_out: frozenset[str] = frozenset(),
        between_attempts: Callable[[Outcome], None] | None = None,
        by_board: bool = False,
    ) -> None:
        self.problem = problem
        self.actions = tuple(actions)
        self.admitter = admitter
        self.left_out = left_out
        self.context = Context(problem, oracle, pace, admission, between_attempts, by_board=by_board)
        self.state = self.context.state
        self.outcome = self.context.outcome
        self._late: list[tuple[Action, list[int]]] = []

    def run(self) -> Outcome:
        """Run all actions. Gangs without an attempt in an action that gave way get it at the end, if time is left.

        Raises
        ------
        GangError
            An unexpected error during the attempt of a gang, or in what followed from it.
        """
        times = self.context.times
        try:
            self._run()
        except GangError:
            raise
        except Exception as error:
            if times.gang is None:
                raise
            raise GangError(self.problem.gangs[times.gang].gang.key, error) from error
        finally:
            times.end()
        return self.outcome

    def _run(self) -> None:
        candidates, is_served = self._ready(), False
        for number, action in enumerate(self.actions):
            if action is Action.STALE:
                self._resume()
            self.context.start(len(self.actions) - number, may_yield=action in _RESUMED)
            if self.context.is_over() and action is not Action.STALE:
                self.context.stop(action, candidates)
            elif action is Action.ALLOCATE:
                Allocate(self.context, self.admitter).run(candidates)
            elif action is Action.STALE:
                evict_stale_gangs(self.context)
            elif not is_served:
                # Where none waits none will: pods leave only where some gang asks.
                is_served = not any(self.context.gang_units[gang].waits() for gang in candidates)
                self._disrupt(action, [] if is_served else candidates)
        self._resume()

    def _ready(self) -> list[int]:
        """Gangs with pods that may be placed. Those that are not ready are refused in all actions."""
        ready: list[int] = []
        columns = self.problem.gang_columns
        is_ready = columns.is_ready.tolist()
        for index in range(len(self.problem.gangs)) if self.left_out else columns.waiting:
            if is_ready[index] and not self.left_out:
                ready.append(index)
                continue
            gang = self.problem.gangs[index]
            refusal = not_ready(self.problem, gang, self.context.gang_units[gang.index]) if gang.waits else None
            if self.left_out and gang.gang.key in self.left_out:
                refusal = LEFT_OUT
            if refusal is None and not gang.pending:
                continue
            if refusal is None:
                ready.append(gang.index)
            else:
                for action in self.actions:
                    self.outcome.refuse(gang.index, action, refusal)
        return ready

    def _disrupt(self, action: Action, candidates: list[int]) -> None:
        late = disrupt(self.context, action, candidates)
        if late is not None:
            self._late.append((action, late))

    def _resume(self) -> None:
        """Go on with actions that gave way, for all of the time that is left."""
        late, self._late = self._late, []
        for action, gangs in late:
            self.context.start(1)
            if not self.context.is_over():
                self._disrupt(action, [gang for gang in gangs if self.context.gang_units[gang].waits()])
            else:
                self._late.append((action, gangs))
        for action, gangs in self._late:
            self.context.stop(action, gangs)
        self._late = []
