"""A history from a file, whatever its kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kai_solver.domain import Notice
from kai_solver.errors import InputError
from kai_solver.instances_io import DEFAULT_LIMITS, Limits, read_documents
from kai_solver.instances_io.fields import validate
from kai_solver.instances_io.history_schema import HISTORY_FORMAT, HistoryMappingDoc, HistoryReadingDoc
from kai_solver.instances_io.openb import pods_of
from kai_solver.instances_io.reader import parse
from kai_solver.instances_io.unpack import read_members
from kai_solver.lab.history.kubernetes import kubernetes_jobs
from kai_solver.lab.history.openb import is_openb, openb_past
from kai_solver.lab.history.past_jobs import PastJob
from kai_solver.lab.history.swf import is_swf, swf_past
from kai_solver.lab.history.table import table_jobs

SHOWN = 100
"""Rows that were set aside, before they are counted."""


@dataclass(frozen=True, slots=True)
class History:
    """Jobs by submit time, with a notice for each row or object that was set aside; those beyond 100 are counted."""

    jobs: tuple[PastJob, ...]
    notices: tuple[Notice, ...]


def read_history(path: Path, doc: HistoryReadingDoc, *, limits: Limits = DEFAULT_LIMITS) -> History:
    """Read a CSV file, finished Jobs and PodGroups in JSON or YAML, an SWF log or openb's pods; packed or not.

    Raises
    ------
    InputError
        It cannot be read, a column of the mapping is not in it, or nothing in it can be used.
    """
    members = read_members(path, limits)
    jobs: list[PastJob] = []
    aside: list[tuple[str, str]] = []
    for member in members:
        if is_swf(member.name, member.data):
            found, left = swf_past(member.data.decode("utf-8", errors="replace"), member.name, doc)
        elif is_openb(member.data):
            found, left = openb_past(pods_of(member.data, str(path)), doc)
        elif member.data.lstrip()[:1] in (b"{", b"[") or member.name.endswith((".yaml", ".yml")):
            documents = [document for _, document in parse(member, limits)]
            found, left = kubernetes_jobs(documents, member.name, doc)
        else:
            found, left = table_jobs(member.data, member.name, doc)
        jobs += found
        aside += left
    if not jobs and aside:
        place, reason = aside[0]
        raise InputError(f"has no job that can be used; the first, {place}: {reason}", file=str(path))
    if not jobs:
        raise InputError("has no jobs", file=str(path), cure="Give a CSV file with a header and a row for each job")
    notices = [Notice("set-aside", f"{path.name}: {place}", reason) for place, reason in aside[:SHOWN]]
    if len(aside) > SHOWN:
        notices.append(Notice("set-aside", path.name, f"and {len(aside) - SHOWN:,} more rows"))
    return History(tuple(sorted(jobs, key=lambda job: (job.submit_s, job.place))), tuple(notices))


def read_mapping(source: Path | Mapping[str, Any] | None) -> HistoryMappingDoc:
    """How to read a history: a YAML or JSON file, its document, or None for all defaults.

    Raises
    ------
    InputError
        It is none; names file, field and cure.
    """
    if source is None:
        return HistoryMappingDoc(format=HISTORY_FORMAT)
    if isinstance(source, Mapping):
        return validate(HistoryMappingDoc, {"format": HISTORY_FORMAT, **source}, "")
    [(name, document), *_] = read_documents(source)
    if document.get("format") != HISTORY_FORMAT:
        cure = f"Begin it with format: {HISTORY_FORMAT}"
        raise InputError("does not say how to read a history", file=name, field="format", cure=cure)
    return validate(HistoryMappingDoc, document, name)
