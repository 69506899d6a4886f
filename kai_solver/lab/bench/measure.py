"""One instance, one model, some seeds: measured in a process of its own, so that memory and caches are its own."""

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeVar

from kai_solver.domain import Gang, PodStatus, Snapshot, SolverModel
from kai_solver.engine import Engine
from kai_solver.errors import InputError, KaiSolverError, SolverError
from kai_solver.instances_io import Loaded
from kai_solver.lab.bench.calibration import calibration_s
from kai_solver.lab.bench.linked import Pair, in_pairs, with_links
from kai_solver.lab.bench.peers import Peer, peers_beside, reached_by, shortfall
from kai_solver.lab.bench.steady import next_moment
from kai_solver.lab.generate import kai_snapshot
from kai_solver.lab.runs import Generated, Improvement, InstanceFile, Outcome, RunRecord, Task, task_of
from kai_solver.lab.runs.cpuclock import CpuClock
from kai_solver.lab.runs.instance import read_instance
from kai_solver.lab.runs.memory import PeakMemory, family_cpu_s
from kai_solver.lab.runs.processes import Processes
from kai_solver.lab.runs.replaying import bundle_of, with_replay
from kai_solver.lab.runs.running import blank, decide, engine_for, model_for
from kai_solver.lab.runs.task import ClockKind
from kai_solver.modelfiles import load_model

T = TypeVar("T")
COMMAND = "bench"

FIRST_CYCLE, STEADY, PROCESS = "first_cycle_s", "steady_s", "process_s"
LOAD_MEMORY, CALIBRATION = "load_mib", "calibration_s"
PLACED, PARTLY, PENDING_GPUS, UNKNOWN_GPUS = "placed_gangs", "partly_placed_gangs", "pending_gpus", "unknown_gpus"
PHASE, PLAIN, LINKED = "phase_s/", "plain_cpu_s/", "linked_cpu_s/"
"""Names of measures of a run, or how they begin; docs/studies.md says what they are."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be measured.

    Attributes
    ----------
    seeds
        Of the solver: a measured cycle each.
    budget_s
        None: the model's.
    warm_up
        One unmeasured cycle first.
    cold
        Time the whole process as well.
    as_snapshot
        Write the instance as a KAI snapshot first, and measure what reading that takes.
    steady
        So many cycles more, each on what the plan before made of the cluster.
    product
        The same cluster as nodes of that product, cycle by cycle in turn; empty: not.
    clock
        ``cpu``: budgets and times are CPU time, see `CpuClock`.
    """

    source: InstanceFile | Generated
    model: str
    seeds: tuple[int, ...]
    budget_s: float | None = None
    warm_up: bool = True
    cold: bool = False
    as_snapshot: bool = False
    steady: int = 0
    product: str = ""
    clock: ClockKind = "wall"

    @property
    def file(self) -> Path | None:
        """The instance's file, where it is measured as it is."""
        return self.source.path if isinstance(self.source, InstanceFile) and self.source.real is None else None

    def tasks(self, model: SolverModel) -> list[Task]:
        """A run a seed."""
        return [task_of(COMMAND, self.source, model, seed, self.budget_s, clock=self.clock) for seed in self.seeds]


@dataclass(frozen=True, slots=True)
class Run:
    """One measured cycle, or one that failed.

    ``solve_s`` of its row is the time from the snapshot in memory to the checked plan, engine warm; ``cpu_s`` and
    ``wall_s`` are of this cycle, and ``peak_mib`` is of all cycles of its job with their children.

    Attributes
    ----------
    outcome
        Its row with the measures above; its trajectory; where it failed, what replays it.
    peers
        Recorded outcomes of other schedulers.
    worse_than
        Those that did better, in words.
    """

    outcome: Outcome
    peers: tuple[Peer, ...] = ()
    worse_than: tuple[str, ...] = ()

    @property
    def record(self) -> RunRecord:
        """Its row."""
        return self.outcome.record

    @property
    def improvements(self) -> tuple[Improvement, ...]:
        """Its trajectory."""
        return self.outcome.improvements

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """CPU seconds of cycles without and with links, in turn."""
        measures = self.record.measures
        count = sum(name.startswith(PLAIN) for name in measures)
        return tuple((measures[f"{PLAIN}{at}"], measures[f"{LINKED}{at}"]) for at in range(count))

    def measure(self, name: str) -> float | None:
        """A measure; None where it was not taken."""
        return self.record.measures.get(name)

    def phase_s(self, name: str) -> float | None:
        """Seconds of a phase of the plan; None where it has none."""
        return self.measure(f"{PHASE}{name}")


