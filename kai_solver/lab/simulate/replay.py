"""The replay: events and cycles in turn, until nothing more can happen or the time is over.

Cycles come every period. One is computed only where its answer can differ from doing nothing: after something has
happened, after a cycle that did something, and when a rule that looks at the clock falls due; and never while nothing
waits. What is decided at a cycle happens at that moment.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from kai_solver.domain import Snapshot
from kai_solver.errors import InternalError, KaiSolverError
from kai_solver.lab.simulate.jobs import LiveJob, State
from kai_solver.lab.simulate.policies import Decider
from kai_solver.lab.simulate.records import Recorder, Records
from kai_solver.lab.simulate.scenario import Scenario
from kai_solver.lab.simulate.stays import StayRow
from kai_solver.lab.simulate.world import World

_GRAIN = 1e-6
"""Of rounding, in periods: a moment this soon after a cycle belongs to it."""
_TELL_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a replay is, for people: simulated and elapsed seconds, and jobs by state."""

    policy: str
    time_s: float
    end_s: float | None
    elapsed_s: float
    cycles: int
    done: int
    running: int
    pending: int
    future: int


class ReplayError(InternalError):
    """A cycle failed, or planned what cannot be. ``snapshot``: what it had to decide."""

    def __init__(self, text: str, snapshot: Snapshot) -> None:
        super().__init__(text)
        self.snapshot = snapshot


@dataclass(frozen=True, slots=True)
class Result:
    """A replay, whole or interrupted: ``end_s`` is where it ended, ``cycles`` counts those not computed too."""

    scenario: Scenario
    policy: str
    end_s: float
    cycles: int
    jobs: tuple[LiveJob, ...]
    records: Records
    stays: tuple[StayRow, ...]
    up_gpu_s: float
    held_gpu_s: float
    interrupted: bool
    elapsed_s: float


def replay(
    scenario: Scenario,
    policy: Decider,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[Standing], None] | None = None,
) -> Result:
    """Replay ``scenario`` under ``policy``.

    Parameters
    ----------
    should_stop
        Asked before every cycle; what there is by then is the result.
    progress
        Told twice a second.

    Raises
    ------
    ReplayError
        The policy failed, or bound a pod where it cannot be.
    """
    return _Replay(scenario, policy, should_stop, progress).run()


class _Replay:
    def __init__(
        self,
        scenario: Scenario,
        policy: Decider,
        should_stop: Callable[[], bool],
        progress: Callable[[Standing], None] | None,
    ) -> None:
        self.scenario = scenario
        self.policy = policy
        self.should_stop = should_stop
        self.progress = progress
        self.world = World(scenario)
        self.recorder = Recorder(scenario)
        self.began_s = time.monotonic()
        self.told_s = -math.inf
        self.cycle = -1

    def run(self) -> Result:
        """Go from cycle to cycle, leaping over those that would decide nothing."""
        interrupted, restless = False, True  # The first cycle is always sampled.
        while not interrupted and (cycle := self._next(restless)) is not None:
            self.cycle = cycle
            happened = self.world.advance(self._at(cycle))
            restless = self._decide(happened > 0 or restless)
            self._tell()
            interrupted = self.should_stop()
        end_s = self._end_s(interrupted)
        return self._result(end_s, interrupted)

    def _at(self, cycle: int) -> float:
        return cycle * self.scenario.period_s

    def _next(self, restless: bool) -> int | None:
        """Number of the next cycle that may decide something; None where there is none before the end."""
        moments = [self.world.next_event_s(), self.world.next_rule_s()]
        cycles = [self._cycle_at(at_s) for at_s in moments if at_s is not None]
        if restless:
            cycles.append(self.cycle + 1)
        if not cycles:
            return None
        cycle = max(min(cycles), self.cycle + 1)
        duration_s = self.scenario.duration_s
        return cycle if duration_s is None or self._at(cycle) <= duration_s else None

    def _cycle_at(self, at_s: float) -> int:
        """The first cycle at or after a moment."""
        return math.ceil(at_s / self.scenario.period_s - _GRAIN)

    def _decide(self, news: bool) -> bool:
        """One cycle; whether the next one may do more without anything else happening."""
        world, did = self.world, None
        pending = sum(job.waits for job in world.alive.values())
        if not world.is_idle():
            snapshot = world.snapshot()
            start_s = time.perf_counter()
            try:
                plan = self.policy.decide(snapshot)
                self.recorder.decided(self.cycle, time.perf_counter() - start_s)
                did = world.apply(plan)
            except Exception as error:  # whatever it is, this cycle can be decided again
                said = str(error) if isinstance(error, KaiSolverError) else f"{type(error).__name__}: {error}"
                raise ReplayError(f"cycle {self.cycle:,} of {self.policy.name}: {said}", snapshot) from error
            news = news or did.changed
        if news or did is not None:
            jobs = list(world.alive.values())
            self.recorder.sample(self.cycle, self._at(self.cycle), world.books, jobs, did, pending)
        return did is not None and did.changed

    def _end_s(self, interrupted: bool) -> float:
        """Where it ends; with a duration the last events before it still happen."""
        world, duration_s = self.world, self.scenario.duration_s
        if duration_s is not None and not interrupted:
            world.advance(duration_s)
        world.close()
        self.recorder.hold(world.now_s)
        return world.now_s

    def _result(self, end_s: float, interrupted: bool) -> Result:
        totals = self.world.totals
        return Result(
            scenario=self.scenario,
            policy=self.policy.name,
            end_s=end_s,
            cycles=math.floor(end_s / self.scenario.period_s + _GRAIN) + 1,
            jobs=tuple(self.world.jobs.values()),
            records=self.recorder.records,
            stays=tuple(self.world.stays.rows),
            up_gpu_s=totals.up,
            held_gpu_s=totals.held,
            interrupted=interrupted,
            elapsed_s=time.monotonic() - self.began_s,
        )

    def _tell(self) -> None:
        now_s = time.monotonic()
        if self.progress is None or now_s - self.told_s < _TELL_EVERY_S:
            return
        self.told_s = now_s
        counts = self.world.counts()
        self.progress(
            Standing(
                policy=self.policy.name,
                time_s=self.world.now_s,
                end_s=self.scenario.duration_s,
                elapsed_s=now_s - self.began_s,
                cycles=self.cycle + 1,
                done=counts[State.DONE],
                running=counts[State.RUNNING],
                pending=counts[State.PENDING] + counts[State.PARTIAL],
                future=counts[State.FUTURE],
            )
        )
