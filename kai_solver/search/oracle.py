"""The oracle ladder for one question: a bound, then the aggregated model (the greedy has been asked before)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from kai_solver.actions import Answer
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.bounds import Evidence
from kai_solver.domain import Action, Proof
from kai_solver.model.aggregated import formulate_master
from kai_solver.model.build import Formulation, formulate
from kai_solver.model.decode import expand
from kai_solver.model.folding import fold
from kai_solver.model.spec import ModelSpec, SpecAnswer, Term
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Outcome
from kai_solver.search.aggregating import Aggregator
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.parameters import Presolve
from kai_solver.search.question import Question
from kai_solver.search.refuter import Refuter
from kai_solver.search.solver_client import SolverClient
from kai_solver.search.xplain import SolverEvidence

UNKNOWN = Answer("no", Proof("unknown", "budget"))
REFUTED = Answer("no", Proof("proven", "cp-sat"))
UNASKED = Answer("no", Proof("unasked", "greedy"))
REFUSED = Answer("no", Proof("unknown", "the model's answer could not be seated, or a rule beside it forbids it"))
TOO_LARGE = Answer("no", Proof("unknown", "too large"))

FOLD_FROM = 2_000
"""Variables from which the master is asked first; a smaller model says as much in milliseconds."""
FOLDED_FROM, FOLDED_PART = 400, 0.5
"""Variables from which a question is asked with identical nodes folded first, and for which part of its time at most.