def measure(job: Job) -> tuple[Run, ...]:
    """Measure ``job`` in a fresh process; whatever happens to a run, its row says so.

    Raises
    ------
    InputError
        The instance, a recorded outcome or the model cannot be used.
    """
    tasks = job.tasks(load_model(job.model))
    try:
        return _in_process(measure_here, job)
    except InputError:
        raise
    except BrokenProcessPool:
        error = "the process that measured it was killed: is the machine out of memory?"
    except Exception as unexpected:  # whatever a run does, the others are measured
        error = str(unexpected) if isinstance(unexpected, KaiSolverError) else repr(unexpected)
    bundles: Sequence[bytes | None] = [None] * len(tasks)
    with suppress(Exception):  # without it the command shows how to read the instance
        bundles = _in_process(_bundles, job)
    return tuple(Run(_failed(task, error, bundle)) for task, bundle in zip(tasks, bundles, strict=True))


def _in_process(do: Callable[[Job], T], job: Job) -> T:
    with Processes(1) as pool:
        return pool.submit(do, job).result()


def _bundles(job: Job) -> list[bytes]:
    loaded = read_instance(job.source)
    return [bundle_of(task, loaded) for task in job.tasks(load_model(job.model))]


def _failed(task: Task, error: str, bundle: bytes | None) -> Outcome:
    return with_replay(task, Outcome(blank(task, "failed", error), bundle=bundle))


def measure_here(job: Job) -> tuple[Run, ...]:
    """Measure ``job`` in this process; the engine is warm after one unmeasured cycle.

    Raises
    ------
    InputError
        As of `measure`.
    KaiSolverError
        A cycle or the cold process failed.
    """
    tasks = job.tasks(load_model(job.model))
    loaded, load_s, load_mib = _read_snapshot(job) if job.as_snapshot else (*_loaded(job.source), None)
    model = model_for(tasks[0], loaded)
    before_s = calibration_s()
    with PeakMemory() as memory, engine_for(tasks[0], model) as engine:
        engine.wait()
        runs = _Measurement(job, model, loaded, engine).runs(tasks)
    shared = {CALIBRATION: (before_s + calibration_s()) / 2} | ({} if load_mib is None else {LOAD_MEMORY: load_mib})
    cold = {seed: cold_s(job.file, job, seed) for seed in job.seeds if job.cold and job.file is not None}

    def completed(run: Run) -> Run:
        record = run.record
        alone = {PROCESS: cold[record.seed]} if record.seed in cold else {}
        row = replace(record, read_s=load_s, peak_mib=memory.peak_mib, measures={**record.measures, **shared, **alone})
        return replace(run, outcome=replace(run.outcome, record=row))

    return tuple(map(completed, runs))


def _loaded(source: InstanceFile | Generated) -> tuple[Loaded, float]:
    """The instance, and the seconds that it took."""
    start = time.perf_counter()
    loaded = read_instance(source)
    return loaded, time.perf_counter() - start


