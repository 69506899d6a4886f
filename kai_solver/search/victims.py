"""Large cycles: victims first, then takers, then places. What leaves, and for which gang, is decided without nodes.

On loaded clusters the whole joint model is too much for a cycle: with 1,000 nodes (700 that may be moved or evicted,
354 admitted, 12,300 variables) CP-SAT proves nothing in 40 s. So it is asked in steps (CPU seconds of one core,
2026-11-23, 1,000 and 2,000 loaded nodes):

1. The LP of the prices (`search.pricing`) is almost integral, and says which victims cost least: they are known when
   the bound is. All that was admitted gets its places beside what stays, one after the other (`search.seats`): 0.1 and
   0.3 s.
2. Where that costs more than the bound, SCIP finds victims within 0.1% of the least work in 0.2 and 2 s, if priorities
   whose bound is 0 are held at 0. Their places are found in the same way.
3. Whether the reclaims would be allowed to take these victims is asked before (`actions.sharing`): where some find no
   taker, their queues must keep so much more that one might be found, and SCIP is asked again.
4. Where places are missing, or those that were found let more leave, CP-SAT gives all their places on a restricted
   model: the victims leave, all other running pods are fixed where they run; then, if there are none, small pods may
   move, and at last all. As few move as are found. With 1,000 nodes that is 0.1, 0.3 and 2 s (2026-11-30).

Up to `refine.WHOLE` variables all stages about evictions are then minimised exactly. Those bounds hold whatever becomes
of it: the rows of `model.victim_model` are true of every plan for the same admissions in which no other pods move,
whichever takes which in it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from kai_solver.actions.reclaim_replay import reclaims_hold
from kai_solver.actions.sharing import BY_WEIGHT, Shared, Tries, VictimGroup
from kai_solver.domain import FAMILIES, Action
from kai_solver.model.build import Formulation, formulate
from kai_solver.model.decode import Decision, expand, hint_values
from kai_solver.model.joint import Joint, Mover
from kai_solver.model.rows import Ints
from kai_solver.model.spec import ModelSpec
from kai_solver.model.stages import EVICTED, stages
from kai_solver.model.variables import Variables
from kai_solver.model.victim_model import (
    Evictions,
    Spared,
    VictimModel,
    add_rows,
    formulate_victim_model,
    pin,
    sparing,
    units_of,
)
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.search.apply import apply
from kai_solver.search.attribution import EVICTING, Evictors, attribute, share_victims
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.rights import NOTHING, Rights
from kai_solver.search.seats import Seats, SeatSearch
from kai_solver.search.session import StageObjective
from kai_solver.search.solver_client import SolverClient
from kai_solver.units import GPU, UNLIMITED

SMALLEST = 50
"""Variables (about) below which the whole model alone is as fast. On 40 loaded clusters of 60 to 150 nodes, as they are
and as real twins, cycles of 2 s proved all evicted work of 30 with 1,000 here, and of 36 with 500, mostly in half of
the time; on 24 of 60 and 80 nodes a cycle took 0.90 s with 500, 0.59 s with 200 and 0.51 s with 50 (2026-11-28)."""
RESTRICTED_BUILD_S = 4e-5
"""Seconds a variable for the joint problem and the model without nodes, twice what they take: 0.08 and 0.2 s of CPU
time with 1,000 and 2,000 loaded nodes, about 5,800 and 11,500 variables (2026-11-23). With half of it, openb, with
180,000 variables, spent the last 4.3 of 10 s on them in vain, and had no time for its bound (2026-11-30)."""
FOLLOWING = 50_000
"""Variables up to which these seconds follow the machine: on 2,000 real nodes (seed 22) the programme's answer comes at
the last moment for which there is time. On openb they must not, as just said (2026-12-01)."""
ROUND_S = 4e-5
"""Seconds a variable to share out victims, to build the restricted model and to put its places into effect: 0.2 and
0.5 s of CPU time there (2026-11-23)."""
GAP = 0.001
"""Part of the least work that is not searched for; takers and places cost more."""
VICTIMS_PART, SEATS_PART, MOVES_PART, TAKERS_PART, SHARING_PART = 0.4, 0.8, 0.5, 0.3, 0.12
"""Most of the time that is left for each choice of victims, for places, for places with few moves, for each programme
of victims with takers, and to search for their takers."""
SMALL = 4_000
"""Thousandths of GPUs of pods that may move for places: with them CP-SAT finds places on 1,000 loaded nodes (seed 3) in
0.7 s, with all that may move in none of 4 s (2026-11-23)."""
LEFT_PART = 0.01
"""Part of the GPUs that leave, of which the takers may be missing: these stay."""
TRY_S = 1e-8
"""Seconds of a try to find takers, by victims times admissions: 0.9 ms on 1,000 loaded nodes, 230 victims of 365
admissions (2026-11-30)."""
ROUNDS, SPARING, TAKER_ROUNDS, REPLACING, SEAT_TRIES = 8, 5, 2, 2, 3
"""How often victims are chosen again because some of them have no taker: one to six times on loaded clusters. After
how many of these just those are to stay, and no longer their queues to keep more, so that one might be found. How often
the programme is solved for that, how often for others in place of those without, and how often its victims are given
places. With others in their place, on 1,000 loaded nodes at 2 s (seed 23) the gap is 5.1% in place of 17%; their places
took 5.3 million (2026-11-30)."""

Row = tuple[list[int], list[int], int]
"""Units, weights, and the most that the weighed sum of those that leave may be."""
LeavingBy = Callable[[Sequence[Row], float], frozenset[int]]
"""Units that leave by the linear programme with more rows, by a moment."""


def nothing_leaves(_rows: Sequence[Row], _deadline_s: float) -> frozenset[int]:
    """There is no programme to ask."""
    return frozenset()


@dataclass(slots=True)
class VictimChoice:
    """Chooses victims and places of one cycle again.

    Attributes
    ----------
    estimate
        Variables (about) of the whole model.
    bounds
        Of stages by name, each good while those before it are at theirs; by the victims alone, wherever they run.
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
    leaving_by: LeavingBy = nothing_leaves
    bounds: dict[str, int] = field(default_factory=dict)
    note: str = ""
    _variables: Variables = field(init=False)
    _victim_model: VictimModel = field(init=False)
    """Without rows until SCIP is asked."""
    _asked: list[StageObjective] = field(init=False)
    _evictors: Evictors | None = field(init=False, default=None)
    """Which admissions may evict a unit."""
    _known: dict[frozenset[int], Shared] = field(init=False, default_factory=dict)
    """Their takers, by what leaves."""
    _tries: Tries = field(init=False, default_factory=Tries)
    _sharing_s: float | None = field(init=False, default=None)
    """What is left of the time for them."""

    @staticmethod
    def is_for(solver_client: SolverClient, estimate: int) -> bool:
        """True for large cycles of models that have every rule, and time to build the model without nodes."""
        families = solver_client.model.families
        has_time = solver_client.has_time_for(estimate * RESTRICTED_BUILD_S, follows=estimate <= FOLLOWING)
        return estimate >= SMALLEST and set(FAMILIES) <= set(families) and has_time

    def __post_init__(self) -> None:
        self._variables = Variables(self.joint, ModelSpec())
        objectives = [o for name in self.solver_client.model.disrupting for o in stages(name)(self._variables)]
        self._victim_model = formulate_victim_model(self._variables, tuple(objectives))
        self._asked = [
            StageObjective(o.name, o.terms, o.constant, gap=GAP if o.name.startswith(EVICTED) else 0.0)
            for o in self._victim_model.objectives
        ]

    @property
    def costs(self) -> tuple[int, ...]:
        """What the plan so far costs in the stages about evictions."""
        return tuple(self._costs(self.pool.has_left))

    def _costs(self, leaves: Callable[[int], bool]) -> Iterator[int]:
        gone = {var: sum(map(leaves, units_of(item))) for item, var in self._victim_model.gone}
        return (s.constant + sum(c * gone[var] for c, var in s.terms) for s in self._asked)

    def _cost_of(self, leaving: frozenset[int]) -> dict[str, int]:
        """By stage, what it costs that just these units leave."""
        return {stage.name: cost for stage, cost in zip(self._asked, self._costs(leaving.__contains__), strict=True)}

    def improve(
        self,
        least: Mapping[str, int],
        leaving: frozenset[int] = frozenset(),
        *,
        exactly: bool = False,
        asks_for_places: bool = False,
    ) -> bool:
        """Look for cheaper victims, takers and places, and put them into effect; False where none are found in time.

        ``least``: by stage, what no plan is below whose earlier stages are at theirs. ``leaving``: units that leave
        for that. ``exactly``: look for the least of all stages about evictions, too. ``asks_for_places``: have CP-SAT
        find places, too, if those that are found one after the other cost more than the victims.
        """
        works = self._works
        if not works or all(least.get(s.name) == cost for s, cost in zip(works, self.costs, strict=False)):
            return False
        zeros = next((number for number, stage in enumerate(works[:-1]) if least.get(stage.name, 0)), len(works) - 1)
        improved = bool(leaving) and self._seated(*self._with_takers(leaving))
        if not self._is_near(works, least):
            improved |= self._choose(works, zeros, asks_for_places=asks_for_places)
        if exactly and not self.solver_client.is_out_of_time:
            improved |= self._choose(
                [replace(stage, gap=0.0) for stage in self._asked], 0, asks_for_places=asks_for_places
            )
        return improved

    def is_within_gap(self, least: Mapping[str, int]) -> bool:
        """Whether the work that leaves is within `GAP` of the ``least``, or of a bound that was found since."""
        return any(self._is_near(self._works, known) for known in (least, self.bounds) if known)

    @property
    def _works(self) -> list[StageObjective]:
        """The stages about work that leaves, the highest priority first."""
        return [stage for stage in self._asked if stage.name.startswith(EVICTED)]

    def _is_near(self, works: Sequence[StageObjective], least: Mapping[str, int]) -> bool:
        """Whether the work that leaves is within `GAP` of the least, by the first priority where it is above."""
        for stage, cost in zip(works, self.costs, strict=False):
            if cost > least.get(stage.name, 0):
                return cost <= (1 + GAP) * least.get(stage.name, 0)
        return True

    def _seated(self, leaving: frozenset[int], tight: Collection[int]) -> bool:
        """Let ``leaving`` leave, give all their places one after the other, and keep that if it costs less.

        More may leave where places are missing, of ``tight`` queues only if there is no other way.
        """
        staying = {mover.unit for mover in self.joint.movers if mover.queue in tight} - leaving
        search = SeatSearch(self.outcome, self.pool, self.joint.movers, lambda: self.solver_client.is_out_of_time)
        is_better = self._seats_found(search, leaving, staying)
        is_near = self._is_near(self._works, self._cost_of(leaving))
        if search.may_be_better and not is_near and self._has_time_for_a_round:
            is_better |= self._seats_found(search, leaving, staying)
        return is_better

    def _seats_found(self, search: SeatSearch, leaving: frozenset[int], staying: AbstractSet[int]) -> bool:
        """Whether ``search`` finds places that cost less; then they are kept.

        Where no gang may take some of what leaves, others of their queues stay in the next try; these, if all do.
        """
        outcome, before = self.outcome, self.costs
        mark, admissions = outcome.state.mark(), outcome.admissions
        for number in range(SEAT_TRIES):
            seats = search.seat(leaving, staying)
            if seats is None:
                if number or not staying or self.solver_client.is_out_of_time:
                    break
                staying = NOTHING
                continue
            more: set[int] = set()
            left: set[int] = set()
            if self.costs < before and self._may_move(seats.moved):
                shared = self._shared(seats.leaving)
                if self._is_allowed(seats, shared):
                    return True
                left = _left(shared)
                short = {mover.queue for mover in self._movers_of(left)}
                more = {mover.unit for mover in self.joint.movers if mover.queue in short} - leaving - staying
            outcome.state.rollback(mark)
            outcome.replace_admissions(admissions)
            if not more | left:
                break
            staying, leaving = staying | more | left, leaving if more else leaving - left
        return False

    @contextmanager
    def _timed(self, victims: int) -> Iterator[Tries]:
        """Tries to find takers for so many ``victims``, in what is left of the time for that.

        Where deterministic seconds are counted, no clock ends them, and they are charged as if they were such seconds.
        """
        client, tries, before = self.solver_client, self._tries, self._tries.made
        budget = client.budget
        if self._sharing_s is None:
            self._sharing_s = SHARING_PART * budget.left_s
        start_s = budget.clock()
        until_s = start_s + self._sharing_s
        is_exact = client.model.search.deterministic
        tries.is_late = lambda: not self._has_time_for_a_round or (not is_exact and budget.clock() > until_s)
        yield tries
        if is_exact:
            budget.spent_s += TRY_S * victims * len(self.outcome.admissions) * (1 + tries.made - before)
        self._sharing_s -= budget.clock() - start_s

    def _movers_of(self, units: Collection[int]) -> list[Mover]:
        return [mover for mover in self.joint.movers if mover.unit in units]

    def _shared(self, leaving: frozenset[int]) -> Shared:
        """Which admissions take ``leaving``; found once for the same admissions."""
        admissions = self.outcome.admissions
        if self._evictors is None or self._evictors.admissions != admissions:
            self._evictors, self._known = Evictors(admissions, self.rights.takers), {}
        shared = self._known.get(leaving)
        if shared is None:
            evicted = self._movers_of(leaving)
            with self._timed(len(evicted)) as tries:
                shared = self._known[leaving] = share_victims(self.outcome, evicted, self._evictors, tries)
            if shared.latest is not None:  # It was searched for, and holds without what is left.
                self._known[leaving - _left(shared)] = replace(shared, left=[], short={}, latest=None)
        return shared

    def _with_takers(self, leaving: frozenset[int]) -> tuple[frozenset[int], set[int]]:
        """Units like ``leaving`` that all have gangs that may take them, as far as they are found.

        Beside them the leaf queues of those that had none: with one more of theirs, others may be without again.
        """
        rows: list[Row] = []
        budget, shared = self.solver_client.budget, self._shared(leaving)
        tight = {mover.queue for mover in self._movers_of(_left(shared))}
        for number in range(TAKER_ROUNDS):
            if self._are_nearly_all_taken(leaving, shared):
                self._tries.first = shared.early
                return leaving - _left(shared), tight
            if not self._has_time_for(2):
                break
            self._tries.first = shared.early
            rows += map(self._row, self._spared(self._movers_of(leaving), shared, again=number > 0))
            found = self.leaving_by(rows, budget.limit_s(TAKERS_PART * budget.left_s))
            again = self._shared(found) if found else shared
            if self._gpus(again) >= self._gpus(shared):
                break  # More rows of this kind help no more, or the programme had no time to make its units whole.
            leaving, shared = found, again
        return self._replaced(self._taken_of(leaving, shared), leaving, tight), tight

    def _replaced(self, taken: frozenset[int], wanted: frozenset[int], tight: Collection[int]) -> frozenset[int]:
        """``taken``, and the cheapest of queues that are not ``tight`` in place of what else was ``wanted``."""
        staying = (wanted | {m.unit for m in self.joint.movers if m.queue in tight and m.may_leave}) - taken
        budget = self.solver_client.budget
        for _ in range(REPLACING):
            if taken == wanted or not self._has_time_for(2):
                break
            rows = [(list(staying), [1] * len(staying), 0), (list(taken), [-1] * len(taken), -len(taken))]
            found = self.leaving_by(rows, budget.limit_s(TAKERS_PART * budget.left_s))
            if not found:
                break
            shared = self._shared(found)
            if self._are_nearly_all_taken(found, shared):
                self._tries.first = shared.early
                return found - _left(shared)
            staying |= _left(shared) - taken
        return taken

    def _taken_of(self, leaving: frozenset[int], shared: Shared) -> frozenset[int]:
        """``leaving`` without some, so that all have takers: of each queue as few as it may have to keep.

        Or, if that is less, without what ``shared`` leaves.
        """
        path, best, early, most = self._victim_model.path, None, NOTHING, -1
        for _ in range(ROUNDS):
            if shared.latest is not None or not shared.left:
                taken = leaving - _left(shared)
                gpus = self._gpus_of(taken)
                if gpus > most:
                    best, early, most = taken, shared.early, gpus
            if not shared.left or self._gpus_of(leaving) <= max(0, most):
                break
            refused, lacking = shared.latest or (shared.left, shared.short)
            left, kept = self._movers_of(_units(refused)), set[int]()
            for leaf in {mover.queue for mover in left}:
                short = [lacking[queue] for queue in path[leaf] if queue in lacking]
                resource, missing = min(short, key=lambda one: one[1], default=(GPU, 0))
                hers = sorted((m for m in left if m.queue == leaf), key=lambda m: m.charge[resource])
                gang = next((m.gang for m in hers if m.charge[resource] >= missing), hers[-1].gang)
                kept.update(mover.unit for mover in hers if mover.gang == gang)
            leaving -= kept
            shared = self._shared(leaving)
        self._tries.first = early
        return leaving - _left(shared) if best is None else best

    def _spared(self, evicted: Sequence[Mover], shared: Shared, *, again: bool) -> list[Spared]:
        """What is to be taken less so that all may have takers: by the answer which asks for less of that."""
        path, movers = self._victim_model.path, self.joint.movers
        answers = [(shared.left, shared.short), *([shared.latest] if shared.latest else [])]
        found = [list(sparing(path, movers, evicted, _units(left), short, again=again)) for left, short in answers]
        return min(found, key=lambda rows: [sum(row.less for row in rows if row.resource == r) for r in BY_WEIGHT])

    def _are_nearly_all_taken(self, leaving: frozenset[int], shared: Shared) -> bool:
        """Whether what is left is so little that places are found without it."""
        left = self._gpus(shared)[0]
        return not shared.left or (shared.latest is not None and 0 < left <= LEFT_PART * self._gpus_of(leaving))

    def _gpus_of(self, units: Collection[int]) -> int:
        return sum(mover.charge[GPU] for mover in self._movers_of(units))

    def _gpus(self, shared: Shared) -> tuple[int, int]:
        """GPUs of what has no taker, and how many units."""
        left = _left(shared)
        return self._gpus_of(left), len(left)

    def _row(self, spared: Spared) -> Row:
        """As a row of the programme.

        Not by one unit more, though a part of a unit may leave: nearly all are whole. With the margin of the largest
        unit left, 1,000 loaded nodes evicted work of 30.36 million with seed 2, and 30.02 million without; with seed 7
        23.80 million both times (2026-11-27, one cycle each on a busy machine).
        """
        paid = [mover for mover in self.joint.movers if spared.counts(mover)]
        return [m.unit for m in paid], [m.charge[spared.resource] for m in paid], max(0, spared.most)

    def _may_move(self, units: Sequence[int]) -> bool:
        """Whether the model allows so many moves in a cycle."""
        most = self.solver_client.model.moves.per_cycle
        return most == UNLIMITED or sum(len(self.pool.units[unit].pods) for unit in units) <= most

    def _is_allowed(self, seats: Seats, shared: Shared) -> bool:
        """Whether every reclaim may take its part of what leaves, as ``shared``, and moves; then they do."""
        if shared.left:
            return False
        action = {unit: admission.action for admission in shared.admissions for unit in admission.units}
        decision = Decision(
            moved=list(seats.moved),
            reclaimed=[unit for unit in action if action[unit] is Action.RECLAIM],
            preempted=[unit for unit in action if action[unit] is Action.PREEMPT],
        )
        if seats.moved:
            with self._timed(len(action) + len(seats.moved)) as tries:
                return attribute(self.outcome, self.joint, decision, self.rights.takers, tries)
        self.outcome.replace_admissions(shared.admissions)
        return reclaims_hold(self.outcome)

    def _choose(self, asked: Sequence[StageObjective], zeros: int, *, asks_for_places: bool) -> bool:
        """Choose victims by the stages ``asked``, of which the first ``zeros`` can be 0, and give all their places."""
        model = self._victim_model
        if not self._has_time_for_a_round:
            return False
        if not model.has_rows:
            add_rows(self._variables, model)
        whole, model.spec = model.spec, model.spec.copy()
        found = self._taken(asked, zeros, self.costs)
        model.spec = whole
        if found is None:
            return False
        evictions = {unit: admission.action for admission in found.admissions for unit in admission.units}
        leaving = frozenset(evictions)
        is_better = self._seated(*self._with_takers(leaving))
        if is_better and (not asks_for_places or self._is_near(asked, self._cost_of(leaving))):
            return True
        return self._seat(evictions, found) or is_better

    # -- victims and takers ----------------------------------------------------------------------------------------

    def _taken(self, asked: Sequence[StageObjective], zeros: int, costs: Sequence[int]) -> Shared | None:
        """Victims that all have takers, cheaper than ``costs``; None where none are found in time."""
        model = self._victim_model
        for number in range(ROUNDS):
            values = self._cheapest(asked, zeros)
            if values is None or not self._has_time_for_a_round:
                return None
            if [stage.value_of(values) for stage in asked] >= list(costs[: len(asked)]):
                return None
            movers = model.evicted(values)
            shared = self._shared(frozenset(mover.unit for mover in movers))
            if not shared.left:
                return shared
            if number < SPARING:
                model.spare(self._spared(movers, shared, again=number > 0))
            else:
                model.keep(_left(shared))
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
            if result.values is None and held:
                continue  # What must leave of the first stages is not known: it says nothing of the later ones.
            if not spec.count("leavers"):
                self._note({s.name: 0 for s in asked[:held]} | {s.name: s.bound for s in result.stages})
            if result.values is not None:
                return result.values
        return None

    def _note(self, bounds: Mapping[str, int]) -> None:
        """Keep the better bounds: of the first stage that differs, the higher one; later ones rest on it."""
        if [*bounds.values()] > [*self.bounds.values()]:
            self.bounds = dict(bounds)

    # -- places ----------------------------------------------------------------------------------------------------

    def _seat(self, evictions: Evictions, shared: Shared) -> bool:
        """Places with just these ``evictions``: with nothing moved, else where small pods, else where all may move."""
        mine = [u for item, _ in self._victim_model.gone if not evictions.keys().isdisjoint(u := units_of(item))]
        evictable = frozenset(unit for units in mine for unit in units)
        movable = [mover for mover in self.joint.movers if mover.may_move]
        light = [mover for mover in movable if len(mover.origin) == 1 and mover.charge[GPU] <= SMALL]
        for moving in dict.fromkeys(frozenset(mover.unit for mover in some) for some in ((), light, movable)):
            if self._has_time_for_a_round:
                form = formulate(self._joint_of(evictable, moving), self.solver_client.model.families, [])
                spec = form.spec.copy()
                pin(spec, form.variables, evictions)
                if moving:
                    self._ask_for_few_moves(form, spec, evictions)
                status = self._place(form, spec, shared, may_move=bool(moving))
                if status != "infeasible":
                    return status == "done"
        return False

    def _ask_for_few_moves(self, form: Formulation, spec: ModelSpec, evictions: Evictions) -> None:
        """Begin at the plan so far, and move as few pods as may be.

        Of 955 movers on 1,000 loaded nodes (seed 23), 19 with 154 pods move after 3 s, the first solution comes after
        0.6 s. Without the objective it takes 0.9 s, and 210 move; without the plan so far 3.3 s and 681 (2026-11-30).
        """
        places = {pod: place.node for pod, place in self.outcome.state.places.items()}
        by = {action: {unit for unit, one in evictions.items() if one is action} for action in EVICTING}
        moved = {unit.index for unit in self.pool.units if self.pool.is_moved(unit.index)}
        found = hint_values(form.variables, places, by[Action.RECLAIM], by[Action.PREEMPT], moved - evictions.keys())
        hint = np.zeros(spec.size[0], np.int64)
        hint[list(found)] = list(found.values())
        spec.hint(hint)
        staying = [(-1, stay) for group in form.variables.classes for stay in group.stay.values()]
        spec.minimize([*staying, *((len(unit.mover.origin), unit.moved) for unit in form.variables.units)])

    def _joint_of(self, evictable: frozenset[int], moving: frozenset[int]) -> Joint:
        """The joint problem in which only ``evictable`` may leave, and only they and ``moving`` move."""
        disturbed = frozenset(unit.index for unit in self.pool.units if self.pool.is_disturbed(unit.index))
        movers = [m for m in self.joint.movers if m.unit in evictable]
        return self.model_input.join(
            [(a.allocation_unit, a.action) for a in self.outcome.admissions],
            evictable | disturbed | moving,
            frozenset(m.unit for m in movers if m.reclaimable),
            frozenset(m.unit for m in movers if m.preemptable),
            self.joint.surplus,
            may_move=bool(moving),
        )

    def _place(self, form: Formulation, spec: ModelSpec, shared: Shared, *, may_move: bool) -> str:
        """Ask ``spec``, which is ``form`` with some decided, for places, and put them into effect.

        ``done``, ``infeasible`` (there are none), or what else the solver says.
        """
        client = self.solver_client
        part = MOVES_PART if may_move else SEATS_PART
        answer = client.solve(spec, part * client.budget.left_s, presolve="light" if may_move else "default")
        if answer.values is None:
            return answer.status
        return self._put(form.variables.joint, expand(form.variables, answer.values), shared)

    @property
    def _has_time_for_a_round(self) -> bool:
        return self._has_time_for(1)

    def _has_time_for(self, rounds: int) -> bool:
        client = self.solver_client
        return client.has_time_for(rounds * self.estimate * ROUND_S) and not client.is_out_of_time

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
            with self._timed(len(evicted) + len(decision.moved)) as tries:
                is_allowed = attribute(outcome, joint, decision, self.rights.takers, tries)
        if is_allowed and self.costs < before and self._may_move(decision.moved):
            return "done"
        outcome.state.rollback(mark)
        outcome.replace_admissions(admissions)
        self.note = "the solver's victims would not be allowed reclaim by reclaim; those found before are kept"
        return "refused"


def _left(shared: Shared) -> set[int]:
    """Units that no admission may take."""
    return _units(shared.left)


def _units(groups: Iterable[VictimGroup]) -> set[int]:
    return {unit for group in groups for unit in group.units}
