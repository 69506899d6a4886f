"""A plan in words: what binds where, what moves, what is evicted and for which gang, what waits and why."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from rich.console import Console

from kai_solver.cli.console import heading, line, open_console, table
from kai_solver.cli.inputs import Request
from kai_solver.cli.phrases import (
    all_helped,
    arrows,
    bound_words,
    describe,
    helped,
    is_claimed,
    landing,
    nodes_of,
    outcome,
    pending_lines,
    places,
    same_cause,
)
from kai_solver.domain import Bind, Eviction, Move, Plan
from kai_solver.domain.names import names_of, titled
from kai_solver.units import counted

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
E = TypeVar("E", Bind, Move, Eviction)

ROWS = 20
"""Lines of a list before it is cut."""

PENDING_GROUPS = 10
BLOCKERS = 3
"""Causes why gangs wait, and blockers of one cause, before they are cut."""

SOURCES = {
    "bound": "greedy's plan; bounds prove that no plan is better",
    "greedy": "greedy's plan, not proven",
    "cp-sat": "CP-SAT improved on greedy's plan",
}


WITHIN = {
    "presolve": "until their first word",
    "first": "until their first solution",
    "best": "until their best solution",
    "proof": "until their proof",
}
"""Times that lie within phases: sums over the solver's questions."""

TOTALS = ("decide", "first-plan")


def print_summary(
    request: Request,
    plan: Plan,
    *,
    full: bool = False,
    verbose: bool = False,
    timing: bool = False,
    console: Console | None = None,
) -> None:
    """Print ``plan`` for people; lists are cut after ``ROWS`` lines unless ``full``.

    ``verbose``: with the methods of proofs; ``timing``: with the time of each phase.
    """
    summary = _Summary(request, plan, console or open_console(), None if full else ROWS, verbose=verbose)
    summary.show()
    if timing:
        summary.show_timing()


