"""`SolverChild`: CP-SAT in a process of its own, under a deadline that holds whatever that process does.

Presolve can overrun its time limit by far and OR-tools 9.15 has known crashes, so the parent keeps the best solution so
far and the deadline. It asks, listens, asks to stop, and at the deadline plus a short grace kills. What comes
back is checked against the model before it is believed.
"""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from kai_solver.errors import SolverError
from kai_solver.model.rows import Ints
from kai_solver.model.spec import ModelSpec, SpecAnswer, SpecStatus
from kai_solver.prices import MoreRow, Programme, Solved
from kai_solver.search import worker
from kai_solver.search.channel import Channel
from kai_solver.search.parameters import SolverParameters
from kai_solver.search.solver_log import AskedModel, LogReader
from kai_solver.search.worker import Frame, encode_frame

OnIncumbent = Callable[[Ints, int], None]
"""Called with a checked solution and its objective, each better than the one before."""
OnBound = Callable[[int], None]
"""Called with a bound, each better than the one before."""

WORKER_COMMAND = (sys.executable, "-P", worker.__file__)
"""The child as a script: nothing of kai-solver is imported there, and nothing beside the script is importable."""

_TICK_S = 0.02
_LONGEST_WAIT_S = 2 * _TICK_S
_STOP_PATIENCE_S = 0.5
_ROUNDING = 1e-6


