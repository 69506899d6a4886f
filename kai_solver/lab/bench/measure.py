"""One instance, one model, some seeds: measured in a process of its own, so that memory and caches are its own."""

import gc
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal

from kai_solver.domain import Gang, Plan, PodStatus, Snapshot, SolverModel, Stage
from kai_solver.engine import Engine
from kai_solver.engine.cycle import cycle
from kai_solver.errors import SolverError
from kai_solver.instances_io import Loaded, load_instance
from kai_solver.instances_io.bench_schema import GeneratorDoc, RealDoc
from kai_solver.lab.bench.calibration import calibration_s
from kai_solver.lab.bench.linked import Pair, in_pairs, with_links
from kai_solver.lab.bench.moments import Moment, Moments
from kai_solver.lab.bench.peers import Peer, peers_beside, reached_by, shortfall
from kai_solver.lab.bench.steady import next_moment
from kai_solver.lab.generate import generated, kai_snapshot, made_real
from kai_solver.lab.runs.cpuclock import CpuClock
from kai_solver.lab.runs.memory import PeakMemory, family_cpu_s
from kai_solver.modelfiles import load_model

ClockKind = Literal["wall", "cpu"]


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be measured.

    Attributes
    ----------
    instance
        File; without meaning where ``generate`` is given.
    seeds
        Of the solver: a measured cycle each.
    budget_s
        None: the model's.
    warm_up
        One unmeasured cycle first.
    cold
        Time the whole process as well.
    generate, real, as_snapshot, draw
        Specification of the instance, of what is added to it, and the seed that both are drawn with.
    steady
        So many cycles more, each on what the plan before made of the cluster.
    product
        The same cluster as nodes of that product, cycle by cycle in turn; empty: not.
    name
        What the runs call it; empty: the path.
    clock
        ``cpu``: budgets and times are CPU time, see `CpuClock`.
    """

    instance: Path
    model: str
    seeds: tuple[int, ...]
    budget_s: float | None = None
    warm_up: bool = True
    cold: bool = False
    generate: GeneratorDoc | None = None
    real: RealDoc | None = None
    as_snapshot: bool = False
    draw: int = 1
    steady: int = 0
    product: str = ""
    name: str = ""
    clock: ClockKind = "wall"


@dataclass(frozen=True, slots=True)
class Run:
    """One measured cycle.

    Attributes
    ----------
    decide_s
        From the snapshot in memory to the checked plan, engine warm.
    cold_s
        ``kai-solver solve`` as a whole process; None unless asked for.
    memory_mib
        Peak of parent and children over all seeds of the job.
    load_mib
        Peak while the instance was read; None where it was generated in memory.
    placed, partly
        Gangs that got a place for all their waiting pods, or for some.
    worse_than
        Recorded peers that did better, in words.
    budget_s, draw, nodes
        What was asked for, the seed of a generated instance, and the instance's nodes.
    first_cycle_s
        Decide time of the engine's first cycle, the unmeasured one; None without it.
    steady_s
        Median of the steady cycles, None where there were none.
    cpu_s
        CPU time of parent and children in this cycle.
    link_pairs
        CPU seconds of cycles without and with links, in turn.
    calibration_s
        What `calibration.calibration_s` took before and after the job, the mean.
    timing_s
        Phases, as the plan has them.
    moments
        By stage, when it was last improved and when proven.
    clock
        Which one the times, but for ``load_s`` and ``cold_s``, were read on.
    pending_gpus, unknown_gpus
        GPUs that waiting pods asked for before the cycle, and those of them whose gangs' answer is ``unknown``.
    """

    instance: str
    model: str
    seed: int
    load_s: float
    decide_s: float
    memory_mib: float
    placed: int
    partly: int
    evicted: int
    moved: int
    pending: int
    proven: int
    source: str
    stages: tuple[Stage, ...]
    cold_s: float | None = None
    load_mib: float | None = None
    peers: tuple[Peer, ...] = ()
    worse_than: tuple[str, ...] = ()
    budget_s: float = 0.0
    draw: int = 1
    nodes: int = 0
    first_cycle_s: float | None = None
    steady_s: float | None = None
    cpu_s: float = 0.0
    link_pairs: tuple[Pair, ...] = ()
    calibration_s: float = 1.0
    timing_s: Mapping[str, float] = field(default_factory=dict)
    moments: Mapping[str, Moment] = field(default_factory=dict)
    pending_gpus: float = 0.0
    unknown_gpus: float = 0.0
    notes: tuple[str, ...] = ()
    clock: ClockKind = "wall"


def measure(job: Job) -> tuple[Run, ...]:
    """Measure ``job`` in a fresh process.

    Raises
    ------
    InputError
        The instance, a recorded outcome or the model cannot be used.
    SolverError
        The process died, for example of too little memory.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_parent) as pool:
        try:
            return pool.submit(measure_here, job).result()
        except BrokenProcessPool as error:
            raise SolverError(f"the process that measured {job.name or job.instance} with {job.model} died") from error


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def measure_here(job: Job) -> tuple[Run, ...]:
    """Measure ``job`` in this process; the engine is warm after one unmeasured cycle."""
    model = load_model(job.model)
    loaded, load_s, load_mib = _read_snapshot(job) if job.as_snapshot else (*_loaded(job), None)
    actions = loaded.case.actions if loaded.case is not None else ()
    model = replace(model, actions=actions) if actions else model
    before_s = calibration_s()
    clock = CpuClock() if job.clock == "cpu" else time.monotonic
    with PeakMemory() as memory, Engine(model, clock=clock) as engine:
        engine.wait()
        measurement = _Measurement(job, model, loaded.snapshot, engine)
        runs = measurement.runs()
    calibrated_s = (before_s + calibration_s()) / 2
    cold = [cold_s(job, seed) if job.cold and job.generate is None and job.real is None else None for seed in job.seeds]
    return tuple(
        replace(
            run,
            cold_s=seconds,
            load_s=load_s,
            load_mib=load_mib,
            memory_mib=memory.peak_mib,
            calibration_s=calibrated_s,
        )
        for run, seconds in zip(runs, cold, strict=True)
    )