class _Summary:
    """The sections of a summary, each printed only where there is something to say."""

    def __init__(self, request: Request, plan: Plan, console: Console, rows: int | None, *, verbose: bool) -> None:
        self._verbose = verbose
        self._names = names_of(request.loaded.snapshot.gangs)
        self._request = request
        self._snapshot = request.loaded.snapshot
        self._plan = plan
        self._console = console
        self._rows = rows
        self._queues = {gang.key: gang.queue for gang in self._snapshot.gangs}

    def show(self) -> None:
        self._head()
        self._notices()
        self._binds()
        self._moves()
        self._evictions()
        self._unmoved()
        self._pending()
        self._stages()

    def _head(self) -> None:
        plan, model = self._plan, self._request.model
        line(self._console, describe(self._snapshot, self._request.instance.name), "bold")
        actions = ", ".join(action.value for action in self._snapshot.policy.enabled(model.actions)) or "no action"
        source = f" (from {self._request.actions_from})" if self._request.actions_from else ""
        took = f"decided in {plan.timing_s['decide']:.2f} s of " if "decide" in plan.timing_s else "budget "
        line(self._console, f"model {model.name}, {took}{self._request.budget_s:g} s; {actions}{source}")
        line(self._console, outcome(plan))
        line(self._console, SOURCES[plan.source])
        for note in plan.notes:
            line(self._console, f"note: {note}", "yellow")

    def _notices(self) -> None:
        notices = self._snapshot.notices
        if not notices:
            return
        heading(self._console, "Notices of the import", counted(len(notices), "notice"))
        for notice in self._cut(notices):
            line(self._console, f"  {notice.kind}: {titled(notice.object, self._names)}: {notice.text}", "yellow")
        self._rest([[notice] for notice in notices], "notice")

    def _binds(self) -> None:
        binds = self._plan.binds
        if not binds:
            return
        heading(self._console, "Binds", counted(len(binds), "pod"))
        groups = self._by_subject(binds, lambda bind: (bind.action.value, bind.nominated))
        rows = [
            (
                subject,
                str(len(identical)),
                places(identical),
                action,
                "when capacity there is released" if nominated else "now",
            )
            for (subject, (action, nominated)), identical in self._cut(groups.items())
        ]
        self._console.print(table(("gang", "pods", "where", "by", "when"), rows, right=("pods",)))
        self._rest(groups.values(), "pod")

    def _moves(self) -> None:
        moves = self._plan.moves
        if not moves:
            return
        heading(self._console, "Moves", counted(len(moves), "pod"))
        long = self._is_long(moves)
        groups = self._by_subject(moves, lambda m: (m.cause, "" if long else helped(m.helps, self._names)))
        rows = [
            (
                subject,
                str(len(identical)),
                arrows([(m.source, landing(m)) for m in identical]),
                "drain of its node" if cause == "drain" else all_helped((m.helps for m in identical), self._names),
            )
            for (subject, (cause, _)), identical in self._cut(groups.items())
        ]
        self._console.print(table(("gang", "pods", "from -> to", "for"), rows, right=("pods",)))
        self._rest(groups.values(), "pod")

    def _evictions(self) -> None:
        evictions = self._plan.evictions
        if not evictions:
            return
        heading(self._console, "Evictions", counted(len(evictions), "pod"))
        long = self._is_long(evictions)
        groups = self._by_subject(evictions, lambda e: (e.reason, "" if long else helped(e.helps, self._names)))
        rows = [
            (
                subject,
                str(len(identical)),
                nodes_of([e.node for e in identical]),
                reason,
                all_helped((e.helps for e in identical), self._names),
            )
            for (subject, (reason, _)), identical in self._cut(groups.items())
        ]
        self._console.print(table(("gang", "pods", "on", "reason", "for"), rows, right=("pods",)))
        self._rest(groups.values(), "pod")

    def _unmoved(self) -> None:
        unmoved = self._plan.unmoved
        if not unmoved:
            return
        heading(self._console, "Pods that stay on nodes to be drained", counted(len(unmoved), "pod"))
        for entry in self._cut(unmoved):
            line(self._console, f"  {titled(entry.pod, self._names)}: {entry.message}", "yellow")
        self._rest([[entry] for entry in unmoved], "pod")

    def _is_long(self, entries: Sequence[Bind | Move | Eviction]) -> bool:
        """True where gangs would make more lines than a list shows."""
        return self._rows is not None and len({entry.gang for entry in entries}) > self._rows

    def _by_subject(self, entries: Sequence[E], key: Callable[[E], K]) -> dict[tuple[str, K], list[E]]:
        """Entries by gang and ``key``; of a long list by queue and ``key``."""
        by_queue = self._is_long(entries)
        groups: dict[tuple[str, K], list[E]] = defaultdict(list)
        for entry in entries:
            groups[self._queues.get(entry.gang, "") if by_queue else entry.gang, key(entry)].append(entry)
        if not by_queue:
            return {(self._names.get(gang, gang), rest): found for (gang, rest), found in groups.items()}
        return {
            (f"{counted(len({entry.gang for entry in identical}), 'gang')} of {queue}", rest): identical
            for (queue, rest), identical in groups.items()
        }

    def _pending(self) -> None:
        groups = same_cause(self._plan.pending)
        if not groups:
            return
        heading(self._console, "Pending", counted(len(self._plan.pending), "gang"))
        shown = groups if self._rows is None else groups[:PENDING_GROUPS]
        for gangs in shown:
            blockers = None if self._rows is None else BLOCKERS
            for text in pending_lines(gangs, self._names, blockers=blockers, verbose=self._verbose):
                line(self._console, text)
        hidden = groups[len(shown) :]
        if hidden:
            lines = counted(len(hidden), "more cause")
            gangs_left = counted(sum(len(gangs) for gangs in hidden), "gang")
            line(self._console, f"  ... and {lines} ({gangs_left}); --full shows all", "dim")

    def _stages(self) -> None:
        if not self._plan.stages:
            return
        heading(self._console, "Objective", "smaller is better; gap: how far the value can be from the best")
        rows = [(stage.name, f"{stage.value:g}", *bound_words(stage)) for stage in self._plan.stages]
        self._console.print(table(("stage", "value", "bound", "gap"), rows, right=("value", "bound", "gap")))
        if any(not is_claimed(stage) for stage in self._plan.stages):
            line(self._console, f"-: {self._why_unclaimed()}", "dim")

    def _why_unclaimed(self) -> str:
        if self._plan.unclaimed:
            return f"bounds not claimed: {self._plan.unclaimed}"
        search = self._request.model.search
        return "no bound was found" if search.enabled else "this model looks for no bounds"

    def show_timing(self) -> None:
        """The phases, which add up, then what the solver's questions took within them."""
        timing_s = self._plan.timing_s
        if not timing_s:
            return
        phases = [(phase, taken_s) for phase, taken_s in timing_s.items() if phase not in (*WITHIN, *TOTALS)]
        decide_s = timing_s.get("decide", sum(taken_s for _, taken_s in phases))
        rest_s = max(0.0, decide_s - sum(taken_s for _, taken_s in phases))
        rows = [*phases, ("the rest", rest_s), ("together", decide_s)]
        heading(self._console, "Time", "by phase")
        self._console.print(table(("phase", "time"), [(name, _ms(s)) for name, s in rows], right=("time",)))
        within = ", ".join(f"{WITHIN[name]} {_ms(timing_s[name])}" for name in WITHIN if name in timing_s)
        if within:
            line(self._console, f"Of these, sums over the solver's questions: {within}")
        if "first-plan" in timing_s:
            line(self._console, f"The first plan that the checker passed was there after {_ms(timing_s['first-plan'])}")

    def _limit(self, count: int) -> int:
        return count if self._rows is None else min(self._rows, count)

    def _cut(self, items: Iterable[T]) -> list[T]:
        every = list(items)
        return every[: self._limit(len(every))]

    def _rest(self, groups: Iterable[Sequence[object]], noun: str) -> None:
        """Say how much was cut off: lines, and what they hold."""
        sizes = [len(group) for group in groups]
        hidden = sizes[self._limit(len(sizes)) :]
        if hidden:
            lines = counted(len(hidden), "more line")
            line(self._console, f"  ... and {lines} ({counted(sum(hidden), noun)}); --full shows all", "dim")


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"
