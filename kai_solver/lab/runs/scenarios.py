"""What happens in the process of a run whose source is a scenario: one policy's replay, as a row and its tables."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from kai_solver.domain import counted_gpu_milli
from kai_solver.instances_io.bundle import Bundle, bundle_bytes
from kai_solver.lab.runs.memory import PeakMemory, family_cpu_s
from kai_solver.lab.runs.record import RunRecord, StageResult
from kai_solver.lab.runs.replaying import with_replay
from kai_solver.lab.runs.running import blank
from kai_solver.lab.runs.task import Outcome, ScenarioFile, Task
from kai_solver.lab.simulate import (
    Decider,
    KubeDefault,
    ModelPolicy,
    ReplayError,
    Result,
    Scenario,
    Standing,
    load_scenario,
    measures_of,
    replay,
    summarize,
    write_tables,
)
from kai_solver.units import MILLI


def play(task: Task) -> Outcome:
    """Replay the task's scenario, drawn with the task's seed, by its model, or by ``kube-default``.

    Raises
    ------
    InputError
        The scenario cannot be used; names file, field and cure.
    """
    if not isinstance(task.source, ScenarioFile):
        raise TypeError(task.source)
    start_s = time.monotonic()
    scenario = load_scenario(task.source.path, seed=task.seed)
    outcome, result = replayed(task, scenario, read_s=time.monotonic() - start_s)
    if result is None:
        return outcome
    with TemporaryDirectory() as folder:
        tables = {path.name: path.read_bytes() for path in write_tables([result], Path(folder))}
    return replace(outcome, tables=tables)


def replayed(
    task: Task,
    scenario: Scenario,
    *,
    read_s: float,
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[Standing], None] | None = None,
) -> tuple[Outcome, Result | None]:
    """Replay a scenario, in this process; None: a cycle failed, which the outcome keeps to replay.

    ``read_s``: what it took to read the scenario.
    """
    record, cpu_s = replace(blank(task, "ok"), read_s=read_s), family_cpu_s()
    with PeakMemory() as memory, ExitStack() as stack:
        policy: Decider = KubeDefault()
        if task.model is not None:
            policy = stack.enter_context(ModelPolicy(task.model, budget_s=task.budget_s, seed=task.seed))
        start_s, result = time.monotonic(), None
        try:
            result = replay(scenario, policy, should_stop=should_stop, progress=progress)
            record = record_of_replay(record, result)
            failed = None
        except ReplayError as error:
            failed = error
            record = replace(_described(record, scenario), status="failed", error=" ".join(str(error).split()))
        spent_s = family_cpu_s() - cpu_s
    record = replace(record, wall_s=time.monotonic() - start_s, cpu_s=spent_s, peak_mib=memory.peak_mib)
    if failed is None:
        return Outcome(record), result
    bundle = None
    if task.model is not None:
        bundle = bundle_bytes(Bundle(failed.snapshot, task.model, task.budget_s, task.seed))
    return with_replay(task, Outcome(record, bundle=bundle)), None


def record_of_replay(record: RunRecord, result: Result) -> RunRecord:
    """The row of a replay, and of what it had when it was interrupted.

    ``admitted`` are jobs that started, ``pending`` those that arrived and never did; ``evicted_work`` the GPU-seconds
    of work that was lost, ``solve_s`` the seconds that all cycles took to decide. Its stages are what a replay is
    judged by, the less the better: the mean wait (s; of a job that never started, until the end), GPU-hours of work
    lost, the fairness gap and the fragmentation (docs/simulate.md defines them).
    """
    summary = summarize(result)
    arrived = [job for job in result.jobs if job.job.arrival_s <= result.end_s]
    starts = [result.end_s if job.first_start_s is None else job.first_start_s for job in arrived]
    waits = [start - job.job.arrival_s for start, job in zip(starts, arrived, strict=True)]
    measures = {
        "mean-wait": sum(waits) / max(1, len(waits)),
        "lost-gpu-hours": summary.gpu_hours["lost"],
        "fairness-gap": summary.fairness_gap,
        "fragmentation": summary.fragmentation,
    }
    started = sum(job.first_start_s is not None for job in arrived)
    return replace(
        _described(record, result.scenario),
        status="interrupted" if result.interrupted else "ok",
        error=f"interrupted at {result.end_s:,.0f} s of simulated time" if result.interrupted else "",
        measures=measures_of(summary),
        stages=tuple(StageResult(name, value, None, None, False) for name, value in measures.items()),
        admitted=started,
        pending=len(arrived) - started,
        evicted_pods=summary.evictions,
        evicted_work=round(summary.gpu_hours["lost"] * 3600),
        moved_pods=summary.moves,
        solve_s=sum(row.decide_s for row in result.records.solve_times),
    )


def _described(record: RunRecord, scenario: Scenario) -> RunRecord:
    cluster = scenario.cluster
    return replace(
        record,
        nodes=len(cluster.nodes),
        gpus=sum(counted_gpu_milli(node, cluster.schema, cluster.policy) for node in cluster.nodes) / MILLI,
        gangs=len(scenario.jobs),
        pods=sum(len(job.gang.pods) for job in scenario.jobs),
    )
