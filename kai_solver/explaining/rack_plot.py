"""A drawing of the racks of a topology: every GPU a square in the colour of the queue that holds it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from kai_solver.domain.names import short_name
from kai_solver.errors import InputError
from kai_solver.explaining.rack_boards import FOREIGN, DomainBoard, NodeBoard
from kai_solver.pictures import COLOURS, GREY, INK, Data, draw

COLUMNS = ("topology", "domain", "node", "gpu", "held", "queues", "takes_pods")
_WIDTH, _NARROWEST = 11.0, 7.6
"""Inches for domains beside each other, and of the whole at least."""
_MARGIN, _TITLE, _HEAD, _LEGEND_LINE = 0.2, 0.35, 0.3, 0.26
_LETTER = 0.112
"""Inches of a letter of the headings."""
_ROWS = 2
"""Of squares in a node."""
_SIDES = ((24, 0.26), (160, 0.19), (600, 0.13))
"""Side of a square by the number of nodes, at most; above, `_SMALLEST`."""
_SMALLEST = 0.09
_WITH_GANGS, _WITH_NAMES = 24, 160
"""Nodes of a figure below which the largest gang, and the node's name, is written."""
_MOST_NODES = 6000
_MOST_QUEUES, _LEGEND_COLUMNS = 14, 5
"""Queues with a colour of their own; the others share one."""
_FOREIGN_NAME = "other schedulers"
_FREE, _CLOSED, _FRAME, _OTHER, _FOREIGN = "#ffffff", "#eef0f2", "#b8c1cb", "#5c6670", "#9aa5b1"


@dataclass(frozen=True, slots=True)
class _Placed:
    """A domain, the upper left corner of its box in inches (downwards is negative), and how many nodes are in a row."""

    board: DomainBoard
    x: float
    y: float
    a_row: int


class _Sheet:
    """Where everything is, in inches."""

    def __init__(self, trees: Mapping[str, Sequence[DomainBoard]]) -> None:
        nodes = sum(len(board.nodes) for boards in trees.values() for board in boards)
        self.side = next((side for most, side in _SIDES if nodes <= most), _SMALLEST)
        self.has_gangs, self.has_names = nodes <= _WITH_GANGS, nodes <= _WITH_NAMES
        self.foot = 0.42 if self.has_gangs else 0.24 if self.has_names else 0.06
        self.gap = 0.4 * self.side + 0.04
        self.placed: dict[str, list[_Placed]] = {}
        self.sentences: dict[str, float] = {}
        self.width = _NARROWEST
        below = -_MARGIN - _TITLE
        for name, boards in trees.items():
            self.sentences[name] = below
            below = self._place(name, boards, below - 0.4) - 0.2
        self.bottom = below

    def step(self, board: DomainBoard) -> float:
        """From one node of it to the next."""
        return self.columns(board) * self.side + self.gap

    def columns(self, board: DomainBoard) -> int:
        """Of squares in a node of it."""
        return max(ceil(max((len(node.held) for node in board.nodes), default=0) / _ROWS), 1)

    def row(self) -> float:
        """Height of a row of nodes."""
        return _ROWS * self.side + self.foot

    def _place(self, name: str, boards: Sequence[DomainBoard], top: float) -> float:
        """Domains in lines from left to right; the lower edge."""
        x, y, lowest = _MARGIN, top, top
        self.placed[name] = []
        for board in boards:
            a_row = max(min(len(board.nodes), int((_WIDTH + self.gap) / self.step(board))), 1)
            width = max(a_row * self.step(board) - self.gap, 1.9)
            if x > _MARGIN and x + width > _WIDTH + _MARGIN:
                x, y = _MARGIN, lowest
            self.placed[name].append(_Placed(board, x, y, a_row))
            self.width = max(self.width, x + width + _MARGIN)
            lowest = min(lowest, y - _HEAD - ceil(len(board.nodes) / a_row) * self.row() - 0.1)
            x += width + 0.35
        return lowest


