"""Same, better or worse, gang by gang: what a dry run would have done, and what the scheduler at work did.

Everything is compared in the order of the policy: first whether a gang got its places, then how many of its pods had to
leave theirs, then when it got them. `docs/shadow.md` explains each rule to its readers.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from kai_solver.shadow.lines import Begin, Bound, Decision, Gone, Left, Line, Look, Marked

Verdict = Literal["same", "better", "worse", "unclear"]

TOLERANCE_S = 2.0
"""Times that differ by less are the same: conditions have whole seconds, and clocks differ."""

MARKED_S = 30.0
"""A deleted pod counts as evicted if its PodGroup says so within this time."""


@dataclass(slots=True)
class Waiting:
    """A gang from its creation, or the first look, to its first bound pod, or to where the recording ends.

    Attributes
    ----------
    here_s
        When a plan first gave it places; None where none did.
    is_free
        Those places were free: no pod had to leave first.
    there_s
        When the scheduler at work bound its first pod; None where it did not.
    is_seen
        Some cycle here decided about it.
    is_cut
        The recording was interrupted meanwhile.
    """

    gang: str
    queue: str
    gpus: float
    opened_s: float
    here_s: float | None = None
    is_free: bool = False
    there_s: float | None = None
    ended_s: float = 0.0
    reason: str = ""
    is_seen: bool = False
    is_cut: bool = False
    is_gone: bool = False
    verdict: Verdict = "same"
    why: str = ""

    @property
    def saved_s(self) -> float | None:
        """How much earlier it would have begun here; None where the times cannot be compared."""
        if self.here_s is None or self.there_s is None or not self.is_free or self.verdict == "unclear":
            return None
        saved_s = self.there_s - self.here_s
        return 0.0 if abs(saved_s) <= TOLERANCE_S else saved_s


@dataclass(slots=True)
class GangRow:
    """All of a gang.

    ``evicted_here``: pods that plans would have evicted or moved; ``evicted_there``: pods that were evicted.
    """

    gang: str
    queue: str
    waits: list[Waiting] = field(default_factory=list)
    evicted_here: int = 0
    evicted_there: int = 0
    verdict: Verdict = "same"
    why: str = ""

    @property
    def saved_s(self) -> float:
        """Sum over the waits whose times can be compared."""
        return sum(wait.saved_s or 0.0 for wait in self.waits)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a report says.

    Attributes
    ----------
    began_s, ended_s
        The time that was recorded, in epoch seconds.
    cycles
        Cycles of the dry run; ``longest_gap_s``: the longest time without one.
    interruptions
        How often the recording went on after a restart.
    """

    began_s: float
    ended_s: float
    cycles: int
    longest_gap_s: float
    interruptions: int
    rows: tuple[GangRow, ...]

    def of(self, verdict: Verdict) -> list[GangRow]:
        """Gangs with this verdict."""
        return [row for row in self.rows if row.verdict == verdict]

    @property
    def evicted_here(self) -> int:
        """Pods that would have been evicted or moved."""
        return sum(row.evicted_here for row in self.rows)

    @property
    def evicted_there(self) -> int:
        """Pods that were evicted."""
        return sum(row.evicted_there for row in self.rows)

    @property
    def saved(self) -> list[tuple[float, float]]:
        """Seconds earlier (negative: later) and GPUs, of each wait that ended on both sides at different times."""
        waits = (wait for row in self.rows for wait in row.waits)
        return [(wait.saved_s, wait.gpus) for wait in waits if wait.saved_s]


@dataclass(slots=True)
class _Recording:
    """What the lines come to, on the way."""

    looks: list[Look] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    marks: dict[str, list[float]] = field(default_factory=dict)
    waits: list[Waiting] = field(default_factory=list)
    open: dict[str, Waiting] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    orders: list[tuple[int, Decision]] = field(default_factory=list)
    admitted: set[tuple[int, int, str]] = field(default_factory=set)
    """(run of the recorder, cycle, gang) of the first plans that gave gangs their places: they would be carried out."""
    begins: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def take(self, line: Line) -> None:
        """One more line, in the order in which they were written."""
        self.times.append(line.at)
        match line:
            case Begin():
                self.begins.append(line.at)
                for wait in self.open.values():
                    wait.is_cut, wait.ended_s = True, line.at
                self.open.clear()
                self.running.clear()
            case Look():
                self.looks.append(line)
            case Decision():
                self._decided(line)
            case Bound():
                self._bound(line)
            case Gone():
                self._close(line.gang, line.at, is_gone=True)
            case Left():
                self.left.append(line)
            case Marked():
                self.marks.setdefault(line.gang, []).append(line.since)

    def _decided(self, line: Decision) -> None:
        if line.evictions or line.moves:
            self.orders.append((len(self.begins), line))
        if line.runs or not (line.binds or line.pending):
            return
        self.running.discard(line.gang)
        wait = self.open.get(line.gang)
        if wait is None:
            wait = Waiting(line.gang, line.queue, line.gpus, line.at if line.created is None else line.created)
            self.open[line.gang] = wait
            self.waits.append(wait)
        wait.is_seen = True
        if line.pending is not None:
            wait.reason = line.pending.reason
        if line.binds and wait.here_s is None:
            wait.here_s, wait.is_free = line.at, not any(place.promised for place in line.binds)
            self.admitted.add((len(self.begins), line.cycle, line.gang))

    def _bound(self, line: Bound) -> None:
        wait = self.open.get(line.gang)
        if wait is None and line.gang not in self.running:
            wait = Waiting(line.gang, line.queue, line.gpus, line.since if line.created is None else line.created)
            self.open[line.gang] = wait
            self.waits.append(wait)
        if wait is not None:
            wait.there_s = line.since
            self._close(line.gang, line.at)
        self.running.add(line.gang)

    def _close(self, gang: str, at_s: float, *, is_gone: bool = False) -> None:
        wait = self.open.pop(gang, None)
        if wait is not None:
            wait.ended_s, wait.is_gone = at_s, is_gone