def _loaded(job: Job) -> tuple[Loaded, float]:
    """The instance, and the seconds that it took."""
    start = time.perf_counter()
    loaded = _instance(job)
    return loaded, time.perf_counter() - start


def _read_snapshot(job: Job) -> tuple[Loaded, float, float]:
    """The instance as it is read from a KAI snapshot, the seconds that took, and the most memory, MiB.

    Another process generates and writes it, so that this one holds nothing of it before.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.zip"
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_parent) as pool:
            pool.submit(_write_snapshot, job, path).result()
        with PeakMemory() as memory:
            loaded, seconds = _loaded(replace(job, instance=path, generate=None, real=None))
    return loaded, seconds, memory.peak_mib


def _write_snapshot(job: Job, path: Path) -> None:
    path.write_bytes(kai_snapshot(_instance(job).snapshot))


def _instance(job: Job) -> Loaded:
    found = load_instance(job.instance) if job.generate is None else Loaded(generated(job.generate, job.draw), "native")
    return found if job.real is None else replace(found, snapshot=made_real(found.snapshot, job.real, job.draw))


class _Measurement:
    """The cycles of one job: one to warm up, one a seed, then the steady ones."""

    def __init__(self, job: Job, model: SolverModel, snapshot: Snapshot, engine: Engine) -> None:
        self._job = job
        self._model = model
        self._snapshot = snapshot
        self._engine = engine
        self._budget_s = model.budget_s if job.budget_s is None else job.budget_s
        self._peers = tuple(peers_beside(job.instance, snapshot)) if job.generate is None and job.real is None else ()
        self._first_cycle_s: float | None = None

    def runs(self) -> list[Run]:
        """One a seed."""
        if self._job.warm_up:
            self._first_cycle_s = self._cycle(self._snapshot, self._job.seeds[0]).timing_s["decide"]
        found = [self._measured(seed) for seed in self._job.seeds]
        steady_s = self._steady_s() if self._job.steady else None
        pairs = self._link_pairs(self._job.product) if self._job.product else ()
        return [replace(run, steady_s=steady_s, link_pairs=pairs) for run in found]

    def _cycle(self, snapshot: Snapshot, seed: int, moments: Moments | None = None) -> Plan:
        """A cycle that knows nothing of those before it; only the solver's process is warm."""
        engine = self._engine
        options: dict[str, Any] = {"budget_s": self._budget_s, "seed": seed, "progress": moments}
        return cycle(snapshot, self._model, clock=engine.clock, child=engine.child, **options)

    def _measured(self, seed: int) -> Run:
        moments = Moments()
        cpu_s = family_cpu_s()
        plan = self._cycle(self._snapshot, seed, moments)
        return self._run(seed, plan, moments, family_cpu_s() - cpu_s)

    def _steady_s(self) -> float:
        """Cycles one after the other by the same engine, which may keep what did not change."""
        snapshot, seconds = self._snapshot, []
        plan = self._engine.cycle(snapshot, budget_s=self._budget_s)
        for seed in range(self._job.steady):
            snapshot = next_moment(snapshot, plan, seed)
            plan = self._engine.cycle(snapshot, budget_s=self._budget_s, seed=seed)
            seconds.append(plan.timing_s["decide"])
        return median(seconds)

    def _link_pairs(self, product: str) -> tuple[Pair, ...]:
        clock = CpuClock()

        def cpu_s(snapshot: Snapshot) -> float:
            gc.collect()  # What the cycle before left is none of this one's.
            start_s = clock()
            self._cycle(snapshot, self._job.seeds[0])
            return clock() - start_s

        return in_pairs(cpu_s, self._snapshot, with_links(self._snapshot, product, self._job.draw))

    def _run(self, seed: int, plan: Plan, moments: Moments, cpu_s: float) -> Run:
        ours = reached_by(self._snapshot, plan)
        worse = tuple(text for text in (shortfall(ours, peer) for peer in self._peers) if text)
        unknown = {entry.gang for entry in plan.pending if entry.proof.state != "proven"}
        waiting = {gang.key: waiting_gpus(gang) for gang in self._snapshot.gangs}
        return Run(
            instance=self._job.name or str(self._job.instance),
            model=self._model.name,
            seed=seed,
            load_s=0.0,
            decide_s=plan.timing_s["decide"],
            memory_mib=0.0,
            placed=len(ours.full),
            partly=len(ours.partial),
            evicted=len(plan.evictions),
            moved=len(plan.moves),
            pending=len(plan.pending),
            proven=sum(entry.proof.state == "proven" for entry in plan.pending),
            source=plan.source,
            stages=plan.stages,
            peers=self._peers,
            worse_than=worse,
            budget_s=self._budget_s,
            draw=self._job.draw,
            nodes=len(self._snapshot.nodes),
            first_cycle_s=self._first_cycle_s,
            cpu_s=cpu_s,
            timing_s=plan.timing_s,
            moments=moments.stages,
            pending_gpus=sum(waiting.values()),
            unknown_gpus=sum(waiting[gang] for gang in unknown),
            notes=plan.notes,
            clock=self._job.clock,
        )


def waiting_gpus(gang: Gang) -> float:
    """GPUs that its waiting pods ask for; parts of devices count as such, by memory as nothing."""
    return sum(
        pod.gpu.devices * pod.gpu.milli / 1000 + pod.quota_gpu_milli / 1000
        for pod in gang.pods
        if pod.status is PodStatus.PENDING
    )


def cold_s(job: Job, seed: int) -> float:
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
        str(job.instance),
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
