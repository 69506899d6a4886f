"""Cycles in sentences for people: which pods start, leave and for which gang, move, or wait and why."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from kai_solver.controller.loop import Cycle
from kai_solver.domain import Plan, Reason
from kai_solver.domain.names import short_name
from kai_solver.units import counted

_LONGEST = 98
"""Letters of a line: with its indent it fits 100 columns."""
_MOST_NODES = 4


@dataclass(slots=True)
class Story:
    """Lines on each cycle; what was said of a gang once is not said again as long as it stays so."""

    _waits: dict[str, Reason] = field(default_factory=dict)
    _placed: frozenset[str] = frozenset()

    def lines(self, cycle: Cycle) -> list[str]:
        """What the cycle decided; nothing where nothing is new."""
        plan = cycle.plan
        told = [*_leaving(plan), *_moving(plan), *self._placing(plan), *self._waiting(plan)]
        if not told:
            return []
        head = f"cycle {cycle.number}, {1000 * cycle.seconds:.0f} ms: {_heading(plan)}"
        return [head, *(f"  {line}" for line in told)]

    def _placing(self, plan: Plan) -> Iterator[str]:
        """A gang's binds are told once: they come again where they are not carried out, or only promised."""
        ordered = sorted(plan.binds, key=lambda bind: (bind.gang, bind.nominated))
        placed = set()
        for (gang, promised), binds in groupby(ordered, key=lambda bind: (bind.gang, bind.nominated)):
            found = list(binds)
            key = f"{gang} {promised}"
            placed.add(key)
            if key not in self._placed:
                verb = "is promised" if promised else "gets"
                yield f"{_short(gang)} {verb} {_nodes(bind.node for bind in found)} for {counted(len(found), 'pod')}"
        self._placed = frozenset(placed)

    def _waiting(self, plan: Plan) -> Iterator[str]:
        """A gang that waits is told once, and again when it waits for another reason: amounts change in every cycle."""
        for pending in plan.pending:
            if self._waits.get(pending.gang) != pending.reason:
                proven = " (proven)" if pending.proof.state == "proven" else ""
                yield _cut(f"{_short(pending.gang)} waits{proven}: {_first(pending.message)}")
        self._waits = {pending.gang: pending.reason for pending in plan.pending}


def _heading(plan: Plan) -> str:
    parts = [
        (len(plan.admitted), "gang admitted", "gangs admitted"),
        (len(plan.evictions), "pod evicted", "pods evicted"),
        (len(plan.moves), "pod moved", "pods moved"),
        (len({pending.gang for pending in plan.pending}), "gang waits", "gangs wait"),
    ]
    return ", ".join(counted(count, one, many) for count, one, many in parts if count) or "nothing to do"


def _leaving(plan: Plan) -> Iterator[str]:
    ordered = sorted(plan.evictions, key=lambda found: (found.gang, found.reason, found.helps))
    for (gang, reason, helps), found in groupby(ordered, key=lambda one: (one.gang, one.reason, one.helps)):
        yield f"{_short(gang)} gives up {counted(len(list(found)), 'pod')}{_for(helps)} ({reason})"


def _moving(plan: Plan) -> Iterator[str]:
    for move in plan.moves:
        yield f"{_short(move.gang)} goes from {move.source} to {move.target}{_for(move.helps)} ({move.by})"


def _for(helps: Iterable[str]) -> str:
    names = ", ".join(map(_short, helps))
    return f" for {names}" if names else ""


def _nodes(names: Iterable[str]) -> str:
    found = sorted(set(names))
    more = f" and {len(found) - _MOST_NODES} more" if len(found) > _MOST_NODES else ""
    return ", ".join(found[:_MOST_NODES]) + more


def _short(gang: str) -> str:
    """The workload's name, without the namespace: the demo has one only."""
    return short_name(gang).rpartition("/")[2]


def _first(message: str) -> str:
    """Its first sentence."""
    return next((text.strip() for text in message.splitlines() if text.strip(" .")), "").partition(". ")[0]


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
