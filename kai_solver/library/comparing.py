"""Compare: models on instances and scenarios, each run by itself, with what it cost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kai_solver.errors import InputError
from kai_solver.lab.runs import (
    KUBE_DEFAULT,
    Definition,
    Frames,
    Improvement,
    Limits,
    Outcome,
    RunRecord,
    Study,
    check_tasks,
    frames_of,
    run_study,
    runs_here,
    tasks_of,
)
from kai_solver.library.solving import budget_of, check_seed
from kai_solver.library.sources import sources_of
from kai_solver.library.tables import Table, chosen, page
from kai_solver.modelfiles import load_model

if TYPE_CHECKING:
    import polars as pl

MOST_AT_ONCE = 1024

ComparisonTable = Literal["improvements", "models", "runs", "stages"]


@dataclass(frozen=True)
class Comparison:
    """What each run measured. `compare` makes it.

    Attributes
    ----------
    runs
        A record for each model, source and seed, however the run ended; ``docs/experiments.md`` has the fields.
    """

    runs: tuple[RunRecord, ...]
    _improvements: dict[str, tuple[Improvement, ...]] = field(repr=False)

    def frame(self, table: ComparisonTable = "models") -> "pl.DataFrame":
        """One of its tables as polars' data frame.

        ``models``: a row for each model, sums over its runs. ``runs``: a row for each run. ``stages``: a row for each
        stage of the objective of each run. ``improvements``: what each run found, and when.

        Raises
        ------
        InputError
            There is no such table, or polars is not installed.
        """
        if chosen(table, ("models", "runs", "stages", "improvements")) == "models":
            return self._models.frame()
        frames: Frames = frames_of(self.runs, self._improvements)
        found: pl.DataFrame = getattr(frames, table)
        return found

    @property
    def _models(self) -> Table:
        rows: list[tuple[Any, ...]] = []
        for model in dict.fromkeys(run.model for run in self.runs):
            every = [run for run in self.runs if run.model == model]
            runs = [run for run in every if run.status == "ok"]
            stages = [stage for run in runs for stage in run.stages]
            rows.append(
                (
                    model,
                    len(every),
                    len(every) - len(runs),
                    sum(run.admitted for run in runs),
                    sum(run.pending for run in runs),
                    sum(run.pending_proven for run in runs),
                    sum(run.evicted_pods for run in runs),
                    sum(run.moved_pods for run in runs),
                    sum(stage.is_proven for stage in stages) / len(stages) if stages else None,
                    sum(run.solve_s for run in runs) / len(runs) if runs else None,
                )
            )
        counts = ("runs", "failed", "admitted", "pending", "pending_proven", "evicted_pods", "moved_pods")
        shares = ("share_of_stages_proven", "mean_solve_s")
        return Table({"model": str} | dict.fromkeys(counts, int) | dict.fromkeys(shares, float), rows)

    def __repr__(self) -> str:
        models = ", ".join(dict.fromkeys(run.model for run in self.runs))
        return f"<Comparison of {models}: {len(self.runs):,} runs>"

    def _repr_html_(self) -> str:
        failed = [(run.model, run.instance, run.seed, run.status, run.error) for run in self.runs if run.status != "ok"]
        table = Table({"model": str, "instance": str, "seed": int, "status": str, "error": str}, failed)
        return page(f"{len(self.runs):,} runs", ("Models, sums over their runs", self._models), ("Failed runs", table))


def compare(
    sources: str | PathLike[str] | Sequence[str | PathLike[str]],
    models: Sequence[str | PathLike[str]] = ("greedy-only", "default"),
    *,
    seeds: Sequence[int] = (1,),
    budget_s: float | None = None,
    clock: Literal["wall", "cpu"] = "wall",
    memory_mib: float = 8192.0,
    wall_s: float = 3600.0,
    at_once: int = 1,
    folder: str | PathLike[str] | None = None,
) -> Comparison:
    """Run every model on every source with every seed, each run in a process of its own.

    Parameters
    ----------
    sources
        Files of instances and of scenarios, folders of them, and benchmark sets, which draw instances.
    models
        Names of solver models or TOML files; for scenarios also ``kube-default``.
    seeds
        Of the search; each 0 to 2^31 - 1.
    budget_s
        Seconds of ``clock`` to decide; None: each model's.
    memory_mib, wall_s
        Limits of one run, MiB and seconds by the wall clock; a run beyond them is ended, and its status says so.
    at_once
        Runs at a time; more than one disturb each other's wall times, and are marked (``is_shared``).
    folder
        Of the study, which ``kai-solver report`` reads: every run is kept when it ends, and a comparison that was
        interrupted goes on where it stopped. None: nothing is kept.

    Raises
    ------
    InputError
        A source, a model or an argument cannot be used, or the folder cannot be written. Not for a run that fails: its
        record says why.
    """
    if not 1 <= at_once <= MOST_AT_ONCE:
        raise InputError(f"{at_once} runs at a time", field="at_once", cure=f"Give 1 to {MOST_AT_ONCE}")
    files = [sources] if isinstance(sources, str | PathLike) else list(sources)
    names = [models] if isinstance(models, str | PathLike) else list(models)
    for empty, what in ((files, "sources"), (names, "models"), (seeds, "seeds")):
        if not empty:
            raise InputError("is empty", field=what, cure="Give one or more")
    for seed in seeds:
        check_seed(seed)
    definition = Definition(
        command="compare",
        sources=sources_of(map(Path, files)),
        models=tuple(None if name == KUBE_DEFAULT else load_model(str(name), [KUBE_DEFAULT]) for name in names),
        seeds=tuple(seeds),
        budget_s=budget_of(budget_s),
        clock=clock,
        limits=Limits(memory_mib, wall_s),
    )
    if folder is None:
        tasks = list(tasks_of(definition))
        check_tasks(tasks, at_once=at_once)
        order = {task.run: number for number, task in enumerate(tasks)}
        return _comparison(sorted(runs_here(tasks, at_once=at_once), key=lambda outcome: order[outcome.record.run]))
    with Study.create(Path(folder), definition) as study:
        run_study(study, at_once=at_once)
        return Comparison(study.records, {run.run: study.improvements(run.run) for run in study.records})


def _comparison(outcomes: Sequence[Outcome]) -> Comparison:
    records = tuple(outcome.record for outcome in outcomes)
    return Comparison(records, {outcome.record.run: outcome.improvements for outcome in outcomes})