With 837 variables (36 racks, 120 pods to be moved) a "no" so takes 0.02 to 0.04 s of two cores, 0.06 to 0.10 s without
(2026-11-22)."""
CHEAPER = 1.0
"""Time to look for a cheaper plan, as a multiple of what the first took. To ask for the cheapest at once finds none: on
three questions of 3,600 to 7,400 variables (1,000 loaded nodes) any solution took 0.1 to 0.3 s of CPU with the light
presolve, where the search for the cheapest had none after 0.6 s (2026-11-21)."""
MOST_PLACES = 400
"""Sites times shapes above which nodes that differ only in what is free share a site. With a site for every node, 19
proofs on 500 loaded nodes took 0.06 to 0.15 s of CPU each, a question that is not refuted 0.3 s (2026-11-21)."""
PATIENCE = 3
"""Questions too large for the model with nodes that the master did not refute, after which no more are asked until
a gang is admitted. On openb the master has places for all in every question about moves, at 0.3 s each."""
LARGEST_PART = 0.2
"""Part of the time left for questions that one may have, so that a few hard ones leave some for the easy proofs."""
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


class SolverActions:
    """Answers the ladder's questions by bounds and, where there is a solver to ask, by CP-SAT; else ``without`` it."""

    def __init__(self, solver_client: SolverClient | None, without: Answer = UNASKED) -> None:
        self.without = without
        self.solver_client = solver_client if solver_client is not None and solver_client.model.search.enabled else None
        self.log = QuestionLog()
        self._joined: JointModelInput | None = None
        self._refuter: Refuter | None = None
        self._aggregated: Aggregator | None = None
        self._fruitless: Counter[tuple[Action, int]] = Counter()

    def refute(self, outcome: Outcome, allocation_unit: AllocationUnit, action: Action) -> Answer | None:
        """A bound's proof that ``action`` can do nothing for ``allocation_unit``, before any victim is looked at."""
        return self._refuter_of(outcome).refute(allocation_unit, action)

    def _refuter_of(self, outcome: Outcome) -> Refuter:
        if self._refuter is None or self._refuter.outcome is not outcome:
            self._refuter = Refuter(outcome)
        return self._refuter

    def place(
        self, outcome: Outcome, allocation_unit: AllocationUnit, action: Action, victim_search: VictimSearch | None
    ) -> Answer:
        """Can ``allocation_unit`` run beside all admitted so far, with nothing disturbed that ``action`` protects?"""
        question = Question(self._model_input(outcome), outcome, allocation_unit, action, victim_search)
        blocker = question.bound()
        if blocker is not None:
            # What cannot be taken from claims here could be taken all the same: then a count proves nothing.
            proof = Proof("unknown" if question.is_rough else "proven", "count", (blocker,))
            return Answer("no", proof, evidence=self._evidence(question))
        if not question.has_choice:
            return Answer("no", Proof("proven", "exhausted"))
        refuted = self._refuter_of(outcome).refute_deep(allocation_unit, action)
        if refuted is not None:
            return refuted
        if self.solver_client is None:
            self._count(self.without)
            return self.without
        return self._ask(self.solver_client, question)

    def place_together(
        self,
        outcome: Outcome,
        allocation_units: Sequence[AllocationUnit],
        action: Action,
        victim_search: VictimSearch | None,
    ) -> Answer:
        """Can all of ``allocation_units`` run? Where that is not known it is no loss: each may be asked for alone."""
        question = Question(
            self._model_input(outcome),
            outcome,
            allocation_units[-1],
            action,
            victim_search,
            beside=allocation_units[:-1],
        )
        if self.solver_client is None or question.size_estimate() > self.solver_client.model.search.max_variables:
            return UNKNOWN
        blocker = question.bound()
        if blocker is not None:
            return Answer("no", Proof("unknown" if question.is_rough else "proven", "count", (blocker,)))
        unknown = self.log.unknown
        answer = self._ask(self.solver_client, question)
        self.log.unknown = unknown
        return answer

    def _evidence(self, question: Question) -> Evidence | None:
        pool, model_input = question.outcome.pool, question.model_input
        kept: dict[int, Mapping[int, int]] = {}
        if pool is not None and question.action is Action.CONSOLIDATION:
            kept[question.allocation_unit.gang] = model_input.room_at_origins(
                question.kept
            )  # Nothing is evicted: one sum will do.
        elif pool is not None:
            for gang in {pool.units[unit].gang for unit in question.kept}:
                kept[gang] = model_input.room_at_origins(question.kept.intersection(pool.of_gang[gang]))
        return self._refuter_of(question.outcome).evidence(question.allocation_unit, question.action, kept)

    def _solver_evidence(self, solver_client: SolverClient, question: Question) -> SolverEvidence | None:
        counted = self._refuter_of(question.outcome).evidence(question.allocation_unit, question.action, {})
        return None if counted is None else SolverEvidence(solver_client, question.joint(), counted)

    def _model_input(self, outcome: Outcome) -> JointModelInput:
        if self._joined is None or self._joined.outcome is not outcome:
            self._joined = JointModelInput(outcome)
        return self._joined

    def _ask(self, solver_client: SolverClient, question: Question) -> Answer:
        if solver_client.is_out_of_time:
            self.log.unknown += 1
            return UNKNOWN
        answer = self._search(solver_client, question)
        self._count(answer)
        return answer

    def _search(self, solver_client: SolverClient, question: Question) -> Answer:
        size, most = question.size_estimate(), solver_client.model.search.max_variables
        moment = (question.action, len(question.admitted))
        if size > most and self._fruitless[moment] >= PATIENCE:
            return TOO_LARGE
        question_budget = QuestionBudget.of(solver_client)
        if size > FOLD_FROM and self._is_refuted(question_budget, question, MOST_PLACES):
            return REFUTED
        if size > most:
            is_refuted = (
                size > FOLD_FROM and not question_budget.is_empty and self._is_refuted(question_budget, question, most)
            )
            self._fruitless[moment] += not is_refuted
            return REFUTED if is_refuted else TOO_LARGE
        found = UNKNOWN
        for cautious in self._ways(question, size):
            found = self._decide(question_budget, question, cautious=cautious)
            if found is REFUTED and not question.beside:
                found = replace(REFUTED, evidence=self._solver_evidence(solver_client, question))
            if found.verdict == "yes" or found.proof.state == "proven":
                break
        return found

    def seat(self, question: Question) -> Answer | None:
        """The answer "yes" to a question about a neighbourhood, put into effect; None where nothing is found."""
        if self.solver_client is None:
            return None
        question_budget = QuestionBudget.of(self.solver_client)
        for cautious in self._ways(question, 0):
            found = self._decide(question_budget, question, cautious=cautious)
            if found.verdict == "yes":
                self.log.yes += 1
                return found
        return None

    def _ways(self, question: Question, size: int) -> tuple[bool, ...]:
        """In a large question, first without giving back what was evicted for others: that is smaller, and safer."""
        if not question.evicted and question.action is not Action.RECLAIM:
            return (False,)
        return (True, False) if size > FOLD_FROM else (False, True)

    def _is_refuted(self, question_budget: "QuestionBudget", question: Question, most_places: int) -> bool:
        """True if even the aggregated model has no places for all."""
        if question.is_rough or question.divisible:
            return False
        form = formulate_master(self._aggregator(question.model_input).master(question, most_places))
        if form.is_hopeless:
            return True
        self.log.asked += 1
        return question_budget.ask(form.spec, MASTER_PRESOLVE).status == "infeasible"

    def _decide(self, question_budget: "QuestionBudget", question: Question, *, cautious: bool = False) -> Answer:
        """Ask the model with nodes. ``cautious``: as of `Question.joint`; then a "no" proves nothing."""
        if question_budget.is_empty:
            return UNKNOWN
        joint = question.joint(cautious=cautious)
        form = formulate(joint, question_budget.solver_client.model.families, ())
        self.log.asked += 1
        refuted = question_budget.ask_folded(form)
        answers = (
            [refuted]
            if refuted is not None
            else question_budget.find_cheap(form.spec, question.cost_terms(form.variables))
        )
        if answers[0].status == "infeasible" and question.is_exact and not cautious:
            return REFUTED
        plans = [answer.values for answer in answers if answer.values is not None]
        for values in plans:
            units = question.accept(joint, expand(form.variables, values))
            if units is not None:
                return Answer("yes", Proof("proven", "cp-sat"), units)
        return REFUSED if plans else UNKNOWN

    def _count(self, answer: Answer) -> None:
        if answer.verdict == "yes":
            self.log.yes += 1
        elif answer.proof.state == "proven":
            self.log.no += 1
        else:
            self.log.unknown += 1

    def _aggregator(self, model_input: JointModelInput) -> Aggregator:
        if self._aggregated is None or self._aggregated.model_input is not model_input:
            self._aggregated = Aggregator(model_input)
        return self._aggregated


