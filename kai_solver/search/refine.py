"""The disruption and preference stages: with the admitted set fixed, choose victims, moves and places again.

Deciding action by action overshoots: a victim of the first question may have served the third. The joint model keeps
all that was admitted and minimises what is disturbed, in lexicographic order, from the greedy's plan as the hint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kai_solver.actions.sharing import Tries
from kai_solver.domain import OPTIONAL_STAGES, STAGES, Action, Stage
from kai_solver.model.build import Formulation, formulate
from kai_solver.model.decode import Decision, expand, hint_values
from kai_solver.model.families import are_kept_by_all
from kai_solver.model.joint import Joint
from kai_solver.model.leftover import guests_of
from kai_solver.model.rows import Ints
from kai_solver.model.stages import DISRUPTING
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Outcome
from kai_solver.search.apply import apply
from kai_solver.search.attribution import attribute
from kai_solver.search.components import components
from kai_solver.search.disturbed import Disturbed
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.looseness import loose_gangs
from kai_solver.search.reseat import reseat
from kai_solver.search.rights import Rights
from kai_solver.search.session import Progress, SessionResult, StageObjective
from kai_solver.search.solver_client import BUILD_S, SolverClient
from kai_solver.search.victims import LeavingBy, VictimChoice, nothing_leaves

ROUNDS = 4
"""How often the stages of a small model are gone through while some are not proven; one proof needs 0.01 to 0.1 s."""
WHOLE = 4_000
"""Variables (about) up to which the whole model is asked after victims and places were chosen again.

With 1,000 and 2,000 loaded nodes (about 5,800 and 11,500) it proved no stage within 40 s and bettered no plan of six;
with 500 nodes (2,900) it proves all stages but the last (2026-11-23).
"""
LOOSE = "elastic gangs could give up other pods, or fewer, than the search lets them"
PARTED_FROM = 1_000
"""Variables (about) from which parts that share nothing are solved apart; a smaller problem takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Refined:
    """Outcome of the stages: their results, whether the plan got better, and what went wrong.

    ``unclaimed``: why bounds of what is evicted are not claimed; empty where they are. ``bounds``: of evictions, by
    stage, each good for plans that admit what is ``admitted`` while the stages before it are at theirs.
    ``is_within_gap``: the work that leaves is as good as the least that is known to be needed.
    """

    stages: tuple[Stage, ...]
    improved: bool
    notes: tuple[str, ...] = ()
    unclaimed: str = ""
    bounds: Mapping[str, int] = field(default_factory=dict)
    admitted: frozenset[AllocationUnit] = frozenset()
    is_within_gap: bool = True

    def after(self, earlier: "Refined | None") -> "Refined":
        """What both are known to come to, where this was found after an ``earlier`` one of the same cycle."""
        if earlier is None:
            return self
        improved = self.improved or earlier.improved
        if self.admitted != earlier.admitted:
            return replace(self, improved=improved)
        better = max((self.bounds, earlier.bounds), key=lambda bounds: [*bounds.values()])
        latest = self if self.stages or not self.notes else replace(self, notes=earlier.notes)
        return replace(latest, improved=improved, bounds=better)

    def bounds_at(self, values: Mapping[str, float], admitted: frozenset[AllocationUnit]) -> dict[str, int]:
        """``bounds`` as far as they hold for a plan of these ``values`` by stage, which admits that."""
        found: dict[str, int] = {}
        for name, bound in self.bounds.items() if admitted == self.admitted else ():
            found[name] = bound
            if values.get(name, 0) > bound:
                break
        return found


def is_unproven(stages: Sequence[Stage]) -> bool:
    """True where some stage of evictions or moves might be better."""
    return not stages or any(not s.optimal and s.name.startswith(DISRUPTING) for s in stages)


@dataclass(slots=True)
class _Part:
    """What the search came to in one part of the problem: all of it, or what shares nothing with the rest.

    ``better``: solutions that are less disruptive than the plan so far, the best first; ``plan``: that plan, where it
    is known to be a solution; ``chosen``: the better one that is in effect.
    """

    form: Formulation
    main: dict[int, int]
    stages: list[StageObjective]
    result: SessionResult
    better: list[Ints]
    plan: Ints | None
    chosen: Ints | None = None

    def reported(self, *, certain: bool) -> tuple[Stage, ...]:
        """What is known of each stage at the plan that is in effect."""
        found = _stages(self.stages, self.result, self.plan if self.chosen is None else self.chosen)
        return _believed(found, self.form.variables.joint, certain=certain)


