"""The oracle ladder for one question: a bound, then the aggregated model (the greedy has been asked before)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds import Relaxed, count_bound
from kai_solver.domain import Blocker, Proof, Rung, SolverModel
from kai_solver.fairness import surplus as surplus_of
from kai_solver.formulation.build import formulate
from kai_solver.formulation.expand import Decision, expand
from kai_solver.formulation.joint import Joint, QueueSurplus
from kai_solver.formulation.spec import SpecAnswer, Term
from kai_solver.formulation.variables import Variables
from kai_solver.greedy import Answer, Chunk, Outcome
from kai_solver.greedy.disruption import Disruption
from kai_solver.greedy.rules import Aggressor
from kai_solver.greedy.units import charge_of
from kai_solver.search.joining import Joiner
from kai_solver.search.parameters import SolverParameters
from kai_solver.search.realise import realise
from kai_solver.search.session import Solver
from kai_solver.units import GPU, format_amount

BoolArray = NDArray[np.bool_]

UNKNOWN = Answer("no", Proof("unknown", "budget"))
UNASKED = Answer("no", Proof("unasked", "greedy"))


@dataclass(slots=True)
class QuestionLog:
    """How questions went, for the plan's notes and for metrics."""

    asked: int = 0
    yes: int = 0
    no: int = 0
    unknown: int = 0
    errors: list[str] = field(default_factory=list)


