"""The oracle ladder for one question: a bound, then the aggregated model (the greedy has been asked before)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Proof, Rung
from kai_solver.formulation.build import formulate
from kai_solver.formulation.expand import Decision, expand
from kai_solver.formulation.joint import Joint
from kai_solver.formulation.master import formulate_master
from kai_solver.formulation.spec import SpecAnswer
from kai_solver.greedy import Answer, Chunk, Outcome
from kai_solver.greedy.disruption import Disruption
from kai_solver.search.aggregating import Aggregator
from kai_solver.search.asker import Asker
from kai_solver.search.joining import Joiner
from kai_solver.search.parameters import Presolve
from kai_solver.search.question import Question
from kai_solver.search.refuter import Refuter

UNKNOWN = Answer("no", Proof("unknown", "budget"))
UNASKED = Answer("no", Proof("unasked", "greedy"))
REFUSED = Answer("no", Proof("unknown", "the model's answer could not be seated, or a rule beside it forbids it"))
TOO_LARGE = Answer("no", Proof("unknown", "too large"))

FOLD_FROM = 2_000
"""Variables from which the master is asked first; a smaller model says as much in milliseconds."""
MASTER_PRESOLVE: Presolve = "light"
"""CPU time of 7 masters of 1,000 to 1,150 variables (500 loaded nodes) that have a solution: 0.27 s with ``light``,
0.50 s with ``default``, 0.92 s with ``none``; those that have none take 1 ms with any (2026-11-21, two workers)."""


@dataclass(slots=True)
class QuestionLog:
    """How questions went, for the plan's notes and for metrics."""

    asked: int = 0
    yes: int = 0
    no: int = 0
    unknown: int = 0


class OracleLadder:
    """Answers the ladder's questions by bounds and, where there is a solver to ask, by CP-SAT."""

    def __init__(self, asker: Asker | None) -> None:
        self.asker = asker if asker is not None and asker.model.search.enabled else None
        self.log = QuestionLog()
        self._joined: Joiner | None = None
        self._refuter: Refuter | None = None
        self._aggregated: Aggregator | None = None

    def refute(self, outcome: Outcome, chunk: Chunk, rung: Rung) -> Answer | None:
        """A bound's proof that ``rung`` can do nothing for ``chunk``, before any victim is looked at."""
        return self._refuter_of(outcome).refute(chunk, rung)

    def _refuter_of(self, outcome: Outcome) -> Refuter:
        if self._refuter is None or self._refuter.outcome is not outcome:
            self._refuter = Refuter(outcome)
        return self._refuter

    def place(self, outcome: Outcome, chunk: Chunk, rung: Rung, disruption: Disruption | None) -> Answer:
        """Can ``chunk`` run beside all admitted so far, with nobody disturbed whom ``rung`` protects?"""
        question = Question(self._joiner(outcome), outcome, chunk, rung, disruption)
        blocker = question.bound()
        if blocker is not None:
            # What cannot be taken from claims here could be taken all the same: then a count proves nothing.
            proof = Proof("unknown" if question.is_rough else "proven", "count", (blocker,))
            return Answer("no", proof, evidence=self._refuter_of(outcome).evidence(chunk, rung))
        if not question.has_choice:
            return Answer("no", Proof("proven", "exhausted"))
        if self.asker is None:
            return UNASKED
        return self._ask(self.asker, question)

    def _joiner(self, outcome: Outcome) -> Joiner:
        if self._joined is None or self._joined.outcome is not outcome:
            self._joined = Joiner(outcome)
        return self._joined

    def _ask(self, asker: Asker, question: Question) -> Answer:
        if asker.is_out_of_time:
            self.log.unknown += 1
            return UNKNOWN
        search = asker.model.search
        size = question.size_estimate()
        if size > FOLD_FROM and self._is_refuted(asker, question):
            self.log.no += 1
            return Answer("no", Proof("proven", "cp-sat"))
        if size > search.max_variables:
            self.log.unknown += 1
            return TOO_LARGE
        joint = question.joint()
        form = formulate(joint, asker.model.families, ())
        form.spec.minimize(question.cost_terms(form.variables))
        self.log.asked += 1
        answer = asker.solve(form.spec, min(search.question_s, asker.budget.left_s), gap=0.05)
        return self._judge(question, joint, answer, lambda values: expand(form.variables, values))

    def _is_refuted(self, asker: Asker, question: Question) -> bool:
        """True where even the aggregated master has no place for everybody."""
        if question.is_rough:
            return False
        form = formulate_master(self._aggregator(question.joiner).master(question))
        if form.is_hopeless:
            return True
        self.log.asked += 1
        seconds = min(asker.model.search.question_s, asker.budget.left_s)
        answer = asker.solve(form.spec, seconds, presolve=MASTER_PRESOLVE)
        return answer.status == "infeasible"

    def _aggregator(self, joiner: Joiner) -> Aggregator:
        if self._aggregated is None or self._aggregated.joiner is not joiner:
            self._aggregated = Aggregator(joiner)
        return self._aggregated

    def _judge(
        self,
        question: Question,
        joint: Joint,
        answer: SpecAnswer,
        read: Callable[[NDArray[np.int64]], Decision],
    ) -> Answer:
        if answer.status == "infeasible" and question.is_exact:
            self.log.no += 1
            return Answer("no", Proof("proven", "cp-sat"))
        if answer.values is None:
            self.log.unknown += 1
            return UNKNOWN
        units = question.accept(joint, read(answer.values))
        if units is None:
            self.log.unknown += 1
            return REFUSED
        self.log.yes += 1
        return Answer("yes", Proof("proven", "cp-sat"), units)
