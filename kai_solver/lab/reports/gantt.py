"""Data behind the Gantt chart: which part of which node each stay takes, and what is known of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from kai_solver.lab.reports.sources import Simulation

_WHOLE = 0.999
"""Of a GPU; a pod with so much of each of its devices shares none."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle: a stay, and from where to where it reaches in its node's row, in lanes from 0.

    A lane is a GPU. Pods without a GPU share one more lane below.
    """

    stay: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Gantt:
    """A chart of one replay.

    Attributes
    ----------
    nodes
        Names, a row each.
    lanes
        Of each node.
    bars
        By time of begin.
    stays
        Columns of the table of stays: lists of the same length.
    down
        Row of the node, from, to (s): when it was down.
    """

    label: str
    end_s: float
    nodes: Sequence[str]
    lanes: Sequence[int]
    bars: Sequence[Bar]
    stays: Mapping[str, Sequence[Any]]
    down: Sequence[tuple[int, float, float]]


def time_unit(end_s: float) -> tuple[str, float]:
    """What an axis of simulated time says, and the seconds of its unit: minutes where it ends within two hours."""
    return ("simulated minutes", 60.0) if end_s <= 2 * 3600 else ("simulated hours", 3600.0)


def gantt_of(run: "Simulation") -> Gantt:
    """Chart of a replay, a row for each node of its cluster."""
    nodes = list(dict.fromkeys([*run.tables["nodes"]["node"], *run.tables["stays"]["node"]]))
    stays = run.tables["stays"].sort("start_s", maintain_order=True)
    lanes, bars = lay_out(stays, nodes)
    columns = {name: stays[name].to_list() for name in stays.columns if name != "policy"}
    columns["end_s"] = [run.end_s if end is None else end for end in columns["end_s"]]
    return Gantt(run.label, run.end_s, nodes, lanes, bars, columns, downtimes(run.tables["nodes"], nodes, run.end_s))


def downtimes(table: "pl.DataFrame", nodes: Sequence[str], end_s: float) -> list[tuple[int, float, float]]:
    """Row of the node, from, to: the times in which nodes were down; one that never came back until ``end_s``."""
    rows = {node: row for row, node in enumerate(nodes)}
    since: dict[str, float] = {}
    found = []
    for node, time_s, is_down in table.select("node", "time_s", "is_down").iter_rows():
        if is_down:
            since.setdefault(node, time_s)
        elif node in since:
            found.append((rows[node], since.pop(node), time_s))
    found += [(rows[node], start, end_s) for node, start in since.items()]
    return sorted(found)


def lay_out(stays: "pl.DataFrame", nodes: Sequence[str]) -> tuple[list[int], list[Bar]]:
    """Lanes of each node, and the bars of stays, which come in order of ``start_s``.

    A stay takes the lanes of its devices, neighbours as one bar. Pods that share a GPU take parts of its lane, side by
    side. Where GPUs are held and no device is known, the first lanes that are free are taken.
    """
    ends = [float("inf") if end is None else end for end in stays["end_s"]]
    found: list[Bar] = []
    by_node: dict[str, _Row] = {node: _Row() for node in nodes}
    columns = (stays[name].to_list() for name in ("node", "devices", "gpus", "start_s"))
    for stay, (node, devices, gpus, start) in enumerate(zip(*columns, strict=True)):
        by_node[node].add(stay, [int(device) for device in devices.split()], gpus, start, ends[stay])
    for row in by_node.values():
        found += row.bars
        strip, slots = row.gpu_lanes, max((slot for _, slot in row.small), default=0) + 1
        found += [Bar(stay, strip + slot / slots, strip + (slot + 1) / slots) for stay, slot in row.small]
    lanes = [max(1, row.gpu_lanes + bool(row.small)) for row in by_node.values()]
    return lanes, sorted(found, key=lambda bar: (bar.stay, bar.low))


class _Row:
    """One node while its stays are laid out."""

    def __init__(self) -> None:
        self.bars: list[Bar] = []
        self.small: list[tuple[int, int]] = []
        self.gpu_lanes = 0
        self._parts: dict[int, list[tuple[float, float, float]]] = {}
        self._slots: list[float] = []

    def add(self, stay: int, devices: list[int], gpus: float, start: float, end: float) -> None:
        if gpus <= 0 and not devices:
            slot = next((slot for slot, until in enumerate(self._slots) if until <= start), len(self._slots))
            self._slots[slot : slot + 1] = [end]
            self.small.append((stay, slot))
            return
        devices = sorted(devices) or self._free(-int(-gpus // 1), start)
        self.gpu_lanes = max(self.gpu_lanes, devices[-1] + 1)
        share = gpus / len(devices)
        if share >= _WHOLE:
            first = last = devices[0]
            for device in [*devices[1:], -1]:
                if device == last + 1:
                    last = device
                    continue
                self.bars.append(Bar(stay, first, last + 1))
                first = last = device
            for device in devices:
                self._parts.setdefault(device, []).append((end, 0.0, 1.0))
            return
        for device in devices:
            low = self._place(device, share, start)
            self._parts.setdefault(device, []).append((end, low, low + share))
            self.bars.append(Bar(stay, device + low, device + low + share))

    def _busy(self, device: int, start: float) -> list[tuple[float, float]]:
        left = [part for part in self._parts.get(device, []) if part[0] > start]
        self._parts[device] = left
        return sorted((low, high) for _, low, high in left)

    def _place(self, device: int, share: float, start: float) -> float:
        """The first free part of the lane; its begin where none is large enough, as on a GPU that is sliced by time."""
        at = 0.0
        for low, high in self._busy(device, start):
            if at + share <= low + 1e-9:
                break
            at = max(at, high)
        return at if at + share <= 1 + 1e-9 else 0.0

    def _free(self, count: int, start: float) -> list[int]:
        found: list[int] = []
        device = 0
        while len(found) < count:
            if not self._busy(device, start):
                found.append(device)
            device += 1
        return found


def gantt_content(charts: Sequence[Gantt]) -> dict[str, Any]:
    """What the page's script draws: texts once each, numbers as lists; queues have one index in all charts."""
    queues = sorted({queue for chart in charts for queue in chart.stays["queue"]})
    time, unit_s = time_unit(max((chart.end_s for chart in charts), default=0.0))
    found = [_chart(chart, queues) for chart in charts]
    return {"queues": queues, "charts": found, "time": time, "unit": unit_s}


def _chart(chart: Gantt, queues: Sequence[str]) -> dict[str, Any]:
    texts: dict[str, int] = {}
    rows = {node: row for row, node in enumerate(chart.nodes)}
    numbers = {queue: number for number, queue in enumerate(queues)}

    def coded(column: str) -> list[int]:
        return [texts.setdefault(text, len(texts)) for text in chart.stays[column]]

    def rounded(column: str) -> list[float]:
        return [round(value, 1) for value in chart.stays[column]]

    return {
        "label": chart.label,
        "end": chart.end_s,
        "nodes": chart.nodes,
        "lanes": chart.lanes,
        "queue": [numbers[queue] for queue in chart.stays["queue"]],
        "node": [rows[node] for node in chart.stays["node"]],
        "start": rounded("start_s"),
        "until": rounded("end_s"),
        "waited": rounded("waited_s"),
        "gpus": chart.stays["gpus"],
        **{column: coded(column) for column in ("pod", "job", "devices", "waited_for", "why", "ended")},
        "texts": list(texts),
        "bars": [[bar.stay, round(bar.low, 3), round(bar.high, 3)] for bar in chart.bars],
        "down": [[row, round(start, 1), round(end, 1)] for row, start, end in chart.down],
    }
