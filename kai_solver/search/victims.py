"""Victims first, then takers, then places: what leaves, and for which gang, is decided without nodes.

On loaded clusters the whole joint model is too much for a cycle: with 1,000 nodes (700 that may be moved or evicted,
309 admitted, 9,600 variables) CP-SAT proves nothing in 40 s and SCIP needs 13 s of CPU for the first two stages.
Without nodes all four stages about evictions are proven in 0.6 to 1 s of CPU. Whether the reclaims would be allowed to
take these victims is asked next (`actions.sharing`, 0.07 s): where some find no taker, their queues must keep so much
more that one might be found, and SCIP is asked again. CP-SAT then places all pods beside these victims in 4 s; with 500
nodes in 2.1 s, no pod moved (2026-11-21, 2 cores, load 8). If nothing may move, places are found in 1.2 s with 500
nodes, against 3 to 5 s with moves to be minimised (the same day, load 11): that is asked first.

The bounds are those of the first answer, and hold whatever becomes of it: the rows of `model.victim_model` are true
of every plan for the same admissions, whichever takes which in it. A bound of a later stage is for the costs that the
earlier ones have there; where the plan so far stands, it is asked for again, for the costs of that plan.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kai_solver.actions.sharing import Shared
from kai_solver.domain import FAMILIES, Action
from kai_solver.model.build import Formulation
from kai_solver.model.joint import Mover
from kai_solver.model.rows import Ints
from kai_solver.model.spec import ModelSpec, SpecAnswer
from kai_solver.model.victim_model import VictimModel, formulate_victim_model
from kai_solver.search.session import SessionResult, StageObjective
from kai_solver.search.solver_client import SolverClient

SMALLEST = 1_000
"""Variables below which the stages alone are as fast."""
VICTIMS_PART, STILL_PART, SEATS_PART = 0.4, 0.7, 0.8
"""Most of the time that is left for victims; of what then is left, for seats with no pod moved, and with few."""
HELD_PART = 0.2
"""Most of the time that is left for a bound of one stage for the plan that stands."""
CUTS, HALVINGS, CUT_PART = 3, 4, 0.1
"""How often victims are chosen again because they leave no places; halvings of those that cause it; most of the
time that is left for each question about that."""
ROUNDS = 8
"""How often victims are chosen again because some of them have no taker; one to four on loaded clusters."""

Share = Callable[[Sequence[Mover]], Shared]
"""Shares out evicted movers among the admissions."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """``bounds`` of stages by name, each good while those before it are at theirs; a solution, if there is one.

    ``leaving``: units that leave where nodes do not count; None where that is not known.
    ``held``: bounds of stages while those before it cost what they do in the plan so far; where there is no solution.
    """

    bounds: Mapping[str, int] = field(default_factory=dict)
    values: Ints | None = None
    held: Mapping[str, int] = field(default_factory=dict)
    leaving: frozenset[int] | None = None


def decide_victims(
    solver_client: SolverClient,
    form: Formulation,
    stages: Sequence[StageObjective],
    main: Mapping[int, int],
    share: Share,
) -> Leaving:
    """Look for a solution of ``form`` whose victims cost the least; not where the model is small or lacks a rule.

    No seats are looked for where the victims of ``main``, the plan so far, cost no more.
    """
    if form.spec.size[0] < SMALLEST or not set(FAMILIES) <= set(solver_client.model.families):
        return Leaving()
    victim_model = formulate_victim_model(form.variables, form.objectives)
    mine = {objective.name: objective for objective in victim_model.objectives}
    asked = [
        StageObjective(s.name, mine[s.name].terms, mine[s.name].constant, s.share) for s in stages if s.name in mine
    ]
    if not asked:
        return Leaving()
    costs = [s.constant + sum(c * main[var] for c, var in s.terms) for s in stages if s.name in mine]
    moves = next((s for s in stages if s.name == "moved-pods"), None)
    uncut, whole = victim_model.spec.copy(), victim_model.spec
    first: SessionResult | None = None
    for _ in range(CUTS + 1):
        victim_model.spec = whole.copy()
        result = solver_client.minimize_alone(victim_model.spec, asked, VICTIMS_PART * solver_client.budget.left_s)
        first = first or result
        found = _taken(solver_client, victim_model, asked, result, share, costs)
        if found is None:
            break
        seated = form.spec.copy()
        preempted = {unit for a in found[1].admissions if a.action is Action.PREEMPT for unit in a.units}
        victim_model.pin(seated, found[0], preempted)
        answer = seats(solver_client, seated, moves)
        if answer.values is not None:
            return replace(_bounded(victim_model, first), values=answer.values)
        if answer.status != "infeasible" or not _cut_off(solver_client, form, victim_model, found[0], whole):
            break
    return (
        Leaving()
        if first is None
        else replace(_bounded(victim_model, first), held=_held(solver_client, uncut, asked, first, costs))
    )


def _bounded(victim_model: VictimModel, first: SessionResult) -> Leaving:
    """What the first answer bounds: later ones keep cuts, which come from the joint model and hold for it alone.

    Its rows of what may be taken from which queue are stricter than the rights, and a bound holds for every plan.
    """
    bounds = {stage.name: stage.bound for stage in first.stages}
    return Leaving(bounds, leaving=None if first.values is None else victim_model.leaving(first.values))


def _cut_off(
    solver_client: SolverClient, form: Formulation, victim_model: VictimModel, values: Ints, whole: ModelSpec
) -> bool:
    """Cut off the victims of ``values``, which leave no places for all, from ``whole``; False where nothing is proven.

    The cut: of some that stay, more must leave. Of as few as some questions tell, half of them at a time by node, since
    what is short is short somewhere.
    """

    def is_refuted(numbers: Sequence[int]) -> bool:
        """Are there no places if of ``numbers`` no more leave, whatever else does?"""
        spec = form.spec.copy()
        victim_model.pin_most(spec, values, numbers)
        return (
            solver_client.solve(spec, CUT_PART * solver_client.budget.left_s, presolve="light").status == "infeasible"
        )

    numbers = victim_model.stayers(values)
    if not numbers or not is_refuted(numbers):
        return False
    for _ in range(HALVINGS):
        halves = (numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :])
        smaller = next(filter(is_refuted, filter(None, halves)), None) if len(numbers) > 1 else None
        if smaller is None:
            break
        numbers = smaller
    victim_model.cut(whole, values, numbers)
    return True


def _held(
    solver_client: SolverClient,
    spec: ModelSpec,
    asked: Sequence[StageObjective],
    result: SessionResult,
    costs: Sequence[int],
) -> dict[str, int]:
    """Bounds of the stages, each while those before it cost no more than ``costs``."""
    bounds: dict[str, int] = {}
    is_same = True
    for number, stage in enumerate(asked):
        if solver_client.is_out_of_time:
            break
        if is_same and number < len(result.stages):
            bounds[stage.name] = result.stages[number].bound
        else:
            found = solver_client.minimize_alone(spec, [stage], HELD_PART * solver_client.budget.left_s)
            bounds.update((s.name, s.bound) for s in found.stages)
        is_same = is_same and number < len(result.stages) and result.stages[number].value == costs[number]
        spec.add_le(stage.terms, costs[number] - stage.constant, family="leavers")
    return bounds


def _taken(
    solver_client: SolverClient,
    victim_model: VictimModel,
    asked: Sequence[StageObjective],
    result: SessionResult,
    share: Share,
    most: Sequence[int],
) -> tuple[Ints, Shared] | None:
    """Victims that all have takers, cheaper than ``most``; None where none are found in time."""
    for _ in range(ROUNDS):
        costs = [stage.value for stage in result.stages if stage.value is not None]
        if result.values is None or solver_client.is_out_of_time or costs >= list(most):
            return None
        movers = victim_model.evicted(result.values)
        shared = share(movers)
        if not shared.left:
            return result.values, shared
        victim_model.spare(movers, {u for group in shared.left for u in group.units}, shared.short)
        result = solver_client.minimize_alone(victim_model.spec, asked, VICTIMS_PART * solver_client.budget.left_s)
    return None


def seats(solver_client: SolverClient, spec: ModelSpec, moves: StageObjective | None) -> SpecAnswer:
    """Places for all: with nothing moved, which is a much smaller question, or with few moves."""
    if moves is not None:
        still = spec.copy()
        still.add_le(moves.terms, -moves.constant, family="leavers")
        found = solver_client.solve(still, STILL_PART * solver_client.budget.left_s, presolve="light")
        if found.values is not None:
            return found
        spec.minimize(moves.terms, moves.constant)
    return solver_client.solve(spec, SEATS_PART * solver_client.budget.left_s, presolve="light")
