"""What the actions of one cycle share: the state, the order of gangs, the oracle, and the time that is left."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from kai_solver.actions.attempt_times import AttemptTimes
from kai_solver.actions.board.board import Board
from kai_solver.actions.board.plainness import may_serve
from kai_solver.actions.board.serving import BoardLine
from kai_solver.actions.caps import costs_too_much
from kai_solver.actions.gang_order import GangOrder, SizeOrder
from kai_solver.actions.survival import MOST_WAITING
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action, Blocker, Proof, Reason
from kai_solver.placement.placing import Placer, TimeIsUp, never
from kai_solver.planstate.allocation_units import AllocationUnit, GangUnitsOf
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.planstate.outcome import Admission, Evidence, Outcome, Refusal
from kai_solver.planstate.signature import Kind, Signature, kind_of, signature
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import Problem
from kai_solver.reasons.refusals import BUDGET_ENDED, LargestNode, shortage

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Answer:
    """What an oracle says. On "yes" the allocation unit has its places, and ``units`` left or moved for it."""

    verdict: Literal["yes", "no"]
    proof: Proof
    units: tuple[int, ...] = ()
    evidence: Evidence | None = None


class Oracle(Protocol):
    """Answers what the greedy could not. On "no" the state is as before; the proof says how sure it is."""

    @property
    def unanswered(self) -> Answer:
        """The "no" to what nothing was asked about."""
        ...

    def refute(self, outcome: Outcome, allocation_unit: AllocationUnit, action: Action) -> Answer | None:
        """A bound's proof that ``action`` can do nothing for ``allocation_unit``; asked before victims are sought."""
        ...

    def place(
        self, outcome: Outcome, allocation_unit: AllocationUnit, action: Action, victim_search: VictimSearch | None
    ) -> Answer:
        """Whether ``allocation_unit`` can run beside all admitted so far, disturbing only what ``action`` may."""
        ...


class Pace(Protocol):
    """When an action has to give way to the next."""

    def start(self, actions_left: int, *, may_yield: bool) -> None:
        """An action begins; ``actions_left`` counts it. ``may_yield``: it goes on later if it gives way early."""
        ...

    def attempted(self, *, served: bool) -> None:
        """A gang was served or refused."""
        ...

    def is_fruitless(self) -> bool:
        """True if the action has served no gang for so long that it should give way."""
        ...

    def is_over(self) -> bool:
        """True where the action's time has ended."""
        ...

    def start_attempt(self) -> None:
        """An attempt begins."""
        ...

    def is_attempt_over(self) -> bool:
        """True where the attempt has taken more than its share of the action's time, or all of that has ended."""
        ...


EQUAL = 16
"""Gangs of one pod for each kind of them, and for each other gang, from which on batches serve them faster than turns:
4,000 jobs of one kind on 500 empty nodes take 0.06 s of CPU so, and 0.2 s in turns (2026-11-27)."""


