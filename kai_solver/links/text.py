"""What ``nvidia-smi topo -m`` and ``nvidia-smi nvlink -s`` print; one text may have both."""

import re
from dataclasses import dataclass, replace

import numpy as np

from kai_solver.errors import InputError
from kai_solver.links.graph import MOST_GPUS, NVLINK_GB_S, PATHS, PCIE_GB_S, Ints, LinkGraph, pcie_paths

LARGEST_TEXT = 1 << 18
"""Characters; 64 GPUs with as many network cards take a tenth of it."""

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU([0-9]{1,3})")
_NVLINK = re.compile(r"NV([1-9][0-9]{0,2})")
_OLDER = {"SOC": "SYS", "PSB": "PIX"}
_STATUS_GPU = re.compile(r"GPU ([0-9]{1,3}):\s*(.*?)\s*(?:\(UUID:.*)?")
_STATUS_LINK = re.compile(r"Link ([0-9]{1,3}):\s*(?:([0-9]{1,4}(?:\.[0-9]{1,6})?) GB/s|<?in-?active>?)", re.IGNORECASE)
_NO_LINKS = re.compile(r"all links are in-?active", re.IGNORECASE)
_GENERATIONS_GB_S = (20, 25, 50, 100)
_OF_RAW = 1.07
"""The driver prints what a link signals (25.781, 26.562, 53.125 GB/s), at most so much more than it carries."""


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """NVLinks as ``nvidia-smi nvlink -s`` tells them.

    Attributes
    ----------
    products
        Name of each GPU, by index.
    active, listed
        NVLinks of each GPU that work, and that it has, shape (G,); 0 of both where all are off.
    link_gb_s
        GB/s of one; 0 where none works.
    """

    products: tuple[str, ...]
    active: Ints
    listed: Ints
    link_gb_s: int


def read_matrix(
    text: str, file: str = "", *, link_gb_s: int = 0, pcie_gb_s: int = PCIE_GB_S, name: str = ""
) -> LinkGraph:
    """Graph of a matrix of ``nvidia-smi topo -m``; the status of ``nvlink -s`` in the same text is applied to it.

    ``link_gb_s``: GB/s of one NVLink; 0: as the status says, else 25 with a notice.

    Raises
    ------
    InputError
        There is no matrix, or it is not whole: names file, row and cure.
    """
    lines = _lines(text, file)
    links, path = _matrix(lines, file)
    status = _status(lines)
    speed = link_gb_s or (status.link_gb_s if status else 0)
    graph = LinkGraph(name or file or "matrix", links, path, speed or NVLINK_GB_S, pcie_gb_s)
    if not speed and links.any():
        graph = graph.noting(f"the generation of NVLink is unknown: {NVLINK_GB_S} GB/s a link are assumed")
    return with_status(graph, status) if status else graph


def read_status(text: str, file: str = "") -> LinkStatus | None:
    """Status of ``nvidia-smi nvlink -s``; None where the text has none.

    Raises
    ------
    InputError
        The text is too long.
    """
    return _status(_lines(text, file))


def with_status(graph: LinkGraph, status: LinkStatus, *, is_switched: bool = True) -> LinkGraph:
    """``graph`` less the NVLinks that do not work.

    Through a switch a pair has no more links than the poorer of the two has. Else ``status`` does not say where a link
    led to: what two GPUs both miss is taken as lost between them, which is where it was when one link failed.
    """
    if len(status.active) != graph.gpus:
        return graph.noting(
            f"the status of NVLinks is of {len(status.active)} GPUs, not of {graph.gpus}: it is left out"
        )
    links = np.minimum(graph.links, np.minimum(status.active[:, None], status.active[None, :]))
    if not is_switched:
        missing = np.maximum(graph.links.sum(axis=1) - status.active, 0)
        links = np.minimum(links, graph.links - np.minimum(missing[:, None], missing[None, :]))
    links = np.maximum(links, 0).astype(np.int32)
    poorer = [f"GPU{gpu}" for gpu in range(graph.gpus) if (links[gpu] < graph.links[gpu]).any()]
    lost = (f"NVLinks do not work: {', '.join(poorer)}",) if poorer else ()
    return replace(graph, links=links, notices=(*graph.notices, *lost))


def _lines(text: str, file: str) -> list[str]:
    if len(text) > LARGEST_TEXT:
        cure = "Give the output of `nvidia-smi topo -m` alone"
        raise InputError(f"has {len(text):,} characters, more than {LARGEST_TEXT:,}", file=file, cure=cure)
    return _ESCAPES.sub("", text).splitlines()


# -- the matrix --------------------------------------------------------------------------------------------------------

_CURE = "Give the whole output of `nvidia-smi topo -m`"


def _matrix(lines: list[str], file: str) -> tuple[Ints, Ints]:
    """Links and paths."""
    at, columns = _header(lines, file)
    gpus = sum(1 for column in columns if _GPU.fullmatch(column))
    rows = _rows(lines[at + 1 :], gpus, file)
    links, path = np.zeros((2, gpus, gpus), dtype=np.int32)
    for row in range(gpus):
        for column in range(gpus):
            links[row, column], path[row, column] = _cell(rows[row], row, column, file)
    for row in range(gpus):
        for column in range(row):
            if links[row, column] != links[column, row] or path[row, column] != path[column, row]:
                problem = f"says {rows[row][column]} to GPU{column}, whose row says {rows[column][row]} to GPU{row}"
                raise InputError(problem, file=file, field=f"row GPU{row}", cure=_CURE)
    guessed = pcie_paths(_numa(rows, len(columns)))
    return links, np.where(links > 0, guessed, path).astype(np.int32)