def compare(lines: Iterable[Line]) -> Comparison:
    """Compare what the lines of one recording, in their order, say of both sides."""
    recording = _Recording()
    for line in lines:
        recording.take(line)
    began_s, ended_s = min(recording.times, default=0.0), max(recording.times, default=0.0)
    for wait in recording.open.values():
        wait.ended_s = ended_s
    rows: dict[str, GangRow] = {}
    for wait in recording.waits:
        _judge(wait, recording)
        rows.setdefault(wait.gang, GangRow(wait.gang, wait.queue)).waits.append(wait)
    _count_evictions(recording, rows)
    for row in rows.values():
        row.verdict, row.why = _verdict(row)
    gaps_s = [after.began - before.at for before, after in pairwise(recording.looks)]
    return Comparison(
        began_s,
        ended_s,
        len(recording.looks),
        max(gaps_s, default=0.0),
        max(0, len(recording.begins) - 1),
        tuple(rows[gang] for gang in sorted(rows)),
    )


def _judge(wait: Waiting, recording: _Recording) -> None:
    """Whether the gang got its places, here and there."""
    if wait.is_cut:
        wait.verdict, wait.why = "unclear", "the recording was interrupted while it waited"
    elif wait.there_s is None and wait.here_s is None:
        wait.why = f"waits with both ({wait.reason})" if wait.reason else "waits with both"
    elif wait.here_s is not None and wait.there_s is None:
        end = "until it was deleted" if wait.is_gone else "to the end"
        if wait.ended_s - wait.here_s <= TOLERANCE_S:
            wait.verdict, wait.why = "unclear", "its places came up too close to the end to compare"
        else:
            since = span(wait.here_s - wait.opened_s)
            wait.verdict, wait.why = "better", f"would have had its places after {since}; was pending {end}"
    elif wait.here_s is None and wait.there_s is not None:
        after = span(wait.there_s - wait.opened_s)
        if not wait.is_seen:
            wait.verdict, wait.why = "unclear", f"was bound after {after}, before a cycle here looked at it"
        elif _is_stale(wait.there_s, recording):
            wait.verdict, wait.why = (
                "unclear",
                f"was bound after {after}, when room came up that no cycle here had seen",
            )
        else:
            wait.verdict, wait.why = "worse", f"was bound after {after}; would be pending ({wait.reason})"
    elif not wait.is_free:
        wait.why = "both place it; here others must leave first, so that times are not compared"
    else:
        saved_s = wait.saved_s or 0.0
        wait.why = (
            f"would start {span(abs(saved_s))} {'earlier' if saved_s > 0 else 'later'}" if saved_s else "both place it"
        )


def _is_stale(there_s: float, recording: _Recording) -> bool:
    """Whether room may have come up between the last look before a binding and that binding; lists are in order."""
    looks, left = recording.looks, recording.left
    last = bisect_right(looks, there_s, key=lambda look: look.began) - 1
    first = bisect_left(left, looks[last].began, key=lambda line: line.at) if last >= 0 else 0
    return first < len(left) and left[first].after < there_s


def _count_evictions(recording: _Recording, rows: dict[str, GangRow]) -> None:
    """Pods that left, or would have: by the first plan that admitted the gang for which they leave; stale ones once."""
    leaving: dict[tuple[str, str], tuple[str, str]] = {}
    for run, decision in recording.orders:
        orders = [(leaver.pod, leaver.helps) for leaver in decision.evictions]
        orders += [(mover.pod, mover.helps) for mover in decision.moves]
        for pod, helps in orders:
            if not helps or any((run, decision.cycle, gang) in recording.admitted for gang in helps):
                leaving[decision.gang, pod] = decision.gang, decision.queue
    for gang, queue in leaving.values():
        rows.setdefault(gang, GangRow(gang, queue)).evicted_here += 1
    for left in recording.left:
        near = any(abs(left.at - mark_s) <= MARKED_S for mark_s in recording.marks.get(left.gang, ()))
        if left.how == "disrupted" or (left.how == "deleted" and near):
            rows.setdefault(left.gang, GangRow(left.gang, left.queue)).evicted_there += 1


def _verdict(row: GangRow) -> tuple[Verdict, str]:
    """The first difference in the order of the policy decides."""
    better = [wait for wait in row.waits if wait.verdict == "better"]
    worse = [wait for wait in row.waits if wait.verdict == "worse"]
    spared = row.evicted_there - row.evicted_here
    counts = f"{row.evicted_there} of its pods were evicted, {row.evicted_here} would have been"
    if len(better) != len(worse):
        verdict: Verdict = "better" if len(better) > len(worse) else "worse"
        return verdict, (better if verdict == "better" else worse)[0].why
    if spared:
        return ("better" if spared > 0 else "worse"), counts
    if row.saved_s:
        verdict = "better" if row.saved_s > 0 else "worse"
        changed = [wait for wait in row.waits if wait.saved_s]
        sides = f"{'earlier' if row.saved_s > 0 else 'later'} in all, in {len(changed)} waits"
        return verdict, changed[0].why if len(changed) == 1 else f"{span(abs(row.saved_s))} {sides}"
    unclear = [wait for wait in row.waits if wait.verdict == "unclear"]
    if unclear and len(unclear) == len(row.waits):
        return "unclear", unclear[0].why
    return "same", counts if row.evicted_there else next((w.why for w in row.waits if w.verdict == "same"), "")


def span(seconds: float) -> str:
    """In words: ``4.2 s``, ``3 min``, ``2.5 h``."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
