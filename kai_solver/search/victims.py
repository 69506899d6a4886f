"""Large cycles: victims first, then takers, then places. What leaves, and for which gang, is decided without nodes.

On loaded clusters the whole joint model is too much for a cycle: with 1,000 nodes (700 that may be moved or evicted,
354 admitted, 12,300 variables) CP-SAT proves nothing in 40 s. So it is asked in three steps (CPU seconds of one core,
2026-11-23, 1,000 and 2,000 loaded nodes):

1. The LP of `model.victim_model` is almost integral: SCIP finds victims within 0.1% of the least work in 0.2 and 0.9 s,
   if priorities whose bound (`search.pricing`) is 0 are held at 0.
2. Whether the reclaims would be allowed to take these victims is asked next (`actions.sharing`): where some find no
   taker, their queues must keep so much more that one might be found, and SCIP is asked again, three to six times.
3. CP-SAT gives all that was admitted its places on a restricted model: the victims leave, all other running pods are
   fixed where they run. With its default presolve that is 0.3 and 1 s. If there are no places, it is asked on the whole
   model, with the fewest moves, as far as time allows.

Up to `refine.WHOLE` variables all stages about evictions are then minimised exactly. Those bounds hold whatever becomes
of it: the rows of `model.victim_model` are true of every plan for the same admissions, whichever takes which in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kai_solver.actions.reclaim_replay import reclaims_hold
from kai_solver.actions.sharing import Shared
from kai_solver.domain import FAMILIES
from kai_solver.model.build import Formulation, formulate
from kai_solver.model.decode import Decision, expand
from kai_solver.model.joint import Joint
from kai_solver.model.rows import Ints
from kai_solver.model.spec import ModelSpec
from kai_solver.model.stages import EVICTED, stages
from kai_solver.model.variables import Variables
from kai_solver.model.victim_model import Evictions, VictimModel, formulate_victim_model, pin, pin_most, units_of
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.search.apply import apply
from kai_solver.search.attribution import attribute, share_victims
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.rights import Rights
from kai_solver.search.session import StageObjective
from kai_solver.search.solver_client import BUILD_S, SolverClient

SMALLEST = 1_000
"""Variables (about) below which the whole model alone is as fast."""
RESTRICTED_BUILD_S = 2e-5
"""The same for the joint problem and the model without nodes: 0.08 and 0.2 s of CPU time with 1,000 and 2,000 loaded
nodes, about 5,800 and 11,500 variables (2026-11-23)."""
ROUND_S = 4e-5
"""Seconds a variable to share out victims, to build the restricted model and to put its places into effect: 0.2 and
0.5 s of CPU time there (2026-11-23)."""
GAP = 0.001
"""Part of the least work that is not searched for; takers and places cost more."""
VICTIMS_PART, SEATS_PART = 0.4, 0.8
"""Most of the time that is left for each choice of victims, and for places."""
CUTS, HALVINGS, CUT_PART = 3, 4, 0.1
"""How often victims are chosen again because they leave no places; halvings of those that cause it; most of the
time that is left for each question about that."""
ROUNDS, SPARING = 8, 3
"""How often victims are chosen again because some of them have no taker: one to six times on loaded clusters. After
how many of these just those are to stay, and no longer their queues to keep more, so that one might be found."""


@dataclass(slots=True)
class VictimChoice:
    """Chooses victims and places of one cycle again.

    Attributes
    ----------
    estimate
        Variables (about) of the whole model.
    bounds
        Of stages by name, each good while those before it are at theirs.
    note
        What was in the way of better victims.
    """

    solver_client: SolverClient
    outcome: Outcome
    pool: VictimPool
    rights: Rights
    model_input: JointModelInput
    joint: Joint
    estimate: int
    bounds: dict[str, int] = field(default_factory=dict)
    note: str = ""
    _victim_model: VictimModel = field(init=False)
    _asked: list[StageObjective] = field(init=False)
    _form: Formulation | None = field(init=False, default=None)

    @staticmethod
    def is_for(solver_client: SolverClient, estimate: int) -> bool:
        """True for large cycles of models that have every rule, and time to build the model without nodes."""
        search, families = solver_client.model.search, solver_client.model.families
        has_time = search.deterministic or solver_client.budget.left_s > estimate * RESTRICTED_BUILD_S
        return estimate >= SMALLEST and set(FAMILIES) <= set(families) and has_time

    def __post_init__(self) -> None:
        variables = Variables(self.joint, ModelSpec())
        objectives = [o for name in self.solver_client.model.disrupting for o in stages(name)(variables)]
        self._victim_model = formulate_victim_model(variables, tuple(objectives))
        self._asked = [
            StageObjective(o.name, o.terms, o.constant, gap=GAP if o.name.startswith(EVICTED) else 0.0)
            for o in self._victim_model.objectives
        ]

    @property
    def costs(self) -> tuple[int, ...]:
        """What the plan so far costs in the stages about evictions."""
        gone = {var: sum(map(self.pool.has_left, units_of(item))) for item, var in self._victim_model.gone}
        return tuple(s.constant + sum(c * gone[var] for c, var in s.terms) for s in self._asked)

    def improve(self, least: Mapping[str, int], *, exactly: bool) -> bool:
        """Look for cheaper victims, takers and places, and put them into effect; False where none are found in time.

        ``least``: by stage, what no plan is below whose earlier stages are at theirs. ``exactly``: look for the least
        of all stages about evictions, too.
        """
        works = [s for s in self._asked if s.name.startswith(EVICTED)]
        if not works or all(least.get(s.name) == cost for s, cost in zip(works, self.costs, strict=False)):
            return False
        zeros = next((number for number, stage in enumerate(works[:-1]) if least.get(stage.name, 0)), len(works) - 1)
        improved = self._choose(works, zeros)
        if exactly and not self.solver_client.is_out_of_time:
            improved |= self._choose([replace(stage, gap=0.0) for stage in self._asked], 0)
        return improved

    def _choose(self, asked: Sequence[StageObjective], zeros: int) -> bool:
        """Choose victims by the stages ``asked``, of which the first ``zeros`` can be 0, and give all their places."""
        model, whole, costs = self._victim_model, self._victim_model.spec, self.costs
        cut, status = whole.copy(), ""
        for _ in range(CUTS + 1):
            model.spec = cut.copy()
            found = self._taken(asked, zeros, costs)
            if found is None:
                break
            values, shared = found
            status = self._seat({u: a.action for a in shared.admissions for u in a.units}, shared)
            if status != "infeasible" or not self._cut_off(values, cut):
                break
        model.spec = whole
        return status == "done"

    # -- victims and takers ----------------------------------------------------------------------------------------

    def _taken(self, asked: Sequence[StageObjective], zeros: int, costs: Sequence[int]) -> tuple[Ints, Shared] | None:
        """Victims that all have takers, cheaper than ``costs``; None where none are found in time."""
        model = self._victim_model
        for number in range(ROUNDS):
            values = self._cheapest(asked, zeros)
            if values is None or not self._has_time_for_a_round:
                return None
            if [stage.value_of(values) for stage in asked] >= list(costs[: len(asked)]):
                return None
            movers = model.evicted(values)
            shared = share_victims(self.outcome, movers, self.rights.takers)
            if not shared.left:
                return values, shared
            left = {u for group in shared.left for u in group.units}
            if number < SPARING:
                model.spare(movers, left, shared.short)
            else:
                model.keep(left)
        self.note = "cheaper victims would not be allowed reclaim by reclaim"
        return None

    def _cheapest(self, asked: Sequence[StageObjective], zeros: int) -> Ints | None:
        """Victims of little cost: nothing in the first ``zeros`` stages, as long as there are such victims."""
        client, spec = self.solver_client, self._victim_model.spec
        for held in dict.fromkeys((zeros, 0)):
            tight = spec.copy()
            for stage in asked[:held]:
                tight.add_le(stage.terms, -stage.constant, family="leavers")
            result = client.minimize_alone(tight, asked[held:], VICTIMS_PART * client.budget.left_s)
            if not held and not spec.count("leavers") and not spec.count("cut"):
                self.bounds |= {stage.name: stage.bound for stage in result.stages}
            if result.values is not None:
                return result.values
        return None

    # -- places ----------------------------------------------------------------------------------------------------

    def _seat(self, evictions: Evictions, shared: Shared) -> str:
        """Places with just these ``evictions``: with nothing moved, which is a small question, or with few moves.

        ``done``, ``infeasible`` (just these leave no places, whatever moves), or what else the solver says.
        """
        mine = [u for item, _ in self._victim_model.gone if not evictions.keys().isdisjoint(u := units_of(item))]
        concerned = frozenset(unit for units in mine for unit in units)
        disturbed = frozenset(unit.index for unit in self.pool.units if self.pool.is_disturbed(unit.index))
        form = formulate(self._joint_of(concerned | disturbed, concerned), self.solver_client.model.families, [])
        spec = form.spec.copy()
        pin(spec, form.variables, evictions)
        status = self._place(form, spec, shared)
        return status if status == "done" else self._seat_with_moves(evictions, shared)

    def _seat_with_moves(self, evictions: Evictions, shared: Shared) -> str:
        """Places where just ``evictions`` leave, with few moves."""
        whole = self._whole()
        if whole is None:
            return "unknown"
        spec = whole.spec.copy()
        pin(spec, whole.variables, evictions)
        moves = next(o for o in whole.objectives if o.name == "moved-pods")
        spec.minimize(moves.terms, moves.constant)
        return self._place(whole, spec, shared)

    def _joint_of(self, units: frozenset[int], evictable: frozenset[int]) -> Joint:
        """The joint problem in which only ``evictable`` may leave, all other running pods stay, and nothing moves."""
        movers = [m for m in self.joint.movers if m.unit in evictable]
        return self.model_input.join(
            [(a.allocation_unit, a.action) for a in self.outcome.admissions],
            units,
            frozenset(m.unit for m in movers if m.reclaimable),
            frozenset(m.unit for m in movers if m.preemptable),
            self.joint.surplus,
            may_move=False,
        )

    def _place(self, form: Formulation, spec: ModelSpec, shared: Shared) -> str:
        """Ask ``spec``, which is ``form`` with some decided, for places, and put them into effect."""
        client = self.solver_client
        answer = client.solve(spec, SEATS_PART * client.budget.left_s, presolve="default")
        if answer.values is None:
            return answer.status
        return self._put(form.variables.joint, expand(form.variables, answer.values), shared)

    @property
    def _has_time_for_a_round(self) -> bool:
        client = self.solver_client
        is_hurried = not client.model.search.deterministic and client.budget.left_s < self.estimate * ROUND_S
        return not is_hurried and not client.is_out_of_time

    @property
    def _has_time_for_whole(self) -> bool:
        client = self.solver_client
        return client.model.search.deterministic or client.budget.left_s > self.estimate * BUILD_S

    def _whole(self) -> Formulation | None:
        """The joint model with all nodes and all that may move; None where there is no time for it."""
        client = self.solver_client
        if self._form is None and self._has_time_for_whole and not client.is_out_of_time:
            self._form = formulate(self.joint, client.model.families, client.model.disrupting)
        return self._form

    def _put(self, joint: Joint, decision: Decision, shared: Shared) -> str:
        """Put the decision into effect, with the takers that were found for its victims."""
        outcome, before = self.outcome, self.costs
        mark, admissions = outcome.state.mark(), outcome.admissions
        if not apply(outcome.state, self.pool, joint, decision, [(a.allocation_unit, a.action) for a in admissions]):
            self.note = "the solver's places could not be realised device by device"
            return "refused"
        evicted = {*decision.reclaimed, *decision.preempted}
        is_shared = not decision.moved and evicted == {u for a in shared.admissions for u in a.units}
        if is_shared:
            outcome.replace_admissions(shared.admissions)
        is_allowed = is_shared and reclaims_hold(outcome)
        if not is_allowed:
            outcome.replace_admissions(admissions)
            is_allowed = attribute(outcome, joint, decision, self.rights.takers)
        if is_allowed and self.costs < before:
            return "done"
        outcome.state.rollback(mark)
        outcome.replace_admissions(admissions)
        self.note = "the solver's victims would not be allowed reclaim by reclaim; those found before are kept"
        return "refused"

    # -- cuts ------------------------------------------------------------------------------------------------------

    def _cut_off(self, values: Ints, spec: ModelSpec) -> bool:
        """Cut off the victims of ``values``, which leave no places for all, from ``spec``; False if nothing is proven.

        The cut: of some that stay, more must leave. Of as few as some questions tell, half of them at a time by node,
        since what is short is short somewhere. It comes from the joint model, whose rows of what may be taken from
        which queue are stricter than the rights: no bound may rest on it.
        """
        form, client, model = self._whole(), self.solver_client, self._victim_model
        if form is None:
            return False

        def is_refuted(numbers: Sequence[int]) -> bool:
            """Are there no places if of ``numbers`` no more leave, whatever else does?"""
            asked = form.spec.copy()
            groups = [(units_of(model.gone[n][0]), int(values[model.gone[n][1]])) for n in numbers]
            pin_most(asked, form.variables, groups)
            return client.solve(asked, CUT_PART * client.budget.left_s, presolve="light").status == "infeasible"

        numbers = model.stayers(values)
        if not numbers or not is_refuted(numbers):
            return False
        for _ in range(HALVINGS):
            halves = (numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :])
            smaller = next(filter(is_refuted, filter(None, halves)), None) if len(numbers) > 1 else None
            if smaller is None:
                break
            numbers = smaller
        model.cut(spec, values, numbers)
        return True
