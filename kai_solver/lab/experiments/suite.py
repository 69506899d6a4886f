"""Many runs: what is to be run, several processes, progress, and an end when asked."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from pathlib import Path

from kai_solver.errors import InputError
from kai_solver.lab.experiments.baselines import BASELINES, run_baseline
from kai_solver.lab.experiments.report import Run, RunSpec, report
from kai_solver.lab.experiments.rows import FailedRun
from kai_solver.lab.experiments.trace import load_trace
from kai_solver.lab.experiments.verify import verify
from kai_solver.lab.experiments.windows import run_windows
from kai_solver.lab.runs.memory import Meter
from kai_solver.lab.runs.processes import Processes

OURS = "ours"
POLICIES = (OURS, *BASELINES)

Stop = Callable[[], bool]
Progress = Callable[[RunSpec, float], None]
"""Told the run and which part of its arrivals, 0 to 1, is decided."""


def plan_runs(
    traces: Sequence[str], seeds: Sequence[int], policies: Sequence[str], windows: Sequence[int], moves: Sequence[float]
) -> list[RunSpec]:
    """Every run that is asked for; the baselines decide pod by pod and move none, so they run once a seed."""
    return [
        RunSpec(trace, seed, policy, window, share)
        for trace in traces
        for seed in seeds
        for policy in policies
        for window, share in ([(1, 0.0)] if policy in BASELINES else [(w, m) for w in windows for m in moves])
    ]


def check_folder(folder: Path, specs: Iterable[RunSpec]) -> None:
    """Read every trace once, so that a broken or missing file is told before hours of work.

    Raises
    ------
    InputError
        The files do not make the traces that ``specs`` name.
    """
    if not folder.is_dir():
        raise InputError("is not a folder", file=str(folder), cure="Name the folder with the files of the openb trace")
    for name, seed in sorted({(spec.trace, spec.seed) for spec in specs}):
        load_trace(folder, name, seed)


def run_suite(
    folder: Path,
    specs: Sequence[RunSpec],
    *,
    jobs: int = 1,
    progress: Progress = lambda _spec, _part: None,
    should_stop: Stop = lambda: False,
) -> Iterator[Run | FailedRun]:
    """Yield runs as they end, however they do; after ``should_stop`` the rest is left out."""
    if jobs == 1:
        yield from _one_by_one(folder, specs, progress, should_stop)
    else:
        yield from _side_by_side(folder, specs, jobs, progress, should_stop)


def run_one(folder: Path, spec: RunSpec, progress: Progress, should_stop: Stop) -> Run | None:
    """Run one spec and verify its end; None where it was stopped."""
    with Meter() as meter:
        run = _run(folder, spec, progress, should_stop)
    return None if run is None else replace(run, spent=meter.spent)


def _run(folder: Path, spec: RunSpec, progress: Progress, should_stop: Stop) -> Run | None:
    start_s = time.monotonic()
    trace = load_trace(folder, spec.trace, spec.seed)
    read_s = time.monotonic() - start_s

    def tell(decided: int) -> bool:
        progress(spec, decided / max(len(trace.arrivals), 1))
        return should_stop()

    if spec.policy == OURS:
        record = run_windows(trace, spec.window, spec.moves, tell)
    else:
        record = run_baseline(trace, spec.policy, tell)
    if record is None:
        return None
    verify(trace, record)
    return replace(report(trace, spec, record), read_s=read_s)


def _one_by_one(
    folder: Path, specs: Sequence[RunSpec], progress: Progress, should_stop: Stop
) -> Iterator[Run | FailedRun]:
    for spec in specs:
        if should_stop():
            return
        try:
            run: Run | FailedRun | None = run_one(folder, spec, progress, should_stop)
        except Exception as error:  # whatever it does, the other runs go on
            run = FailedRun(spec, f"{type(error).__name__}: {error}")
        if run is not None:
            yield run


def _side_by_side(
    folder: Path, specs: Sequence[RunSpec], jobs: int, progress: Progress, should_stop: Stop
) -> Iterator[Run | FailedRun]:
    """Processes of their own; progress is told when a run ends."""
    with Processes(jobs) as pool:
        asked = {pool.submit(run_quietly, folder, spec): spec for spec in specs}
        waiting: set[Future[Run | None]] = set(asked)
        while waiting and not should_stop():
            ended, waiting = wait(waiting, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            for future in ended:
                try:
                    run: Run | FailedRun | None = future.result()
                except Exception as error:  # its process died, or the run failed in it
                    run = FailedRun(asked[future], f"{type(error).__name__}: {error}")
                if run is not None:
                    progress(run.spec, 1.0)
                    yield run
        if waiting:
            pool.end()


def run_quietly(folder: Path, spec: RunSpec) -> Run | None:
    """Run one spec in a process of its own."""
    return run_one(folder, spec, lambda _spec, _part: None, lambda: False)


_LOOK_S = 0.2