@dataclass(slots=True)
class QuestionBudget:
    """Seconds for one question, on whatever it is spent."""

    solver_client: SolverClient
    left_s: float

    @classmethod
    def of(cls, solver_client: SolverClient) -> "QuestionBudget":
        """The model's seconds for a question, but no more than a part of what all of them have left."""
        search, left_s = solver_client.model.search, solver_client.budget.left_s
        return cls(solver_client, min(search.question_s, left_s if search.deterministic else left_s * LARGEST_PART))

    @property
    def is_empty(self) -> bool:
        """True where nothing more can be asked."""
        return self.left_s <= 0 or self.solver_client.is_out_of_time

    def ask(
        self, spec: ModelSpec, presolve: Presolve | None = None, seconds: float = inf, gap: float = 0.0
    ) -> SpecAnswer:
        """Ask, for at most ``seconds`` of what is left."""
        answer = self.solver_client.solve(spec, min(seconds, self.left_s), gap=gap, presolve=presolve)
        self.left_s -= self.solver_client.cost_s(answer)
        return answer

    def ask_folded(self, form: Formulation) -> SpecAnswer | None:
        """The "no" of the model with identical nodes counted together, which is one of the whole; None without one."""
        if not FOLDED_FROM <= form.spec.size[0] < FOLD_FROM:
            return None
        folded = fold(form.spec, [], form.apart)
        answer = None if folded is None else self.ask(folded.spec, seconds=FOLDED_PART * self.left_s)
        return answer if answer is not None and answer.status == "infeasible" else None

    def find_cheap(self, spec: ModelSpec, cost: list[Term]) -> list[SpecAnswer]:
        """A cheap solution and then any, as far as there is time; a small model is asked for the cheapest at once."""
        if spec.size[0] < FOLD_FROM:
            spec.minimize(cost)
            return [self.ask(spec, gap=0.05)]
        before_s = self.left_s
        found = self.ask(spec, "light")
        if found.values is None or self.is_empty:
            return [found]
        spec.minimize(cost)
        spec.hint(found.values)
        better = self.ask(spec, seconds=CHEAPER * (before_s - self.left_s), gap=0.05)
        return [better, found]
