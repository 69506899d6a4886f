"""Runs of experiments as rows of the table that all commands share."""

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from kai_solver.lab.experiments.fleet import FleetRun
from kai_solver.lab.experiments.report import SIZES, Run, RunSpec
from kai_solver.lab.runs import InstanceFile, Outcome, RunRecord, task_of
from kai_solver.lab.runs.memory import Spent
from kai_solver.lab.runs.running import blank

COMMAND = "experiment"
MARKS = (100, 130)
"""Percent of the GPUs that have been asked for, at which a row says how many are allocated."""


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run of openb that failed: the error, in words."""

    spec: RunSpec
    error: str


def openb_outcome(run: Run | FailedRun, data: Path) -> Outcome:
    """The row of a run on the files in ``data``."""
    spec = run.spec
    record = _blank(spec.trace, spec.label, spec.seed, data)
    if isinstance(run, FailedRun):
        words = ["--data", data, "--traces", spec.trace, "--seeds", spec.seed, "--policies", spec.policy]
        words += ["--window", spec.window, "--moves", spec.moves]
        command = shlex.join(["kai-solver", COMMAND, "openb", *map(str, words)])
        return Outcome(replace(record, status="failed", error=" ".join(run.error.split())), replay=command)
    measures = {"window": float(spec.window), "moves_share": spec.moves}
    measures |= {f"allocated_percent/{at}": share for at in MARKS if (share := run.allocation_at(at)) is not None}
    measures |= {f"failed_pods/{size}": run.failed(size) for size in SIZES}
    record = _with(
        replace(record, moved_pods=run.moved, read_s=run.read_s, solve_s=run.seconds, measures=measures), run.spent
    )
    return Outcome(record)


def nvlink_outcome(run: FleetRun, product: str, spent: Spent | None) -> Outcome:
    """The row of a run on a fleet of ``product``, which took so much in all."""
    spec = run.spec
    measures = {
        "load": spec.load,
        "lives": spec.lives,
        "bandwidth_percent": run.bandwidth,
        **{f"bandwidth_percent/{gpus}": share for gpus, share in run.by_size.items()},
        "possible_percent": run.possible,
        "used_percent": run.used,
        "failed_pods": run.failed,
    }
    record = replace(
        _blank(product, spec.policy, spec.seed, Path(product)),
        source=f"fleet of {product}",
        family="nvlink",
        nodes=spec.nodes,
        pods=run.pods,
        solve_s=run.seconds,
        measures=measures,
    )
    return Outcome(_with(record, spent))


def _with(record: RunRecord, spent: Spent | None) -> RunRecord:
    if spent is None:
        return record
    return replace(record, wall_s=spent.wall_s, cpu_s=spent.cpu_s, peak_mib=spent.peak_mib)


def _blank(instance: str, policy: str, seed: int, place: Path) -> RunRecord:
    task = task_of(COMMAND, InstanceFile(instance, place), None, seed, family="openb")
    run = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{instance}.{policy}.{seed}")
    return replace(blank(task, "ok"), run=run, model=policy)
