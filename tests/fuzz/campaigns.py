"""The command line that campaigns over random clusters share."""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.fuzz.draws import Document

Campaign = Callable[[argparse.Namespace], Mapping[str, int]]
"""Runs with the options of `run`, and counts the clusters, or their chains, by what became of them."""


def run(description: str, models: tuple[str, ...], budget_s: float, campaign: Campaign, harmless: int) -> int:
    """Run a campaign; 1 where its outcomes are of more than ``harmless`` kinds.

    ``models`` and ``budget_s`` (seconds a cycle) hold where the command line names none.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=_span, default=range(100), help="like 0..99")
    parser.add_argument("--models", default=",".join(models), help="comma separated")
    parser.add_argument("--sizes", default="small", choices=("small", "mixed", "large"))
    parser.add_argument("--budget", type=float, default=budget_s, help="seconds a cycle")
    parser.add_argument("--out", type=Path, help="folder for offenders, as instance files")
    parser.add_argument("--shrink", type=float, default=30.0, help="seconds to make an offender small; 0: as it is")
    options = parser.parse_args()
    began_s = time.monotonic()
    kinds = campaign(options)
    print(f"{dict(kinds)} in {time.monotonic() - began_s:.0f} s")
    return int(len(kinds) > harmless)


def write_offender(document: Document, description: str, out: Path, name: str) -> None:
    """Write a cluster as an instance file ``name`` in the folder ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.json"
    path.write_text(json.dumps(document | {"description": description}, indent=1))
    print(f"  written to {path}", flush=True)


def _span(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)