class SolverChild:
    """A long-lived solver process, started when needed, killed when it must be, started again the next time.

    One question at a time; not to be shared between threads. Use as a context manager, or `close` it.

    Measured on 2026-11-21 (OR-tools 9.15, 2 cores): from a cold start to the first answer 0.10 to 0.19 s, 47 MiB
    resident; then 3 ms for a trivial model. For 100,000 Booleans in 900 rows of 300,000 terms, 0.15 s to convert and
    1.7 s until CP-SAT has its first solution (the hint); 460 MiB at the peak.

    Parameters
    ----------
    command
        The child's argument vector; tests give children that misbehave.
    grace_s
        Time after the deadline in which the child may still hand in its answer; pauses of the whole machine apart.
    memory_mib
        Resident memory at which the child is killed; None for no limit.
    start_s
        A child that is not ready this long after its start is killed. Up to then it outlives deadlines.
    clock
        Monotonic seconds; deadlines are read on it.
    reads_log
        Whether CP-SAT writes its log and it is read, for `found_by` and `take_models`.
    """

    def __init__(
        self,
        command: Sequence[str] = WORKER_COMMAND,
        *,
        grace_s: float = 0.15,
        memory_mib: float | None = 4096,
        start_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        reads_log: bool = False,
    ) -> None:
        self._reads_log = reads_log
        self._log: LogReader | None = None
        self._models: list[AskedModel] = []
        self._command = tuple(command)
        self._grace_s = grace_s
        self._memory_mib = math.inf if memory_mib is None else memory_mib
        self._start_s = start_s
        self._clock = clock
        self._channel: Channel | None = None
        self._killed: list[Channel] = []
        self._ready = False
        self._started_s = 0.0
        self._question = 0
        self._peak_mib = 0.0
        self._ortools = ""
        self._phases_s: dict[str, float] = {}
        self._pricing: _Pricing | None = None
        self._standing: Programme | None = None
        """The programme with which the child can go on: it has answered it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def peak_rss_mib(self) -> float:
        """Most memory that any child of this object had resident, MiB."""
        if self._channel is not None:
            self._peak_mib = max(self._peak_mib, self._channel.peak_mib())
        return self._peak_mib

    @property
    def pid(self) -> int | None:
        """Process id of the child; None where none was started, or the last one was killed."""
        return None if self._channel is None else self._channel.pid

    @property
    def ortools_version(self) -> str:
        """Version of OR-tools in the child; empty until one was ready."""
        return self._ortools

    def take_phases(self) -> dict[str, float]:
        """Seconds since this was last asked for, over all questions: from asking one to an event in it.

        ``presolve`` to the search's first word (the model is converted and presolved by then), ``first`` and ``best``
        to its first and best solution, ``proof`` to its end where that was a proof. Without what did not happen.
        """
        taken, self._phases_s = self._phases_s, {}
        return taken

    def take_models(self) -> list[AskedModel]:
        """Models that CP-SAT was asked about since this was last asked for; empty where its log is not read."""
        taken, self._models = self._models, []
        return taken

    @property
    def found_by(self) -> str:
        """Subsolver with the newest solution or bound of the question that is being asked; empty between questions."""
        return "" if self._log is None else self._log.found_by

    def warm(self) -> None:
        """Start the child ahead of the first question and return at once; a failure shows in that question."""
        with contextlib.suppress(SolverError):
            self._running()

    def wait(self, limit_s: float) -> bool:
        """Start the child and wait until it can be asked; False where it is not ready within ``limit_s`` seconds."""
        with contextlib.suppress(SolverError):
            return self._await_ready(self._running(), self._clock() + limit_s, lambda: False)
        return False

    def solve(
        self,
        spec: ModelSpec,
        parameters: SolverParameters,
        deadline_s: float,
        *,
        on_incumbent: OnIncumbent | None = None,
        on_bound: OnBound | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> SpecAnswer:
        """Ask for the minimum of ``spec`` until ``deadline_s`` on this object's clock (infinity: no deadline).

        Never raises for what the child does: crash, hang or nonsense end up in `SpecAnswer.error`, beside the best
        solution that was checked before.

        Raises
        ------
        InternalError
            If the model refers to variables that it does not have.
        """
        columns = spec.wire()
        self._question += 1
        answer = _Answer(spec, self._question, self._clock, on_incumbent, on_bound)
        self._log = answer.log = LogReader() if self._reads_log and parameters.engine == "cp-sat" else None
        try:
            self._converse(answer, columns, parameters, deadline_s, should_stop or (lambda: False))
        except SolverError as error:
            answer.error = str(error)
            self._drop()
        except BaseException:  # Ctrl-C, or a caller's callback: the conversation cannot be taken up again
            self._drop()
            raise
        finally:
            self._log = None
            if answer.log is not None and answer.log.has_begun:
                self._models.append(answer.log.asked_model(*spec.size, self._clock() - answer.asked_s))
        for phase, seconds in answer.phases_s.items():
            self._phases_s[phase] = self._phases_s.get(phase, 0.0) + seconds
        return answer.result()

    def ask_prices(self, programme: Programme, at: Mapping[str, int], deadline_s: float) -> None:
        """Ask for a linear programme and return at once; `prices` has the answer. An earlier question is forgotten.

        ``at``: as of `Programme.question`. The child needs until ``deadline_s`` at most. The next question to `solve`
        waits for the answer first: behind it in the child it would be late, and the child be killed for it.
        """
        self._standing = None
        self._ask_programme(programme, "programme", *programme.wire(at), deadline_s=deadline_s)

    def ask_prices_with(self, rows: Sequence[MoreRow], programme: Programme, deadline_s: float) -> None:
        """As `ask_prices`, of ``programme`` with more ``rows``.

        The child goes on where it ended if this programme was the last one that it was asked for. Then `prices` has no
        duals of these rows.
        """
        with contextlib.suppress(SolverError):
            self._running()  # One that has ended is noticed here.
        if self._standing is programme:
            fields = {"rows": [(list(columns), list(amounts), most) for columns, amounts, most in rows]}
            self._ask_programme(programme, "rows", fields, {}, deadline_s=deadline_s)
        else:
            self.ask_prices(programme.with_rows(rows), {}, deadline_s)

    def _ask_programme(
        self,
        programme: Programme,
        kind: str,
        fields: Mapping[str, Any],
        columns: Mapping[str, bytes],
        *,
        deadline_s: float,
    ) -> None:
        self._question += 1
        self._pricing = pricing = _Pricing(programme, self._question)
        try:
            channel = self._running()
            if not self._await_ready(channel, deadline_s, lambda: False):
                pricing.is_finished = True
                return
            mine = {"id": self._question, "time_limit_s": deadline_s - self._clock()}
            channel.send(encode_frame(kind, {**fields, **mine}, columns))
            while not channel.is_sent and self._clock() < deadline_s:
                for frame in channel.pump(_TICK_S):
                    pricing.take(frame)
        except SolverError as error:
            pricing.fail(str(error))
            self._drop()

    def prices(self, deadline_s: float, should_stop: Callable[[], bool] | None = None) -> tuple[list[Solved], str]:
        """The answer to `ask_prices`, waited for until ``deadline_s``, and what failed; nothing where there is none.

        What has come already is taken whatever the time.
        """
        pricing = self._pricing
        if pricing is None:
            return [], ""
        try:
            self._await_prices(deadline_s, should_stop or (lambda: False))
        except SolverError as error:
            pricing.fail(str(error))
            self._drop()
        self._pricing = None
        if pricing.found:
            self._standing = self._standing or pricing.programme
        return pricing.found, pricing.error

    def _await_prices(self, deadline_s: float, should_stop: Callable[[], bool]) -> None:
        """Take the answer to `ask_prices` where there is one; wait for it until ``deadline_s``."""
        is_late = False
        while self._pricing is not None and not self._pricing.is_finished and not is_late:
            is_late = self._clock() >= deadline_s or should_stop()
            channel = self._running()
            self._watch_memory(channel)
            for frame in channel.pump(0.0 if is_late else min(_TICK_S, max(0.0, deadline_s - self._clock()))):
                self._pricing.take(frame)

    def close(self) -> None:
        """End the child and give back all that it holds."""
        if self._channel is not None:
            self._peak_mib = self.peak_rss_mib
            self._channel.end(patience_s=0.2)
            self._channel, self._ready, self._standing = None, False, None
        for channel in self._killed:
            channel.end(patience_s=5.0)
        self._killed.clear()

    def _converse(
        self,
        answer: "_Answer",
        columns: Mapping[str, bytes],
        parameters: SolverParameters,
        deadline_s: float,
        should_stop: Callable[[], bool],
    ) -> None:
        channel = self._running()
        if not self._await_ready(channel, deadline_s, should_stop):
            if not self._ready and not should_stop():
                answer.error = "the solver process was not ready by the deadline"
            return
        self._await_prices(deadline_s, should_stop)
        if self._pricing is not None and not self._pricing.is_finished:
            return
        limit_s = deadline_s - self._clock()
        fields = {
            "id": answer.question,
            "constant": answer.constant,
            "engine": parameters.engine,
            "parameters": parameters.as_mapping(),
            "time_limit_s": limit_s,
            "log": answer.log is not None,
        }
        channel.send(encode_frame("solve", fields, columns))
        patience_s, seen_s, stop_sent = math.inf, self._clock(), False
        while not answer.finished:
            now = self._clock()
            # No wait of ours counts for more than it asked for: a machine that stood still held up the child as well.
            patience_s, seen_s = patience_s - min(now - seen_s, _LONGEST_WAIT_S), now
            if patience_s <= 0:
                raise SolverError("the solver process did not answer by the deadline and was killed")
            if not stop_sent and (now >= deadline_s or should_stop()):
                if now < deadline_s and parameters.engine == "scip":
                    self._drop()  # it does not hear that it should stop: ended without a word, and that is no fault
                    return
                channel.send(encode_frame("stop", {"id": answer.question}))
                until_s = max(deadline_s - now, 0.0) + self._grace_s
                patience_s, stop_sent = min(until_s, max(self._grace_s, _STOP_PATIENCE_S)), True
            self._watch_memory(channel)
            for frame in channel.pump(min(_TICK_S, patience_s)):
                answer.take(frame)

    def _running(self) -> Channel:
        if self._channel is not None and self._ready and self._channel.has_ended:
            self._drop()  # it ended between two questions, killed from outside
        if self._channel is None:
            self._bury()
            self._channel = Channel(self._command)
            self._ready, self._started_s = False, self._clock()
        return self._channel

    def _await_ready(self, channel: Channel, deadline_s: float, should_stop: Callable[[], bool]) -> bool:
        """Wait for the child's first word; False where the deadline or the caller's stop came first."""
        while True:
            now = self._clock()
            if now >= deadline_s or should_stop():
                return False
            if self._ready:
                return True
            for frame in channel.pump(min(_TICK_S, deadline_s - now)):
                if frame.kind != "ready":
                    raise SolverError(f"the solver process started with {frame.kind!r}")
                self._ready, self._ortools = True, str(frame.fields.get("ortools", ""))
            if not self._ready and now >= self._started_s + self._start_s:  # it may have been ready long ago, unheard
                raise SolverError(f"the solver process was not ready after {self._start_s:g} s")

    def _watch_memory(self, channel: Channel) -> None:
        if self._memory_mib < math.inf and channel.resident_mib() > self._memory_mib:
            raise SolverError(f"the solver process used more than {self._memory_mib:g} MiB and was killed")

    def _drop(self) -> None:
        self._standing = None
        if self._pricing is not None and not self._pricing.is_finished:
            self._pricing.fail("")  # What it was killed for is said where that happened.
        if self._channel is not None:
            self._peak_mib = self.peak_rss_mib
            self._channel.kill()
            self._killed.append(self._channel)
            self._channel, self._ready = None, False

    def _bury(self) -> None:
        """Clean up after the killed that are gone; one with much memory takes its time, which is not ours."""
        for channel in [channel for channel in self._killed if channel.has_ended]:
            channel.end()
            self._killed.remove(channel)


class _Pricing:
    """A linear programme that the child was asked for, and its answer."""

    def __init__(self, programme: Programme, question: int) -> None:
        self.found: list[Solved] = []
        self.error = ""
        self.is_finished = False
        self.programme = programme
        self._question = question

    def take(self, frame: Frame) -> None:
        """Use a frame; those of other questions are ignored."""
        if self.is_finished or frame.fields.get("id") != self._question:
            return
        if frame.kind == "error":
            self.fail(f"the solver process failed: {frame.fields['text']}")
            return
        try:
            self.found = self.programme.wired(frame.fields, frame.blobs)
        except (KeyError, TypeError, ValueError) as error:
            raise SolverError(f"the solver process answers nonsense: {error!r}") from error
        self.is_finished = True

    def fail(self, error: str) -> None:
        """Nothing will come any more; ``error``: why, in words."""
        self.found, self.error, self.is_finished = [], error, True


class _Answer:
    """What one question has brought so far; refuses what contradicts the model or itself."""

    def __init__(
        self,
        spec: ModelSpec,
        question: int,
        clock: Callable[[], float],
        on_incumbent: OnIncumbent | None,
        on_bound: OnBound | None,
    ) -> None:
        self.question = question
        self.constant = spec.constant
        self.finished = False
        self.error = ""
        self.phases_s: dict[str, float] = {}
        self.asked_s = clock()
        self.log: LogReader | None = None
        self._spec = spec
        self._clock = clock
        self._on_incumbent = on_incumbent
        self._on_bound = on_bound
        self._values: Ints | None = None
        self._objective: int | None = None
        self._bound = spec.trivial_bound()
        self._infeasible = False
        self._incumbents = 0
        self._first_s: float | None = None
        self._build_s = self._deterministic_s = 0.0

    def take(self, frame: Frame) -> None:
        """Use a frame; those of earlier questions are ignored."""
        try:
            if frame.fields["id"] == self.question:
                self._take(frame)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise SolverError(f"the solver process answers nonsense: {error!r}") from error

    def result(self) -> SpecAnswer:
        """Return what is known, also where the conversation broke off."""
        status: SpecStatus = "infeasible" if self._infeasible else "unknown"
        if self._objective is not None:
            status = "optimal" if self._objective == self._bound else "feasible"
        return SpecAnswer(
            status=status,
            values=self._values,
            objective=self._objective,
            bound=None if self._infeasible else self._bound,
            wall_s=self._clock() - self.asked_s,
            build_s=self._build_s,
            first_s=self._first_s,
            deterministic_s=self._deterministic_s,
            incumbents=self._incumbents,
            error=self.error,
        )

    def _take(self, frame: Frame) -> None:
        if frame.kind == "log" and self.log is not None:
            self.log.feed(str(frame.fields["text"]), float(frame.fields["at_s"]))
            return
        self.phases_s.setdefault("presolve", self._clock() - self.asked_s)
        if frame.kind == "incumbent":
            self._incumbents += 1
            self._solution(frame.blobs["values"])
        elif frame.kind == "bound":
            self._raise_bound(math.ceil(frame.fields["bound"] - _ROUNDING))
        elif frame.kind == "answer":
            self._final(frame)
        elif frame.kind == "error":
            raise SolverError(f"the solver process failed: {frame.fields['text']}")
        else:
            raise SolverError(f"the solver process answers nonsense: a frame of kind {frame.kind!r}")

    def _solution(self, blob: bytes) -> None:
        values = np.frombuffer(blob, np.int64)
        violation = self._spec.check(values)
        if violation is not None:
            raise SolverError(f"the solver process answers nonsense: {violation.text}")
        objective = self._spec.objective_of(values)
        if objective < self._bound:
            raise SolverError(f"the solver process answers nonsense: {objective} is below its bound {self._bound}")
        if self._first_s is None:
            self._first_s = self._clock() - self.asked_s
        if self._objective is None or objective < self._objective:
            self._values, self._objective = values, objective
            self.phases_s["best"] = self._clock() - self.asked_s
            self.phases_s.setdefault("first", self.phases_s["best"])
            if self._on_incumbent is not None:
                self._on_incumbent(values, objective)

    def _raise_bound(self, bound: int) -> None:
        if self._objective is not None and bound > self._objective:
            raise SolverError(f"the solver process answers nonsense: bound {bound} above {self._objective}")
        if bound > self._bound:
            self._bound = bound
            if self._on_bound is not None:
                self._on_bound(bound)

    def _final(self, frame: Frame) -> None:
        self._build_s = float(frame.fields["build_s"])
        self._deterministic_s = float(frame.fields["deterministic_s"])
        status = frame.fields["status"]
        if "values" in frame.blobs:
            self._solution(frame.blobs["values"])
        if status in ("OPTIMAL", "FEASIBLE"):
            if self._objective is None:
                raise SolverError(f"the solver process answers nonsense: {status} without values")
            self._raise_bound(int(frame.fields["bound"]))
        elif status == "INFEASIBLE":
            self._refute_infeasible()
            self._infeasible = True
        self.finished = True
        if self._infeasible or self._objective == self._bound:
            self.phases_s["proof"] = self._clock() - self.asked_s

    def _refute_infeasible(self) -> None:
        hint = self._spec.complete_hint
        if self._values is not None or (hint is not None and self._spec.check(hint) is None):
            raise SolverError("the solver process answers nonsense: infeasible, but a solution is known")
