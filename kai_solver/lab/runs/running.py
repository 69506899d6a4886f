"""What happens in the process of a run: decide once, or replay a scenario, and write down what that came to."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kai_solver.domain import Plan, PodStatus, Snapshot, SolverModel, Stage, counted_gpu_milli
from kai_solver.engine import Engine, Fault, Progress
from kai_solver.engine.cycle import cycle
from kai_solver.instances_io import Loaded
from kai_solver.lab.runs.cpuclock import CpuClock
from kai_solver.lab.runs.machine import cores, cpu, host, revision, versions
from kai_solver.lab.runs.record import Improvement, RunRecord, StageResult, Status
from kai_solver.lab.runs.task import KUBE_DEFAULT, Generated, InstanceFile, ScenarioFile, Source, Task
from kai_solver.search.child import SolverChild
from kai_solver.search.solver_log import AskedModel
from kai_solver.units import MILLI

Hear = Callable[[Improvement], None]
"""Called with each improvement when it is found."""

WORK = "evicted-work"
"""Kind of the stages that count evicted GPU-seconds, one for each priority."""


def blank(task: Task, status: Status, error: str = "") -> RunRecord:
    """The row of a run of which nothing but its task is known."""
    source = task.source
    return RunRecord(
        run=task.run,
        command=task.command,
        instance=task.source.name,
        source=source_text(task.source),
        family=task.family,
        nodes=0,
        gpus=0.0,
        gangs=0,
        pods=0,
        model=KUBE_DEFAULT if task.model is None else task.model.name,
        model_hash="" if task.model is None else task.model.hash,
        seed=task.seed,
        budget_s=task.budget_s,
        clock=task.clock,
        status=status,
        error=" ".join(error.split()),
        stages=(),
        admitted=0,
        pending=0,
        pending_proven=0,
        evicted_pods=0,
        evicted_work=0,
        moved_pods=0,
        first_plan_s=None,
        best_plan_s=None,
        proof_s=None,
        primal_integral=None,
        read_s=0.0,
        build_s=0.0,
        presolve_s=0.0,
        solve_s=0.0,
        wall_s=0.0,
        cpu_s=None,
        variables=0,
        constraints=0,
        presolved_variables=0,
        presolved_constraints=0,
        peak_mib=None,
        is_shared=task.is_shared,
        host=host(),
        cpu=cpu(),
        cores=cores(),
        versions=versions(),
        revision=revision(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        draw=1 if isinstance(source, ScenarioFile) else source.draw,
    )


def source_text(source: Source) -> str:
    """The path of a file, or which draw of which generator."""
    if isinstance(source, Generated):
        return f"{source.generator.kind}, draw {source.draw}"
    if isinstance(source, InstanceFile) and source.real is not None:
        return f"{source.path}, draw {source.draw}"
    return str(source.path)


def described(record: RunRecord, snapshot: Snapshot) -> RunRecord:
    """The row with the size of the instance."""
    waiting = [sum(pod.status is PodStatus.PENDING for pod in gang.pods) for gang in snapshot.gangs]
    return replace(
        record,
        nodes=len(snapshot.nodes),
        gpus=sum(counted_gpu_milli(node, snapshot.schema, snapshot.policy) for node in snapshot.nodes) / MILLI,
        gangs=sum(pods > 0 for pods in waiting),
        pods=sum(waiting),
    )


class _Listener:
    """Hears a cycle's progress; keeps what is better than what was known of the stage before."""

    def __init__(self, hear: Hear, found_by: Callable[[], str]) -> None:
        self.improvements: list[Improvement] = []
        self._found_by = found_by
        self._hear = hear
        self._known: dict[str, tuple[float | None, float | None]] = {}

    def __call__(self, progress: Progress) -> None:
        """Take notice."""
        if progress.bound is not None:
            self.take(progress.elapsed_s, progress.phase, progress.incumbent, progress.bound, self._found_by())

    def take(self, at_s: float, stage: str, value: float | None, bound: float | None, found_by: str) -> None:
        """Write down what a stage has reached, where that is news."""
        if self._known.get(stage, (None, None)) == (value, bound):
            return
        self._known[stage] = value, bound
        self.improvements.append(Improvement(at_s, stage, value, bound, found_by))
        self._hear(self.improvements[-1])


