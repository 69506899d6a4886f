"""Two climbs of the ladder: the greedy's, which is the floor, and one that asks the solver where the greedy is lost.

An answer of the solver changes all that comes after it, and takes time from it: with 10 s for 1,000 loaded nodes,
asking on the way served 340 gangs where the greedy alone serves 354, and 164 GPUs less (2026-11-21). So nothing is
asked before the floor stands, and what asking led to is kept by comparison.
"""

from collections import Counter
from dataclasses import dataclass

from kai_solver.planstate.outcome import Outcome
from kai_solver.search.oracle import QuestionLog
from kai_solver.units.shares import floor_milli

SLOWER = 1.2
"""Time kept for the climb that asks to reach its end, as a multiple of what the greedy's took."""


@dataclass(frozen=True, slots=True)
class ActionsRun:
    """What a climb decided, and how its questions went."""

    outcome: Outcome
    log: QuestionLog

    @property
    def is_complete(self) -> bool:
        """True where every question had its answer."""
        return not self.outcome.stopped and not self.log.unknown


def seconds_for_questions(left_s: float, floor_s: float, share: float) -> float:
    """Seconds in which the second climb may ask, of ``left_s``: its ``share``, and the climb still ends in time.

    ``floor_s``: what the greedy's climb took. None are left where even a climb without questions might not end.
    """
    return max(0.0, min(left_s * share, left_s - SLOWER * floor_s))


FEW = 0.1
"""Part of those that wait whose answer is unknown, up to which asking for them by neighbourhoods is all that is done.

1,000 loaded nodes: 2 of 46 are unknown; the second climb takes 4 of 10 s and serves no more gangs, and the stages lack
that time (2026-11-22). 500 loaded nodes: 9 of 40, and up to 12 more are served.
"""


def are_few_unknown(run: ActionsRun) -> bool:
    """Whether nearly all gangs that finally wait have a proven answer."""
    waiting, refusals = run.outcome.waiting, run.outcome.refusals
    unknown = sum(any(r.proof.state == "unknown" for r in refusals.get(gang, {}).values()) for gang in waiting)
    return unknown <= FEW * len(waiting)


def better(floor: ActionsRun, asked: ActionsRun) -> ActionsRun:
    """Which of the two counts.

    Where every question was answered, the ``asked`` one: it served in order of rank, and no gang was traded for a later
    one. It may still serve fewer: a gang that the solver places early takes room of later ones. Where the ``floor``
    serves every gang that ``asked`` serves, with as many pods, and more gangs, rank does not ask for that, and the
    floor counts. Where time was short, ``asked`` counts only if it serves as much: GPUs by priority from the highest,
    then pods.
    """
    if asked.is_complete:
        mine, other = _pods_served(floor.outcome), _pods_served(asked.outcome)
        return floor if len(mine) > len(other) and mine >= other else asked
    strata = {gang.gang.priority for gang in floor.outcome.state.problem.gangs if gang.waits}
    order = sorted(strata, reverse=True)
    return asked if _served(asked.outcome, order) >= _served(floor.outcome, order) else floor


def _pods_served(outcome: Outcome) -> Counter[int]:
    """Pods that got places, by gang."""
    return Counter(
        admission.allocation_unit.gang for admission in outcome.admissions for _ in admission.allocation_unit.pods
    )


def _served(outcome: Outcome, strata: list[int]) -> list[tuple[int, int]]:
    """GPUs (in thousandths) and pods that got places, by priority."""
    served = dict.fromkeys(strata, (0, 0))
    for admission in outcome.admissions:
        priority = outcome.state.problem.gangs[admission.allocation_unit.gang].gang.priority
        places = [
            place for pod in admission.allocation_unit.pods if (place := outcome.state.places.get(pod)) is not None
        ]
        gpus, pods = served[priority]
        served[priority] = (gpus + sum(len(p.devices) * floor_milli(p.parts) for p in places), pods + len(places))
    return [served[priority] for priority in strata]
