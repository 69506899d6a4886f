"""A plan in words: what binds where, what moves, what is evicted and for whom, what waits and why."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console

from kai_solver.cli.console import counted, heading, line, open_console, table
from kai_solver.cli.inputs import Request
from kai_solver.cli.phrases import alike, describe, gap, helped, nodes_of, outcome, pending_lines, places, yes_no
from kai_solver.domain import Bind, Plan

T = TypeVar("T")

ROWS = 20
"""Lines of a list before it is cut."""

SOURCES = {
    "bound": "greedy's plan; bounds prove that nothing better exists",
    "greedy": "greedy's plan, not proven",
    "cp-sat": "CP-SAT improved on greedy's plan",
}


def print_summary(request: Request, plan: Plan, *, full: bool = False, console: Console | None = None) -> None:
    """Print ``plan`` for people; lists are cut after ``ROWS`` lines unless ``full``."""
    _Summary(request, plan, console or open_console(), None if full else ROWS).show()


class _Summary:
    """The sections of a summary, each printed only where there is something to say."""

    def __init__(self, request: Request, plan: Plan, console: Console, rows: int | None) -> None:
        self._request = request
        self._snapshot = request.loaded.snapshot
        self._plan = plan
        self._console = console
        self._rows = rows

    def show(self) -> None:
        self._head()
        self._notices()
        self._binds()
        self._moves()
        self._evictions()
        self._pending()
        self._stages()
        self._timing()

    def _head(self) -> None:
        plan, model = self._plan, self._request.model
        line(self._console, describe(self._snapshot), "bold")
        ladder = ", ".join(rung.value for rung in model.ladder)
        source = f" (from {self._request.ladder_from})" if self._request.ladder_from else ""
        line(
            self._console,
            f"model {model.name}, budget {self._request.budget_s:g} s, seed {plan.seed}; {ladder}{source}",
        )
        line(self._console, outcome(plan))
        line(self._console, f"source: {SOURCES[plan.source]}")
        for note in plan.notes:
            line(self._console, f"note: {note}", "yellow")

    def _notices(self) -> None:
        notices = self._snapshot.notices
        if not notices:
            return
        heading(self._console, "Notices of the import", counted(len(notices), "notice"))
        for notice in self._cut(notices):
            line(self._console, f"  {notice.kind}: {notice.object}: {notice.text}", "yellow")
        self._rest(len(notices), "notice")

    def _binds(self) -> None:
        groups: dict[tuple[str, str, bool], list[Bind]] = defaultdict(list)
        for bind in self._plan.binds:
            groups[bind.gang, bind.rung.value, bind.nominated].append(bind)
        if not groups:
            return
        heading(self._console, "Binds", counted(len(self._plan.binds), "pod"))
        rows = [
            (gang, str(len(binds)), places(binds), rung, "waits for capacity to be released" if nominated else "now")
            for (gang, rung, nominated), binds in self._cut(groups.items())
        ]
        self._console.print(table(("gang", "pods", "where", "by", "when"), rows, right=("pods",)))
        self._rest(len(groups), "gang", sum(len(binds) for binds in list(groups.values())[self._limit(len(groups)) :]))

    def _moves(self) -> None:
        moves = self._plan.moves
        if not moves:
            return
        heading(self._console, "Moves", counted(len(moves), "pod"))
        rows = [(move.pod, f"{move.source} -> {move.target}", helped(move.helps)) for move in self._cut(moves)]
        self._console.print(table(("pod", "from -> to", "for"), rows))
        self._rest(len(moves), "move")

    def _evictions(self) -> None:
        groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
        for eviction in self._plan.evictions:
            groups[eviction.gang, eviction.reason, eviction.helps].append(eviction.node)
        if not groups:
            return
        heading(self._console, "Evictions", counted(len(self._plan.evictions), "pod"))
        rows = [
            (gang, str(len(nodes)), nodes_of(nodes), reason, helped(helps))
            for (gang, reason, helps), nodes in self._cut(groups.items())
        ]
        self._console.print(table(("gang", "pods", "on", "reason", "for"), rows, right=("pods",)))
        self._rest(len(groups), "gang", sum(len(nodes) for nodes in list(groups.values())[self._limit(len(groups)) :]))

    def _pending(self) -> None:
        groups = alike(self._plan.pending)
        if not groups:
            return
        heading(self._console, "Pending", counted(len(self._plan.pending), "gang"))
        for gangs in self._cut(groups):
            for text in pending_lines(gangs):
                line(self._console, text)
        hidden = groups[self._limit(len(groups)) :]
        self._rest(len(groups), "group of gangs", sum(len(gangs) for gangs in hidden), "groups of gangs", "gang")

    def _stages(self) -> None:
        if not self._plan.stages:
            return
        heading(self._console, "Objective", "smaller is better")
        rows = [
            (stage.name, f"{stage.value:g}", f"{stage.bound:g}", gap(stage.value, stage.bound), yes_no(stage.optimal))
            for stage in self._plan.stages
        ]
        self._console.print(table(("stage", "value", "bound", "gap", "optimal"), rows, right=("value", "bound", "gap")))

    def _timing(self) -> None:
        if not self._plan.timing_s:
            return
        heading(self._console, "Time")
        rows = [(phase, f"{seconds * 1000:,.1f} ms") for phase, seconds in self._plan.timing_s.items()]
        self._console.print(table(("phase", "time"), rows, right=("time",)))

    def _limit(self, count: int) -> int:
        return count if self._rows is None else min(self._rows, count)

    def _cut(self, items: Iterable[T]) -> list[T]:
        every = list(items)
        return every[: self._limit(len(every))]

    def _rest(self, count: int, noun: str, inside: int = 0, plural: str = "", inner: str = "pod") -> None:
        hidden = count - self._limit(count)
        if hidden:
            holding = f" ({counted(inside, inner)})" if inside else ""
            more = counted(hidden, f"more {noun}", f"more {plural or noun + 's'}")
            line(self._console, f"  ... and {more}{holding}; --full shows all", "dim")
