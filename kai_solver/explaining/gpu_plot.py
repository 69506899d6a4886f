"""A drawing of a node's GPUs: a circle of them, lines as wide as links are fast, sets in the colours of their gangs."""

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, combinations, islice, pairwise
from math import cos, hypot, pi, sin
from pathlib import Path
from textwrap import fill
from typing import Any

from kai_solver.explaining.gpu_boards import CURE, GpuBoard, Holder, ranges
from kai_solver.links import LinkGraph, choose, known_tables, mask_of
from kai_solver.pictures import COLOURS, GREY, INK, Data, draw
from kai_solver.units import MILLI

MOST_LINES = 16
"""GPUs of a node all of whose links are drawn; above, only the best kinds, as long as they are few."""
_FEW = 4
"""Lines for each GPU."""

_MOST_NAMED = 18
"""Pods in the legend."""
_RADIUS, _SMALL, _OUTER = 0.085, 0.055, 0.06
_LABEL_FROM, _LABEL_TO, _TRIES = 0.16, 0.84, 35
"""Where a label may stand between two GPUs; of so many places that with most room around it is taken."""
_CIRCLE, _TOP, _WORDS, _LINE, _LETTERS = 5.6, 0.85, 4.1, 0.215, 46
"""Inches: the circle, the heading, the words beside it, a line of them; letters in one."""
_NVLINK, _MANY, _PCIE = "#7a828e", "#c3cad3", "#a3abb7"
"""Colours of links; NVLink is paler where it joins more pairs than `_FULL`."""
_FULL = 60
_DASHES = {"PIX": "-", "PXB": "-.", "PHB": "-.", "NODE": "--", "SYS": ":"}
COLUMNS = ("gpu", "other_gpu", "link", "gb_per_s", "pods", "other_pods")
_TITLE = 100

Point = tuple[float, float]


def plot_gpus(board: GpuBoard, path: Path) -> None:
    """Draw ``board`` as SVG or PNG, by the name of the file; the same board gives the same file.

    Raises
    ------
    InputError
        As `draw`.
    """
    drawing = _Drawing(board)
    draw(path, drawing.size, f"{board.node}: {drawing.sentence()}", drawing.fill, Data(COLUMNS, _rows(board)))


def _rows(board: GpuBoard) -> Iterator[tuple[object, ...]]:
    """A row for each pair of GPUs, with the pods on both."""
    pods = [" ".join(h.pod for h in board.holders if gpu in h.gpus) for gpu in range(board.graph.gpus)]
    for one, other in combinations(range(board.graph.gpus), 2):
        kind, gb_s = _kind(board.graph, one, other) if board.graph.is_known else ("", "")
        yield one, other, kind, gb_s, pods[one], pods[other]