class StageOptimizer:
    """Runs the stages of one cycle."""

    def __init__(self, solver_client: SolverClient, progress: Progress | None = None) -> None:
        self.solver_client = solver_client
        self.model = solver_client.model
        self.progress = progress

    def refine(
        self,
        outcome: Outcome,
        rights: Rights,
        least: Mapping[str, int] | None = None,
        leaving: frozenset[int] = frozenset(),
        leaving_by: LeavingBy = nothing_leaves,
        *,
        asks_for_places: bool = True,
    ) -> Refined:
        """Improve ``outcome`` in place, within ``rights``; never worse than it was.

        ``least``: by stage, what no plan is below whose earlier stages are at theirs; where it is known. ``leaving``:
        units that leave for that. ``leaving_by``: those that leave where more is asked of them. ``asks_for_places``: as
        of `VictimChoice.improve`.
        """
        model_input = JointModelInput(outcome)
        allocation_units = [(a.allocation_unit, a.action) for a in outcome.admissions]
        estimate = model_input.size_estimate(allocation_units, rights.movable)
        is_large = outcome.pool is not None and VictimChoice.is_for(self.solver_client, estimate)
        if not is_large and not self._has_time_for(estimate):
            note = f"stages not searched: too little time for about {estimate} variables"
            return Refined((), False, (note,), admitted=outcome.admitted)
        joint = joint_of(model_input, rights)
        choice, is_better = None, False
        if is_large and outcome.pool is not None:
            choice = VictimChoice(self.solver_client, outcome, outcome.pool, rights, model_input, joint, estimate)
            choice.leaving_by = leaving_by
            exactly = estimate <= WHOLE
            is_better = choice.improve(least or {}, leaving, exactly=exactly, asks_for_places=asks_for_places)
        is_whole = self._has_time_for(estimate) and (estimate <= WHOLE or choice is None)
        may_part = estimate >= PARTED_FROM and self._is_of_ours()
        joints = (components(joint) if may_part else [joint]) if is_whole else []
        known = choice.bounds if choice is not None and len(joints) == 1 else {}
        is_partial = model_input.is_partial(rights.movable)
        is_asked = self.progress is not None and len(joints) == 1
        is_of_all = is_asked and not is_partial and not is_loose(outcome, rights)
        parts = self._search(outcome, joints, known, is_of_all=is_of_all) if joints else []
        fault, improved = self._improve(outcome, joint, parts, rights)
        if improved or not any(part.better for part in parts):
            reseat(outcome)
        certain = not is_loose(outcome, rights)
        notes = tuple(dict.fromkeys(note for part in parts for note in part.result.notes))
        notes = (*notes, fault) if fault and not improved else notes
        if choice is not None and choice.note and not is_better and not improved:
            notes = (*notes, choice.note)
        bounds = choice.bounds if choice is not None and certain else {}
        reported = _added(parts, [part.reported(certain=certain) for part in parts], bounds) if parts else ()
        unclaimed = "" if certain else LOOSE
        # Where some may not move, they might for another plan of the same admissions, which gives a move as its action.
        may_all_move = outcome.pool is not None and len(rights.movable) == len(outcome.pool.units)
        return Refined(
            () if is_partial else reported,
            improved or is_better,
            notes,
            unclaimed,
            bounds if may_all_move and not is_partial else {},
            outcome.admitted,
            choice is None or choice.is_within_gap(least or {}),
        )

    def _has_time_for(self, variables: int) -> bool:
        """Whether the whole model can be built in the time that is left."""
        return self.solver_client.has_time_for(variables * BUILD_S, follows=False)

    def _is_of_ours(self) -> bool:
        """Whether all rules and stages are known here: one of the user's may tie together what shares nothing else."""
        stages = {stage.name for stage in self.model.stages}
        return are_kept_by_all(self.model.families) and stages <= {*STAGES, *OPTIONAL_STAGES}

    def _search(
        self, outcome: Outcome, parts: Sequence[Joint], known: Mapping[str, int], *, is_of_all: bool
    ) -> list[_Part]:
        """Search every part, with time by its size; what one does not use is the others'.

        ``known``: bounds by stage. ``is_of_all``: what bounds a model's solution bounds every plan.
        """
        names = [stage.name for stage in self.model.stages]
        forms = [formulate(part, self.model.families, names) for part in parts]
        if len(forms) == 1:
            return [self._search_part(outcome, forms[0], known, is_of_all=is_of_all)]
        sizes, whole = [form.spec.size[0] for form in forms], self.solver_client
        found: list[_Part] = []
        for number, form in enumerate(forms):
            rest = sizes if self.model.search.deterministic else sizes[number:]
            budget = whole.budget.apart(max(0.0, whole.budget.left_s) * sizes[number] / max(1, sum(rest)))
            self.solver_client = replace(whole, budget=budget)
            found.append(self._search_part(outcome, form, known, is_of_all=is_of_all))
            if found[-1].plan is None:
                found[-1].plan = self._completed(form, found[-1].main, outcome)
            whole.budget.settle(budget)
        self.solver_client = whole
        return found

    def _search_part(self, outcome: Outcome, form: Formulation, known: Mapping[str, int], *, is_of_all: bool) -> _Part:
        main = main_values(outcome, form)
        stages = self._objectives(form)
        hint = self._completed(form, main, outcome)
        result = self.solver_client.minimize(
            form, stages, hint, self._telling(form, is_of_all=is_of_all), known, rounds=ROUNDS
        )
        values = result.values
        better = [values] if values is not None and self._is_better(form, values, hint, main) else []
        return _Part(form, main, stages, result, better, hint)

    def _telling(self, form: Formulation, *, is_of_all: bool) -> Progress | None:
        """Progress, with bounds only as the plan's stages will claim them (`_believed`)."""
        tell, joint = self.progress, form.variables.joint
        if tell is None:
            return None

        def told(stage: str, value: int | None, bound: int | None) -> None:
            is_claimed = is_of_all and bound is not None
            fewest = _fewest_moves(joint, bound) if bound is not None and stage == "moved-pods" else bound
            tell(stage, value, fewest if is_claimed else None)

        return told

    def _improve(self, outcome: Outcome, joint: Joint, parts: Sequence[_Part], rights: Rights) -> tuple[str, bool]:
        """Put what is better into effect, part after part; what was in the way at last, and whether anything is."""
        fault, starting = "", _starting(outcome)
        is_disturbed = any(admission.units for admission in outcome.admissions)
        for part in parts:
            before = part.chosen
            for values in part.better:
                part.chosen = values
                decision = _together(parts)
                mark, admissions = outcome.state.mark(), outcome.admissions
                fault = (
                    "a part of the model has no plan"
                    if decision is None
                    else _apply(outcome, joint, decision, rights.takers, self.solver_client)
                )
                is_late = not fault and not is_disturbed and _starting(outcome) < starting
                if is_late:
                    outcome.state.rollback(mark)
                    outcome.replace_admissions(admissions)
                if not fault and not is_late:
                    break
                part.chosen = before
            if part.chosen is None and part.plan is None:
                part.plan = self._completed(part.form, part.main, outcome) if part.result.stages else None
        return fault, any(part.chosen is not None for part in parts)

    def _completed(self, form: Formulation, main: dict[int, int], outcome: Outcome) -> Ints | None:
        """Greedy's plan as a solution: with the guests that it leaves room for, else with none."""
        guests = guests_of(form.variables, outcome.state.future, outcome.state.device_future)
        if not any(guests.values()):
            return self.solver_client.complete(form, main | guests)
        found = self.solver_client.complete(form, main | guests)
        return found if found is not None else self.solver_client.complete(form, main | dict.fromkeys(guests, 0))

    def _objectives(self, form: Formulation) -> list[StageObjective]:
        specs = {spec.name: spec for spec in self.model.stages}
        weights: dict[str, float] = {}
        for name, objective in zip(form.stage_of, form.objectives, strict=True):
            weights[name] = weights.get(name, 0.0) + objective.weight
        return [
            StageObjective(
                o.name, o.terms, o.constant, specs[name].share * o.weight / weights[name], specs[name].gap, o.least
            )
            for name, o in zip(form.stage_of, form.objectives, strict=True)
        ]

    def _is_better(self, form: Formulation, values: Ints, hint: Ints | None, main: Mapping[int, int]) -> bool:
        if hint is None:
            return self._beats(form, values, main)
        costs = [sum(c * (int(values[var]) - int(hint[var])) for c, var in o.terms) for o in form.objectives]
        return next((cost < 0 for cost in costs if cost), False)

    def _beats(self, form: Formulation, values: Ints, main: Mapping[int, int]) -> bool:
        """Is the solution less disruptive than the plan of ``main``, of which the model knows no solution in full?

        A rule that a package of the user's adds may forbid greedy's plan itself: then any solution is better.
        """
        if not are_kept_by_all(self.model.families):
            return True
        for objective in form.objectives:
            if any(var not in main for _, var in objective.terms):
                continue
            ours, theirs = (sum(c * int(at[var]) for c, var in objective.terms) for at in (values, main))
            if ours != theirs:
                return ours < theirs
        return False