def decide_once(task: Task, loaded: Loaded, hear: Hear = lambda _: None) -> tuple[RunRecord, tuple[Improvement, ...]]:
    """Plan one cycle by the task's model, as its instance says; `execute` measures memory and CPU time of it.

    The solver's process is started before, and is not in the budget.
    """
    model = model_for(task, loaded)
    with engine_for(task, model) as engine:
        engine.wait()
        decided = decide(task, loaded.snapshot, model, engine, hear)
    return decided.record, decided.improvements


def engine_for(task: Task, model: SolverModel) -> Engine:
    """An engine on the task's clock, of which `decide` can say which subsolver found what."""
    clock = CpuClock() if task.clock == "cpu" else time.monotonic
    child = SolverChild(memory_mib=model.search.memory_mib, clock=clock, reads_log=True)
    return Engine(model, clock=clock, child=child)


@dataclass(frozen=True, slots=True)
class Decided:
    """A cycle: its row without memory, CPU time and what reading took; its trajectory; its plan."""

    record: RunRecord
    improvements: tuple[Improvement, ...]
    plan: Plan


def decide(task: Task, snapshot: Snapshot, model: SolverModel, engine: Engine, hear: Hear = lambda _: None) -> Decided:
    """Plan one cycle by an engine of `engine_for`; the cycle knows nothing of those before it."""
    child = engine.child
    child.take_models()  # of cycles before this one
    listener = _Listener(hear, lambda: child.found_by)
    record = described(blank(task, "ok"), snapshot)
    faults: list[Fault] = []
    plan = cycle(
        snapshot,
        model,
        budget_s=task.budget_s,
        clock=engine.clock,
        seed=task.seed,
        progress=listener,
        child=child,
        on_fault=faults.append,
    )
    for stage in plan.stages:
        listener.take(plan.timing_s["decide"], stage.name, stage.value, stage.bound, "")
    if faults:
        record = replace(record, status="failed", error="; ".join(" ".join(fault.error.split()) for fault in faults))
    record = with_models(_of_plan(record, plan, listener.improvements), child.take_models())
    return Decided(record, tuple(listener.improvements), plan)


def with_models(record: RunRecord, models: Sequence[AskedModel]) -> RunRecord:
    """The row with the size of the largest of these models, and the seconds that presolve took of all."""
    if not models:
        return record
    largest = max(models, key=lambda model: (model.variables, model.constraints, model.presolved_variables))
    return replace(
        record,
        variables=largest.variables,
        constraints=largest.constraints,
        presolved_variables=largest.presolved_variables,
        presolved_constraints=largest.presolved_constraints,
        presolve_s=sum(model.presolve_s for model in models),
    )


def model_for(task: Task, loaded: Loaded) -> SolverModel:
    """The task's model, with the actions that the instance names where it is a behaviour case.

    Raises
    ------
    ValueError
        The task has none: ``kube-default`` replays scenarios, it decides no instance.
    """
    if task.model is None:
        raise ValueError("kube-default replays scenarios, it decides no instance")
    actions = loaded.case.actions if loaded.case is not None else ()
    return replace(task.model, actions=actions) if actions else task.model


def _of_plan(record: RunRecord, plan: Plan, improvements: list[Improvement]) -> RunRecord:
    timing = plan.timing_s
    return replace(
        record,
        stages=tuple(_stage(stage) for stage in plan.stages),
        admitted=len({gang for gang, _ in plan.admitted}),
        pending=len(plan.pending),
        pending_proven=sum(entry.proof.state == "proven" for entry in plan.pending),
        evicted_pods=len(plan.evictions),
        evicted_work=round(sum(stage.value for stage in plan.stages if stage.name.partition("/")[0] == WORK)),
        moved_pods=len(plan.moves),
        plan_source=plan.source,
        first_plan_s=timing["first-plan"],
        best_plan_s=max((one.at_s for one in improvements if one.value is not None), default=timing["decide"]),
        proof_s=timing["decide"] if all(stage.optimal for stage in plan.stages) else None,
        build_s=timing.get("build", 0.0),
        solve_s=timing["decide"],
    )


def _stage(stage: Stage) -> StageResult:
    return StageResult(stage.name, stage.value, stage.bound, stage.gap, stage.optimal)
