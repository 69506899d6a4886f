"""One climb of the ladder: allocate, consolidate, reclaim, preempt, then stale gangs (design section 5).

Within a rung gangs come in policy order, re-evaluated as allocations grow. The greedy answers first. Where it finds
no way, an ``Oracle`` may be asked: it proves that there is none, or finds one.
"""

from collections.abc import Iterable

from kai_solver.domain import Proof, Reason, Rung
from kai_solver.errors import GangError
from kai_solver.greedy.allocating import Admitter, Allocation
from kai_solver.greedy.budgets import keeps_budgets
from kai_solver.greedy.caps import over_capacity
from kai_solver.greedy.chunks import Chunk
from kai_solver.greedy.course import Course, Oracle, Pace, of_choice
from kai_solver.greedy.disruption import Disruption
from kai_solver.greedy.galloping import Gallop
from kai_solver.greedy.outcome import Admission, Outcome, Refusal
from kai_solver.greedy.readiness import not_ready
from kai_solver.greedy.refusals import LargestNode, within_delay
from kai_solver.greedy.refused import Refused
from kai_solver.greedy.rules import Aggressor
from kai_solver.greedy.stale import stale_gangs
from kai_solver.greedy.swaps import Swaps
from kai_solver.greedy.undoing import solve
from kai_solver.greedy.yielding import give_way
from kai_solver.reduction import Problem

LEFT_OUT = Refusal(
    Reason.SET_ASIDE,
    "Left out of this cycle: the checker refused a plan in which it took part",
    Proof("unknown", "check"),
)

_RESUMED = (Rung.CONSOLIDATION, Rung.RECLAIM)
"""Rungs that may give way to those after them where they serve nobody."""


