"""Simulate: a workload replayed under several policies."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kai_solver.errors import InputError, InternalError
from kai_solver.lab.bench import short_name
from kai_solver.lab.runs import Outcome, ScenarioFile, task_of, write_runs
from kai_solver.lab.runs.kept import RUNS
from kai_solver.lab.runs.scenarios import replayed
from kai_solver.lab.simulate import (
    KubeDefault,
    Result,
    Summary,
    frame_of,
    load_scenario,
    scenario_of,
    summarize,
    write_tables,
)
from kai_solver.lab.simulate.jobs import State
from kai_solver.lab.simulate.summary import wait_s
from kai_solver.lab.simulate.tables import TABLES
from kai_solver.library.solving import budget_of, check_seed
from kai_solver.library.tables import Table, chosen, page
from kai_solver.modelfiles import load_model

if TYPE_CHECKING:
    import polars as pl

SUMMARY = "summary"


@dataclass(frozen=True)
class Simulation:
    """A scenario under each policy. `simulate` makes it.

    Attributes
    ----------
    notices
        What of the workload was set aside or changed, one sentence each.
    summaries
        A replay in numbers for each policy; ``docs/simulate.md`` defines them.
    """

    name: str
    notices: tuple[str, ...]
    summaries: tuple[Summary, ...]
    _results: tuple[Result, ...] = field(repr=False)
    _outcomes: tuple[Outcome, ...] = field(repr=False)

    def document(self) -> list[dict[str, Any]]:
        """The summaries, plain JSON types."""
        return [summary.document() for summary in self.summaries]

    def frame(self, table: str = SUMMARY) -> "pl.DataFrame":
        """One of its tables as polars' data frame; the column ``policy`` tells the policies apart.

        ``summary``: a row for each policy. Times are seconds, GPUs in units of one, shares between 0 and 1. The others
        are the tables that ``kai-solver simulate`` writes: ``jobs``, ``queues``, ``nodes``, ``cycles``, ``stays``,
        ``solve_times``.

        Raises
        ------
        InputError
            There is no such table, or polars is not installed.
        """
        if chosen(table, [SUMMARY, *TABLES]) == SUMMARY:
            return self._table.frame()
        return frame_of(table, self._results)

    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Write all tables as CSV, and the row of each replay as ``kai-solver simulate`` does; return the files.

        Raises
        ------
        InputError
            The folder cannot be written.
        """
        files = write_tables(self._results, Path(folder))
        write_runs(Path(folder), self._outcomes)
        return [*files, Path(folder) / RUNS]

    @property
    def _table(self) -> Table:
        rows = []
        for one, result in zip(self.summaries, self._results, strict=True):
            waits = [waited for job in result.jobs if (waited := wait_s(job)) is not None]
            rows.append(
                (
                    one.policy,
                    sum(one.jobs.values()),
                    one.jobs[State.DONE.value],
                    one.utilisation,
                    one.goodput,
                    float(np.mean(waits)) if waits else None,
                    float(np.quantile(waits, 0.95)) if waits else None,
                    one.evictions,
                    one.moves,
                    one.fairness_gap,
                    one.fragmentation,
                    one.end_s,
                )
            )
        columns: dict[str, type] = {"policy": str, "jobs": int, "done": int}
        columns |= dict.fromkeys(("utilisation", "goodput", "mean_wait_s", "p95_wait_s"), float)
        columns |= dict.fromkeys(("evictions", "moves"), int)
        columns |= dict.fromkeys(("fairness_gap", "fragmentation", "end_s"), float)
        return Table(columns, rows)

    def __repr__(self) -> str:
        return f"<Simulation {self.name or 'of a scenario'} under {', '.join(one.policy for one in self.summaries)}>"

    def _repr_html_(self) -> str:
        notices = Table({"notice": str}, [(text,) for text in self.notices])
        return page(f"Simulation {self.name}", ("Notices", notices), ("Policies", self._table))


def simulate(
    scenario: str | PathLike[str] | Mapping[str, Any],
    policies: Sequence[str] = ("greedy-only", "kube-default"),
    *,
    budget_s: float | None = None,
    seed: int | None = None,
) -> Simulation:
    """Replay a workload in simulated time: arrivals, run times, evictions and what they cost, node failures.

    Every policy gets the same jobs and the same failures.

    Parameters
    ----------
    scenario
        A scenario file, or its document as Python objects; files that a document names are relative to the working
        directory.
    policies
        Names of solver models or TOML files, and ``kube-default``.
    budget_s
        Seconds to decide a cycle; None: each model's.
    seed
        Of all random numbers; None: the scenario's.

    Raises
    ------
    InputError
        The scenario, a policy or an argument cannot be used; names file or field, and the cure.
    """
    names = list(dict.fromkeys(map(str, [policies] if isinstance(policies, str) else policies)))
    if not names:
        raise InputError("names no policy", field="policies", cure="Write models, or kube-default")
    if seed is not None:
        check_seed(seed)
    seconds = budget_of(budget_s)
    models = {name: load_model(name, [KubeDefault.name]) for name in names if name != KubeDefault.name}
    start_s = time.monotonic()
    if isinstance(scenario, Mapping):
        loaded = scenario_of(scenario, seed=seed)
    else:
        loaded = load_scenario(Path(scenario), seed=seed)
    read_s = time.monotonic() - start_s
    place = Path() if isinstance(scenario, Mapping) else Path(scenario)
    source = ScenarioFile(loaded.name or short_name(place.name) or "scenario", place)
    outcomes, results = [], []
    for name in names:
        task = task_of("simulate", source, models.get(name), loaded.seed, seconds)
        outcome, result = replayed(task, loaded, read_s=read_s)
        if result is None:
            raise InternalError(outcome.record.error)
        outcomes.append(outcome)
        results.append(result)
    notices = tuple(f"{notice.kind}: {notice.object}: {notice.text}" for notice in loaded.notices)
    return Simulation(loaded.name, notices, tuple(map(summarize, results)), tuple(results), tuple(outcomes))