class _Drawing:
    def __init__(self, board: GpuBoard) -> None:
        self.board = board
        gangs = list(dict.fromkeys(_tenant(holder) for holder in board.holders))
        self.colour = {gang: COLOURS[at % len(COLOURS)] for at, gang in enumerate(gangs)}
        self.pairs = _pairs(board.graph)
        self.is_large = board.graph.gpus > MOST_LINES
        few = accumulate(self.pairs.values()) if self.is_large else ()
        most = sum(total <= _FEW * board.graph.gpus for total in few) if self.is_large else len(self.pairs)
        self.drawn = set(islice(self.pairs, most))
        self.rings = {holder: self._ring(holder) for holder in board.holders}

    @property
    def size(self) -> tuple[float, float]:
        """Inches, so that circle and words find room."""
        lines = sum(len(self._label(holder).splitlines()) for holder in self.board.holders[:_MOST_NAMED])
        words = _LINE * (len(self.pairs) * self.board.graph.is_known + lines + 6)
        return _CIRCLE + _WORDS, _TOP + max(_CIRCLE, words) + 0.2 * len(self._remarks())

    def sentence(self) -> str:
        """What is to be seen: which GPUs are free, and the weakest link of those that are held."""
        free = self.board.free
        if free is None:
            said = "Which GPUs are free is not known"
        elif len(free) == 1:
            said = f"GPU {free[0]} is free"
        else:
            said = f"GPUs {ranges(free)} are free" if free else "No GPU is free"
        links = [(link.gb_s, holder) for holder in self.board.holders if (link := self.board.link(holder)) is not None]
        if not links or not self.board.graph.is_known:
            return said
        slowest, holder = min(links, key=lambda one: one[0])
        return f"{said}; the slowest links have {slowest} GB/s, in {_tenant(holder)}"

    def fill(self, figure: Any) -> None:
        """The graph on the left, what it means on the right, what is not known below."""
        graph, (width, height) = self.board.graph, self.size
        figure.set_layout_engine("none")
        left = figure.add_axes((0, (height - _TOP - _CIRCLE) / height, _CIRCLE / width, _CIRCLE / height))
        right = figure.add_axes((_CIRCLE / width, 0, _WORDS / width, (height - _TOP) / height))
        for axes in (left, right):
            axes.set_axis_off()
        left.set_aspect("equal")
        left.set_xlim(-1.22, 1.22)
        left.set_ylim(-1.22, 1.22)
        points = [_point(gpu, graph.gpus) for gpu in range(graph.gpus)]
        if graph.is_known:
            self._links(left, points)
            for holder in self.board.holders:
                self._set(left, points, holder)
        else:
            left.text(0, 0, "links unknown:\nall pairs count as equal", ha="center", va="center", fontsize=12)
        for gpu, point in enumerate(points):
            self._gpu(left, gpu, point)
        self._legends(right, height - _TOP)
        source = f", links as of {graph.name}" if graph.is_known else ""
        at = 0.2 / width
        what = f"{self.board.node}: {graph.gpus} GPUs{source}. In colour: the best ring through the GPUs of a pod"
        figure.text(at, 1 - 0.2 / height, what, fontsize=11, color=GREY, va="top")
        figure.text(at, 1 - 0.45 / height, self.sentence()[:_TITLE], fontsize=13, fontweight="bold", va="top")
        figure.text(at, 0.12 / height, "\n".join(self._remarks()), fontsize=9, va="bottom")

    def _remarks(self) -> list[str]:
        """Lines below the drawing."""
        graph = self.board.graph
        found = list(graph.notices) if graph.is_known else [*graph.notices, CURE]
        if self.board.untold:
            found.append(f"Which GPUs are free is not known: {self.board.untold}")
        return fill(". ".join(found), 125).splitlines()

    def _ring(self, holder: Holder) -> list[tuple[int, int]]:
        """Pairs of the best ring through the GPUs of a pod; none where there is none, or it is unknown."""
        if self.board.link(holder) is None or not holder.gpus:
            return []
        tables, mask = known_tables(), mask_of(holder.gpus)
        found = choose(tables.tables[tables.add(self.board.graph)], mask, len(holder.gpus))
        ring = found.ring if found is not None else ()
        return list(pairwise((*ring, ring[0]) if len(ring) > 2 else ring))

    # -- the graph -----------------------------------------------------------------------------------------------------

    def _links(self, axes: Any, points: list[Point]) -> None:
        of_sets = {frozenset(turn) for ring in self.rings.values() for turn in ring}
        for one, other in combinations(range(len(points)), 2):
            kind = _kind(self.board.graph, one, other)
            if kind in self.drawn and {one, other} not in of_sets:
                _line(axes, points[one], points[other], **self._style(*kind), zorder=1)

    def _style(self, kind: str, gb_s: int) -> dict[str, Any]:
        """Line of a kind of link: wide where it is fast; NVLink darker, PCIe paths dashed the more the farther."""
        is_nvlink, most = kind.startswith("NV"), max(speed for _, speed in self.pairs)
        widest = 0.6 if len(self.pairs) == 1 else 3.4 if is_nvlink else 1.0
        colour, dashes = (
            (_MANY if len(self.pairs) == 1 and self.pairs[kind, gb_s] > _FULL else _NVLINK, "-")
            if is_nvlink
            else (_PCIE, _DASHES[kind])
        )
        return {"color": colour, "linestyle": dashes, "linewidth": 0.9 + widest * gb_s / most}

    def _set(self, axes: Any, points: list[Point], holder: Holder) -> None:
        """The best ring through the GPUs of a pod, its weakest link with the bandwidth."""
        colour, dashes = self.colour[_tenant(holder)], "-" if holder.known == "fact" else (0, (3, 0.8))
        for one, other in self.rings[holder]:
            width = self._style(*_kind(self.board.graph, one, other))["linewidth"] + 0.8
            _line(axes, points[one], points[other], color=colour, linestyle=dashes, linewidth=width, zorder=2)
        link = self.board.link(holder)
        if link is not None and link.gpus:
            at = self._open_place(points, link.gpus[0], link.gpus[1])
            box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": colour, "linewidth": 0.8}
            size = 6.5 if self.is_large else 8.5
            axes.text(*at, str(link.gb_s), ha="center", va="center", fontsize=size, bbox=box, zorder=4)

    def _open_place(self, points: list[Point], one: int, other: int) -> Point:
        """Where on the line between two GPUs most room is left by the other lines."""
        (x, y), (x2, y2) = points[one], points[other]
        lines = [
            (points[a], points[b])
            for a, b in combinations(range(len(points)), 2)
            if {a, b} != {one, other} and _kind(self.board.graph, a, b) in self.drawn
        ]
        parts = [_LABEL_FROM + (_LABEL_TO - _LABEL_FROM) * i / (_TRIES - 1) for i in range(_TRIES)]
        places = [(x + part * (x2 - x), y + part * (y2 - y)) for part in parts]
        return max(places, key=lambda place: min((_distance(place, line) for line in lines), default=0.0))

    def _gpu(self, axes: Any, gpu: int, point: Point) -> None:
        """A circle that is filled by the pods that hold the GPU, each to its share."""
        from matplotlib.patches import Circle, Wedge

        radius = _SMALL if self.is_large else _RADIUS
        is_known = self.board.free is not None
        hatch = "" if is_known else "////"
        axes.add_patch(Circle(point, radius, facecolor="white", edgecolor="#9aa1ab", zorder=3, hatch=hatch))
        start = 90.0
        for holder in self.board.holders:
            if gpu in holder.gpus:
                end = start - 360.0 * min(holder.milli, MILLI) / MILLI
                colour = self.colour[_tenant(holder)]
                axes.add_patch(
                    Wedge(point, radius, end, start, zorder=3.1, facecolor=colour, edgecolor="white", linewidth=0.5)
                )
                start = end
        axes.add_patch(Circle(point, radius, facecolor="none", edgecolor=INK, linewidth=1.0, zorder=3.2))
        x, y = (at * (1 + radius + _OUTER) for at in point)
        axes.text(x, y, str(gpu), ha="center", va="center", fontsize=10, color=INK)

    # -- what it means -------------------------------------------------------------------------------------------------

    def _legends(self, axes: Any, height: float) -> None:
        place = {"loc": "upper left", "alignment": "left", "fontsize": 10, "borderaxespad": 0, "title_fontsize": 11}
        is_linked = self.board.graph.is_known and bool(self.pairs)
        if is_linked:
            title = "Links, GB/s in one direction"
            links = axes.legend(
                handles=self._link_lines(), bbox_to_anchor=(0, 0.98), title=title, handlelength=3.5, **place
            )
            axes.add_artist(links)
        below = 0.98 - (_LINE * (len(self.pairs) + 2.2) / height if is_linked else 0)
        title = "GPUs, and the weakest link of each set"
        axes.legend(handles=self._tenant_patches(), bbox_to_anchor=(0, below), title=title, **place)

    def _link_lines(self) -> list[Any]:
        from matplotlib.lines import Line2D

        lines = []
        for (kind, gb_s), pairs in self.pairs.items():
            is_drawn = (kind, gb_s) in self.drawn
            label = f"{kind}  {gb_s}  ({pairs} pair{'s' if pairs > 1 else ''}{'' if is_drawn else ', not drawn'})"
            style = self._style(kind, gb_s) if is_drawn else {"linestyle": "none"}
            lines.append(Line2D([], [], label=label, **style))
        return lines

    def _tenant_patches(self) -> list[Any]:
        from matplotlib.patches import Patch

        named = self.board.holders[:_MOST_NAMED]
        patches = [Patch(facecolor=self.colour[_tenant(h)], label=self._label(h)) for h in named]
        if more := len(self.board.holders) - len(named):
            patches.append(Patch(facecolor="none", label=f"and {more} pods more"))
        is_known = self.board.free is not None
        text = "free" if is_known else "free or held: not known which"
        return [*patches, Patch(facecolor="white", edgecolor=INK, hatch="" if is_known else "////", label=text)]

    def _label(self, holder: Holder) -> str:
        return fill(self._words(holder), _LETTERS)

    def _words(self, holder: Holder) -> str:
        link = self.board.link(holder)
        count = f"{holder.count} GPUs" if holder.count > 1 else "1 GPU"
        which = ranges(holder.gpus) if holder.gpus else f"{count}, unknown which"
        part = f" ({holder.milli / MILLI:g} of {'each' if holder.count > 1 else 'it'})" if holder.milli != MILLI else ""
        wish = ", a wish" if holder.known == "wish" else ""
        return f"{_tenant(holder)}: {which}{part}{wish}" + (f"; {link.kind} {link.gb_s} GB/s" if link else "")


