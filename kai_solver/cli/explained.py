"""Explanations and queue tables on the terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from kai_solver.cli.console import counted, heading, line, open_console, table
from kai_solver.cli.phrases import blocked_by
from kai_solver.explain import Cure, Explanation, PodFit, QueueLine
from kai_solver.reasons.events import Event
from kai_solver.reasons.pending import proof_sentence
from kai_solver.units import QUEUE_RESOURCES, UNLIMITED


def print_explanations(explanations: Iterable[Explanation], console: Console | None = None) -> None:
    """Print explanations, one after the other."""
    console = console or open_console()
    for explanation in explanations:
        _print_explanation(console, explanation)


def _print_explanation(console: Console, explanation: Explanation) -> None:
    note = f"{explanation.state} in queue {explanation.queue}"
    heading(console, explanation.gang, f"{note}: {explanation.reason}" if explanation.reason else note)
    if explanation.queue_source:
        line(console, f"  queue {explanation.queue} by: {explanation.queue_source}")
    for text in filter(str.strip, explanation.message.splitlines()):
        line(console, f"  {text.rstrip()}")
    if explanation.proof is not None:
        method = f" by {explanation.proof.method}" if explanation.proof.method else ""
        line(console, f"  proof: {explanation.proof.state}{method}")
        sentence = proof_sentence(explanation.proof)
        if sentence:
            line(console, f"    {sentence}")
        for blocker in explanation.proof.blocking:
            line(console, f"    blocked by {blocked_by(blocker)}")
        if explanation.proof.minimal:
            line(console, "    none of these can be left out: without any one of them the others prove nothing")
    _section(console, "Events", _events(explanation.events))
    for fit in explanation.fits:
        _print_fit(console, fit)
    _section(console, "Domains", [fit.text for fit in explanation.domains])
    _section(console, "Links", [explanation.link.text] if explanation.link else [])
    _section(console, "What would have to change", explanation.changes)
    _section(console, "Tried out, one change at a time", [_cure(cure) for cure in explanation.cures])
    if explanation.queues:
        line(console, "  Queues, from the gang's own up (allocated: as the plan leaves it)")
        console.print(queue_table(explanation.queues, indented=False))


def _cure(cure: Cure) -> str:
    if cure.runs:
        return f"{cure.text}: it runs"
    blockers = "; ".join(f"{b.kind} {b.name}" for b in cure.then)
    return f"{cure.text}: it waits all the same" + (f", then blocked by {blockers}" if blockers else "")


def _events(events: Sequence[Event]) -> list[str]:
    """Each distinct text once: the pods of a gang that wait all say the same."""
    return list(dict.fromkeys(str(event) for event in events))


def _section(console: Console, title: str, texts: Sequence[str]) -> None:
    if texts:
        line(console, f"  {title}")
    for text in texts:
        for part in filter(str.strip, text.splitlines()):
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


def queue_table(lines: Sequence[QueueLine], *, indented: bool = True) -> Table:
    """Table of queues: their settings, past usage, fair share and allocation per resource that any of them uses."""
    used = [r for r in range(3) if r == 2 or any(_says_something(entry, r) for entry in lines)]
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
            numbers = f"{entry.weight[r]:g}", f"{entry.usage[r]:.4g}"
            rows.append((name, str(entry.priority), QUEUE_RESOURCES[r], *numbers, *words))
            name = ""
    amounts_of = ("quota", "limit", "request", "fair share", "allocated", "non-preemptible")
    columns = ("queue", "priority", "resource", "weight", "usage", *amounts_of)
    return table(columns, rows, right=("priority", *columns[3:]))


def fair_share_terms(k_value: float) -> str:
    """What the columns of the table mean, and how they make the fair share."""
    return _TERMS.format(k=f"{k_value:g}")


_TERMS = """\
fair share  what a queue is due of its parent's share: first its quota, as far as it asks for it and its limit allows;
            then a part of what is left, down the priorities, among those who still ask for more, in proportion to
            max(0, n + k (n - usage))
n           weight of the queue / weights of all who still ask for more; weight 0 gets nothing of what is left
usage       past use as a share of the cluster's capacity
k           {k}: how strongly past use counts; 0 not at all"""


def _says_something(entry: QueueLine, resource: int) -> bool:
    return entry.limit[resource] != UNLIMITED or entry.quota[resource] > 0 or entry.requested[resource] > 0


def amount_words(resource: str, amount: int) -> str:
    """Amount for a table: GPUs, cores, GB."""
    if amount == UNLIMITED:
        return "unlimited"
    return f"{amount / 1e9:,.4g} GB" if resource == "memory" else f"{amount / 1000:,.6g}"
