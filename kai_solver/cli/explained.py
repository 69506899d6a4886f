"""Explanations and queue tables on the terminal."""

import re
from collections.abc import Mapping, Sequence

from rich.console import Console

from kai_solver.cli.console import Grid, heading, line, open_console, table
from kai_solver.cli.phrases import in_the_way, proof_lines, without_name
from kai_solver.explaining import Cure, Explanation, PodFit, QueueLine
from kai_solver.reasons.events import Event
from kai_solver.units import QUEUE_RESOURCES, UNLIMITED, counted

_DOTS = re.compile(r"\.\.(?=\s|$)")


def print_explanations(
    explanations: Sequence[Explanation],
    names: Mapping[str, str],
    *,
    verbose: bool = False,
    console: Console | None = None,
) -> None:
    """Print explanations, one after the other; gangs that wait for the same reason share one.

    ``names``: of gangs, for people; ``verbose``: the methods of proofs.
    """
    console = console or open_console()
    groups: dict[object, list[Explanation]] = {}
    for each in explanations:
        is_alone = each.proof is None or each.cures
        same = each.gang if is_alone else (each.queue, each.reason, without_name(each.gang, each.message), each.proof)
        groups.setdefault(same, []).append(each)
    for group in groups.values():
        _print_explanation(console, group[0], names, verbose=verbose)
        if len(group) > 1:
            others = ", ".join(names.get(each.gang, each.gang) for each in group[1:])
            line(console, f"  For the same reason {counted(len(group) - 1, 'more gang')}: {others}")


def _print_explanation(console: Console, explanation: Explanation, names: Mapping[str, str], *, verbose: bool) -> None:
    note = f"{explanation.state} in queue {explanation.queue}"
    title = names.get(explanation.gang, explanation.gang)
    heading(console, title, f"{note}: {explanation.reason}" if explanation.reason else note)
    if verbose:
        line(console, f"  PodGroup {explanation.gang}")
    if explanation.queue_source:
        line(console, f"  queue {explanation.queue} by: {explanation.queue_source}")
    if explanation.place is not None:
        line(console, f"  {explanation.place.text}")
    if explanation.proof is not None:
        for text in proof_lines(explanation.proof):
            line(console, f"  {text}")
        if verbose and explanation.proof.method:
            line(console, f"  proof by {explanation.proof.method}")
    for text in filter(str.strip, explanation.message.splitlines()):
        line(console, f"  {text.strip()}")
    _section(console, "What the plan does", [effect.text for effect in explanation.effects])
    _section(console, "What would have to change", explanation.changes)
    tried = [_cure(cure) for cure in explanation.cures]
    if tried and not any(cure.runs for cure in explanation.cures):
        tried.append("No single change that was tried lets it run.")
    _section(console, "Tried out, one change at a time", tried)
    for fit in explanation.fits:
        _print_fit(console, fit)
    _section(console, "Domains", [fit.text for fit in explanation.domains])
    _section(console, "Links", [explanation.link.text] if explanation.link else [])
    _section(console, "Events", _events(explanation.events))
    if explanation.queues:
        line(console, "  Queues, from the gang's own up (allocated: as the plan leaves it; -: unlimited)")
        console.print(queue_table(explanation.queues, indented=False))


def _cure(cure: Cure) -> str:
    if cure.runs:
        return f"{cure.text}: it runs"
    then = "; ".join(in_the_way(blocker, of_gang=True) for blocker in cure.then)
    return f"{cure.text}: it still waits" + (f", as {then}" if then else "")


def _events(events: Sequence[Event]) -> list[str]:
    """Each distinct text once, as pods that wait all say the same; without full stops after full stops."""
    return list(dict.fromkeys(_DOTS.sub(".", str(event)) for event in events))


def _section(console: Console, title: str, texts: Sequence[str]) -> None:
    if texts:
        line(console, f"  {title}")
    for text in texts:
        for part in (part for part in text.splitlines() if part.strip(" .")):
            line(console, f"    {part.rstrip()}")


def _print_fit(console: Console, fit: PodFit) -> None:
    line(
        console,
        f"  Nodes, for {counted(fit.waiting, 'waiting pod')} of {fit.request}: {fit.fitting_nodes} of {fit.nodes} "
        f"have room, for {counted(fit.room, 'pod')}; {fit.required} required",
    )
    for reason in fit.reasons:
        words = reason.kubernetes if reason.kubernetes == reason.kai else f"{reason.kai} ({reason.kubernetes})"
        line(console, f"    {reason.nodes} {words}")


def queue_table(lines: Sequence[QueueLine], *, indented: bool = True) -> Grid:
    """Table of queues: their settings, past usage, fair share and allocation per resource that any of them uses.

    Priority and usage have a column where they differ, or are not 0.
    """
    used = [r for r in range(3) if r == 2 or any(_says_something(entry, r) for entry in lines)]
    is_ranked = len({entry.priority for entry in lines}) > 1
    is_used = any(any(entry.usage) for entry in lines)
    rows = []
    for entry in lines:
        name = "  " * entry.depth + entry.name if indented else entry.name
        for r in reversed(used):
            amounts = (
                entry.quota,
                entry.limit,
                entry.requested,
                entry.fair_share,
                entry.allocated,
                entry.non_preemptible,
            )
            words = [amount_words(QUEUE_RESOURCES[r], amount[r]) for amount in amounts]
            usage = [f"{entry.usage[r]:.4g}"] if is_used else []
            rank = [str(entry.priority)] if is_ranked else []
            rows.append((name, *rank, QUEUE_RESOURCES[r], f"{entry.weight[r]:g}", *usage, *words))
            name = ""
    ranks, usages = ["priority"] if is_ranked else [], ["usage"] if is_used else []
    amounts_of = ("quota", "limit", "request", "fair share", "allocated", "non-preemptible")
    columns = ("queue", *ranks, "resource", "weight", *usages, *amounts_of)
    return table(columns, rows, right=[name for name in columns if name not in ("queue", "resource")])


def fair_share_terms(k_value: float) -> str:
    """What the columns of the table mean, and how they make the fair share."""
    return _TERMS.format(k=f"{k_value:g}")


_TERMS = """\
fair share  what a queue is due of its parent's share: first its quota, as far as it asks for it and its limit allows;
            then a part of what is left, down the priorities, among the queues that still ask for more, in proportion to
            max(0, n + k (n - usage))
n           weight of the queue / weights of all that still ask for more; weight 0 gets nothing of what is left
usage       past use as a share of the cluster's capacity
k           {k}: how strongly past use counts; 0 not at all
-           unlimited"""


def _says_something(entry: QueueLine, resource: int) -> bool:
    return entry.limit[resource] != UNLIMITED or entry.quota[resource] > 0 or entry.requested[resource] > 0


def amount_words(resource: str, amount: int) -> str:
    """Amount for a table: GPUs, cores, GB."""
    if amount == UNLIMITED:
        return "-"
    return f"{amount / 1e9:,.4g} GB" if resource == "memory" else f"{amount / 1000:,.6g}"
