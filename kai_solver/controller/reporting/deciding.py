"""What every cycle decides, by name: served at ``/plan``; of a dry run also logged and stored, as far as it is new."""

import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import structlog

from kai_solver import __version__
from kai_solver.cluster.api import Object
from kai_solver.cluster.binding import GangBound
from kai_solver.controller.loop import Cycle, Evicted
from kai_solver.controller.serving import Answer
from kai_solver.shadow.deciding import Changes, decisions_of
from kai_solver.shadow.lines import Begin, Decision, Look, document_of, time_text
from kai_solver.shadow.observing import Observer
from kai_solver.shadow.recordings import Recorder

_LOG = structlog.get_logger(__name__)

PLAN_FORMAT = "kai-decisions/v1"

_NAMED = 20
"""Pods that a log line names in each list: a line of a log may have 16 KiB. The stored lines name all."""


@dataclass(slots=True)
class Planned:
    """A `Reporter` that keeps the newest cycle, and answers with what it decides."""

    clock: Callable[[], float] = time.time
    dry_run: bool = False
    _newest: tuple[Cycle, float] | None = None

    def cycle(self, cycle: Cycle) -> None:
        """Keep it."""
        self._newest = cycle, self.clock()

    def bound(self, outcome: GangBound) -> None:
        """Nothing."""

    def evicted(self, evicted: Evicted) -> None:
        """Nothing."""

    def answer(self, _: Mapping[str, str]) -> Answer:
        """All decisions of the newest cycle as JSON; 503 before the first one has ended."""
        if self._newest is None:
            return Answer(503, b"nothing is decided yet: the first cycle has not ended. Ask again in a moment\n")
        cycle, at_s = self._newest
        found = decisions_of(cycle.snapshot, cycle.plan, cycle.number, at_s, cycle.busy)
        document = {
            "format": PLAN_FORMAT,
            "at": time_text(at_s),
            "cycle": cycle.number,
            "dry_run": self.dry_run,
            "source": cycle.plan.source,
            "gangs": [_published(decision) for decision in found.values()],
        }
        return Answer(200, orjson.dumps(document), "application/json")


@dataclass(slots=True)
class Shadow:
    """A `Reporter` of a dry run: a log line for each gang of which the decision is new, and the recording.

    Attributes
    ----------
    raw
        The Kubernetes object of a pod, by key.
    recorder
        Where the recording goes; None: nowhere.
    """

    raw: Callable[[str], Object | None]
    recorder: Recorder | None = None
    clock: Callable[[], float] = time.time
    fresh: Container[str] = frozenset()
    """Gangs of which the newest decision is not that of the cycle before."""
    _changes: Changes = field(default_factory=Changes)
    _observer: Observer = field(init=False)
    _has_begun: bool = False

    def __post_init__(self) -> None:
        self._observer = Observer(self.raw)

    def cycle(self, cycle: Cycle) -> None:
        """Log what is new, store it, and what the scheduler at work did since the cycle before.

        Where lines could not be stored the recording begins again: all decisions, and nothing of what was done before.
        """
        at_s = self.clock()
        decisions = decisions_of(cycle.snapshot, cycle.plan, cycle.number, at_s, cycle.busy)
        changed = self._changes.of(decisions)
        self.fresh = frozenset(decision.gang for decision in changed)
        for decision in changed:
            _LOG.info("decision", **_logged(decision))
        if self.recorder is None:
            return
        began_s = cycle.snapshot.now_s
        seen = self._observer.see(cycle.snapshot, began_s)
        look = Look(at=at_s, began=began_s, cycle=cycle.number, pending=len(cycle.plan.pending))
        if self._has_begun:
            self._has_begun = self.recorder.write([*seen, *changed, look])
        else:
            begin = Begin(at=began_s, version=__version__)
            self._has_begun = self.recorder.write([begin, *decisions.values(), look])

    def bound(self, outcome: GangBound) -> None:
        """Nothing is bound in a dry run."""

    def evicted(self, evicted: Evicted) -> None:
        """Nothing is evicted in a dry run."""


def _published(decision: Decision) -> dict[str, Any]:
    """A decision at ``/plan``, which says once what all of them have in common."""
    return {key: value for key, value in document_of(decision).items() if key not in ("format", "kind", "at", "cycle")}


def _logged(decision: Decision) -> dict[str, Any]:
    """The line of a log; where lists are cut, ``pods`` says how many there are in all."""
    found = _published(decision)
    lists = [key for key in ("binds", "evictions", "moves") if key in found]
    for key in lists:
        found[key] = found[key][:_NAMED]
    pods = len(decision.binds) + len(decision.evictions) + len(decision.moves)
    return {"cycle": decision.cycle} | found | ({"pods": pods} if pods else {})
