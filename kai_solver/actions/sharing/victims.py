"""What is to be assigned, and what became of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kai_solver.planstate.eligibility import victim_parts
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.charges import Charge, sum_of


@dataclass(frozen=True, slots=True)
class VictimGroup:
    """Units that are evicted (or moved) together, for one of the admissions ``able`` (by number)."""

    units: tuple[int, ...]
    able: frozenset[int]
    evicted: bool = True


@dataclass(frozen=True, slots=True)
class Shared:
    """``admissions`` with the units that they may take, and the groups ``left`` that find none.

    Unless ``latest`` is set, what is taken is allowed only once what is left is gone, too.

    Attributes
    ----------
    short
        By queue, (resource, how much more it would have to hold) for some of what is left to be taken.
    early
        Leaf queues of which the victims are with the earliest reclaims.
    latest
        The ``left`` and ``short`` with all at the latest, where these find no admission for all and others were tried.
    """

    admissions: list[Admission]
    left: list[VictimGroup]
    short: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    early: frozenset[int] = frozenset()
    latest: tuple[list[VictimGroup], Mapping[int, tuple[int, int]]] | None = None


@dataclass(frozen=True, slots=True)
class Victims:
    """A group, of the leaf queue ``queue``.

    ``charge``: what the queue loses by it (nothing if it moves). ``parts``: what rule 3 of `fairness.reclaim` tests, in
    that order.
    """

    group: VictimGroup
    queue: int
    charge: Charge
    parts: tuple[Charge, ...]


def victims_of(outcome: Outcome, pool: VictimPool, groups: Iterable[VictimGroup]) -> list[Victims]:
    """The ``groups``, with what is asked of them."""
    problem = outcome.state.problem
    found: list[Victims] = []
    for group in groups:
        units = [pool.units[unit] for unit in group.units]
        is_tested = group.evicted or not problem.policy.consolidating_reclaim
        found.append(
            Victims(
                group,
                problem.gangs[units[0].gang].queue,
                sum_of(unit.charge for unit in units) if group.evicted else (0, 0, 0),
                tuple(victim_parts(outcome.state, units)) if is_tested else (),
            )
        )
    return found


def in_order(victims: Iterable[Victims]) -> list[Victims]:
    """By their last parts, by which reclaim orders gangs (`planstate.eligibility.reclaim_allowed`)."""
    return sorted(victims, key=lambda one: one.parts[-1][::-1] if one.parts else (0, 0, 0))
