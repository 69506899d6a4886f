"""What the solver makes of the greedy's outcome: chains, victims and places, gangs without an answer, links."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kai_solver.actions import consolidate_late
from kai_solver.actions.sparing import spare
from kai_solver.chains.course import Course
from kai_solver.domain import SolverModel, Stage
from kai_solver.engine.asking import Asking
from kai_solver.engine.chain_time import CHOOSING_S, HURRIED, MOST_FOR_VICTIMS, ChainTime
from kai_solver.engine.chains import LEAST_BUILDS, Chains, after_moves, refuse_moves
from kai_solver.engine.cycle_time import CycleTime
from kai_solver.engine.floor import Floor
from kai_solver.engine.known import Known, disturbs, places
from kai_solver.engine.prices import Prices
from kai_solver.engine.progress import FaultReporter
from kai_solver.engine.proving import has_unknown
from kai_solver.errors.barrier import barrier, caught
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Outcome
from kai_solver.search.child import SolverChild
from kai_solver.search.linking import link_stage
from kai_solver.search.open_questions import OpenQuestions
from kai_solver.search.refine import WHOLE, Refined, StageOptimizer
from kai_solver.search.reseat import reseat

PRICED_FROM = 1_000
"""Shapes times nodes from which prices are asked for before chains and stages. Of 4,000 equal pods on 500 nodes sums
prove all, and the programme would take 0.3 s of CPU (2026-11-23). Loaded clusters have so many from 150 nodes on: with
2,000, three of 14 twins of 150 to 300 nodes had no bound of evicted work at 2 s (2026-11-28).
"""

PRICING_PART = 0.25
"""Part of the time left that writing the programme down may take before chains are searched; else it comes after."""

AGAIN_PART = 0.8
"""Part of the time for victims and places that must be left where prices are asked for again: they take 0.3 s on 1,000
loaded nodes (2026-11-28), and those of fewer gangs serve as well."""

LATE_MOVES, LATER_MOVES = 0.5, 0.25
"""Part of the time left in which gangs that chains left are consolidated for, before victims are chosen or after. On
one of 71 random clusters of 100 to 300 nodes with rules between pods, only `greedy-only` had served one of them
(2026-11-29)."""

ALL_ACTIONS, MOST_FOR_ALL_ACTIONS = 2.0, 0.5
"""Seconds that all actions take, for each second that they took without consolidation; the most part of the time left
that they may take."""

LINKS_PART = 0.5
"""Most of the time left for victims and places that is kept for links, which come last. In the models here, their stage
has 2% of the budget."""


@dataclass(frozen=True, slots=True)
class Improved:
    """The outcome that is better, what was proven of its stages, and the stage of links."""

    outcome: Outcome
    refined: Refined | None
    links: Stage | None


@dataclass(slots=True)
class Improver:
    """Changes one outcome for the better.

    Attributes
    ----------
    by_chains, leaves_moves
        Whether chains are searched, and whether consolidation was left to them.
    all_actions
        Runs all actions once more until then, consolidation among them.
    faults
        Where a step that failed, and was undone, is reported.
    """

    model: SolverModel
    time: CycleTime
    asking: Asking
    known: Known
    prices: Prices
    by_chains: bool
    leaves_moves: bool
    all_actions: Callable[[float], Outcome]
    faults: FaultReporter
    chain_time: ChainTime = field(init=False)

    def __post_init__(self) -> None:
        self.chain_time = ChainTime(self.time, self.known)

    def improve(self, outcome: Outcome) -> Improved:
        """Change ``outcome``, or take the one of all actions in its place.

        The prices of what is admitted are found in the solver's process while victims and places are. Where all gangs
        run and none has left or moved for them, only links are left to choose.
        """
        if outcome.state.problem.outlook is None and not disturbs(outcome) and not outcome.waiting:
            spare(outcome)
            return Improved(outcome, None, self._link(outcome))
        child, time = self.asking.child, self.time
        is_priced = child is not None and places(outcome) >= PRICED_FROM and not self.known.is_least(outcome)
        if child is not None and is_priced and self.chain_time.are_long(outcome):
            self.prices.begin(outcome, child, PRICING_PART)
        outcome = self._chain(outcome)
        are_moves_first = self._are_moves_first(outcome)
        if are_moves_first:
            self._consolidate_late(outcome, LATE_MOVES)
        # Victims take 1 to 3 s of CPU on 2,000 loaded nodes, questions all that is left (2026-11-23).
        are_victims_first = is_priced and not time.is_nearly_over() and self.known.variables(outcome) > WHOLE
        nothing_to_ask = not has_unknown(outcome) and not self._may_move_late(outcome)
        refined, admitted = None, frozenset[AllocationUnit]()
        if are_victims_first:
            admitted = outcome.admitted
            refined = self._choose(outcome, is_priced=is_priced, asks_for_places=nothing_to_ask)
        if not are_moves_first:
            self._consolidate_late(outcome, LATER_MOVES)
        self._ask_open(outcome)
        is_done = nothing_to_ask or (refined is not None and refined.is_within_gap)
        if not are_victims_first or outcome.admitted != admitted or not is_done:
            again = self._choose(outcome, is_priced=is_priced)
            refined = refined if again is None else again.after(refined)
        spare(outcome)
        return Improved(outcome, refined, self._link(outcome))

    # -- chains and moves --------------------------------------------------------------------------------------------

    def _chain(self, outcome: Outcome) -> Outcome:
        """On large clusters: admit by moves and swaps, and let less work leave.

        Where they had their time and no gang comes in, the actions may serve more with consolidation in its place among
        them.
        """
        is_in_vain = self._search_chains(outcome)
        if not is_in_vain or not self._may_move_late(outcome) or not has_unknown(outcome):
            return outcome
        other = None
        with barrier("deciding", "all actions once more"):
            other = self._run_all_actions(outcome)
        if other is None or len(other.waiting) >= len(outcome.waiting):
            return outcome
        self._search_chains(other)
        return other

    def _run_all_actions(self, outcome: Outcome) -> Outcome | None:
        """The outcome of all actions; None where there is no time for them, or none would be left for victims."""
        time, left_s = self.time, self.time.left_s
        hurried_s, seconds = HURRIED * self._choosing_s(outcome), MOST_FOR_ALL_ACTIONS * left_s
        if hurried_s < MOST_FOR_VICTIMS * left_s:
            seconds = min(seconds, left_s - hurried_s)
        if self.model.moves.are_limited or outcome.stopped or time.should_stop():
            return None
        if seconds < ALL_ACTIONS * time.spent_s["greedy"]:
            return None
        other = self.all_actions(time.clock() + seconds)
        time.phase("all-actions")
        return None if other.stopped else other

    def _search_chains(self, outcome: Outcome) -> bool:
        """Change ``outcome`` by chains; whether these ended before their time, and admitted no gang."""
        if not self.by_chains or self.known.is_least(outcome):
            return False
        time, effect, has_ended = self.time, None, False
        left_s = self.chain_time.left_s(outcome)
        end_s = time.clock() + left_s
        if time.is_exact or (left_s > LEAST_BUILDS * time.build_s and not time.should_stop()):
            clock = None if time.is_exact else time.clock
            seconds = self.chain_time.search_s(outcome, left_s)
            course = Course(self.model.search.chains, seconds, clock, time.should_stop)
            chains = Chains(outcome, self.model)
            effect = chains.run(course, self.asking.seed, self.known.rights, lambda: time.is_past(end_s))
            has_ended = course.used < 1
        time.phase("chains")
        if effect is not None:
            time.say(f"chains: {effect.admitted} gangs admitted, {effect.changed} of {effect.wanted} changes")
        return has_ended and (effect is None or not effect.admitted)

    def _are_moves_first(self, outcome: Outcome) -> bool:
        """Whether time is left for victims and places after late moves, if there are any.

        On a real twin of 2,000 nodes (seed 21) at 2 s, 18 gangs more were admitted, but victims had no time, and three
        times the work had to leave (2026-11-30).
        """
        if not self._may_move_late(outcome):
            return False
        return (1 - LATE_MOVES) * self.time.left_s >= HURRIED * self._choosing_s(outcome)

    def _may_move_late(self, outcome: Outcome) -> bool:
        """Whether moves were left to chains, and gangs wait still."""
        return self.leaves_moves and bool(outcome.waiting)

    def _consolidate_late(self, outcome: Outcome, part: float) -> None:
        """Where moves were left to chains: consolidate for gangs that wait still, which chains may know no moves for.

        Chains know no rules between pods. Not where the moves of a cycle are limited.
        """
        if not self._may_move_late(outcome):
            return
        time, actions = self.time, self.model.actions
        end_s = time.clock() + part * time.left_s

        def is_late() -> bool:
            return time.should_stop() or time.clock() >= end_s

        if not self.model.moves.are_limited and not is_late():
            floor = Floor(outcome)
            try:
                consolidate_late(outcome, self.asking.oracle(), is_late, after_moves(actions))
            except Exception as error:
                floor.restore()
                self.faults.report(
                    f"an unexpected error, so no pod moves late: {caught('deciding', 'late moves', error)}"
                )
        refuse_moves(outcome, actions)
        time.phase("late-moves")

    # -- victims and places ------------------------------------------------------------------------------------------

    def _choose(self, outcome: Outcome, *, is_priced: bool, asks_for_places: bool = True) -> Refined | None:
        """Choose victims and places with the prices of what is admitted now, or with earlier ones that still hold.

        What may be changed takes 0.3 s of CPU to find out on 5,000 loaded nodes (2026-11-29).
        """
        child = self.asking.child
        if child is None or self.time.is_nearly_over():
            return None
        if is_priced:
            self.prices.renew(outcome, child, lambda: self._has_time_to_price_again(outcome))
        return self._refine(outcome, child, asks_for_places=asks_for_places)

    def _has_time_to_price_again(self, outcome: Outcome) -> bool:
        """Whether victims and places can still be chosen after new prices."""
        return self.time.is_exact or self.time.stages_s > AGAIN_PART * self._choosing_s(outcome)

    def _choosing_s(self, outcome: Outcome) -> float:
        return self.time.here_s(CHOOSING_S * self.known.variables(outcome))

    def _refine(self, outcome: Outcome, child: SolverChild, *, asks_for_places: bool) -> Refined | None:
        """Ask for better victims and moves if anything is disturbed; for better places if these are priced."""
        concerned = [a for a in outcome.admissions if a.units or outcome.state.problem.outlook is not None]
        if not concerned or self.time.is_out():
            return None
        rights, stages = self.known.rights(outcome), self.known.counted(outcome)
        if stages is not None:
            reseat(outcome)
            refined = Refined(stages, improved=False)
        else:
            seconds = self.time.stages_s
            if not self.time.is_exact:
                seconds -= min(self._links_s(outcome), LINKS_PART * seconds)
            client = self.asking.client(child, seconds)
            optimizer, pricing = StageOptimizer(client, self.time.say_stage), self.prices.of(outcome)
            priced = None if pricing is None else self.prices.found(pricing)
            if pricing is None or priced is None:
                refined = optimizer.refine(outcome, rights, asks_for_places=asks_for_places)
            else:
                least, leaving = priced.least, priced.leaving
                refined = optimizer.refine(
                    outcome, rights, least, leaving, pricing.leaving_by, asks_for_places=asks_for_places
                )
        self.time.phase("stages")
        return refined

    # -- answers, and links ------------------------------------------------------------------------------------------

    def _ask_open(self, outcome: Outcome) -> None:
        """Ask CP-SAT for gangs with an open answer, in policy order."""
        child, seconds = self.asking.child, self.time.questions_s
        if child is None or not has_unknown(outcome) or self.time.is_out() or seconds <= 0:
            return
        client = self.asking.client(child, seconds)
        by_size = self.model.admission == "max-gpus"
        # First rules and bounds for all: a proof of theirs takes milliseconds, and one question to CP-SAT may take all.
        for oracle in (self.asking.oracle(), self.asking.oracle(client=client)):
            questions = OpenQuestions(outcome, self.model.actions, oracle, by_size=by_size)
            questions.run(lambda: client.is_out_of_time)
        self.time.phase("questions")

    def _links_s(self, outcome: Outcome) -> float:
        """Seconds for links, which come last."""
        if outcome.state.problem.fabric is None:
            return 0.0
        return sum(stage.share for stage in self.model.stages if stage.name == "links") * self.time.budget_s

    def _link(self, outcome: Outcome) -> Stage | None:
        """Exchange seats and victims for better links; None where these make no difference."""
        time = self.time
        if outcome.state.problem.fabric is None or time.is_out():
            return None
        end_s = time.clock() + self._links_s(outcome)
        if not self.model.search.enabled:
            end_s = max(end_s, time.start_s + time.budget_s / 2)  # The same on every machine that has time.
        stage = link_stage(
            outcome,
            lambda: self.known.rights(outcome),
            lambda: not time.is_exact and time.clock() > end_s,
            by_gpus=self.model.evicts_by_gpus,
        )
        time.phase("links")
        return stage