def _read_snapshot(job: Job) -> tuple[Loaded, float, float | None]:
    """The instance as it is read from a KAI snapshot, the seconds that took, and the most memory, MiB.

    Another process generates and writes it, so that this one holds nothing of it before.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.zip"
        with Processes(1) as pool:
            pool.submit(_write_snapshot, job, path).result()
        with PeakMemory() as memory:
            loaded, seconds = _loaded(InstanceFile(job.source.name, path))
    return loaded, seconds, memory.peak_mib


def _write_snapshot(job: Job, path: Path) -> None:
    path.write_bytes(kai_snapshot(read_instance(job.source).snapshot))


class _Measurement:
    """The cycles of one job: one to warm up, one a seed, then the steady ones."""

    def __init__(self, job: Job, model: SolverModel, loaded: Loaded, engine: Engine) -> None:
        self._job = job
        self._model = model
        self._loaded = loaded
        self._snapshot = loaded.snapshot
        self._engine = engine
        self._peers = () if job.file is None else tuple(peers_beside(job.file, loaded.snapshot))

    def runs(self, tasks: Sequence[Task]) -> list[Run]:
        """One a seed."""
        shared: dict[str, float] = {}
        if self._job.warm_up:
            warm = decide(tasks[0], self._snapshot, self._model, self._engine)
            shared[FIRST_CYCLE] = warm.record.solve_s
        found = [self._measured(task) for task in tasks]
        if self._job.steady:
            shared[STEADY] = self._steady_s(tasks[0].budget_s)
        if self._job.product:
            shared |= self._pairs(tasks[0])
        return [_with(run, shared) for run in found]

    def _measured(self, task: Task) -> Run:
        cpu_s, start_s = family_cpu_s(), time.monotonic()
        try:
            decided = decide(task, self._snapshot, self._model, self._engine)
        except KaiSolverError as error:
            return Run(_failed(task, str(error), bundle_of(task, self._loaded)))
        cpu_s, wall_s = family_cpu_s() - cpu_s, time.monotonic() - start_s
        plan = decided.plan
        ours = reached_by(self._snapshot, plan)
        unknown = {entry.gang for entry in plan.pending if entry.proof.state != "proven"}
        waiting = {gang.key: waiting_gpus(gang) for gang in self._snapshot.gangs}
        measures = {
            PLACED: len(ours.full),
            PARTLY: len(ours.partial),
            PENDING_GPUS: sum(waiting.values()),
            UNKNOWN_GPUS: sum(waiting[gang] for gang in unknown),
        }
        measures |= {f"{PHASE}{name}": seconds for name, seconds in plan.timing_s.items()}
        row = replace(decided.record, measures=measures, cpu_s=cpu_s, wall_s=wall_s)
        outcome = Outcome(row, decided.improvements)
        if outcome.record.has_failed:
            bundle = bundle_of(task, self._loaded)
            outcome = with_replay(task, replace(outcome, bundle=bundle))
        worse = tuple(text for text in (shortfall(ours, peer) for peer in self._peers) if text)
        return Run(outcome, self._peers, worse)

    def _steady_s(self, budget_s: float) -> float:
        """Cycles one after the other by the same engine, which may keep what did not change."""
        snapshot, seconds = self._snapshot, []
        plan = self._engine.cycle(snapshot, budget_s=budget_s)
        for seed in range(self._job.steady):
            snapshot = next_moment(snapshot, plan, seed)
            plan = self._engine.cycle(snapshot, budget_s=budget_s, seed=seed)
            seconds.append(plan.timing_s["decide"])
        return median(seconds)

    def _pairs(self, task: Task) -> dict[str, float]:
        clock = CpuClock()

        def cpu_s(snapshot: Snapshot) -> float:
            gc.collect()  # What the cycle before left is none of this one's.
            start_s = clock()
            decide(task, snapshot, self._model, self._engine)
            return clock() - start_s

        linked = with_links(self._snapshot, self._job.product, self._job.source.draw)
        pairs = enumerate(in_pairs(cpu_s, self._snapshot, linked))
        return {name: value for at, (plain, beside) in pairs for name, value in _pair(at, plain, beside)}


def _pair(at: int, plain: float, linked: float) -> tuple[tuple[str, float], ...]:
    return (f"{PLAIN}{at}", plain), (f"{LINKED}{at}", linked)


def _with(run: Run, measures: Mapping[str, float]) -> Run:
    record = replace(run.record, measures={**run.record.measures, **measures})
    return replace(run, outcome=replace(run.outcome, record=record))


def waiting_gpus(gang: Gang) -> float:
    """GPUs that its waiting pods ask for; parts of devices count as such, by memory as nothing."""
    return sum(
        pod.gpu.devices * pod.gpu.milli / 1000 + pod.quota_gpu_milli / 1000
        for pod in gang.pods
        if pod.status is PodStatus.PENDING
    )


def cold_s(file: Path, job: Job, seed: int) -> float:
    """Seconds of ``kai-solver solve`` from an empty process to the printed plan.

    Raises
    ------
    SolverError
        It failed.
    """
    command = [
        sys.executable,
        "-m",
        "kai_solver",
        "solve",
        str(file),
        "--model",
        job.model,
        "--json",
        "--quiet",
    ]
    command += ["--seed", str(seed), *_budget(job.budget_s)]
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SolverError(f"the cold process failed: {done.stderr.decode(errors='replace').strip()[-400:]}")
    return seconds


def _budget(budget_s: float | None) -> Sequence[str]:
    return () if budget_s is None else ("--budget", f"{budget_s:g}")
