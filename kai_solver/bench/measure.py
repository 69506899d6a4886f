"""One instance, one model, some seeds: measured in a process of its own, so that memory and caches are its own."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from kai_solver.bench.memory import PeakMemory
from kai_solver.bench.peers import Peer, peers_beside, reached_by, shortfall
from kai_solver.domain import Plan, SolverModel, Stage
from kai_solver.engine import Engine
from kai_solver.errors import SolverError
from kai_solver.instances_io import load_instance
from kai_solver.modelfiles import load_model


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be measured; ``budget_s`` None is the model's. ``warm_up``: one unmeasured cycle first."""

    instance: Path
    model: str
    seeds: tuple[int, ...]
    budget_s: float | None = None
    warm_up: bool = True
    cold: bool = False


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
    placed, partly
        Gangs that got a place for all their waiting pods, or for some.
    worse_than
        Recorded peers that did better, in words.
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
    peers: tuple[Peer, ...] = ()
    worse_than: tuple[str, ...] = ()


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
            raise SolverError(f"the process that measured {job.instance} with {job.model} died") from error


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def measure_here(job: Job) -> tuple[Run, ...]:
    """Measure ``job`` in this process; the engine is warm after one unmeasured cycle."""
    model = load_model(job.model)
    start = time.perf_counter()
    loaded = load_instance(job.instance)
    load_s = time.perf_counter() - start
    actions = loaded.case.actions if loaded.case is not None else ()
    model = replace(model, ladder=actions) if actions else model
    peers = tuple(peers_beside(job.instance, loaded.snapshot))
    budget_s = model.budget_s if job.budget_s is None else job.budget_s
    runs = []
    with PeakMemory() as memory, Engine(model) as engine:
        if job.warm_up:
            engine.cycle(loaded.snapshot, budget_s=budget_s, seed=job.seeds[0])
        for seed in job.seeds:
            plan = engine.cycle(loaded.snapshot, budget_s=budget_s, seed=seed)
            ours = reached_by(loaded.snapshot, plan)
            worse = tuple(text for text in (shortfall(ours, peer) for peer in peers) if text)
            run = _run(job, model, seed, plan, load_s)
            run = replace(run, placed=len(ours.full), partly=len(ours.partial), peers=peers, worse_than=worse)
            runs.append(run)
    cold = [cold_s(job, seed) if job.cold else None for seed in job.seeds]
    return tuple(
        replace(run, memory_mib=memory.peak_mib, cold_s=seconds) for run, seconds in zip(runs, cold, strict=True)
    )


def _run(job: Job, model: SolverModel, seed: int, plan: Plan, load_s: float) -> Run:
    return Run(
        instance=str(job.instance),
        model=model.name,
        seed=seed,
        load_s=load_s,
        decide_s=plan.timing_s["decide"],
        memory_mib=0.0,
        placed=0,
        partly=0,
        evicted=len(plan.evictions),
        moved=len(plan.moves),
        pending=len(plan.pending),
        proven=sum(entry.proof.state == "proven" for entry in plan.pending),
        source=plan.source,
        stages=plan.stages,
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
