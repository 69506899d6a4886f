"""For which gang each victim of the stages leaves, and each of their moves is made.

The stages choose for all reclaimers together, by rights from before any of them, and a reclaim is allowed or not by
what is taken for it (docs/kai-behaviour.md#reclaim-victims). A unit stays with the gang that took it before, or goes to
the one that takes its nodes. If the reclaims would not be allowed so, they are shared out again (`actions.sharing`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kai_solver.actions.reclaim_replay import reclaims_hold
from kai_solver.actions.sharing import Shared, Tries, VictimGroup, share_out
from kai_solver.domain import Action
from kai_solver.model.decode import Decision
from kai_solver.model.joint import Joint, Mover
from kai_solver.planstate.outcome import Admission, Outcome

Able = Mapping[int, Sequence[int]]
"""By unit, the admissions (by number) that may take it."""
EVICTING = (Action.RECLAIM, Action.PREEMPT)


def attribute(
    outcome: Outcome,
    joint: Joint,
    decision: Decision,
    takers: Sequence[frozenset[int]],
    tries: Tries,
) -> bool:
    """Choose again for which admission each disturbed unit is; False if no way is found that allows every reclaim.

    ``takers``: by admission, the units that it may take. Evicted units of one gang are for one admission. ``tries``: as
    of `share_out`.
    """
    movers = {m.unit: m for m in joint.movers}
    able = _able(outcome, decision, movers, takers)
    outcome.replace_admissions(_as_before(outcome, decision, movers, able))
    if reclaims_hold(outcome):
        return True
    shared = share_out(outcome, _victim_groups(decision, movers, able), tries)
    outcome.replace_admissions(shared.admissions)
    return not shared.left and reclaims_hold(outcome)


def share_victims(
    outcome: Outcome, evicted: Sequence[Mover], evictors: "Evictors", tries: Tries | None = None
) -> Shared:
    """For which admissions ``evicted`` could leave, before any pod has a place; ``tries`` as of `share_out`."""
    by_gang: dict[int, list[Mover]] = {}
    for mover in evicted:
        by_gang.setdefault(mover.gang, []).append(mover)
    return share_out(
        outcome, (VictimGroup(tuple(m.unit for m in own), evictors.of_all(own)) for own in by_gang.values()), tries
    )


class Evictors:
    """Which admissions may evict a unit: those of one action that may take the same units are asked together."""

    def __init__(self, admissions: Sequence[Admission], takers: Sequence[frozenset[int]]) -> None:
        self.admissions = admissions
        self._kinds: dict[tuple[Action, int], tuple[frozenset[int], list[int]]] = {}
        self._holders: dict[int, list[tuple[Action, int]]] = {}
        self._found: dict[tuple[tuple[Action, int], ...], frozenset[int]] = {}
        self._of_unit: dict[int, frozenset[int]] = {}
        for number, (admission, takes) in enumerate(zip(admissions, takers, strict=True)):
            if admission.action in EVICTING:
                self._kinds.setdefault((admission.action, id(takes)), (takes, []))[1].append(number)
                for unit in admission.units:
                    self._holders.setdefault(unit, []).append((admission.action, number))

    def of_all(self, movers: Sequence[Mover]) -> frozenset[int]:
        """Numbers of the admissions that may evict all of ``movers``."""
        for mover in movers:
            if mover.unit not in self._of_unit:
                may = ((Action.RECLAIM, mover.reclaimable), (Action.PREEMPT, mover.preemptable))
                self._of_unit[mover.unit] = self.by(mover.unit, tuple(action for action, is_open in may if is_open))
        found = [self._of_unit[mover.unit] for mover in movers]
        return found[0] if len(found) == 1 else frozenset.intersection(*found)

    def by(self, unit: int, actions: Sequence[Action]) -> frozenset[int]:
        """Numbers of the admissions by one of ``actions`` that may evict the unit."""
        kinds = tuple(kind for kind, (takes, _) in self._kinds.items() if unit in takes and kind[0] in actions)
        if kinds not in self._found:
            self._found[kinds] = frozenset(number for kind in kinds for number in self._kinds[kind][1])
        found = self._found[kinds]
        more = {number for action, number in self._holders.get(unit, ()) if action in actions} - found
        return found | more if more else found


def _able(
    outcome: Outcome, decision: Decision, movers: Mapping[int, Mover], takers: Sequence[frozenset[int]]
) -> dict[int, list[int]]:
    evictors = Evictors(outcome.admissions, takers)
    asked = (
        (decision.reclaimed, (Action.RECLAIM,)),
        (decision.preempted, (Action.PREEMPT,)),
        (decision.moved, EVICTING),
    )
    able = {unit: sorted(evictors.by(unit, actions)) for units, actions in asked for unit in units}
    by_moves = [n for n, a in enumerate(outcome.admissions) if a.action is Action.CONSOLIDATION]
    for unit in decision.moved:
        others = [n for n in by_moves if outcome.admissions[n].allocation_unit.gang != movers[unit].gang]
        able[unit] = sorted([*able[unit], *others])
    return able


def _as_before(outcome: Outcome, decision: Decision, movers: Mapping[int, Mover], able: Able) -> list[Admission]:
    """Each unit for the admission that took it before, or else takes its nodes.

    One that disturbed nothing has not been judged: it may have used up its rights by then, and gets no unit that others
    can take.
    """
    admissions = outcome.admissions
    landing = [{outcome.state.places[pod].node for pod in a.allocation_unit.pods} for a in admissions]
    units: list[dict[int, None]] = [{} for _ in admissions]
    taker_of: dict[tuple[int, bool], int] = {}
    reclaimed, moved = set(decision.reclaimed), set(decision.moved)
    for unit, may in able.items():
        judged = [n for n in may if admissions[n].units] or may
        before = [n for n in judged if unit in admissions[n].units]
        near = [n for n in judged if not landing[n].isdisjoint(movers[unit].origin)]
        chosen = before or near or judged
        if unit not in moved and chosen:
            same = taker_of.setdefault((movers[unit].gang, unit in reclaimed), chosen[0])
            chosen = [same if same in judged else chosen[0]]
        for number in chosen:
            units[number][unit] = None
    return [replace(a, units=tuple(u)) for a, u in zip(admissions, units, strict=True)]


def _victim_groups(decision: Decision, movers: Mapping[int, Mover], able: Able) -> Iterator[VictimGroup]:
    """Units of one gang that are evicted by one action together, moved ones each alone."""
    for evicted in (decision.reclaimed, decision.preempted):
        by_gang: dict[int, list[int]] = {}
        for unit in evicted:
            by_gang.setdefault(movers[unit].gang, []).append(unit)
        for units in by_gang.values():
            yield VictimGroup(tuple(units), frozenset.intersection(*(frozenset(able[u]) for u in units)))
    for unit in decision.moved:
        yield VictimGroup((unit,), frozenset(able[unit]), evicted=False)
