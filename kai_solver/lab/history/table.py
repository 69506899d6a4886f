"""Jobs of a CSV file, by a mapping of its columns."""

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import count
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kai_solver.errors import InputError, nearest, shown
from kai_solver.instances_io.history_schema import HistoryReadingDoc
from kai_solver.instances_io.scenario_schema import MOST_PODS
from kai_solver.lab.history.past_jobs import PastJob, times_fault
from kai_solver.units import MILLI, parse_quantity

T = TypeVar("T")
MOST_GPUS = 1_000_000
_NO_VALUE = ("", "-", "-1", "null", "none", "nan", "n/a", "unknown")
_LATEST_S = 1e11


class RowError(ValueError):
    """Why one row cannot be used."""


def table_jobs(data: bytes, file: str, doc: HistoryReadingDoc) -> tuple[list[PastJob], list[tuple[str, str]]]:
    """Jobs of a CSV file with a header, and (place, reason) of every row that was set aside.

    Raises
    ------
    InputError
        It has no header, a column of the mapping is not in it, or no row can be used.
    """
    rows = csv.reader(io.StringIO(data.decode("utf-8-sig", errors="replace"), newline=""), delimiter=doc.delimiter)
    numbered = _rows(rows)
    _, header = next(numbered, (0, []))
    reader = _Reader([name.strip() for name in header], file, doc)
    jobs: list[PastJob] = []
    aside: list[tuple[str, str]] = []
    for line, row in numbered:
        if not any(map(str.strip, row)):
            continue
        place = f"line {line}"
        try:
            jobs.append(reader.job(place, row))
        except RowError as error:
            aside.append((place, str(error)))
    if aside and not jobs:
        problem = f"has no usable row; the first, {aside[0][0]}: {aside[0][1]}"
        raise InputError(problem, file=file, cure="Or say in columns which column has what")
    return jobs, aside


def _rows(rows: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line each ends in; one that csv cannot read is a row of one field that says why."""
    for _ in count():
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            row = [f"{error}"]
        yield getattr(rows, "line_num", 0), row


class _Reader:
    def __init__(self, header: list[str], file: str, doc: HistoryReadingDoc) -> None:
        self._doc = doc
        self._width = len(header)
        twice = next((name for name in header if name and header.count(name) > 1), "")
        if twice:
            raise InputError(f"has two columns {twice!r}", file=file, field="line 1", cure="Give each its own name")
        places = {name: place for place, name in enumerate(header)}
        self._place: dict[str, int] = {}
        for meaning, name in doc.columns.model_dump().items():
            if not name:
                continue
            if name not in places:
                near = nearest(name, header)
                listed = ", ".join(filter(None, header[:12])) or "none"
                cure = f"Write columns: {{{meaning}: {near}}}" if near else f"The file has {listed}"
                problem = f"has no column {name!r} for {meaning}"
                raise InputError(problem, file=file, field=f"columns.{meaning}", cure=cure)
            self._place[meaning] = places[name]
        try:
            self._zone = ZoneInfo(doc.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            cure = "Write it as Europe/Berlin, or UTC"
            raise InputError(f"{doc.time_zone!r} is no time zone", file=file, field="timeZone", cure=cure) from None

    def job(self, place: str, row: list[str]) -> PastJob:
        """The job of a row.

        Raises
        ------
        RowError
            It has none.
        """
        if len(row) != self._width:
            cure = f"Fill the gap, or quote a {self._doc.delimiter!r} that is part of a field"
            raise RowError(f"has {len(row)} fields, and the header has {self._width}. {cure}")
        values = {meaning: row[at].strip() for meaning, at in self._place.items()}
        start_s = self._moment(values, "start")
        if start_s is None:
            raise RowError(
                f"never started: nothing says when it ran. Fill in {self._doc.columns.start!r}, or leave it out"
            )
        submit_s = self._moment(values, "submit")
        submit_s = start_s if submit_s is None else submit_s
        end_s = self._moment(values, "end")
        if fault := times_fault(submit_s, start_s, end_s):
            columns = self._doc.columns
            names = ", ".join(repr(name) for name in (columns.submit, columns.start, columns.end) if name)
            raise RowError(f"{fault}. Correct {names}, or leave the row out")
        pods = self._number(values, "pods", int, 1)
        if not 1 <= pods <= MOST_PODS:
            raise RowError(f"pods: {pods} is not from 1 to {MOST_PODS:,}")
        return PastJob(
            place=place,
            name=values.get("name", ""),
            submit_s=submit_s,
            start_s=start_s,
            end_s=end_s,
            pods=pods,
            gpu_milli=self._gpu_milli(values, pods),
            cpu_milli=self._amount(values, "cpu", MILLI, self._doc.cpu),
            memory_bytes=self._amount(values, "memory", 1, self._doc.memory),
            queue=values.get("queue", ""),
            user=values.get("user", ""),
        )

    def _gpu_milli(self, values: Mapping[str, str], pods: int) -> int:
        gpus = self._number(values, "gpus", float, 0.0)
        gpus = gpus / pods if self._doc.gpus_are == "per-job" else gpus
        if not 0 <= gpus <= MOST_GPUS:
            raise RowError(f"gpus: {gpus:g} is not from 0 to {MOST_GPUS:,}")
        if gpus > 1 and gpus != int(gpus):
            raise RowError(f"gpus: {gpus:g} for each pod is neither a whole number nor a part of one GPU")
        return max(1, round(gpus * MILLI)) if gpus else 0

    def _number(self, values: Mapping[str, str], meaning: str, kind: Callable[[float], T], default: T) -> T:
        text = values.get(meaning, "")
        if text.lower() in _NO_VALUE:
            return default
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or kind(number) != number:
            what = "a whole number" if kind is int else "a number"
            raise RowError(f"{meaning}: {shown(text)} is not {what}")
        return kind(number)

    def _amount(self, values: Mapping[str, str], meaning: str, scale: int, default: int) -> int:
        text = values.get(meaning, "")
        if text.lower() in _NO_VALUE:
            return default
        try:
            return parse_quantity(text, scale)
        except InputError as error:
            raise RowError(f"{meaning}: {error.problem}") from None

    def _moment(self, values: Mapping[str, str], meaning: str) -> float | None:
        """Epoch seconds; None where there is no value."""
        text = values.get(meaning, "")
        if text.lower() in _NO_VALUE:
            return None
        try:
            seconds = self._seconds(text)
        except (ValueError, OverflowError):
            seconds = math.nan
        if not 0 <= seconds <= _LATEST_S:
            form = self._doc.time_format or "epoch seconds or RFC 3339"
            raise RowError(f"{meaning}: {shown(text)} is no time ({form})")
        return seconds

    def _seconds(self, text: str) -> float:
        if self._doc.time_format:
            return self._zoned(datetime.strptime(text, self._doc.time_format))  # noqa: DTZ007
        try:
            return float(text)
        except ValueError:
            return self._zoned(datetime.fromisoformat(text))

    def _zoned(self, moment: datetime) -> float:
        return (moment if moment.tzinfo else moment.replace(tzinfo=self._zone)).timestamp()
