"""As expected, better, or different: the judgement of one case.

An outcome that misses the expectation may still be *better* than KAI's recorded one, by one of two rules and no other:

``fewer-victims``
    Every queue is served at least as much, in job order, and less work is evicted, or as little evicted and less moved.
``serves-more``
    Every queue is served at least as much, in job order, one of them more, and no more is evicted or moved.

Neither holds where the importer could not use all of the case, where the checker refuses a plan, where the further
rounds change anything, where a task that the case asserts to be running is disturbed, or where a gang below its minimum
is not treated as asserted: evicting stale gangs is a rule, not a price.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from kai_solver.domain import Gang
from kai_solver.lab.conformance.amounts import gpus_required
from kai_solver.lab.conformance.casefile import Case, Recorded
from kai_solver.lab.conformance.expect import Tasks, differences
from kai_solver.lab.conformance.outcome import Outcome
from kai_solver.lab.conformance.rounds import is_short
from kai_solver.lab.conformance.states import PIPELINED, PLACED, RELEASING

Kind = Literal["as expected", "better", "different"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one case.

    ``rule`` is the rule by which an outcome is better; ``reason`` one sentence; ``differences`` what was asserted and
    does not hold; ``notes`` what the engine said of its plans.
    """

    kind: Kind
    reason: str = ""
    rule: str = ""
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Work disturbed in all rounds up to the match: pods and GPUs evicted for good, pods moved."""

    evicted: int
    gpus_evicted: float
    moved: int

    def no_more_than(self, other: "Disturbance") -> bool:
        """True where nothing is disturbed beyond ``other``; an eviction spared may cost one move."""
        return (
            self.evicted <= other.evicted
            and self.gpus_evicted <= other.gpus_evicted + 1e-6
            and self.evicted + self.moved <= other.evicted + other.moved
        )


def judge(case: Case, outcome: Outcome) -> Verdict:
    """Judge the outcome of ``case``."""
    notes = tuple(dict.fromkeys(note for plan in outcome.plans for note in plan.notes))
    return replace(_verdict(case, outcome), notes=notes)


def _verdict(case: Case, outcome: Outcome) -> Verdict:
    if outcome.violations:
        return Verdict("different", f"the checker refuses the plan: {outcome.violations[0]}", "", outcome.violations)
    missed = differences(case, outcome)
    if not missed:
        return Verdict("as expected")
    better = _better(case, outcome)
    if better is None:
        return Verdict("different", missed[0], "", missed)
    rule, reason = better
    return Verdict("better", reason, rule, missed)


def _better(case: Case, outcome: Outcome) -> tuple[str, str] | None:
    """(rule, reason) where the outcome is better than KAI's recorded one; else None."""
    if case.actual is None or not case.actual.at_match or outcome.unstable or outcome.before.notices:
        return None
    tasks = Tasks(outcome.before)
    if _disturbs_asserted(case, outcome) or _keeps_stale(case, outcome, tasks):
        return None
    ours = served_ours(outcome)
    theirs = served_theirs(tasks, case.actual)
    if not _serves_at_least(outcome, ours, theirs):
        return None
    disturbed, by_kai = disturbance(outcome, tasks), recorded_disturbance(case.actual, tasks)
    if not disturbed.no_more_than(by_kai):
        return None
    if disturbed != by_kai:
        return "fewer-victims", (
            f"serves at least as much in policy order and disturbs less: {_words(disturbed)}, KAI {_words(by_kai)}"
        )
    more = sum(ours.values()) - sum(theirs.values())
    if ours != theirs:
        gained = sorted(key for key in ours if ours[key] > theirs[key])
        return (
            "serves-more",
            f"serves more ({', '.join(gained)}; {more:+d} pods) and disturbs no more: {_words(disturbed)}",
        )
    return None


def served_ours(outcome: Outcome) -> dict[str, int]:
    """Served pods by gang key in our outcome."""
    return {gang.key: sum(outcome.states[pod.key].served for pod in gang.pods) for gang in outcome.before.gangs}


def served_theirs(tasks: Tasks, recorded: Recorded) -> dict[str, int]:
    """Served pods by gang key in KAI's outcome."""
    counts = {gang.key: 0 for gang in tasks.job.values()}
    for task, state in (recorded.at_match or {}).items():
        pod = tasks.by_id.get(task)
        if pod is not None and state.status in PLACED:
            counts[tasks.gang_of[pod.key].key] += 1
    return counts


def disturbance(outcome: Outcome, tasks: Tasks) -> Disturbance:
    """What our plans disturbed."""
    evicted = [tasks.by_id[e.pod] for plan in outcome.plans for e in plan.evictions]
    return Disturbance(
        len(evicted), sum(gpus_required(pod) for pod in evicted), sum(len(p.moves) for p in outcome.plans)
    )


def recorded_disturbance(recorded: Recorded, tasks: Tasks) -> Disturbance:
    """What KAI disturbed: running tasks that it evicted, and those that it pipelined elsewhere."""
    changes = [(task, state) for r in recorded.rounds for task, state in r.tasks.items() if state.was in _RAN]
    evicted = [tasks.by_id[task] for task, state in changes if state.status == RELEASING and task in tasks.by_id]
    moved = sum(state.status == PIPELINED for _, state in changes)
    return Disturbance(len(evicted), sum(gpus_required(pod) for pod in evicted), moved)


_RAN = frozenset({"Binding", "Bound", "Running"})


def _serves_at_least(outcome: Outcome, ours: Mapping[str, int], theirs: Mapping[str, int]) -> bool:
    """True where every queue is served at least as much, its jobs compared in job order (priority, then age)."""
    queues: dict[str, list[Gang]] = defaultdict(list)
    for gang in outcome.before.gangs:
        queues[gang.queue].append(gang)
    for gangs in queues.values():
        ordered = sorted(gangs, key=lambda gang: (-gang.priority, gang.created_s, gang.key))
        if [ours[gang.key] for gang in ordered] < [theirs[gang.key] for gang in ordered]:
            return False
    return True


def _disturbs_asserted(case: Case, outcome: Outcome) -> bool:
    """True where a task that ran, and is asserted to run still, was evicted or moved in any round."""
    touched = {e.pod for plan in outcome.plans for e in plan.evictions}
    touched |= {m.pod for plan in outcome.plans for m in plan.moves}
    tasks = Tasks(outcome.before)
    asserted = [
        (pod, expected)
        for name, expected in case.expected.jobs.items()
        for pod in (tasks.job[name].pods if name in tasks.job else ())
    ]
    asserted += [(tasks.by_id[n], expected) for n, expected in case.expected.tasks.items() if n in tasks.by_id]
    return any(
        pod.key in touched and expected.status == "Running" and expected.node in (None, pod.node)
        for pod, expected in asserted
        if pod.status.is_active
    )


def _keeps_stale(case: Case, outcome: Outcome, tasks: Tasks) -> bool:
    """True where a gang that began below its minimum came out otherwise than asserted."""
    stale = {gang.key for gang in outcome.before.gangs if is_short(gang)}
    asserted = [(tasks.job[name].pods, e) for name, e in case.expected.jobs.items() if name in tasks.job]
    asserted += [((tasks.by_id[name],), e) for name, e in case.expected.tasks.items() if name in tasks.by_id]
    return any(
        tasks.gang_of[pod.key].key in stale and expected.status not in (None, outcome.states[pod.key].status)
        for pods, expected in asserted
        for pod in pods
    )


def _words(disturbed: Disturbance) -> str:
    return f"{disturbed.evicted} evicted ({disturbed.gpus_evicted:g} GPUs), {disturbed.moved} moved"
