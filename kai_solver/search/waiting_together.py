"""Of the gangs that wait without a proof of their own: how many must go on waiting, beside all that the plan admits.

What may leave or move for any of them is out of the way at once, and what only moves needs a place too. Gangs of
several queues may come to take from each other's queues as some of them are admitted; then all that may ever leave
counts as gone. So what is counted holds for any of them, in any order. The count is a linear programme, proven in
integers (`prices.least_waiting`).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from kai_solver.domain import Action, AtMost, Proof
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.prices import Packing, Unit, least_waiting
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.open_questions import OpenQuestions
from kai_solver.search.question import Question
from kai_solver.units import CPU

Pods = tuple[tuple[int, int], ...]
"""What a gang asks for: pods by shape, sorted."""

LEAST_S = 0.05
"""Seconds that a linear programme takes at least on clusters that need one: writing openb's down alone takes 0.1 s."""
MOST_KINDS = 16
"""Kinds of gang that are asked for one by one: each is a linear programme, of 0.2 s of CPU time on openb."""


class WaitingTogether:
    """Counts the gangs that wait after `OpenQuestions` has asked for each of them."""

    def __init__(self, questions: OpenQuestions) -> None:
        self.questions = questions
        self.outcome = questions.outcome
        self.problem = questions.problem
        self.model_input = JointModelInput(questions.outcome)
        self._units = {unit.gang: unit for unit in self._waiting()}

    def _waiting(self) -> Iterator[AllocationUnit]:
        for gang, refusals in self.outcome.refusals.items():
            if not any(refusal.proof.state == "unknown" for refusal in refusals.values()):
                continue
            unit = self.questions.gang_units[gang].next()
            if unit is not None and not unit.is_choice:  # A choice may ask for other pods instead: it may run or not.
                yield unit

    def run(self, left_s: Callable[[], float]) -> None:
        """Count, in ``left_s`` seconds; where none can run each has a proof, else each says of how many it is one.

        If some cannot run, kinds of gang of which not one can are looked for, the largest first.
        """
        claims = self.problem.snapshot.claims
        if not self._units or (claims is not None and claims.is_rough) or left_s() < LEAST_S:
            return
        members: dict[Pods, list[int]] = {}
        for gang, unit in self._units.items():
            members.setdefault(tuple(sorted(self.problem.by_shape(unit.pods).items())), []).append(gang)
        packing = self._packing()
        wait = least_waiting(packing, [Unit(pods, copies=len(g)) for pods, g in members.items()], left_s())
        most = len(self._units) - wait
        refuted: set[Pods] = set(members) if not most else set()
        kinds = [pods for pods, gangs in members.items() if len(gangs) <= wait and most]
        for pods in sorted(kinds, key=lambda pods: self._size(members[pods][0]), reverse=True)[:MOST_KINDS]:
            if left_s() > 0 and least_waiting(packing, [Unit(pods)], left_s()):
                refuted.add(pods)
        waiting = [gang for pods, gangs in members.items() for gang in gangs if pods not in refuted]
        for gang in self._units:
            if gang not in waiting:
                self._note(gang, Proof("proven", "flow", beside="plan"))
            elif most < len(waiting):
                self._note(gang, Proof("unknown", "flow", at_most=AtMost(len(waiting), most)))

    def _size(self, gang: int) -> tuple[int, int]:
        """Devices and cores that a gang asks for, in thousandths."""
        asking = Preemptor.of(self.problem, self._units[gang])
        return asking.device_milli, asking.charge[CPU]

    def _note(self, gang: int, proof: Proof) -> None:
        """Give ``proof`` to every action that has none for ``gang``; their words stay."""
        for action, refusal in list(self.outcome.refusals[gang].items()):
            if refusal.proof.state == "unknown":
                method = refusal.proof.method if proof.state == "unknown" else proof.method
                kept = replace(proof, method=method, blocking=refusal.proof.blocking)
                self.outcome.refuse(gang, action, replace(refusal, proof=kept))

    def _packing(self) -> Packing:
        """Room with all gone that may leave or move for any of the gangs, and the pods that must have places in it."""
        lifted: set[int] = set()
        out: set[int] = set()
        undone: set[int] = set()
        for question in self._questions():
            lifted |= question.units | question.shielded
            out |= (question.units - question.kept) | question.shielded
            undone |= question.undone
        pool = self.outcome.pool
        if pool is not None and self._may_reclaim():
            lifted, out = set(range(len(pool.units))), set(range(len(pool.units)))
            undone = {gang for gang in self.outcome.has_admitted() if gang in pool.of_gang}
        admitted = [a.allocation_unit for a in self.outcome.admissions if a.allocation_unit.gang not in undone]
        beside = self.model_input.shapes_of(admitted)
        beside.update(self.model_input.room_at_origins(frozenset(lifted - out)))
        free, device_free = self.model_input.lifted(frozenset(lifted))
        return Packing(self.problem, free, device_free, beside, ())

    def _may_reclaim(self) -> bool:
        """Whether reclaim may run any of the gangs, with what others of them hold then."""
        if Action.RECLAIM not in self.questions.searches:
            return False
        queues = {self.problem.gangs[gang].queue for gang in self._units}
        is_open = any(self._is_open(gang, Action.RECLAIM) for gang in self._units)
        return is_open or len(queues) > 1

    def _is_open(self, gang: int, action: Action) -> bool:
        refusal = self.outcome.refusals[gang].get(action)
        return refusal is not None and refusal.proof.state == "unknown"

    def _questions(self) -> Iterator[Question]:
        """One for each action and each right that gangs have in it: they say what may leave or move.

        Once work of a queue leaves for one gang, its limit may let others preempt that could not: then all are asked.
        """
        open_to_all = {Action.PREEMPT} if any(self._is_open(gang, Action.PREEMPT) for gang in self._units) else set()
        asked = set()
        for gang, unit in self._units.items():
            shape = self.problem.gangs[gang]
            own = gang if any(leaf.active for leaf in shape.leaves) else -1
            for action in (Action.ALLOCATE, *self.questions.searches):
                key = (action, shape.queue, shape.gang.priority, shape.gang.preemptible, shape.gang.never_preempts, own)
                is_open = action in open_to_all or self._is_open(gang, action)
                if key in asked or action is Action.RECLAIM or not is_open:
                    continue
                asked.add(key)
                yield Question(self.model_input, self.outcome, unit, action, self.questions.searches.get(action))