def _together(parts: Sequence[_Part]) -> Decision | None:
    """What is chosen in every part, or its plan so far, as one; None where that is not known."""
    every = Decision()
    for part in parts:
        values = part.plan if part.chosen is None else part.chosen
        if values is None:
            return None
        one = expand(part.form.variables, values)
        every.moved += one.moved
        every.reclaimed += one.reclaimed
        every.preempted += one.preempted
        every.places |= one.places
        every.devices |= one.devices
        every.grants |= one.grants
    return every


def _added(
    parts: Sequence[_Part], reported: Sequence[tuple[Stage, ...]], bounds: Mapping[str, int]
) -> tuple[Stage, ...]:
    """Stages of all parts by name: values and bounds add up, where each part that has the stage knows them.

    ``bounds``: of all parts together, each good while the stages before it are at theirs.

    A later stage's bound holds for what the parts reached before, each for itself; until all of that is optimal the
    whole might trade it between parts, and later bounds are not reported.
    """
    missing = {
        stage.name
        for part, stages in zip(parts, reported, strict=True)
        for stage in part.stages
        if stage.name not in {known.name for known in stages}
    }
    found: dict[str, Stage] = {}
    for stage in (stage for stages in reported for stage in stages if stage.name not in missing):
        other = found.get(stage.name, Stage(stage.name, 0.0, 0.0, True))
        value, bound = stage.value + other.value, stage.bound + other.bound
        found[stage.name] = Stage(stage.name, value, bound, stage.optimal and other.optimal)
    added = _raised(tuple(found.values()), bounds)
    first_open = next((number for number, stage in enumerate(added, 1) if not stage.optimal), len(added))
    return added if len(parts) == 1 else added[:first_open]


