"""``kai-solver devices``: which GPUs of a node a pod gets, by the links between them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.options import AsJson, Output, Quiet

if TYPE_CHECKING:
    from kai_solver.links import Choice, LinkGraph, LinkTable

Matrix = Annotated[
    Path | None,
    typer.Option(
        "--matrix", metavar="FILE", help="Output of `nvidia-smi topo -m`, `nvlink -s`, or both; - reads a pipe."
    ),
]
ProductName = Annotated[
    str, typer.Option("--product", metavar="NAME", help="A product of --list. With --matrix, its bandwidths are used.")
]
Free = Annotated[str, typer.Option("--free", metavar="GPUS", help="Free GPUs, like 0,1,2,5 or 0-3,6.")]
Count = Annotated[
    int | None,
    typer.Option("--count", metavar="N", min=1, help="Number of GPUs that a pod asks for; default: every number."),
]
Row = Annotated[
    str | None, typer.Option("--row", metavar="RULE", help="GPUs in a row: contiguous-required, aligned-preferred, ...")
]
Mig = Annotated[bool, typer.Option("--mig", help="The node is in MIG mode, which has no NVLink.")]
Others = Annotated[
    int, typer.Option("--alternatives", metavar="N", min=0, help="Number of other sets to show, the best first.")
]
ListThem = Annotated[bool, typer.Option("--list", help="List the known products.")]


@guarded
def devices(
    matrix: Matrix = None,
    product: ProductName = "",
    free: Free = "all",
    count: Count = None,
    row: Row = None,
    mig: Mig = False,
    others: Others = 5,
    list_products: ListThem = False,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Exit:
    """Choose GPUs of one node by the links between them, and show the alternatives.

    The best set has the fastest weakest link in its best ring (for two GPUs, between them). Among those, it leaves the
    most useful rest. Among those, it has the largest sum over its pairs. GB/s are of one direction. "leftover" is what
    later pods can get of the rest. It is 100% for the empty node. Identical sets are shown once.

    \b
    Examples:
      kai-solver devices --list
      kai-solver devices --product dgx1-v100-8
      kai-solver devices --product dgx1-v100-8 --free 0-5 --count 4
      nvidia-smi topo -m > node.txt; kai-solver devices --matrix node.txt --free 0,1,2,5 --count 2
      kai-solver devices --matrix node.txt --free 1-7 --count 4 --row aligned-preferred --json

    Exit code 1 if that many GPUs are not free, or not in the required row.
    """
    from kai_solver.errors import InputError

    if list_products:
        _show_products(as_json=as_json, output=output)
        return Exit.FINE
    if matrix is None and not product:
        cure = "Give --product NAME, one of `devices --list`, or --matrix FILE, from `nvidia-smi topo -m`"
        raise InputError("which node is not said", cure=cure)
    return _choose(
        _graph(matrix, product, mig=mig), free, count, row, others, as_json=as_json, output=output, quiet=quiet
    )


def _graph(matrix: Path | None, product: str, *, mig: bool) -> "LinkGraph":
    from kai_solver.links import graph_of_text, product_named

    graph = product_named(product).graph if matrix is None else graph_of_text(_text(matrix), str(matrix), product)
    return graph.without_nvlink() if mig else graph


def _text(matrix: Path) -> str:
    from kai_solver.errors import InputError

    try:
        if str(matrix) == "-":
            return sys.stdin.read()
        with matrix.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(_MOST_CHARACTERS)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot be read: {reason}", file=str(matrix), cure="Name a readable file") from None


def _choose(
    graph: "LinkGraph",
    free: str,
    count: int | None,
    row: str | None,
    others: int,
    *,
    as_json: bool,
    output: Path | None,
    quiet: bool,
) -> Exit:
    from kai_solver.cli.documents import deliver, document
    from kai_solver.links import LinkTable, RowWish, alternatives, mask_of

    wish = RowWish.parse(row, "--row") if row is not None else None
    table = LinkTable.of(graph)
    mask = mask_of(_gpus(free, graph.gpus))
    counts = range(1, mask.bit_count() + 1) if count is None else [count]
    found = {wanted: alternatives(table, mask, wanted, 1 + (0 if count is None else others), wish) for wanted in counts}
    for notice in () if quiet else table.graph.notices:
        complain(notice)
    if deliver(document("devices", _members(table, mask, found)), as_json=as_json, output=output):
        _print_words(table, mask, found)
    return Exit.FINE if all(found.values()) else Exit.FINDINGS


def _gpus(text: str, gpus: int) -> list[int]:
    """GPUs of ``0,1,2,5``, ``0-3,6`` or ``all``."""
    from kai_solver.errors import InputError

    if text.strip() == "all":
        return list(range(gpus))
    cure = f"Write numbers from 0 to {gpus - 1} with commas between them, like 0,1 or 0-{gpus - 1}"
    found: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        ends = [first.strip(), (last or first).strip()]
        if not all(end.isdecimal() and len(end) < 4 for end in ends) or not int(ends[0]) <= int(ends[1]) < gpus:
            raise InputError(f"{part!r} is not a GPU of this node", field="--free", cure=cure)
        found += range(int(ends[0]), int(ends[1]) + 1)
    return found


# -- output ------------------------------------------------------------------------------------------------------------


def _print_words(table: "LinkTable", mask: int, found: "dict[int, tuple[Choice, ...]]") -> None:
    from kai_solver.cli.console import heading, line, open_console
    from kai_solver.cli.console import table as grid
    from kai_solver.links import gpus_of
    from kai_solver.units import counted

    console, graph = open_console(), table.graph
    free = _numbers(gpus_of(mask)) or "none"
    line(console, f"{graph.name}: {counted(graph.gpus, 'GPU')}; free: {free}; in a row at most {_longest(mask)}")
    heading(console, "Links", "GB/s in one direction" if graph.is_known else "not known: all are equal")
    every = range(graph.gpus)
    rows = [[f"GPU{one}", *(_link(graph, one, other) for other in every)] for one in every]
    console.print(grid(["", *(f"GPU{gpu}" for gpu in every)], rows))
    columns = ["GPUs", "weakest link", "GB/s", "sum", "leftover", "ring"]
    right = ["GB/s", "sum", "leftover"]
    if len(found) > 1:
        heading(console, "Best set of each size")
        console.print(grid(columns, [_cells(graph, sets[0]) for sets in found.values() if sets], right))
        return
    for wanted, sets in found.items():
        heading(console, f"{counted(wanted, 'GPU')}: {_numbers(sets[0].gpus) if sets else 'not to be had'}")
        if sets:
            console.print(grid(columns, [_cells(graph, each) for each in sets], right))


def _cells(graph: "LinkGraph", choice: "Choice") -> list[str]:
    known = graph.is_known and len(choice.gpus) > 1
    figures = [str(choice.bottleneck_gb_s), str(choice.sum_gb_s)] if known else ["", ""]
    ring = "-".join(map(str, choice.ring)) if len(choice.ring) > 2 else ""
    return [_numbers(choice.gpus), choice.weakest, *figures, f"{choice.leftover:.0%}", ring]


def _link(graph: "LinkGraph", one: int, other: int) -> str:
    if one == other:
        return "-"
    kind = graph.kind(one, other)
    return f"{kind} {graph.gb_s[one, other]}" if graph.is_known else kind


def _numbers(gpus: tuple[int, ...]) -> str:
    return ", ".join(map(str, gpus))


def _longest(mask: int) -> int:
    import numpy as np

    from kai_solver.links import largest_free_row

    return int(largest_free_row(np.array([mask], dtype=np.uint64))[0])


def _members(table: "LinkTable", mask: int, found: "dict[int, tuple[Choice, ...]]") -> dict[str, Any]:
    from kai_solver.links import gpus_of

    graph, every = table.graph, range(table.graph.gpus)
    return {
        "name": graph.name,
        "gpus": graph.gpus,
        "known": graph.is_known,
        "notices": list(graph.notices),
        "links": [["X" if one == other else graph.kind(one, other) for other in every] for one in every],
        "gb_s": graph.gb_s.tolist() if graph.is_known else None,
        "free": list(gpus_of(mask)),
        "largest_free_row": _longest(mask),
        "choices": [
            {
                "count": count,
                "chosen": _choice_document(graph, sets[0]) if sets else None,
                "alternatives": [_choice_document(graph, each) for each in sets[1:]],
            }
            for count, sets in found.items()
        ],
    }


def _choice_document(graph: "LinkGraph", choice: "Choice") -> dict[str, Any]:
    known = graph.is_known and len(choice.gpus) > 1
    return {
        "gpus": list(choice.gpus),
        "bottleneck_gb_s": choice.bottleneck_gb_s if known else None,
        "weakest": choice.weakest or None,
        "sum_gb_s": choice.sum_gb_s if known else None,
        "leftover": round(choice.leftover, 6),
        "ring": list(choice.ring),
    }


def _show_products(*, as_json: bool, output: Path | None) -> None:
    from kai_solver.cli.console import open_console
    from kai_solver.cli.console import table as grid
    from kai_solver.cli.documents import deliver, document
    from kai_solver.links import products

    known = list(products().values())
    members = [
        {"name": each.name, "about": each.about, "gpus": each.graph.gpus, "gpu_names": list(each.gpu_names)}
        | {"nvlink_gb_s": each.graph.link_gb_s if each.graph.links.any() else None}
        | {"pcie_gb_s": each.graph.pcie_gb_s, "trays": each.trays, "sources": dict(each.sources)}
        for each in known
    ]
    if not deliver(document("devices-products", {"products": members}), as_json=as_json, output=output):
        return
    rows = [
        [each.name, str(each.graph.gpus), str(each.graph.gb_s.max()), each.about, ", ".join(each.gpu_names)]
        for each in known
    ]
    columns = ["product", "GPUs", "GB/s", "what it is", "nvidia.com/gpu.product"]
    open_console().print(grid(columns, rows, right=["GPUs", "GB/s"]))


_MOST_CHARACTERS = 1 << 20
"""More than any matrix has; what is longer is refused by its length."""