def plot_racks(trees: Mapping[str, Sequence[DomainBoard]], queues: Sequence[str], title: str, path: Path) -> None:
    """Draw the innermost domains of ``trees`` (by topology) as SVG or PNG; the same trees give the same file.

    ``queues`` have the same colours in each drawing that names the same. The file beside it has a row for each GPU.

    Raises
    ------
    InputError
        There is nothing to draw, there are too many nodes, or as `draw`.
    """
    shown = {name: boards for name, boards in trees.items() if any(board.gpus for board in boards)}
    nodes = sum(len(board.nodes) for boards in shown.values() for board in boards)
    if not nodes:
        raise InputError("no topology has nodes with GPUs", field="--plot", cure="Give an instance with topologies")
    if nodes > _MOST_NODES:
        cure = f"Name one with --topology; at most {_MOST_NODES:,} nodes are drawn"
        raise InputError(f"the topologies have {nodes:,} nodes", field="--plot", cure=cure)
    held = _held(shown)
    colours = _colours(held, queues)
    sheet = _Sheet(shown)
    entries = _legend(colours, held, shown)
    height = -sheet.bottom + _LEGEND_LINE * ceil(len(entries) / _LEGEND_COLUMNS) + 0.1

    def content(figure: Any) -> None:
        from matplotlib.patches import Patch

        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, sheet.width)
        axes.set_ylim(-height, 0)
        axes.set_axis_off()
        axes.text(_MARGIN, -_MARGIN, title, fontsize=11, color=GREY, va="top")
        for name, boards in shown.items():
            axes.text(
                _MARGIN,
                sheet.sentences[name],
                _sentence(name, boards, sheet.width),
                fontsize=13,
                fontweight="bold",
                va="top",
            )
            for placed in sheet.placed[name]:
                _draw_domain(axes, sheet, placed, colours)
        at = {"loc": "upper left", "bbox_to_anchor": (_MARGIN, sheet.bottom + 0.05), "borderpad": 0, "borderaxespad": 0}
        patches = [Patch(**entry) for entry in entries]
        axes.legend(handles=patches, bbox_transform=axes.transData, ncols=_LEGEND_COLUMNS, fontsize=10, **at)

    draw(path, (sheet.width, height), title, content, Data(COLUMNS, _rows(shown)))


def _rows(trees: Mapping[str, Sequence[DomainBoard]]) -> Iterator[tuple[object, ...]]:
    for name, boards in trees.items():
        for board in boards:
            for node in board.nodes:
                for gpu, parts in enumerate(node.held):
                    queues = " ".join(queue or _FOREIGN_NAME for queue in parts)
                    held = f"{sum(parts.values()):g}"
                    yield name, board.name, node.name, gpu, held, queues, "yes" if node.takes_pods else "no"


def _held(trees: Mapping[str, Sequence[DomainBoard]]) -> Counter[str]:
    """GPUs of each queue; nodes of several trees count once."""
    held: Counter[str] = Counter()
    for node in {node.name: node for boards in trees.values() for board in boards for node in board.nodes}.values():
        for parts in node.held:
            held.update(parts)
    return held


def _colours(held: Counter[str], queues: Sequence[str]) -> dict[str, str]:
    """By queue; where there are too many, those with most GPUs have their own."""
    most = sorted(queues, key=lambda queue: -held[queue])[:_MOST_QUEUES]
    own = dict(zip([queue for queue in queues if queue in most], COLOURS, strict=False))
    rest = dict.fromkeys([queue for queue in held if queue not in own], _OTHER)
    return own | rest | ({FOREIGN: _FOREIGN} if FOREIGN in held else {})


def _sentence(topology: str, boards: Sequence[DomainBoard], inches: float) -> str:
    """What is free, in how many whole nodes, and, where there is room for it, which domain has most."""
    nodes = [node for board in boards for node in board.nodes]
    idle = sum(node.is_idle for node in nodes)
    most = max(boards, key=lambda board: board.free)
    free, gpus = sum(board.free for board in boards), sum(board.gpus for board in boards)
    if not free:
        return f"Topology {topology}: none of {gpus:,} GPUs is free"
    whole = f"{idle} of {len(nodes)} nodes are wholly free" if idle else "no node is wholly free"
    said = f"Topology {topology}: {free:,g} of {gpus:,} GPUs are free, {whole}"
    longer = f"{said}; {most.name} has most of them, {most.free:g}"
    return longer if len(boards) > 1 and len(longer) * _LETTER < inches else said


