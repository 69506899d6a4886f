"""Solve: one cycle on an instance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kai_solver.domain import Action, Plan, SolverModel
from kai_solver.engine import Engine
from kai_solver.errors import InputError, nearest
from kai_solver.explaining import Difference, PlanFigures, differences, plan_figures
from kai_solver.instances_io.output import check_json_place
from kai_solver.instances_io.planfile import plan_to_document
from kai_solver.instances_io.plans import write_plan
from kai_solver.library.instances import Instance, as_instance
from kai_solver.library.tables import Table, chosen, page
from kai_solver.modelfiles import load_model
from kai_solver.units import MILLI

if TYPE_CHECKING:
    import polars as pl

MOST_BUDGET_S = 86_400.0
MOST_SEED = 2**31 - 1
SolutionTable = Literal["binds", "evictions", "moves", "pending", "stages"]


@dataclass(frozen=True)
class Solution:
    """What one cycle decides. `solve` makes it.

    Attributes
    ----------
    plan
        All of it: binds, moves, evictions, gangs that wait and why, stages of the objective with their bounds.
    """

    instance: Instance
    plan: Plan
    _asked: SolverModel = field(repr=False)

    @property
    def model(self) -> str:
        """Name of the solver model."""
        return self._asked.name

    @property
    def figures(self) -> PlanFigures:
        """The plan in numbers: gangs admitted and pending, pods evicted and moved, GPU-hours evicted, stages proven."""
        return plan_figures(self.plan)

    def document(self) -> dict[str, Any]:
        """The plan as a new document of the published format ``kai-plan/v1`` (``docs/plan.md``), plain JSON types."""
        return plan_to_document(self.plan)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan as JSON, which ``kai-solver validate`` and ``explain`` take; ``.zst`` compresses.

        Raises
        ------
        InputError
            It cannot be written there.
        """
        check_json_place(Path(path))
        write_plan(self.plan, Path(path))

    def differences(self, *others: "Solution") -> tuple[Difference, ...]:
        """Gangs that fare differently in these solutions of one instance: their fates, this solution's first.

        Raises
        ------
        InputError
            They are of different instances.
        """
        if any(other.instance.snapshot != self.instance.snapshot for other in others):
            cure = "Solve the same instance with each model"
            raise InputError("the solutions are of different instances", cure=cure)
        return differences(self.instance.snapshot, [self.plan, *(other.plan for other in others)])

    def frame(self, table: SolutionTable = "binds") -> "pl.DataFrame":
        """One of its tables as polars' data frame.

        ``binds``, ``moves``, ``evictions``: a row for each pod. ``pending``: a row for each gang that waits, with the
        reason and whether it is proven that it has to. ``stages``: the objective, smaller is better.

        Raises
        ------
        InputError
            There is no such table, or polars is not installed.
        """
        return self._tables[chosen(table, list(self._tables))].frame()

    @cached_property
    def _tables(self) -> dict[str, Table]:
        plan = self.plan
        binds = [
            (b.pod, b.gang, b.node, sum(d.milli for d in b.devices) / MILLI, b.nominated, b.action.value)
            for b in plan.binds
        ]
        moves = [(m.pod, m.gang, m.source, m.target, ", ".join(m.helps)) for m in plan.moves]
        evictions = [(e.pod, e.gang, e.node, e.reason, ", ".join(e.helps)) for e in plan.evictions]
        pending = [(p.gang, p.reason.value, p.proof.state == "proven", p.message) for p in plan.pending]
        stages = [(s.name, s.value, s.bound if isfinite(s.bound) else None, s.gap, s.optimal) for s in plan.stages]
        pod = {"pod": str, "gang": str}
        return {
            "binds": Table(pod | {"node": str, "gpus": float, "nominated": bool, "action": str}, binds),
            "moves": Table(pod | {"source": str, "target": str, "for": str}, moves),
            "evictions": Table(pod | {"node": str, "reason": str, "for": str}, evictions),
            "pending": Table({"gang": str, "reason": str, "is_proven": bool, "message": str}, pending),
            "stages": Table(
                {"stage": str, "value": float, "bound": float, "gap": float, "is_proven": bool},
                stages,
            ),
        }

    def _summary(self) -> str:
        found = self.figures
        seconds = self.plan.timing_s.get("decide", 0.0)
        return (
            f"{self.instance.name} by {self.model}: {found.admitted:,} gangs admitted, {found.pending:,} pending "
            f"({found.proven_pending:,} proven); {len(self.plan.binds):,} pods bound, {found.moved_pods:,} moved, "
            f"{found.evicted_pods:,} evicted; {seconds:.2f} s"
        )

    def __repr__(self) -> str:
        return f"<Solution {self._summary()}>"

    def _repr_html_(self) -> str:
        tables = self._tables
        notes = Table({"note": str}, [(note,) for note in self.plan.notes])
        return page(
            self._summary(),
            ("Notes", notes),
            ("Pending", tables["pending"]),
            ("Evictions", tables["evictions"]),
            ("Moves", tables["moves"]),
            ("Stages of the objective", tables["stages"]),
        )


