"""Makes a plan of what a cycle decided, with what each stage costs and what is proven of it, and has it checked."""

from dataclasses import dataclass, replace

from kai_solver import __version__
from kai_solver.check import Violation, check_plan
from kai_solver.domain import Plan, Snapshot, SolverModel, Stage
from kai_solver.engine.cycle_time import CycleTime
from kai_solver.engine.decided import Decided, notes_of, source_of, with_bound, with_proven
from kai_solver.engine.stages import admission_stage, measured_stages, with_moved_work
from kai_solver.planning.assemble import assemble
from kai_solver.problem import Problem
from kai_solver.reasons.untold import tell
from kai_solver.search.child import SolverChild


@dataclass(slots=True)
class PlanMaker:
    """Of one run.

    Attributes
    ----------
    explain
        False: smallest sets of what blocks are not searched.
    child
        The solver's process: the plan names its version of OR-tools.
    """

    snapshot: Snapshot
    model: SolverModel
    time: CycleTime
    seed: int
    explain: bool
    child: SolverChild | None

    def plan(self, problem: Problem, decided: Decided, *, in_full: bool = True) -> Plan:
        """The plan; ``in_full``: with texts of what waits, and what blocks it."""
        if in_full:
            tell(decided.outcome, self.time.is_long_over)
        explains = self.explain and in_full
        plan = assemble(problem, decided.outcome, self.time.is_late if explains else lambda: True)
        self.time.phase("plan")
        stages = self._stages(plan, decided)
        ortools = "" if self.child is None else self.child.ortools_version
        return replace(
            plan,
            stages=stages,
            source=source_of(decided, stages),
            model=self.model.name,
            model_hash=self.model.hash,
            seed=self.seed,
            versions={"kai-solver": __version__} | ({"ortools": ortools} if ortools else {}),
            notes=tuple(notes_of(decided)),
            unclaimed=decided.refined.unclaimed if decided.refined is not None else "",
        )

    def check(self, plan: Plan) -> tuple[Violation, ...]:
        """What is wrong with it."""
        violations = check_plan(self.snapshot, plan, actions=self.model.actions)
        self.time.phase("check")
        return violations

    def _stages(self, plan: Plan, decided: Decided) -> tuple[Stage, ...]:
        """Admission first; then what the solver proved of each stage, or what the plan costs with trivial bounds."""
        found = {s.name: s for s in decided.refined.stages} if decided.refined is not None else {}
        measured = decided.measured
        if measured is None:
            by_gpus = self.model.evicts_by_gpus
            measured = measured_stages(decided.outcome, by_gpus=by_gpus, moves=self.model.moves)
        merged = [with_bound(stage, found.pop(stage.name, None)) for stage in measured]
        merged = [with_proven(stage, decided.bounds.get(stage.name)) for stage in merged]
        merged = with_moved_work(merged, decided.outcome, self.model.moves)
        links = (decided.links,) if decided.links is not None else ()
        return (admission_stage(plan), *merged, *links, *found.values())