def _tenant(holder: Holder) -> str:
    return holder.gang or holder.pod


def _point(gpu: int, gpus: int) -> Point:
    """On the circle, clockwise; the first one left of the top."""
    angle = pi / 2 + pi / max(gpus, 1) - 2 * pi * gpu / max(gpus, 1)
    return cos(angle), sin(angle)


def _line(axes: Any, one: Point, other: Point, **style: Any) -> None:
    (x, x2), (y, y2) = zip(one, other, strict=True)
    axes.plot((x, x2), (y, y2), solid_capstyle="round", **style)


def _distance(place: Point, line: tuple[Point, Point]) -> float:
    """Of a point from the nearest point of a line between two GPUs."""
    (x, y), ((x1, y1), (x2, y2)) = place, line
    part = ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / ((x2 - x1) ** 2 + (y2 - y1) ** 2)
    part = min(max(part, 0.0), 1.0)
    return hypot(x - x1 - part * (x2 - x1), y - y1 - part * (y2 - y1))


def _kind(graph: LinkGraph, one: int, other: int) -> tuple[str, int]:
    return graph.kind(one, other), int(graph.gb_s[one, other])


def _pairs(graph: LinkGraph) -> dict[tuple[str, int], int]:
    """How many pairs have each kind of link with its bandwidth, the best first."""
    pairs = list(combinations(range(graph.gpus), 2))
    best_first = sorted(pairs, key=lambda pair: -int(graph.grade[pair]))
    return dict(Counter(_kind(graph, *pair) for pair in best_first))