def solve(
    instance: Instance | str | PathLike[str] | Mapping[str, Any],
    model: str | PathLike[str] | None = None,
    *,
    budget_s: float | None = None,
    seed: int = 0,
    actions: Sequence[str] | None = None,
) -> Solution:
    """Decide one cycle: binds, moves, evictions and for which gang, and why the rest waits.

    Parameters
    ----------
    instance
        An `Instance`, or what `load` reads.
    model
        Name of a shipped solver model, or a TOML file. None: the one of a bundle, else ``default``.
    budget_s
        Seconds to decide, above 0 and at most a day; None: the model's. It ends by 1.2 budgets + 0.2 s.
    seed
        Of the search: 0 to 2^31 - 1.
    actions
        In place of the model's: some of ``allocate``, ``consolidation``, ``reclaim``, ``preempt``,
        ``stalegangeviction``. None: those that a behaviour case names, else the model's.

    Returns
    -------
    Solution
        Of a plan that the checker has passed. If the solver failed, the plan is the greedy's, and its notes say so.

    Raises
    ------
    InputError
        The instance, the model or an argument cannot be used; names file or field, and the cure.
    """
    known = as_instance(instance)
    asked = model_of(known, model, actions)
    seconds = budget_of(budget_s)
    check_seed(seed)
    with Engine(asked) as engine:
        engine.wait()
        plan = engine.cycle(known.snapshot, budget_s=seconds, seed=seed)
    return Solution(known, plan, asked)


def model_of(instance: Instance, model: str | PathLike[str] | None, actions: Sequence[str] | None) -> SolverModel:
    """The model that decides in ``instance``, with the actions that are asked for.

    Raises
    ------
    InputError
        It cannot be used, or an action does not exist or is disabled by the policy of the instance.
    """
    loaded = instance._loaded  # noqa: SLF001
    bundle = loaded.extra.get("bundle")
    found: SolverModel = (
        bundle.model if model is None and bundle is not None else load_model("default" if model is None else str(model))
    )
    named = actions_of(actions) if actions is not None else loaded.case.actions if loaded.case is not None else ()
    if actions is not None:
        loaded.snapshot.policy.refuse_disabled(named, "actions")
    return replace(found, actions=named) if named else found


def actions_of(names: Sequence[str]) -> tuple[Action, ...]:
    """Actions by name.

    Raises
    ------
    InputError
        One does not exist, or none is named.
    """
    known = [action.value for action in Action]
    for name in names:
        if name not in known:
            near = nearest(str(name), known)
            cure = f"Did you mean {near}?" if near else f"Choose from {', '.join(known)}"
            raise InputError(f"there is no action {name!r}", field="actions", cure=cure)
    if isinstance(names, str) or not names:
        raise InputError(f"{names!r} is no list of actions", field="actions", cure="Write ['allocate', 'reclaim']")
    return tuple(map(Action, names))


def budget_of(budget_s: float | None) -> float | None:
    """The budget in seconds.

    Raises
    ------
    InputError
        It is no number, not above zero, or more than a day.
    """
    try:
        is_budget = budget_s is None or 0 < budget_s <= MOST_BUDGET_S
    except TypeError:
        is_budget = False
    if not is_budget:
        cure = "Give more than zero seconds, and a day at most"
        raise InputError(f"{budget_s!r} is not a budget", field="budget_s", cure=cure)
    return budget_s


def check_seed(seed: int) -> None:
    """Refuse what is no seed.

    Raises
    ------
    InputError
        It is not from 0 to 2^31 - 1.
    """
    if type(seed) is not int or not 0 <= seed <= MOST_SEED:
        raise InputError(f"{seed!r} is not a seed", field="seed", cure=f"Give a whole number from 0 to {MOST_SEED}")
