"""Victims first, seats after: who leaves is decided without nodes, then everybody is seated with just these gone.

On loaded clusters the whole joint model is too much for a cycle: with 1,000 nodes (700 that may be moved or evicted,
309 admitted, 9,600 variables) CP-SAT proves nothing in 40 s and SCIP needs 13 s of CPU for the first two stages.
Without nodes all four stages about evictions are proven in 2.1 s, and CP-SAT seats everybody beside these victims in
4 s; with 500 nodes in 1.1 s and 2.1 s, no pod moved (2026-11-21, 2 cores, load 8). Where nobody may move, seats are
found in 1.2 s with 500 nodes, against 3 to 5 s with moves to be minimised (the same day, load 11): that is asked
first. Where no seats are found the bounds remain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kai_solver.domain import FAMILIES
from kai_solver.formulation.build import Formulation
from kai_solver.formulation.leavers import formulate_leavers
from kai_solver.formulation.rows import Ints
from kai_solver.formulation.spec import ModelSpec
from kai_solver.search.asker import Asker
from kai_solver.search.session import StageObjective

SMALLEST = 1_000
"""Variables below which the stages alone are as fast."""
VICTIMS_PART, STILL_PART, SEATS_PART = 0.4, 0.7, 0.8
"""Most of the time that is left for who leaves; of what then is left, for seats with no pod moved, and with few."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """``bounds`` of stages by name, each good while those before it are at theirs; a solution, if there is one.

    ``leaving``: units that leave where nodes do not count; None where that is not known.
    """

    bounds: Mapping[str, int] = field(default_factory=dict)
    values: Ints | None = None
    leaving: frozenset[int] | None = None


def decide_leavers(
    asker: Asker, form: Formulation, stages: Sequence[StageObjective], hint: Ints | None = None
) -> Leaving:
    """Look for a solution of ``form`` whose victims cost the least; not where the model is small or lacks a rule.

    No seats are looked for where the victims of ``hint`` cost no more.
    """
    if form.spec.size[0] < SMALLEST or not set(FAMILIES) <= set(asker.model.families):
        return Leaving()
    leavers = formulate_leavers(form.variables, form.objectives)
    mine = {objective.name: objective for objective in leavers.objectives}
    asked = [
        StageObjective(s.name, mine[s.name].terms, mine[s.name].constant, s.share) for s in stages if s.name in mine
    ]
    if not asked:
        return Leaving()
    result = asker.minimize_alone(leavers.spec, asked, VICTIMS_PART * asker.budget.left_s)
    bounds = {stage.name: stage.bound for stage in result.stages}
    costs = [stage.value for stage in result.stages]
    known = None if hint is None else [s.value_of(hint) for s in stages if s.name in mine]
    if result.values is None or known == costs or asker.is_out_of_time:
        return Leaving(bounds, None, None if result.values is None else leavers.leaving(result.values))
    seated = form.spec.copy()
    leavers.pin(seated, result.values)
    values = seats(asker, seated, next((s for s in stages if s.name == "moved-pods"), None), hint)
    return Leaving(bounds, values, leavers.leaving(result.values))


def seats(asker: Asker, spec: ModelSpec, moves: StageObjective | None, hint: Ints | None) -> Ints | None:
    """Seats for all: with nobody moved, which is a much smaller question, or with few moves."""
    if moves is not None:
        still = spec.copy()
        still.add_le(moves.terms, -moves.constant, family="leavers")
        still.hint(hint)
        found = asker.solve(still, STILL_PART * asker.budget.left_s, presolve="light").values
        if found is not None:
            return found
        spec.minimize(moves.terms, moves.constant)
    return asker.solve(spec, SEATS_PART * asker.budget.left_s, presolve="light").values
