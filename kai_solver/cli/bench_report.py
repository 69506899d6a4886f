"""What ``bench`` prints: a table with paired ratios, JSON, or CSV."""

import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from kai_solver.cli.console import heading, line, open_console, table
from kai_solver.cli.documents import deliver, document
from kai_solver.lab.bench import Row, Run, paired, rows_of, short_name
from kai_solver.units import counted

COLUMNS = ("instance", "model", "decide", "ratio", "cold", "memory", "placed", "evicted", "moved", "pending", "proven")
REST = ("source", "stages over 0 (value/bound)", "gap", "against")
APART = ("stages", "measures", "error", "versions")
"""Members of a row that a CSV line does not have as they are."""


def print_table(runs: Sequence[Run], reference: str) -> None:
    """One row an instance and model, then the pairs, then what peers do better."""
    console = open_console()
    rows = rows_of(runs, reference)
    columns = (*COLUMNS, *REST[:-1], f"vs {reference}")
    console.print(table(columns, [_cells(row) for row in rows], right=COLUMNS[2:]))
    _print_peers(console, runs)
    pairs = paired(rows, reference)
    if pairs:
        heading(console, f"Paired with {reference}", "decide time: median of ratios; plans: better, same, worse")
    for pair in pairs:
        line(
            console,
            f"  {pair.model}: {pair.median_ratio:.2f} x over {counted(pair.instances, 'instance')}; "
            f"{pair.better} better, {pair.same} same, {pair.worse} worse",
        )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        short_name(row.instance),
        row.model,
        f"{row.decide_s * 1000:,.0f} ms",
        f"{row.ratio:.2f} x" if row.ratio is not None else "",
        f"{row.cold_s * 1000:,.0f} ms" if row.cold_s is not None else "",
        "" if row.memory_mib is None else f"{row.memory_mib:,.0f} MiB",
        f"{row.placed:,}" + (f" (+{row.partly} partly)" if row.partly else ""),
        f"{row.evicted:,}",
        f"{row.moved:,}",
        f"{row.pending:,}",
        f"{row.proven:.0%}" if row.proven is not None else "",
        row.source,
        ", ".join(
            f"{stage.name} {stage.value or 0:g}/{stage.bound or 0:g}"
            for stage in row.stages
            if stage.value or stage.bound
        ),
        _gap(row.gap),
        row.against,
    )


def _gap(gap: float | None) -> str:
    if gap is None:
        return ""
    return f"{gap:.1%}" if gap <= 1 else "no useful bound"


def _print_peers(console: Console, runs: Sequence[Run]) -> None:
    """Recorded outcomes of other schedulers, one line each, with a remark where they are better than a run of ours."""
    peers = {(run.record.instance, peer.name): peer for run in runs for peer in run.peers}
    if not peers:
        return
    heading(console, "Recorded peers", "their own timing, on their machine")
    rows = []
    for (instance, name), peer in peers.items():
        of = [run for run in runs if run.record.instance == instance]
        remarks = {text for run in of for text in run.worse_than if text.startswith(name)}
        reached = peer.reached
        counts = (f"{len(reached.full):,}", f"{reached.evicted:,}", f"{reached.moved:,}")
        rows.append((short_name(instance), name, f"{peer.cycle_ms:,.0f} ms", *counts, "; ".join(sorted(remarks))))
    columns = ("instance", "peer", "cycle", "placed", "evicted", "moved", "better than ours")
    console.print(table(columns, rows, right=columns[2:6]))


def print_json(runs: Sequence[Run], reference: str) -> None:
    """Rows, pairs and runs."""
    rows = rows_of(runs, reference)
    members = {
        "reference": reference,
        "rows": [asdict(row) for row in rows],
        "paired": [asdict(pair) for pair in paired(rows, reference)],
        "runs": [_run_document(run) for run in runs],
    }
    deliver(document("bench-report", members), as_json=True, output=None)


def print_csv(runs: Sequence[Run]) -> None:
    """One line a run: its row, the measures that its command takes, its stages, and what peers do better."""
    rows = []
    for run in runs:
        record = asdict(run.record)
        stages = ";".join(f"{stage.name}={stage.value or 0:g}/{stage.bound or 0:g}" for stage in run.record.stages)
        row = {name: value for name, value in record.items() if name not in APART}
        rows.append(row | dict(run.record.measures) | {"stages": stages, "worse_than": "; ".join(run.worse_than)})
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _run_document(run: Run) -> dict[str, Any]:
    peers = [
        {
            "name": peer.name,
            "placed": len(peer.reached.full),
            "partly": len(peer.reached.partial),
            "evicted": peer.reached.evicted,
            "moved": peer.reached.moved,
            "cycle_ms": peer.cycle_ms,
        }
        for peer in run.peers
    ]
    return asdict(run.record) | {"peers": peers, "worse_than": run.worse_than}
