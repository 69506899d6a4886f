"""One question: can this gang run beside all that is admitted? Bounds answer, then CP-SAT on the model with nodes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from kai_solver.actions import Answer
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.bounds import Bounds, Evidence, Kept
from kai_solver.domain import Action, Proof
from kai_solver.model.build import formulate
from kai_solver.model.decode import expand
from kai_solver.model.spec import ModelSpec, SpecAnswer, Term
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Outcome
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

SMALL = 2_000
"""Variables up to which the cheapest plan is asked for at once, and what was evicted for others may come back first."""
CHEAPER = 1.0
"""Time to look for a cheaper plan, as a multiple of what the first took. To ask for the cheapest at once finds none: on
three questions of 3,600 to 7,400 variables (1,000 loaded nodes) any solution took 0.1 to 0.3 s of CPU with the light
presolve, where the search for the cheapest had none after 0.6 s (2026-11-21)."""
LARGEST_PART = 0.4
"""Part of the time left for questions that one may have, so that a few hard ones leave some for the easy proofs."""


class SolverActions:
    """Answers the ladder's questions by bounds and, where there is a solver to ask, by CP-SAT; else ``without`` it.

    ``bounds``: gives those of the problem, where others ask them, too.
    """

    def __init__(
        self,
        solver_client: SolverClient | None,
        without: Answer = UNASKED,
        bounds: Callable[[], Bounds] | None = None,
    ) -> None:
        self.without = without
        self._bounds = bounds
        self.solver_client = solver_client if solver_client is not None and solver_client.model.search.enabled else None
        self._joined: JointModelInput | None = None
        self._refuter: Refuter | None = None

    @property
    def unanswered(self) -> Answer:
        """The "no" to what nothing was asked about."""
        return self.without

    def refute(self, outcome: Outcome, allocation_unit: AllocationUnit, action: Action) -> Answer | None:
        """A bound's proof that ``action`` can do nothing for ``allocation_unit``, before any victim is looked at."""
        return self._refuter_of(outcome).refute(allocation_unit, action)

    def _refuter_of(self, outcome: Outcome) -> Refuter:
        if self._refuter is None or self._refuter.outcome is not outcome:
            self._refuter = Refuter(outcome, self._bounds)
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
        return self.without if self.solver_client is None else self._search(self.solver_client, question)

    def _evidence(self, question: Question) -> Evidence | None:
        pool, model_input = question.outcome.pool, question.model_input
        kept = Kept({})
        if pool is not None and question.action is Action.CONSOLIDATION:
            # Nothing is evicted: one sum will do.
            kept = Kept({question.allocation_unit.gang: model_input.room_at_origins(question.kept)})
        elif pool is not None:
            kept = model_input.kept(question.kept)
        return self._refuter_of(question.outcome).evidence(question.allocation_unit, question.action, kept)

    def _solver_evidence(self, solver_client: SolverClient, question: Question) -> SolverEvidence | None:
        counted = self._refuter_of(question.outcome).evidence(question.allocation_unit, question.action, Kept({}))
        return None if counted is None else SolverEvidence(solver_client, question.joint(), counted)

    def _model_input(self, outcome: Outcome) -> JointModelInput:
        if self._joined is None or self._joined.outcome is not outcome:
            self._joined = JointModelInput(outcome)
        return self._joined

    def _search(self, solver_client: SolverClient, question: Question) -> Answer:
        size = question.size_estimate()
        if not solver_client.may_build(size):
            return UNKNOWN
        question_budget = QuestionBudget.of(solver_client)
        found = UNKNOWN
        for cautious in self._ways(question, size):
            found = self._decide(question_budget, question, cautious=cautious)
            if found is REFUTED:
                found = replace(REFUTED, evidence=self._solver_evidence(solver_client, question))
            if found.verdict == "yes" or found.proof.state == "proven":
                break
        return found

    def _ways(self, question: Question, size: int) -> tuple[bool, ...]:
        """In a large question, first without giving back what was evicted for others: that is smaller, and safer."""
        if not question.evicted and question.action is not Action.RECLAIM:
            return (False,)
        return (True, False) if size > SMALL else (False, True)

    def _decide(self, question_budget: "QuestionBudget", question: Question, *, cautious: bool = False) -> Answer:
        """Ask the model with nodes. ``cautious``: as of `Question.joint`; then a "no" proves nothing."""
        if question_budget.is_empty:
            return UNKNOWN
        joint = question.joint(cautious=cautious)
        form = formulate(joint, question_budget.solver_client.model.families, ())
        answers = question_budget.find_cheap(form.spec, question.cost_terms(form.variables))
        if answers[0].status == "infeasible" and question.is_exact and not cautious:
            return REFUTED
        plans = [answer.values for answer in answers if answer.values is not None]
        for values in plans:
            units = question.accept(joint, expand(form.variables, values))
            if units is not None:
                return Answer("yes", Proof("proven", "cp-sat"), units)
        return REFUSED if plans else UNKNOWN


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

    def find_cheap(self, spec: ModelSpec, cost: list[Term]) -> list[SpecAnswer]:
        """A cheap solution and then any, as far as there is time; a small model is asked for the cheapest at once."""
        if spec.size[0] < SMALL:
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
