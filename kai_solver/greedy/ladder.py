"""One climb of the ladder: allocate, consolidate, reclaim, preempt, then stale gangs (design section 5).

Within a rung gangs come in policy order, re-evaluated as allocations grow. The greedy answers first. Where it finds
no way, an ``Oracle`` may be asked: it proves that there is none, or finds one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from kai_solver.domain import Blocker, Proof, Reason, Rung
from kai_solver.greedy.caps import over_capacity
from kai_solver.greedy.chunks import Chunk, Chunker, Part
from kai_solver.greedy.disruption import Disruption
from kai_solver.greedy.outcome import Admission, Outcome, Refusal
from kai_solver.greedy.placing import Placer
from kai_solver.greedy.readiness import not_ready
from kai_solver.greedy.refusals import LargestNode, within_delay
from kai_solver.greedy.rules import Aggressor
from kai_solver.greedy.shortage import shortage
from kai_solver.greedy.stale import stale_gangs
from kai_solver.greedy.state import State
from kai_solver.greedy.turns import SizeTurns, Turns
from kai_solver.greedy.undoing import solve
from kai_solver.reduction import Problem
from kai_solver.units import GPU, UNLIMITED, format_amount

Signature = tuple[object, ...]

BUDGET_ENDED = Refusal(
    Reason.NOT_ENOUGH_RESOURCES,
    "The time for this cycle ended before the workload had its turn",
    Proof("unknown", "budget"),
)


MOST_CHOICES = 16
"""Subgroups of a gang that are left out in turn where the first choice of subgroups finds no places."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an oracle says. On "yes" the chunk has its places, and ``units`` left or moved for it."""

    verdict: Literal["yes", "no"]
    proof: Proof
    units: tuple[int, ...] = ()


class Oracle(Protocol):
    """Answers what the greedy could not. On "no" the state is as before; the proof says how sure it is."""

    def place(self, outcome: Outcome, chunk: Chunk, rung: Rung, disruption: Disruption | None) -> Answer:
        """Can ``chunk`` run beside all admitted so far, with nobody disturbed whom ``rung`` protects?"""
        ...


LEFT_OUT = Refusal(
    Reason.SET_ASIDE,
    "Left out of this cycle: the checker refused a plan in which it took part",
    Proof("unknown", "check"),
)


class Pace(Protocol):
    """When a rung has to give way to the next."""

    def start(self, rungs_left: int) -> None:
        """A rung begins; ``rungs_left`` counts it."""
        ...

    def is_over(self) -> bool:
        """True where the rung's time has ended."""
        ...