def _header(lines: list[str], file: str) -> tuple[int, list[str]]:
    """Where the header is, and its columns until the affinities."""
    for at, line in enumerate(lines):
        words = line.split()
        if len(words) < 1 or words[0] != "GPU0" or words[1:2] == ["X"]:
            continue
        columns = words[: words.index("CPU")] if "CPU" in words else words
        named = [column for column in columns if _GPU.fullmatch(column)]
        if named != [f"GPU{gpu}" for gpu in range(len(named))]:
            missing = next(f"GPU{gpu}" for gpu, column in enumerate(named) if column != f"GPU{gpu}")
            raise InputError(f"{missing} is missing or out of order", file=file, field="header", cure=_CURE)
        if len(named) > MOST_GPUS:
            raise InputError(f"has {len(named)} GPUs, more than {MOST_GPUS}", file=file, field="header", cure=_CURE)
        return at, columns
    raise InputError("has no matrix: no line begins with GPU0", file=file, field="header", cure=_CURE)


def _rows(lines: list[str], gpus: int, file: str) -> list[list[str]]:
    """Cells of each GPU, and what is behind them."""
    found: dict[int, list[str]] = {}
    for line in lines:
        words = line.split()
        match = _GPU.fullmatch(words[0]) if words else None
        if match is None:
            if words and words[0].startswith("Legend"):
                break
            continue
        row = int(match[1])
        if row in found or row >= gpus:
            problem = "occurs twice" if row in found else f"is not in the header, which has {gpus} GPUs"
            raise InputError(problem, file=file, field=f"row GPU{row}", cure=_CURE)
        found[row] = words[1:]
    for row in range(gpus):
        if row not in found:
            raise InputError("is missing", file=file, field=f"row GPU{row}", cure=_CURE)
        if len(found[row]) < gpus:
            problem = f"has {len(found[row])} of {gpus} cells"
            raise InputError(problem, file=file, field=f"row GPU{row}", cure=_CURE)
    return [found[row] for row in range(gpus)]


def _cell(cells: list[str], row: int, column: int, file: str) -> tuple[int, int]:
    """NVLinks of a pair, and its path."""
    text = _OLDER.get(cells[column], cells[column])
    if (row == column) == (text == "X"):
        if row == column:
            return 0, 0
        if match := _NVLINK.fullmatch(text):
            return int(match[1]), 0
        if text in PATHS[:-1]:
            return 0, PATHS.index(text)
    shown = "".join(c if c.isprintable() else "?" for c in text[:20])
    problem = f"says {shown!r} in the column of GPU{column}"
    cure = f"Cells are X for the GPU itself, NV1, NV2, ... or one of {', '.join(PATHS[:-1])}"
    raise InputError(problem, file=file, field=f"row GPU{row}", cure=cure)


def _numa(rows: list[list[str]], columns: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """NUMA node of each GPU, the first where several are named; -1 where the row does not tell."""
    words = [cells[columns + 1] if len(cells) > columns + 1 else "" for cells in rows]
    firsts = [re.match(r"[0-9]{1,4}(?![0-9])", word) for word in words]
    return np.array([int(first[0]) if first else -1 for first in firsts], dtype=np.int64)


# -- the status --------------------------------------------------------------------------------------------------------


def _status(lines: list[str]) -> LinkStatus | None:
    """GPUs in the order of their numbers, as far as they are told without a gap."""
    gpus: dict[int, str] = {}
    speeds: dict[int, dict[int, float]] = {}
    at = -1
    for line in map(str.strip, lines):
        if match := _STATUS_GPU.fullmatch(line):
            at = int(match[1])
            gpus[at], speeds[at] = match[2], {}
        elif at >= 0 and (match := _STATUS_LINK.fullmatch(line)):
            speeds[at][int(match[1])] = float(match[2] or 0)
        elif at >= 0 and _NO_LINKS.search(line):
            speeds[at] = {}
    if sorted(gpus) != list(range(len(gpus))) or not gpus:
        return None
    rows = [speeds[gpu] for gpu in range(len(gpus))]
    active = np.array([sum(1 for speed in row.values() if speed) for row in rows], dtype=np.int32)
    listed = np.array([len(row) for row in rows], dtype=np.int32)
    fastest = max((speed for row in rows for speed in row.values()), default=0.0)
    return LinkStatus(tuple(gpus[gpu] for gpu in range(len(gpus))), active, listed, _nominal_gb_s(fastest))


def _nominal_gb_s(raw: float) -> int:
    """What a link that signals so much carries; 0 for none."""
    near = [speed for speed in _GENERATIONS_GB_S if speed <= raw * 1.01 and raw <= speed * _OF_RAW]
    return near[-1] if near else round(raw)