def joint_of(model_input: JointModelInput, rights: Rights) -> Joint:
    """The joint problem of all that the cycle admitted, within ``rights``."""
    admissions = model_input.outcome.admissions
    policy = model_input.problem.policy
    return model_input.join(
        [(a.allocation_unit, a.action) for a in admissions],
        rights.movable,
        rights.by_action.get(Action.RECLAIM, frozenset()),
        rights.by_action.get(Action.PREEMPT, frozenset()),
        rights.surplus,
        may_move=policy.consolidating_reclaim or any(a.action is Action.CONSOLIDATION for a in admissions),
    )


def _starting(outcome: Outcome) -> int:
    """Pods that start at once. If nothing is disturbed, no better place is worth a delay."""
    return sum(place.now for place in outcome.state.places.values())


def _raised(stages: Sequence[Stage], bounds: Mapping[str, int]) -> tuple[Stage, ...]:
    """``stages`` with the higher of two bounds, as long as those before are at the ``bounds`` that they have there."""
    found: list[Stage] = []
    is_at_bounds = True
    for stage in stages:
        bound = max(stage.bound, bounds.get(stage.name, stage.bound)) if is_at_bounds else stage.bound
        found.append(Stage(stage.name, stage.value, min(bound, stage.value), bound >= stage.value))
        is_at_bounds = is_at_bounds and found[-1].optimal and stage.value <= bounds.get(stage.name, stage.value)
    return tuple(found)