class Admitter(Protocol):
    """Chooses anew whom the allocate rung admits."""

    def improve(self, outcome: Outcome, waiting: Sequence[Chunk]) -> Proof:
        """Change ``outcome`` in place for the better, if it can; what is then proven of those left waiting."""
        ...


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
        self.oracle = oracle
        self.pace = pace
        self.admitter = admitter
        self.left_out = left_out
        self.turns = SizeTurns if admission == "max-gpus" else Turns
        self.outcome = Outcome(State(problem))
        self.placer = Placer(self.outcome.state)
        self.largest = LargestNode(problem)
        self.chunkers = [
            Chunker(gang, state, problem.pod_shape)
            for gang, state in zip(problem.gangs, self.outcome.state.gangs, strict=True)
        ]

    def climb(self) -> Outcome:
        """Climb all rungs."""
        candidates = self._ready()
        for number, rung in enumerate(self.rungs):
            if self.pace is not None:
                self.pace.start(len(self.rungs) - number)
            if rung is Rung.ALLOCATE:
                self._allocate(candidates)
            elif rung is Rung.STALE:
                self._evict_stale()
            else:
                self._disturb(rung, candidates)
        return self.outcome

    def _is_over(self) -> bool:
        return self.pace is not None and self.pace.is_over()

    def _ready(self) -> list[int]:
        ready: list[int] = []
        for gang, chunker in zip(self.problem.gangs, self.chunkers, strict=True):
            refusal = not_ready(self.problem, gang, chunker) if gang.waits else None
            if gang.gang.key in self.left_out:
                refusal = LEFT_OUT
            if refusal is None and not gang.pending:
                continue
            if refusal is None:
                ready.append(gang.index)
            else:
                for rung in self.rungs:
                    self.outcome.refuse(gang.index, rung, refusal)
        return ready

    # -- allocate ------------------------------------------------------------------------------------------------

    def _allocate(self, candidates: list[int]) -> None:
        """Place chunk by chunk without disturbing anybody; gangs with surplus take turns again and again."""
        self._keep_promises(candidates)
        turns = self.turns(self.outcome.state, self.chunkers, candidates)
        failed: dict[Signature, Refusal] = {}
        waiting: list[Chunk] = []
        while (turn := turns.pop()) is not None:
            gang, chunk = turn
            if self._is_over():
                self._stop(Rung.ALLOCATE, gang, turns)
                return
            refusal = over_capacity(self.outcome.state, chunk) or failed.get(self._signature(chunk))
            if refusal is None:
                refusal = self._allocate_chunk(chunk)
                if refusal is not None:
                    failed[self._signature(chunk)] = refusal
            if refusal is None or (chunk.is_choice and self._allocate_other(chunk)):
                turns.again(gang)
                continue
            self.outcome.refuse(gang, Rung.ALLOCATE, of_choice(refusal, chunk), chunk)
            waiting.append(chunk)
        if self.admitter is not None and waiting:
            self._admit_anew(self.admitter, waiting)

    def _allocate_other(self, chunk: Chunk) -> bool:
        """Ask for other subgroups of the gang that would serve as well; true where they found places.

        First without those that fit nowhere even alone, then also without one more, the last first. KAI has one try.
        """
        if len(self.problem.gangs[chunk.gang].leaves) < 2:
            return False
        leaves = tuple(chunk.root.leaves())[:MOST_CHOICES]
        hopeless = frozenset(leaf.name for leaf in leaves if not self._fits_alone(leaf))
        tried = {chunk.pods}
        for avoided in (hopeless, *(hopeless | {leaf.name} for leaf in reversed(leaves))):
            other = self.chunkers[chunk.gang].next(avoided)
            if other is None or other.pods in tried:
                continue
            tried.add(other.pods)
            if over_capacity(self.outcome.state, other) is None and self._fits_free(other):
                self.outcome.admit(Admission(other, Rung.ALLOCATE))
                return True
        return False

    def _fits_alone(self, part: Part) -> bool:
        mark = self.outcome.state.mark()
        fits = self.placer.place_part(part, None)
        self.outcome.state.rollback(mark)
        return fits

    def _keep_promises(self, candidates: list[int]) -> None:
        """Serve first whom an earlier cycle promised a node, lest the victims' queue takes back what was reclaimed.

        Gangs of higher priority in the same queue, which may have come since, have their try before.
        """
        gangs = self.problem.gangs
        lowest: dict[int, int] = {}
        kept = {index for index in candidates if self._is_promised(index)}
        for index in kept:
            gang = gangs[index]
            lowest[gang.queue] = min(lowest.get(gang.queue, gang.gang.priority), gang.gang.priority)
        above = (i for i in candidates if gangs[i].gang.priority > lowest.get(gangs[i].queue, gangs[i].gang.priority))
        promised = sorted(kept | set(above))
        turns = self.turns(self.outcome.state, self.chunkers, promised)
        while (turn := turns.pop()) is not None:
            chunk = turn[1]
            if over_capacity(self.outcome.state, chunk) is None and self._fits_free(chunk):
                self.outcome.admit(Admission(chunk, Rung.ALLOCATE))

    def _is_promised(self, gang: int) -> bool:
        """True where the pods that come next all have a node from an earlier cycle."""
        if not any(self.problem.pods[pod].nominated_node for pod in self.problem.gangs[gang].pending):
            return False
        chunk = self.chunkers[gang].next()
        return chunk is not None and all(self.problem.pods[pod].nominated_node for pod in chunk.pods)

    def _fits_free(self, chunk: Chunk) -> bool:
        mark = self.outcome.state.mark()
        if self.placer.place_chunk(chunk) and self._costs_too_much(chunk) is None:
            return True
        self.outcome.state.rollback(mark)
        return False

    def _admit_anew(self, admitter: Admitter, waiting: list[Chunk]) -> None:
        """Let the admitter choose among all; those it leaves out are refused, those it takes in no longer."""
        candidates = [*(a.chunk for a in self.outcome.admissions), *waiting]
        proof = admitter.improve(self.outcome, waiting)
        served = {a.chunk.pods for a in self.outcome.admissions}
        for chunk in candidates:
            self.outcome.refusals.pop(chunk.gang, None)
        for chunk in candidates:
            if chunk.pods not in served:
                refusal = over_capacity(self.outcome.state, chunk)
                refusal = refusal or shortage(self.outcome.state, self.placer, chunk, proof)
                self.outcome.refuse(chunk.gang, Rung.ALLOCATE, refusal, chunk)

    def _stop(self, rung: Rung, gang: int | None, turns: Turns | SizeTurns) -> None:
        """The budget ended: nothing is known of those who had no turn."""
        self.outcome.stopped = True
        while gang is not None:
            self.outcome.refuse(gang, rung, BUDGET_ENDED)
            turn = turns.pop()
            gang = turn[0] if turn is not None else None

    def _allocate_chunk(self, chunk: Chunk) -> Refusal | None:
        mark = self.outcome.state.mark()
        if self.placer.place_chunk(chunk):
            refusal = self._costs_too_much(chunk)
            if refusal is None:
                self.outcome.admit(Admission(chunk, Rung.ALLOCATE))
                return None
            self.outcome.state.rollback(mark)
            return refusal
        return self._ask(chunk, Rung.ALLOCATE, None)

    def _costs_too_much(self, chunk: Chunk) -> Refusal | None:
        """Where a request by GPU memory landed on smaller devices, it may cost more than its queue may pay."""
        if not any(self.problem.pods[pod].gpu.memory_mib for pod in chunk.pods):
            return None
        gang, tree, state = self.problem.gangs[chunk.gang], self.problem.queues, self.outcome.state
        caps = [("limit", Reason.OVER_LIMIT, tree.limits, state.allocated)]
        if not gang.gang.preemptible:
            caps.append(("quota", Reason.NON_PREEMPTIBLE_OVER_QUOTA, tree.quotas, state.allocated_fixed))
        for word, reason, cap, held in caps:
            for queue in tree.path[gang.queue]:
                if cap[queue][GPU] != UNLIMITED and held[queue][GPU] > cap[queue][GPU]:
                    need, have = format_amount("gpu", held[queue][GPU]), format_amount("gpu", cap[queue][GPU])
                    text = f"{tree.title(queue)} would pass its {word} of {have} on the nodes that have room"
                    blocker = Blocker(f"queue-{word}", tree.title(queue), need, have)
                    return Refusal(reason, text, Proof("unknown", word, (blocker,)))
        return None

    def _signature(self, chunk: Chunk) -> Signature:
        """Chunks of one signature fit the same places: what failed once fails for all (capacity only shrinks)."""
        gang = self.problem.gangs[chunk.gang]
        crowded = gang.placement.is_rule and bool(self.outcome.state.crowds[gang.family].pods.any())
        if self.outcome.state.has_pod_rules or chunk.root.anchors or crowded:
            return (chunk.gang, chunk.pods)
        return (gang.placement, self._part_signature(chunk.root))

    def _part_signature(self, part: Part) -> Signature:
        shapes = self.problem.pod_shape
        return (part.topology, tuple(shapes[p] for p in part.pods), tuple(map(self._part_signature, part.parts)))

    def _ask(self, chunk: Chunk, rung: Rung, disruption: Disruption | None) -> Refusal | None:
        """Ask the oracle; None where it found a way."""
        answer = self.oracle.place(self.outcome, chunk, rung, disruption)
        if answer.verdict == "yes":
            self.outcome.admit(Admission(chunk, rung, answer.units, by_solver=True))
            return None
        if chunk.gang in self.outcome.refusals:
            return Refusal(Reason.NOT_ENOUGH_RESOURCES, "", answer.proof)  # An earlier rung has said what lacks.
        return shortage(self.outcome.state, self.placer, chunk, answer.proof)

    # -- rungs that disturb --------------------------------------------------------------------------------------

    def _disturb(self, rung: Rung, candidates: list[int]) -> None:
        if self.outcome.pool is None:
            self.outcome.pool = Disruption.pool_of(self.outcome.state)
        disruption = Disruption(self.outcome, self.placer.fits, rung, self.chunkers, candidates)
        turns = self.turns(self.outcome.state, self.chunkers, candidates)
        while (turn := turns.pop()) is not None:
            gang = turn[0]
            if self._is_over():
                self._stop(rung, gang, turns)
                break
            chunk = self.chunkers[gang].next()
            if chunk is None:
                continue  # Its core was evicted for an earlier one, and its surplus cannot run alone.
            refusal = self._disturb_for(disruption, rung, chunk)
            if refusal is not None:
                self.outcome.refuse(gang, rung, of_choice(refusal, chunk), chunk)
            else:
                disruption.forget()
                turns.refresh()
        disruption.settle()

    def _disturb_for(self, disruption: Disruption, rung: Rung, chunk: Chunk) -> Refusal | None:
        who = Aggressor.of(self.problem, chunk)
        refusal = within_delay(self.problem, who.gang)
        if refusal is not None:
            return refusal
        refusal = disruption.forbidden(who)
        if refusal is None or refusal.proof.method == "count":
            refusal = self.largest.refuses(chunk) or refusal
        if refusal is not None:
            return refusal
        refusal = over_capacity(self.outcome.state, chunk) if rung is Rung.CONSOLIDATION else None
        if refusal is not None:
            return refusal
        signature = self._signature(chunk)
        refusal = disruption.known_refusal(who, signature)
        if refusal is not None:
            return refusal
        found = self._without_victims(rung, chunk)
        if found is None:
            found = solve(self.outcome, disruption, who, chunk)
        if found is not None:
            self.outcome.admit(Admission(chunk, rung, tuple(found)))
            return None
        refusal = self._ask(chunk, rung, disruption)
        if refusal is not None:
            disruption.remember(who, signature, refusal)
        return refusal

    def _without_victims(self, rung: Rung, chunk: Chunk) -> list[int] | None:
        """Earlier victims may have left more room than was taken: then nobody has to go."""
        if rung is Rung.CONSOLIDATION or over_capacity(self.outcome.state, chunk) is not None:
            return None
        return [] if self._fits_free(chunk) else None

    # -- stale gangs ---------------------------------------------------------------------------------------------

    def _evict_stale(self) -> None:
        for gang in stale_gangs(self.outcome.state, self.chunkers):
            state = self.outcome.state.gangs[gang]
            for pod in [p for leaf in state.active for p in leaf]:
                if pod in self.outcome.state.places:
                    self.outcome.state.lift(pod)
                else:
                    self.outcome.state.evict(pod)
            self.outcome.stale.append(gang)


def of_choice(refusal: Refusal, chunk: Chunk) -> Refusal:
    """A proof about one choice of pods is none about the gang: then nothing is known."""
    if not chunk.is_choice or refusal.proof.state != "proven" or refusal.proof.method == "rule":
        return refusal
    return replace(
        refusal, proof=replace(refusal.proof, state="unknown", method=f"{refusal.proof.method}, for some of its pods")
    )