class OracleLadder:
    """Answers the ladder's questions by bounds and, where the model allows, by CP-SAT."""

    def __init__(
        self,
        model: SolverModel,
        solver: Solver | None,
        deadline_s: float,
        clock: Callable[[], float],
        *,
        seed: int = 0,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.model = model
        self.solver = solver if model.search.enabled else None
        self.deadline_s = deadline_s
        self.clock = clock
        self.seed = seed
        self.should_stop = should_stop
        self.log = QuestionLog()

    def place(self, outcome: Outcome, chunk: Chunk, rung: Rung, disruption: Disruption | None) -> Answer:
        """Can ``chunk`` run beside all admitted so far, with nobody disturbed whom ``rung`` protects?"""
        question = _Question(outcome, chunk, rung, disruption)
        blocker = question.bound()
        if blocker is not None:
            return Answer("no", Proof("proven", "count", (blocker,)))
        if not question.has_choice:
            return Answer("no", Proof("proven", "exhausted"))
        if self.solver is None:
            return UNASKED
        return self._ask(question)

    def _ask(self, question: "_Question") -> Answer:
        assert self.solver is not None
        left_s = self.deadline_s - self.clock()
        if left_s <= 0 or self.should_stop():
            self.log.unknown += 1
            return UNKNOWN
        joint = question.joint()
        form = formulate(joint, self.model.families, ())
        variables, _ = form.spec.size
        if variables > self.model.search.max_variables:
            self.log.unknown += 1
            return Answer("no", Proof("unknown", "too large"))
        form.spec.minimize(question.cost_terms(form.variables))
        seconds = min(self.model.search.question_s, left_s)
        parameters = SolverParameters.choose(
            self.model.search, variables=variables, seed=self.seed, seconds=seconds, gap=0.05
        )
        self.log.asked += 1
        limit = float("inf") if self.model.search.deterministic else self.clock() + seconds
        answer = self.solver.solve(form.spec, parameters, limit, should_stop=self.should_stop)
        return self._judge(question, joint, answer, lambda values: expand(form.variables, values))

    def _judge(
        self,
        question: "_Question",
        joint: Joint,
        answer: SpecAnswer,
        read: Callable[[NDArray[np.int64]], Decision],
    ) -> Answer:
        if answer.error:
            self.log.errors.append(answer.error)
        if answer.status == "infeasible" and question.is_exact:
            self.log.no += 1
            return Answer("no", Proof("proven", "cp-sat"))
        if answer.values is not None:
            units = question.accept(joint, read(answer.values))
            if units is not None:
                self.log.yes += 1
                return Answer("yes", Proof("proven", "cp-sat"), units)
        self.log.unknown += 1
        return UNKNOWN


class _Question:
    """One question: the chunk beside all that was admitted, and who may be disturbed."""

    def __init__(self, outcome: Outcome, chunk: Chunk, rung: Rung, disruption: Disruption | None) -> None:
        self.outcome = outcome
        self.state = outcome.state
        self.problem = outcome.state.problem
        self.chunk = chunk
        self.rung = rung
        self.disruption = disruption
        self.who = Aggressor(self.problem.gangs[chunk.gang], charge_of(self.problem, chunk.pods))
        self.eligible = disruption.eligibility.units(rung, self.who) if disruption is not None else frozenset()
        self.admitted = [(a.chunk, a.rung) for a in outcome.admissions]
        self.disturbed = self._disturbed()
        self.is_exact = self.state.affinity is None

    def _disturbed(self) -> frozenset[int]:
        pool = self.outcome.pool
        if pool is None:
            return frozenset()
        units = {u for a in self.outcome.admissions for u in a.units}
        return frozenset(u for u in units if pool.has_left(u) or pool.is_moved(u))

    @property
    def has_choice(self) -> bool:
        """False where the greedy's "no" is the answer: one pod, and nothing that could be arranged otherwise."""
        return bool(self.eligible or self.disturbed or self.admitted) or len(self.chunk.pods) > 1 or not self.is_exact

    # -- bounds --------------------------------------------------------------------------------------------------

    def bound(self) -> Blocker | None:
        """What proves "no" without a search."""
        joint = self.joint()
        needed = self._by_shape(self.chunk.pods)
        beside = self._by_shape([p for chunk, _ in self.admitted for p in chunk.pods])
        for mover in joint.movers:
            if mover.may_move and not mover.reclaimable and not mover.preemptable:
                for piece in mover.pieces:
                    beside[piece.shape] = beside.get(piece.shape, 0) + len(piece.pods)
        relaxed = Relaxed(joint.free, joint.device_free)
        return count_bound(self.problem, relaxed, needed, beside, self._domains(joint)) or self._fair_share_bound(joint)

    def _by_shape(self, pods: Sequence[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for pod in pods:
            shape = self.problem.pod_shape[pod]
            found[shape] = found.get(shape, 0) + 1
        return found

    def _domains(self, joint: Joint) -> list[BoolArray] | None:
        """Domains of which one must hold the whole chunk; None without such a rule."""
        arrival = joint.arrivals[-1]
        over_all = [s for i, s in enumerate(arrival.scopes) if all(i in piece.scopes for piece in arrival.pieces)]
        if not over_all:
            return None
        domain_of = over_all[-1].domain_of
        return [domain_of == d for d in sorted({int(d) for d in domain_of if d >= 0})]

    def _fair_share_bound(self, joint: Joint) -> Blocker | None:
        """Evictions may free at most every queue's surplus and one last unit: is that enough GPUs in all?"""
        if self.rung is not Rung.RECLAIM or not self.who.charge[GPU]:
            return None
        pool = self.outcome.pool
        free = int(np.maximum(self.state.device_future, 0).sum())
        taken = 0
        for surplus in joint.surplus:
            units = [m.charge[GPU] for m in joint.movers if m.queue in surplus.leaves and m.reclaimable]
            taken += min(sum(units), max(surplus.amounts[GPU] - 1, 0) + max(units, default=0))
            if any(surplus.amounts[r] > 0 for r in range(2)):
                return None
        if pool is None or free + taken >= self.who.charge[GPU]:
            return None
        need, have = format_amount("gpu", self.who.charge[GPU]), format_amount("gpu", free + taken)
        return Blocker("fair-share", self.problem.queues.title(self.who.queue), need, have)

    # -- model ---------------------------------------------------------------------------------------------------

    def joint(self) -> Joint:
        """The problem in which everything admitted keeps its right to run but not its place."""
        pool = self.outcome.pool
        reclaim = self.eligible if self.rung is Rung.RECLAIM else frozenset()
        preempt = self.eligible if self.rung is Rung.PREEMPT else frozenset()
        was = self._evicted_by()
        units = self.eligible | self.disturbed if pool is not None else frozenset()
        policy = self.problem.policy
        return Joiner(self.outcome).join(
            [*self.admitted, (self.chunk, self.rung)],
            sorted(units),
            reclaim | was.get(Rung.RECLAIM, frozenset()),
            preempt | was.get(Rung.PREEMPT, frozenset()),
            self._surplus(),
            may_move=self.rung is Rung.CONSOLIDATION or policy.consolidating_reclaim,
        )

    def _evicted_by(self) -> dict[Rung, frozenset[int]]:
        found: dict[Rung, set[int]] = {}
        for admission in self.outcome.admissions:
            found.setdefault(admission.rung, set()).update(u for u in admission.units if u in self.disturbed)
        return {rung: frozenset(units) for rung, units in found.items()}

    def _surplus(self) -> list[QueueSurplus]:
        """What this reclaimer may take, from the numbers of this moment."""
        if self.rung is not Rung.RECLAIM or self.disruption is None:
            return []
        tree = self.problem.queues
        found: dict[int, QueueSurplus] = {}
        for leaf in self.disruption.eligibility.reclaim_queues(self.who):
            s = surplus_of(tree, self.problem.allocatable, self.state.allocated, self.who.queue, leaf, self.who.charge)
            leaves = frozenset(q for q, path in enumerate(tree.path) if s.queue in path and tree.is_leaf[q])
            found[s.queue] = QueueSurplus(s.queue, leaves, self._with_taken(leaves, s.amounts))
        return list(found.values())

    def _with_taken(self, leaves: frozenset[int], amounts: tuple[int, int, int]) -> tuple[int, int, int]:
        """Units already evicted below the queue count again in the model, so their charge is added back."""
        pool = self.outcome.pool
        taken = [0, 0, 0]
        for unit in self.disturbed:
            if pool is not None and pool.has_left(unit):
                u = pool.units[unit]
                if self.problem.gangs[u.gang].queue in leaves:
                    taken = [t + c for t, c in zip(taken, u.charge, strict=True)]
        return (amounts[0] + taken[0], amounts[1] + taken[1], amounts[2] + taken[2])

    def cost_terms(self, v: Variables) -> list[Term]:
        """One rough sum for a question: an evicted pod costs a hundred moved ones. The stages weigh exactly."""
        terms: list[Term] = []
        for group in v.classes:
            terms += [(-1, var) for var in group.stay.values()]
            if group.out_reclaim is not None and group.out_preempt is not None:
                terms += [(99, group.out_reclaim), (99, group.out_preempt)]
        for unit in v.units:
            pods = len(unit.mover.home)
            terms += [(pods, unit.moved), (100 * pods, unit.out_reclaim), (100 * pods, unit.out_preempt)]
        return terms

    # -- acceptance ----------------------------------------------------------------------------------------------

    def accept(self, joint: Joint, decision: Decision) -> tuple[int, ...] | None:
        """Put the solution into effect; the units disturbed for this chunk, None where a rule refuses it."""
        pool, before = self.outcome.pool, self.disturbed
        mark = self.state.mark()
        ledger = self.disruption.ledger(self.who) if self.disruption is not None else None
        chunks = [*self.admitted, (self.chunk, self.rung)]
        if not realise(self.state, pool, joint, decision, chunks):
            return None
        units = [m.unit for m in joint.movers if pool is not None and (pool.has_left(m.unit) or pool.is_moved(m.unit))]
        fresh = [u for u in units if u not in before or (pool is not None and pool.has_left(u))]
        if self.disruption is not None and not self.disruption.is_allowed(self.who, self.chunk, fresh, ledger):
            self.state.rollback(mark)
            return None
        return tuple(units)