def main_values(outcome: Outcome, form: Formulation) -> dict[int, int]:
    """The greedy's plan as values of the main variables."""
    pool = outcome.pool
    by_action: dict[Action, set[int]] = {}
    moved: set[int] = set()
    for admission in outcome.admissions:
        for unit in admission.units:
            if pool is not None and pool.has_left(unit):
                by_action.setdefault(admission.action, set()).add(unit)
            elif pool is not None and pool.is_moved(unit):
                moved.add(unit)
    preempted = by_action.get(Action.PREEMPT, set())
    places = {pod: place.node for pod, place in outcome.state.places.items()}
    reclaimed = by_action.get(Action.RECLAIM, set()) - preempted
    return hint_values(form.variables, places, reclaimed, preempted, moved)


def is_loose(outcome: Outcome, rights: Rights) -> bool:
    """Whether gangs could give up others of their pods, or fewer, than the model lets them."""
    if rights.divisible:
        return True
    evictable: frozenset[int] = frozenset().union(
        *(rights.by_action.get(action, frozenset()) for action in (Action.RECLAIM, Action.PREEMPT))
    )
    return outcome.pool is not None and bool(loose_gangs(outcome.state, outcome.pool, evictable))


def _believed(stages: Sequence[Stage], joint: Joint, *, certain: bool) -> tuple[Stage, ...]:
    """Stages as they are; where units might be others (not ``certain``), bounds count as long as nothing is evicted.

    The model moves units whole, where single pods of one may stay after all: no fewer units than the bound fills.
    """
    found: list[Stage] = []
    for s in stages:
        certain = certain or (s.name == "moved-pods" and not any(stage.value for stage in found))
        bound = s.bound if certain else 0
        bound = _fewest_moves(joint, int(bound)) if s.name == "moved-pods" else bound
        found.append(Stage(s.name, s.value, float(bound), s.optimal and bound == s.bound))
    return tuple(found)


def _fewest_moves(joint: Joint, pods: int) -> int:
    """The fewest units that have ``pods`` pods: each that moves moves one of them at least."""
    sizes = sorted((len(mover.origin) for mover in joint.movers if mover.may_move), reverse=True)
    units = 0
    while pods > 0 and units < len(sizes):
        pods, units = pods - sizes[units], units + 1
    return units


def _stages(stages: Sequence[StageObjective], result: SessionResult, values: Ints | None) -> tuple[Stage, ...]:
    """What is known of each stage at ``values``: bounds hold as long as no stage before costs more than it was held to.

    ``values`` are None where not even the plan so far is known to be a solution: then nothing that the model says may
    hold for it.
    """
    found: list[Stage] = []
    for stage, reached in zip(stages, result.stages, strict=False):
        if values is None:
            break
        value = stage.value_of(values)
        found.append(Stage(stage.name, float(value), float(reached.bound), value == reached.bound))
        if reached.value is None or value > reached.value:
            break
    return tuple(found)


def _apply(
    outcome: Outcome, joint: Joint, decision: Decision, takers: Sequence[frozenset[int]], client: SolverClient
) -> str:
    """Put the decision into effect; else what was in the way, with all as it was."""
    mark, admissions, before = outcome.state.mark(), outcome.admissions, Disturbed.of(outcome.state)
    if not apply(outcome.state, outcome.pool, joint, decision, [(a.allocation_unit, a.action) for a in admissions]):
        return "the solver's places could not be realised device by device"
    if Disturbed.of(outcome.state).is_more_than(before):
        outcome.state.rollback(mark)
        return "the solver would move fewer parts of gangs, but more pods; the moves found before are kept"
    if attribute(outcome, joint, decision, takers, Tries(is_late=lambda: client.is_out_of_time)):
        return ""
    outcome.state.rollback(mark)
    outcome.replace_admissions(admissions)
    return "the solver's victims would not be allowed reclaim by reclaim; those found before are kept"