class Context:
    """What the actions of one cycle share."""

    def __init__(
        self,
        problem: Problem,
        oracle: Oracle,
        pace: Pace | None,
        admission: str,
        between_attempts: Callable[[Outcome], None] | None = None,
        *,
        by_board: bool = False,
        outcome: Outcome | None = None,
    ) -> None:
        """``outcome``: what was decided before; None: nothing."""
        self.problem = problem
        self.outcome = outcome or Outcome(State(problem))
        self.state = self.outcome.state
        self.placer = Placer(self.state)
        self.largest_node = LargestNode(problem)
        self.gang_units = GangUnitsOf(self.state)
        self.times = AttemptTimes()
        self._oracle = oracle
        self._pace = pace
        self._between_attempts = between_attempts
        self._kinds: dict[int, Kind | None] = {}
        self._preemptors: dict[tuple[int, ...], Preemptor] = {}
        self._order_type = SizeOrder if admission == "max-gpus" else GangOrder
        self._by_board = by_board and admission == "rank" and may_serve(self.state)
        self.board: Board | None = None

    def start(self, actions_left: int, *, may_yield: bool = False) -> None:
        """An action begins; as of `Pace`."""
        if self._between_attempts is not None:
            self._between_attempts(self.outcome)
        if self._pace is not None:
            self._pace.start(actions_left, may_yield=may_yield)

    def attempted(self, *, served: bool) -> None:
        """A gang was served or refused; as of `Pace`."""
        if self._between_attempts is not None:
            self._between_attempts(self.outcome)
        if self._pace is not None:
            self._pace.attempted(served=served)

    def is_fruitless(self) -> bool:
        """True if the action has served no gang for so long that it should give way."""
        return self._pace is not None and self._pace.is_fruitless()

    def is_over(self) -> bool:
        """True where the action's time has ended."""
        return self._pace is not None and self._pace.is_over()

    @contextmanager
    def timed_attempt(self, *, is_shared: bool) -> Iterator[None]:
        """An attempt of a gang; placing raises `TimeIsUp` past its share of the action's time, or past all of it."""
        if self._pace is None:
            yield
            return
        self._pace.start_attempt()
        self.placer.is_attempt_over = self._pace.is_attempt_over if is_shared else self._pace.is_over
        mark = self.state.mark()
        try:
            yield
        except TimeIsUp:
            self.state.rollback(mark)
            raise
        finally:
            self.placer.is_attempt_over = never

    def gang_order(self, candidates: Sequence[int]) -> GangOrder | SizeOrder:
        """The order in which the gangs ``candidates`` are served."""
        return self._order_type(self.state, self.gang_units, candidates, self.times.begin)

    def line(self, action: Action, candidates: Sequence[int]) -> BoardLine | None:
        """The gangs ``candidates`` in their order, the plain ones served by kernels; None where that is not for them.

        Where few gangs wait, a reclaim is played through (`survival`), which kernels do not. Where nearly all gangs are
        equal, they are served in batches.
        """
        if not self._by_board or (action is Action.RECLAIM and len(candidates) <= MOST_WAITING):
            return None
        if self._are_equal(candidates):
            return None
        if self.board is None:
            self.board = Board(self.state, self.gang_units, candidates)
        if action is not Action.ALLOCATE:
            if self.outcome.pool is None:
                self.outcome.pool = VictimPool.of_running(self.state)
            self.board.with_units(self.outcome.pool)
        return BoardLine(self, self.board, action, candidates)

    def preemptor(self, unit: AllocationUnit) -> Preemptor:
        """The gang of ``unit`` asking for it: the same for all actions, since only the problem decides it."""
        found = self._preemptors.get(unit.pods)
        if found is None:
            found = self._preemptors[unit.pods] = Preemptor.of(self.problem, unit)
        return found

    def _are_equal(self, gangs: Sequence[int]) -> bool:
        """Whether so many of ``gangs`` have one pod and are equal that batches of them are faster than turns."""
        problem, kinds, alone = self.problem, set[tuple[int, int, int]](), 0
        for index in gangs:
            gang = problem.gangs[index]
            if len(gang.gang.pods) == 1 and gang.pending:
                alone += 1
                kinds.add((gang.queue, gang.gang.priority, problem.pod_shape[gang.pending[0]]))
        return alone > EQUAL * (len(kinds) + len(gangs) - alone)

    @cached_property
    def left_open(self) -> Refusal:
        """The refusal of what found no room, without a text, until the actions end and bounds are asked."""
        return Refusal(Reason.NOT_ENOUGH_RESOURCES, "", self._oracle.unanswered.proof)

    def stop(self, action: Action, late: Iterable[int]) -> None:
        """The budget ended: nothing is known of the gangs ``late``, as far as they still wait."""
        self.outcome.stopped = True
        for gang in late:
            if self.gang_units[gang].waits():
                self.outcome.refuse(gang, action, BUDGET_ENDED)

    def fits_free(self, allocation_unit: AllocationUnit, allowed: BoolArray | None = None) -> bool:
        """Place ``allocation_unit`` on ``allowed`` (N,) nodes without evictions or moves, if its queue may pay for it.

        If it cannot be placed, nothing is changed.
        """
        mark = self.state.mark()
        if self.placer.place_unit(allocation_unit, allowed) and costs_too_much(self.state, allocation_unit) is None:
            return True
        self.state.rollback(mark)
        return False

    def ask(
        self, allocation_unit: AllocationUnit, action: Action, victim_search: VictimSearch | None
    ) -> Refusal | None:
        """Ask the oracle; None where it found a way. Where gangs have turns on a board, bounds are asked at the end."""
        if self.board is not None:
            return self.left_open
        answer = self._oracle.place(self.outcome, allocation_unit, action, victim_search)
        if answer.verdict == "yes":
            self.outcome.admit(Admission(allocation_unit, action, answer.units, by_solver=True))
            return None
        held = self._held(allocation_unit, action, victim_search) if victim_search is not None else ()
        if held:
            answer = replace(answer, proof=replace(answer.proof, blocking=(*answer.proof.blocking, *held)))
        return self._refusal(allocation_unit, answer)

    def _held(
        self, allocation_unit: AllocationUnit, action: Action, victim_search: VictimSearch
    ) -> tuple[Blocker, ...]:
        """Rules that hold running pods and may be what blocks: worth saying where no set is found that does."""
        if not any(rule.is_protective for rule in self.problem.rules):
            return ()
        return victim_search.eligibility.held(action, Preemptor.of(self.problem, allocation_unit))

    def refute(self, allocation_unit: AllocationUnit, action: Action) -> Refusal | None:
        """The refusal if a bound proves that nothing that could leave makes room; None if none does."""
        answer = self._oracle.refute(self.outcome, allocation_unit, action)
        return None if answer is None else self._refusal(allocation_unit, answer)

    def _refusal(self, allocation_unit: AllocationUnit, answer: Answer) -> Refusal:
        if allocation_unit.gang in self.outcome.refusals:  # An earlier action has said what lacks.
            return Refusal(Reason.NOT_ENOUGH_RESOURCES, "", answer.proof, evidence=answer.evidence)
        return replace(shortage(self.state, self.placer, allocation_unit, answer.proof), evidence=answer.evidence)

    def kind(self, gang: int) -> Kind | None:
        """The kind of a gang that waits: it keeps it for as long as it does."""
        try:
            return self._kinds[gang]
        except KeyError:
            found = self._kinds[gang] = kind_of(self.state, self.gang_units[gang])
            return found

    def signature(self, allocation_unit: AllocationUnit) -> Signature:
        """What the allocation unit shares with those that fit the same places."""
        return signature(self.state, allocation_unit)


def of_choice(refusal: Refusal, allocation_unit: AllocationUnit) -> Refusal:
    """A proof about one choice of pods is none about the gang: then nothing is known."""
    if not allocation_unit.is_choice or refusal.proof.state != "proven" or refusal.proof.method == "rule":
        return refusal
    return replace(
        refusal, proof=replace(refusal.proof, state="unknown", method=f"{refusal.proof.method}, for some of its pods")
    )
