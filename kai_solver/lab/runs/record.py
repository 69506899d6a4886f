"""One run as one row: what was asked, what came out, what it cost, and with what it was measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "failed", "out_of_memory", "out_of_time", "lost", "interrupted"]
"""``lost``: the worker that ran it went away. ``interrupted``: a replay that was ended; the row is what it had."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage of the objective, in the model's order.

    Attributes
    ----------
    name
        The stage's name in the model file.
    value
        What the plan reaches, as a plan's stages state it; None where nothing was decided.
    bound
        What no plan passes; None where none is claimed.
    gap
        (value - bound) / max(bound, 1% of the work at stake), as docs/plan.md defines it; None without a bound.
    is_proven
        Whether it is proven that no plan does better.
    """

    name: str
    value: float | None
    bound: float | None
    gap: float | None
    is_proven: bool


@dataclass(frozen=True, slots=True)
class Improvement:
    """A moment at which a stage got a better plan or a better bound: a row of the trajectories.

    Attributes
    ----------
    at_s
        Since the run began to decide.
    value, bound
        The stage's from then on; None: not known yet.
    found_by
        Part of the engine, or subsolver of CP-SAT, that found it; empty where it is not known.
    """

    at_s: float
    stage: str
    value: float | None
    bound: float | None
    found_by: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of one model on one instance, or of one policy through one scenario.

    Attributes
    ----------
    run
        Its key in the study: the same for the same instance, model, seed and budget, so that a resumed study knows it.
    command
        Which command ran it: compare, tune, bench, simulate, experiment.
    instance, source, family
        Its name; file, generator or scenario that it is from; the group that splits and reports go by (a trace, a set).
    draw
        Seed that the instance, or what is added to it, was drawn with.
    nodes, gpus, gangs, pods
        Size of the instance; gangs and pods are those that wait.
    model, model_hash
        The model's name, and a hash of all that it says.
    seed, budget_s, clock
        Of the solver; seconds of that clock ("wall" or "cpu").
    status, error
        How it ended; the error in one line, empty where all is well.
    stages
        By the model's order.
    admitted, pending, pending_proven, evicted_pods, evicted_work, moved_pods
        Of the plan; gangs, gangs, gangs whose waiting is proven, pods, GPU-seconds, pods.
    plan_source
        What the plan is from, as docs/plan.md says it: greedy, cp-sat and others; empty where there is no plan.
    first_plan_s, best_plan_s, proof_s
        Since it began to decide: the first complete plan, the last improvement, the last stage proven; None: never.
    primal_integral
        Mean gap to the best known plan over the budget, stages weighed in their order; 0 is best, 1 is no plan at all.
    read_s, build_s, presolve_s, solve_s, wall_s, cpu_s
        Seconds: reading the instance, building models, CP-SAT's presolve and search, the whole run by the wall clock
        and as CPU time of all its threads and children. ``cpu_s`` is None where it is not known.
    variables, constraints, presolved_variables, presolved_constraints
        Of the largest CP-SAT model of the run; 0 where none was built.
    peak_mib
        Peak of the run's own memory with its children; None where it is not known.
    is_shared
        Whether other runs used the same machine at the time: wall times are then disturbed.
    host, cpu, cores
        The machine.
    versions
        "kai-solver 0.1.0, ortools 9.15.6755, numpy 2.3.5, Python 3.11.7".
    revision
        Revision of the source, with "+changes" where it was changed; empty where it is not from a repository.
    started_at
        Time of day, UTC, as in RFC 3339.
    measures
        What only some commands measure, by name, with the unit at the end of the name (docs/studies.md lists them).
    """

    run: str
    command: str
    instance: str
    source: str
    family: str
    nodes: int
    gpus: float
    gangs: int
    pods: int
    model: str
    model_hash: str
    seed: int
    budget_s: float
    clock: str
    status: Status
    error: str
    stages: tuple[StageResult, ...]
    admitted: int
    pending: int
    pending_proven: int
    evicted_pods: int
    evicted_work: int
    moved_pods: int
    first_plan_s: float | None
    best_plan_s: float | None
    proof_s: float | None
    primal_integral: float | None
    read_s: float
    build_s: float
    presolve_s: float
    solve_s: float
    wall_s: float
    cpu_s: float | None
    variables: int
    constraints: int
    presolved_variables: int
    presolved_constraints: int
    peak_mib: float | None
    is_shared: bool
    host: str
    cpu: str
    cores: int
    versions: str
    revision: str
    started_at: str
    draw: int = 1
    plan_source: str = ""
    measures: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_failed(self) -> bool:
        """True where the run itself failed, so that there is something to replay."""
        return self.status in ("failed", "out_of_memory", "out_of_time")


def record_of(document: Mapping[str, Any]) -> RunRecord:
    """The row of its JSON members, which are its fields.

    Raises
    ------
    KeyError, TypeError
        They are not.
    """
    stages = tuple(StageResult(**stage) for stage in document["stages"])
    return RunRecord(**(dict(document) | {"stages": stages}))