def _draw_domain(axes: Any, sheet: _Sheet, placed: _Placed, colours: Mapping[str, str]) -> None:
    board, step = placed.board, sheet.step(placed.board)
    head = f"{board.name}: {board.free:g} of {board.gpus} free"
    axes.text(placed.x, placed.y, head, fontsize=10, fontweight="bold", va="top")
    for at, node in enumerate(board.nodes):
        x = placed.x + (at % placed.a_row) * step
        y = placed.y - _HEAD - (at // placed.a_row) * sheet.row()
        _draw_node(axes, node, (x, y), sheet.side, colours)
        below = y - _ROWS * sheet.side - 0.05
        if sheet.has_names:
            axes.text(x, below, _end(node.name, step, 0.075), fontsize=8.5, va="top", color=INK)
        if sheet.has_gangs:
            axes.text(x, below - 0.15, _tenants(node, step), fontsize=8, va="top", color=GREY)


def _end(name: str, inches: float, of_letter: float) -> str:
    """As much of a name as there is room for: the end of it, which tells nodes apart."""
    fits = max(int(inches / of_letter), 3)
    return name if len(name) <= fits else f"…{name[-fits + 1 :]}"


def _tenants(node: NodeBoard, inches: float) -> str:
    """The largest gang, and how many more."""
    if not node.gangs:
        return ""
    more = f" +{len(node.gangs) - 1}" if len(node.gangs) > 1 else ""
    name = short_name(node.gangs[0]).rpartition("/")[2]
    fits = max(int(inches / 0.07) - len(more), 3)
    return (name if len(name) <= fits else f"{name[: fits - 1]}…") + more


def _draw_node(
    axes: Any, node: NodeBoard, corner: tuple[float, float], side: float, colours: Mapping[str, str]
) -> None:
    """Squares in two rows, GPU 0 at the upper left; a part of a GPU fills its square from below."""
    from matplotlib.patches import Rectangle

    x, top = corner
    columns = max(ceil(len(node.held) / _ROWS), 1)
    inner = 0.88 * side
    face, hatch = (_FREE, "") if node.takes_pods else (_CLOSED, "xxxx")
    for gpu, parts in enumerate(node.held):
        left, low = x + (gpu % columns + 0.06) * side, top - (gpu // columns + 0.94) * side
        axes.add_patch(
            Rectangle((left, low), inner, inner, facecolor=face, edgecolor=_FRAME, linewidth=0.7, hatch=hatch)
        )
        level = 0.0
        for queue, part in parts.items():
            part = min(part, 1.0 - level)
            axes.add_patch(
                Rectangle((left, low + inner * level), inner, inner * part, facecolor=colours[queue], linewidth=0)
            )
            level += part
    around = 0.03
    axes.add_patch(
        Rectangle(
            (x - around, top - _ROWS * side - around),
            columns * side + 2 * around,
            _ROWS * side + 2 * around,
            facecolor="none",
            edgecolor=GREY,
            linewidth=0.9,
        )
    )


def _legend(
    colours: Mapping[str, str], held: Counter[str], trees: Mapping[str, Sequence[DomainBoard]]
) -> list[dict[str, Any]]:
    """What patches of the legend look like and say; queues that hold nothing are left out."""
    own = [(queue, colour) for queue, colour in colours.items() if colour not in (_OTHER, _FOREIGN) and held[queue]]
    found: list[dict[str, Any]] = [{"facecolor": colour, "label": f"{queue} {held[queue]:g}"} for queue, colour in own]
    others = [queue for queue, colour in colours.items() if colour == _OTHER]
    if others:
        total = sum(held[queue] for queue in others)
        found.append({"facecolor": _OTHER, "label": f"{len(others)} other queues {total:g}"})
    if FOREIGN in colours:
        found.append({"facecolor": _FOREIGN, "label": f"{_FOREIGN_NAME} {held[FOREIGN]:g}"})
    nodes = [node for boards in trees.values() for board in boards for node in board.nodes]
    if any(node.free for node in nodes):
        found.append({"facecolor": _FREE, "edgecolor": _FRAME, "label": "free"})
    if not all(node.takes_pods for node in nodes):
        found.append({"facecolor": _CLOSED, "edgecolor": _FRAME, "hatch": "xxxx", "label": "takes no pods"})
    return found
