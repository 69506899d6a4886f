"""The course of one search: gangs come in by moves, evicted work comes back, then gangs come in for work that leaves.

The last is a loan: what leaves for gangs that have no right to evict must have come back, or as much other work, before
it counts. So gangs come in by small batches, in their order, and a batch whose work does not come back in its time is
given up.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kai_solver.chains.arrays import NONE, ChainProblem, ChainResult
from kai_solver.chains.search import ChainSearch

IntArray = NDArray[np.int64]
Clock = Callable[[], float]

QUICK, THOROUGH = 16, 64
"""Nodes that are examined for a waiting gang, in the first two rounds and in the last one.

openb, 277 gangs wait (2026-11-23, CPU): two rounds with 16 admit 204 in 0.10 s, one with 64 admits 207 in 0.26 s, and a
second one 10 more in 0.09 s.
"""
BACK, LENT = 0.5, 0.9
"""Part of the course from which gangs may come in for work that leaves, if any still wait, and until which they may."""
BATCHES = 8
"""Batches in which the gangs that still wait come in so."""
HEAT, COOL, EACH = 0.8, 0.8, 200
"""At first a step may cost more than it saves, on average by this part of the median price of a move. That falls to
nothing by this part of the time, or after so many tries for each gang that is out and each pod that is moved.

The urgent gangs of openb (2026-11-28, two to six seeds, CPU): evicted work 191,000 after 0.9 s and 165,400 after 7 s,
with 540 moves each. Without such steps 197,500 after 0.9 s, and 180,000 after 4 s, where no step succeeds any more.
With 1.2 of the price 192,000 and 164,000, with 0.5 196,000 and 177,000.
"""
FRUITLESS = 2000
"""Tries without success, one after the other, after which no more work is sought that could come back.

openb, 1 s: one try of 4 succeeds at first, and one of 30 at the end."""
LONGEST_S = 0.02
"""Longest time between two looks at the clock."""


@dataclass(slots=True)
class Course:
    """How far a search is, by insertions and by the clock.

    ``insertions``: how many there are in all. ``seconds``: how long it may take from now on; ``clock`` is None where
    time does not count.
    """

    insertions: int
    seconds: float
    clock: Clock | None
    should_stop: Callable[[], bool]
    done: int = 0
    _start_s: float = field(init=False)
    _size: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        self._start_s = self._now_s()

    def _now_s(self) -> float:
        return self.clock() if self.clock is not None else 0.0

    @property
    def used(self) -> float:
        """Part of the course that is over: 1 where nothing is left."""
        if self.should_stop() or self.done >= self.insertions:
            return 1.0
        by_time = 0.0
        if self.clock is not None:
            by_time = (self.clock() - self._start_s) / self.seconds if self.seconds > 0 else 1.0
        return max(self.done / self.insertions, by_time)

    def run(self, step: Callable[[int], int], until: float, is_done: Callable[[], bool]) -> None:
        """Call ``step`` with numbers of insertions until ``until`` of the course is over, or ``is_done``."""
        while not is_done() and self.used < until:
            start_s, count = self._now_s(), min(self._size, self.insertions - self.done)
            step(count)
            self.done += count
            took_s = self._now_s() - start_s
            if took_s > LONGEST_S:
                self._size = max(1, self._size // 2)
            elif took_s < LONGEST_S / 4:
                self._size = min(2 * self._size, FRUITLESS // 4)


def searched(problem: ChainProblem, course: Course, seed: int) -> ChainResult:
    """The best that is found by the end of ``course``: no more work leaves than at its beginning."""
    search = ChainSearch(problem, seed)
    for examined in (QUICK, QUICK, THOROUGH) if len(problem.turn) else ():
        _admit(search, course, examined)
    waiting = problem.turn[~search.result().is_in[problem.turn]]
    may_lend = len(waiting) > 0 and bool(problem.may_leave.any())
    until = BACK if may_lend else 1.0
    # Where no step wins from the beginning, on 500 nodes of equal pods, dearer ones took 0.7 s to find nothing.
    if _lessen(search, course, until, most=1):
        _anneal(search, problem, course, until)
        _lessen(search, course, until)
    best = search.result()
    return _with_loans(problem, best, waiting, course, seed) if may_lend else best


def _admit(search: ChainSearch, course: Course, examined: int, *, leaving: bool = False) -> None:
    def step(turns: int) -> int:
        return search.admit(turns, examined=examined, leaving=leaving)

    search.again()
    course.run(step, 1.0, lambda: search.had_all_turns)


def _anneal(search: ChainSearch, problem: ChainProblem, course: Course, until: float) -> None:
    """Lessen by steps that may also cost more, so that the search leaves plans in which no single step wins."""
    prices, tries = problem.price[problem.price > 0], EACH * search.unsettled()
    heat = HEAT * float(np.median(prices)) if len(prices) else 0.0
    begin, done = course.used, 0
    span = COOL * (until - begin)
    if heat < 1 or span <= 0:
        return

    def step(count: int) -> int:
        nonlocal done
        part = max((course.used - begin) / span, done / tries)
        done += count
        return search.lessen(count, heat=int(heat * max(0.0, 1 - part)))

    course.run(step, begin + span, lambda: done >= tries)


def _lessen(
    search: ChainSearch,
    course: Course,
    until: float,
    is_enough: Callable[[], bool] = lambda: False,
    most: int | None = None,
) -> int:
    """Take steps that win until ``most`` did, or it ``is_enough``, or none does any more; how many did."""
    fruitless = won = 0

    def step(tries: int) -> int:
        nonlocal fruitless, won
        found = search.lessen(tries)
        fruitless, won = 0 if found else fruitless + tries, won + found
        return found

    course.run(step, until, lambda: fruitless >= FRUITLESS or (most is not None and won >= most) or is_enough())
    return won


def _with_loans(problem: ChainProblem, best: ChainResult, waiting: IntArray, course: Course, seed: int) -> ChainResult:
    """``best`` with those of the groups ``waiting`` for which enough work comes back by the end of ``course``."""
    most = int(problem.cost[problem.start[problem.first[:-1]] == NONE].sum())
    batches = np.array_split(waiting, min(BATCHES, len(waiting)))
    for number, batch in enumerate(batches):
        if course.used >= LENT:
            break
        search = ChainSearch(_from(problem, best, batch), seed)
        _admit(search, course, QUICK, leaving=True)
        until = BACK + (LENT - BACK) * (number + 1) / len(batches)
        _lessen(search, course, until, partial(_owes_nothing, problem, search, most))
        found = search.result()
        if _evicted(problem, found) <= most:
            best = found
    if course.used >= 1.0:
        return best
    search = ChainSearch(_from(problem, best, waiting[:0]), seed)
    _lessen(search, course, 1.0)
    return search.result()


def _from(problem: ChainProblem, result: ChainResult, turn: IntArray) -> ChainProblem:
    return problem._replace(start=result.node, start_devices=result.devices, turn=turn)


def _owes_nothing(problem: ChainProblem, search: ChainSearch, most: int) -> bool:
    return _evicted(problem, search.result()) <= most


def _evicted(problem: ChainProblem, result: ChainResult) -> int:
    """Cost of the groups that are out; that of waiting ones is 0."""
    return int(problem.cost[~result.is_in].sum())
