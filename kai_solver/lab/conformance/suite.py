"""Run a folder of cases, in parallel where asked."""

import atexit
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from kai_solver.errors import InputError, KaiSolverError
from kai_solver.instances_io import load_instance
from kai_solver.lab.conformance.casefile import Statement, read_case
from kai_solver.lab.conformance.runner import Decide, run_case
from kai_solver.lab.conformance.verdict import Verdict, judge
from kai_solver.lab.runs.processes import Processes

Decider = Callable[[], AbstractContextManager[Decide]]
"""Opens whatever makes plans; must be picklable when cases run in several processes."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case: its path below the folder, its name, the verdict, how long it took, and what it says of itself.

    ``is_unreadable``: its file cannot be used.
    """

    path: str
    name: str
    verdict: Verdict
    seconds: float = 0.0
    statement: Statement | None = None
    is_unreadable: bool = False

    @property
    def needs_solver(self) -> bool:
        """True where the case says that a model without a solver may come out different."""
        return self.statement is not None and self.statement.needs_solver


def totals(results: Iterable[CaseResult]) -> dict[str, int]:
    """How many cases came out how; all three kinds are present."""
    counts = Counter(result.verdict.kind for result in results)
    return {kind: counts.get(kind, 0) for kind in ("as expected", "better", "different")}


def run_suite(paths: list[Path], decider: Decider, *, root: Path, processes: int = 1) -> Iterator[CaseResult]:
    """Run ``paths``, in order of ``paths``; one decider a process.

    A case that cannot be read, and one in which the engine fails, is *different* with the error as its reason.
    """
    names = [path.relative_to(root).as_posix() if root.is_dir() else path.name for path in paths]
    if processes <= 1 or len(paths) < 2:
        with decider() as decide:
            for path, name in zip(paths, names, strict=True):
                yield run_file(path, name, decide)
        return
    with Processes(processes, _open, (decider,)) as pool:
        # Not `pool.map`: it cancels what waits, and Python 3.11 prints a traceback of that when processes are ended.
        results = [pool.submit(_run_in_worker, path, name) for path, name in zip(paths, names, strict=True)]
        for result in results:
            yield result.result()


def run_file(path: Path, name: str, decide: Decide) -> CaseResult:
    """Run and judge one case file."""
    start = time.monotonic()
    title, statement, is_unreadable = "", None, False
    try:
        case = read_case(path)
        title, statement = case.name, case.statement
        outcome = run_case(load_instance(path).snapshot, case.run, decide, case.lasting)
        verdict = judge(case, outcome)
    except KaiSolverError as error:
        is_unreadable = isinstance(error, InputError)
        verdict = Verdict("different", str(error) if is_unreadable else f"{type(error).__name__}: {error}")
    return CaseResult(name, title, verdict, time.monotonic() - start, statement, is_unreadable)


_decide: list[Decide] = []
"""The decider of this worker process; lives as long as the process does."""


def _open(decider: Decider) -> None:
    stack = ExitStack()
    atexit.register(stack.close)
    _decide.append(stack.enter_context(decider()))


def _run_in_worker(path: Path, name: str) -> CaseResult:
    return run_file(path, name, _decide[-1])
