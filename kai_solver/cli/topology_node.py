"""``kai-solver topology --node``: the links between the GPUs of one node, and which pod holds which."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kai_solver.cli.exits import Exit
from kai_solver.domain.names import names_of
from kai_solver.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from kai_solver.domain import Snapshot
    from kai_solver.explaining import GpuBoard, Holder

MOST_ROWS = 16
"""GPUs of a matrix that fits a terminal; above, those that nothing tells apart are one row."""


def show_node(
    snapshot: "Snapshot",
    node: str,
    named: str,
    plan: Path | None,
    plot: Path | None,
    *,
    as_json: bool,
    output: Path | None,
) -> Exit:
    """Print the board of a node, and draw it where ``plot`` names a file.

    Raises
    ------
    InputError
        There is no such node, or a topology was named as well.
    """
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.inputs import chosen_name
    from kai_solver.explaining import GpuBoards
    from kai_solver.instances_io.plans import read_plan_of

    if named:
        raise InputError("is of trees, and --node is of one node", field="--topology", cure="Leave one of them out")
    node = chosen_name(node, (found.name for found in snapshot.nodes), "node", "--node")
    board = GpuBoards(snapshot, read_plan_of(snapshot, plan) if plan is not None else None).of(node)
    if plot is not None:
        from kai_solver.explaining.gpu_plot import plot_gpus

        plot_gpus(board, plot)
    if deliver(document("node-gpus", board.document()), as_json=as_json, output=output):
        _print(board, names_of(snapshot.gangs))
    return Exit.FINE


def _print(board: "GpuBoard", names: Mapping[str, str]) -> None:
    from kai_solver.cli.console import heading, line, open_console
    from kai_solver.explaining.gpu_boards import CURE
    from kai_solver.units import counted

    console, graph = open_console(), board.graph
    line(console, f"{board.node}: {counted(graph.gpus, 'GPU')}, {_free(board)}")
    heading(console, "Links", f"GB/s in one direction, as of {graph.name}" if graph.is_known else "unknown, all equal")
    for notice in graph.notices:
        line(console, f"  {notice}")
    if not graph.is_known and graph.gpus:
        line(console, f"  {CURE}")
    if graph.is_known and graph.gpus > 1:
        _print_matrix(console, board, names)
    _print_holders(console, board, names)


def _free(board: "GpuBoard") -> str:
    import numpy as np

    from kai_solver.explaining.gpu_boards import ranges
    from kai_solver.links import largest_free_row, mask_of

    if board.free is None:
        return f"which of them are free is not known: {board.untold}"
    row = int(largest_free_row(np.array([mask_of(board.free)], dtype=np.uint64))[0])
    return f"free: {ranges(board.free) or 'none'}; in a row at most {row}"


def _print_matrix(console: "Console", board: "GpuBoard", names: Mapping[str, str]) -> None:
    from kai_solver.cli.console import table
    from kai_solver.explaining.gpu_boards import ranges
    from kai_solver.links import like_gpus

    graph = board.graph
    one_each = tuple((gpu,) for gpu in range(graph.gpus))
    sets = one_each if graph.gpus <= MOST_ROWS else like_gpus(graph)
    heads = [f"GPU{ranges(own)}" for own in sets]
    tenants = [_tenants(board, own, names) for own in sets]
    devices = [[board.names[gpu] for gpu in own] if board.names else [] for own in sets]
    more = ["held by", *(["device"] if board.names else [])]
    rows = [
        [head, *(_link(board, own, other) for other in sets), held, *([", ".join(called)] if board.names else [])]
        for head, own, held, called in zip(heads, sets, tenants, devices, strict=True)
    ]
    console.print(table(["", *heads, *more], rows))


def _link(board: "GpuBoard", own: Sequence[int], other: Sequence[int]) -> str:
    """The link of the first of ``own`` and the last of ``other``, or the other way round if they are one GPU."""
    pair = (own[0], other[-1]) if own[0] != other[-1] else (own[-1], other[0])
    return "-" if pair[0] == pair[1] else f"{board.graph.kind(*pair)} {board.graph.gb_s[pair]}"


def _tenants(board: "GpuBoard", gpus: Sequence[int], names: Mapping[str, str]) -> str:
    """Gangs, or pods without one, that hold some of these."""
    found = dict.fromkeys(h.gang or h.pod for h in board.holders if set(h.gpus).intersection(gpus))
    return ", ".join(names.get(holder, holder) for holder in found)


def _print_holders(console: "Console", board: "GpuBoard", names: Mapping[str, str]) -> None:
    from kai_solver.cli.console import heading, table

    if not board.holders:
        return
    heading(console, "Held GPUs", _terms(board))
    columns = ("gang", "pod", "count", "GPUs", "known by", "weakest link", "GB/s", "between")
    console.print(table(columns, list(_rows(board, names)), right=("GB/s",)))


def _terms(board: "GpuBoard") -> str:
    if any(holder.known == "wish" for holder in board.holders):
        return "wish: chosen by links, and the device plugin may have given others"
    return ""


def _rows(board: "GpuBoard", names: Mapping[str, str]) -> Iterator[list[str]]:
    from kai_solver.explaining.gpu_boards import ranges

    for holder in board.holders:
        link = board.link(holder)
        figures = ["", "", ""] if link is None else [link.kind, str(link.gb_s), ", ".join(map(str, link.gpus)) or "any"]
        gpus = "?" if holder.known == "unknown" else ranges(holder.gpus)
        yield [
            names.get(holder.gang, holder.gang),
            holder.pod.rpartition("/")[2],
            _count(holder),
            gpus,
            holder.known,
            *figures,
        ]


def _count(holder: "Holder") -> str:
    return str(holder.count) if holder.milli == 1000 else f"{holder.count} x {holder.milli / 1000:g}"