class Ladder:
    """Climbs rung by rung on one state."""

    def __init__(
        self,
        problem: Problem,
        rungs: Iterable[Rung],
        oracle: Oracle,
        pace: Pace | None = None,
        *,
        admission: str = "rank",
        admitter: Admitter | None = None,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        self.problem = problem
        self.rungs = tuple(rungs)
        self.admitter = admitter
        self.left_out = left_out
        self.course = Course(problem, oracle, pace, admission)
        self.state = self.course.state
        self.outcome = self.course.outcome
        self.largest = LargestNode(problem)
        self._late: list[tuple[Rung, list[int]]] = []

    def climb(self) -> Outcome:
        """Climb all rungs; gangs without a turn on a rung that gave way get it after the others, if there is time.

        Raises
        ------
        GangError
            An unexpected error while a gang had its turn, or in what followed from it.
        """
        times = self.course.times
        try:
            return self._climb()
        except Exception as error:
            if times.gang is None:
                raise
            raise GangError(self.problem.gangs[times.gang].gang.key, error) from error
        finally:
            times.end()

    def _climb(self) -> Outcome:
        candidates = self._ready()
        for number, rung in enumerate(self.rungs):
            if rung is Rung.STALE:
                self._return_to_late()
            self.course.start(len(self.rungs) - number, may_yield=rung in _RESUMED)
            if self.course.is_over() and rung is not Rung.STALE:
                self.course.stop(rung, candidates)
            elif rung is Rung.ALLOCATE:
                Allocation(self.course, self.admitter).run(candidates)
            elif rung is Rung.STALE:
                self._evict_stale()
            else:
                self._disturb(rung, candidates)
        self._return_to_late()
        return self.outcome

    def _return_to_late(self) -> None:
        """Go on with rungs that gave way, for all of the time that is left."""
        late, self._late = self._late, []
        for rung, gangs in late:
            self.course.start(1)
            if not self.course.is_over():
                self._disturb(rung, [gang for gang in gangs if self.course.chunkers[gang].waits()])
            else:
                self._late.append((rung, gangs))
        for rung, gangs in self._late:
            self.course.stop(rung, gangs)
        self._late = []

    def _ready(self) -> list[int]:
        ready: list[int] = []
        for gang, chunker in zip(self.problem.gangs, self.course.chunkers, strict=True):
            if not gang.waits and not self.left_out:
                continue
            refusal = not_ready(self.problem, gang, chunker) if gang.waits else None
            if self.left_out and gang.gang.key in self.left_out:
                refusal = LEFT_OUT
            if refusal is None and not gang.pending:
                continue
            if refusal is None:
                ready.append(gang.index)
            else:
                for rung in self.rungs:
                    self.outcome.refuse(gang.index, rung, refusal)
        return ready

    # -- rungs that disturb --------------------------------------------------------------------------------------

    def _disturb(self, rung: Rung, candidates: list[int]) -> None:
        turns = self.course.turns(candidates)
        disruption = Disruption(
            self.outcome, self.course.placer.fits, rung, self.course.chunkers, candidates, self.course.is_over
        )
        swaps, refused = Swaps(self.course, disruption), Refused(self.course, rung)
        gallop = Gallop(self.course, rung, disruption, lambda chunk: self._may_ask(disruption, chunk))
        while not turns.is_over:
            if self.course.is_over() or self.course.is_fruitless():
                self._late.append((rung, list(turns.rest())))
                break
            if swaps.serve(turns):
                self.course.had_turn(served=True)
                refused.forget()
                continue
            turn = turns.pop()
            if turn is None:
                break
            gang = turn.gang
            chunk = self.course.chunkers[gang].next()
            if chunk is None:
                continue  # Its core was evicted for an earlier one, and its surplus cannot run alone.
            kind, refusal = self.course.kind(gang), self._disturb_for(disruption, rung, chunk)
            self.course.had_turn(served=refusal is None)
            if refusal is not None:
                self.outcome.refuse(gang, rung, of_choice(refusal, chunk), chunk.pods)
                refused.note(kind, refusal)
                if refused.refuse_rest(turns):
                    break
            else:
                disruption.forget()
                refused.forget()
                turns.refresh()
                swaps.note(chunk, self.outcome.admissions[-1].units)
                gallop.after(turns, chunk)
        disruption.settle()

    def _disturb_for(self, disruption: Disruption, rung: Rung, chunk: Chunk) -> Refusal | None:
        who = Aggressor.of(self.problem, chunk)
        refusal = self._forbidden(disruption, who, chunk)
        if refusal is None and rung is Rung.CONSOLIDATION:
            refusal = over_capacity(self.state, chunk)
        if refusal is not None:
            return refusal
        signature = self.course.signature(chunk)
        refusal = disruption.known_refusal(who, signature)
        if refusal is not None:
            return refusal
        refusal = self._make_room(disruption, who, chunk)
        if refusal is None or give_way(self.course, disruption, who, chunk):
            return None
        disruption.remember(who, signature, refusal)
        return refusal

    def _make_room(self, disruption: Disruption, who: Aggressor, chunk: Chunk) -> Refusal | None:
        rung = disruption.rung
        refusal = self.course.refute(chunk, rung)
        if refusal is not None:
            return refusal
        found = self._without_victims(rung, chunk)
        if found is None:
            found = solve(self.outcome, disruption, who, chunk)
        if found is not None:
            self.outcome.admit(Admission(chunk, rung, tuple(found)))
            return None
        return self.course.ask(chunk, rung, disruption)

    def _forbidden(self, disruption: Disruption, who: Aggressor, chunk: Chunk) -> Refusal | None:
        """What needs no search: the delay, the rules of the rung, and pods that fit no node at all."""
        refusal = within_delay(self.problem, who.gang)
        if refusal is not None:
            return refusal
        refusal = disruption.forbidden(who)
        if refusal is None or refusal.proof.method == "count":
            refusal = self.largest.refuses(chunk) or refusal
        return refusal

    def _may_ask(self, disruption: Disruption, chunk: Chunk) -> bool:
        return self._forbidden(disruption, Aggressor.of(self.problem, chunk), chunk) is None

    def _without_victims(self, rung: Rung, chunk: Chunk) -> list[int] | None:
        """Earlier victims may have left more room than was taken: then nobody has to go."""
        if rung is Rung.CONSOLIDATION or over_capacity(self.state, chunk) is not None:
            return None
        return [] if self.course.fits_free(chunk) else None

    # -- stale gangs ---------------------------------------------------------------------------------------------

    def _evict_stale(self) -> None:
        for gang in stale_gangs(self.state, self.course.chunkers):
            state, mark = self.state.gangs[gang], self.state.mark()
            for pod in [p for leaf in state.active for p in leaf]:
                if pod in self.state.places:
                    self.state.lift(pod)
                else:
                    self.state.evict(pod)
            if self.state.keeps_rules() and keeps_budgets(self.state):
                self.outcome.stale.append(gang)
            else:
                # Newcomers count on it, who are not asked any more once they run; or a disruption budget holds it.
                self.state.rollback(mark)
