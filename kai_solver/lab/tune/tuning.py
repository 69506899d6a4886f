"""A study of tuning: trials in a database, runs in a folder, and a verdict at the end.

The folder has what was measured (``study.yaml``, ``runs.jsonl``, as of every study), the search space that it is of
(``space.json``), the database of trials unless another one is named (``trials.db``), and finally ``model.toml``,
``verdict.json`` and ``verdict.txt``. A run that ended is never done again: a trial that was interrupted goes on
where it was.
"""

import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from kai_solver.domain import SolverModel
from kai_solver.errors import InputError, printable
from kai_solver.errors.extras import check_package
from kai_solver.instances_io.output import replacing
from kai_solver.lab.runs import (
    DaskCluster,
    Definition,
    Feed,
    RunRecord,
    RunStoppedError,
    Study,
    Task,
    check_tasks,
    execute,
    task_of,
)
from kai_solver.lab.runs.kept import written
from kai_solver.lab.runs.machine import cores, revision, versions
from kai_solver.lab.runs.paired import check_scipy
from kai_solver.lab.runs.scoring import best_values, score
from kai_solver.lab.tune.parameters import Value, document_with
from kai_solver.lab.tune.space import ParameterDoc, Space
from kai_solver.lab.tune.splitting import Instance, Split, split
from kai_solver.lab.tune.verdict import Pair, Side, Tried, TuneVerdict, side_of, verdict_text
from kai_solver.modelfiles import model_from_document, write_model
from kai_solver.units import counted

if TYPE_CHECKING:
    import optuna

SPACE, TRIALS, MODEL, VERDICT, TEXT = "space.json", "trials.db", "model.toml", "verdict.json", "verdict.txt"
FIRST_RANDOM = 10
"""Trials before those that go by what is known."""
MOST_AT_ONCE = 256
"""Trials at a time at most: each has a thread here that waits for its runs."""
LOOK_S = 0.5
"""How often is asked whether there is room for one more."""


class TuneStoppedError(Exception):
    """It was asked to stop; what was measured is kept, and the same command goes on."""


@dataclass(frozen=True, slots=True)
class TuneProgress:
    """How far it is. ``phase``: reference, trials, finalists or test; ``text``: what has just ended, in words."""

    phase: str
    done: int
    total: int
    text: str


Report = Callable[[TuneProgress], None]


def tune(
    space: Space,
    folder: Path,
    *,
    trials: int = 50,
    at_once: int | None = None,
    storage: str = "",
    cluster: DaskCluster | None = None,
    report: Report = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TuneVerdict:
    """Search, and judge what was found on the instances that are held out.

    Parameters
    ----------
    folder
        Of the study; one that was interrupted goes on.
    trials
        How many in all, those of earlier times and those that end early among them; the first is the present model.
    at_once
        Trials at a time; what decides is CPU time. None: one, or on a cluster as many as it has threads, also of
        workers that come later. The runs of the verdict are done alone.
    storage
        URL of the database of trials, such as ``postgresql+psycopg://host/name``; empty: a file in the folder.
    cluster
        Where all runs are done; None: on this machine. The database is used by this machine alone.

    Raises
    ------
    InputError
        One side of the split is empty, an instance cannot be read, the folder is of another search space or cannot be
        written, the database or the cluster does not answer, or optuna or scipy is not installed.
    TuneStoppedError
        ``should_stop`` said so.
    """
    check_scipy()
    check_package("optuna", "tuning needs")
    try:
        sides = split(space.instances, space.doc.split)
    except InputError as error:
        raise error.in_file(str(space.path)) from None
    definition = Definition(
        "tune",
        tuple(one.source for one in space.instances),
        budget_s=space.budget_s,
        clock="cpu",
        limits=space.limits,
        families={one.name: one.family for one in space.instances},
    )
    study = Study.create(folder, definition)
    with study:
        _own(folder, space)
        with _database(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # optuna says of its parts that they are new
            tuning = _Tuning(space, sides, study, at_once, cluster, report, should_stop)
            try:
                return tuning.run(trials, storage)
            finally:
                tuning.close()


def _own(folder: Path, space: Space) -> None:
    """See that the folder is of this search space, or make it so."""
    path, said = folder / SPACE, orjson.dumps(space.identity(), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    if path.is_file():
        if path.read_bytes() != said:
            cure = "Name another folder, or undo what was changed in the search space, its model or its instances"
            raise InputError("is a study of another search space", file=str(folder), cure=cure)
        return
    with written(folder), replacing(path) as partial:
        partial.write_bytes(said)


@contextmanager
def _database(folder: Path) -> Iterator[None]:
    """Errors of the database as ours."""
    import optuna
    import sqlalchemy

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    try:
        yield
    except (optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        first = str(error.__cause__ or error).strip().splitlines()[0]
        see = "Make room" if "full" in first else "See to it"
        cure = f"{see} and run the same command again; what was measured is in {folder}"
        problem = f"the database of trials fails: {printable(first)}"
        raise InputError(problem, field="--storage", cure=cure) from error


class _Tuning:
    """One call of `tune`."""

    def __init__(
        self,
        space: Space,
        sides: Split,
        study: Study,
        at_once: int | None,
        cluster: DaskCluster | None,
        report: Report,
        should_stop: Callable[[], bool],
    ) -> None:
        self.space = space
        self.sides = sides
        self.study = study
        self.at_once = at_once
        self.cluster = None if cluster is None else replace(cluster, should_stop=self._stops)
        self.feed: Feed | None = None
        self.report = report
        self._should_stop = should_stop
        self._failed = threading.Event()
        self._lock = threading.Lock()
        self._records: dict[str, RunRecord] = {record.run: record for record in study.records}
        self._under_way: dict[str, threading.Lock] = {}
        self._known: dict[str, dict[str, float]] = {}
        self._database: optuna.storages.RDBStorage | None = None
        order = np.random.default_rng(space.doc.seed).permutation(len(sides.training))
        self.training = tuple(sides.training[number] for number in order)

    def run(self, trials: int, storage: str) -> TuneVerdict:
        """Do it all."""
        with self._place():
            found = self._opened(storage)
            self._find_references()
            self._search(found, trials)
            best = self._best_of(self._finalists(found))
            return self._judged(best, found)

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Read all instances, and be connected to the cluster where there is one."""
        tasks = [self._task(one, self.space.model, 1) for one in (*self.training, *self.sides.test)]
        try:
            if self.cluster is None:
                check_tasks(tasks, at_once=self.at_once or 1, should_stop=self._stops)
                yield
                return
            with self.cluster.fed(tasks) as self.feed:
                yield
        except RunStoppedError:
            raise TuneStoppedError from None

    # -- runs ----------------------------------------------------------------------------------------------------------

    def _stops(self) -> bool:
        return self._failed.is_set() or self._should_stop()

    def _task(self, one: Instance, model: SolverModel, seed: int, *, budgets: float = 1, alone: bool = False) -> Task:
        return task_of(
            "tune",
            one.source,
            model,
            seed,
            self.space.budget_s * budgets,
            family=one.family,
            clock="cpu",
            limits=self.space.limits,
            # On a cluster it is known when the run is sent.
            is_shared=self.cluster is None and not alone and (self.at_once or 1) > 1,
        )

    def _record(self, task: Task, *, alone: bool = False) -> RunRecord:
        """The run, now or at an earlier time; ``alone``: one that shared the machine is done again."""
        with self._lock:
            under_way = self._under_way.setdefault(task.run, threading.Lock())
        with under_way:  # two trials of the same values ask for the same runs: each is done once
            with self._lock:
                record = self._records.get(task.run)
            if record is not None and record.status != "lost" and not (alone and record.is_shared):
                return record
            if self._stops():
                raise TuneStoppedError
            try:
                outcome = execute(task, self._stops) if self.feed is None else self.feed.execute(task)
            except RunStoppedError:
                raise TuneStoppedError from None
            with self._lock:
                self.study.add(outcome)
                self._records[task.run] = outcome.record
            return outcome.record

    def _score(self, record: RunRecord, known: dict[str, float]) -> float:
        return score(record, self.study.improvements(record.run), known, self.space.doc.objective)

    def _find_references(self) -> None:
        """What the present model finds in more time on each training instance: trials are measured by that."""

        def find(one: Instance) -> None:
            record = self._record(self._task(one, self.space.model, 1, budgets=self.space.doc.reference))
            known = best_values([record])
            with self._lock:
                self._known[one.name] = known
                self._say("reference", len(self._known), len(self.training), one.name)

        self._at_once(find, self.training)

    def _at_once(self, do: Callable[[Any], None], things: Iterable[Any]) -> None:
        """Do it for all, some at a time; the first error ends the others."""

        def guarded(thing: Any) -> None:
            try:
                do(thing)
            except BaseException:
                self._failed.set()
                raise
            finally:
                self._leave_database()

        rest, errors = iter(things), []
        running: set[Future[None]] = set()
        with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
            while True:
                room = max(0, self._room() - len(running))
                running |= {threads.submit(guarded, thing) for thing in islice(rest, room)}
                if not running:
                    break
                ended, running = wait(running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
                errors += [error for future in ended if (error := future.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, TuneStoppedError)):
            raise error

    def _room(self) -> int:
        """How many trials may be under way now: a cluster grows while they are."""
        wanted = self.at_once or (self.feed.threads if self.feed is not None else 1)
        return min(max(1, wanted), MOST_AT_ONCE)

    def _say(self, phase: str, done: int, total: int, text: str) -> None:
        self.report(TuneProgress(phase, done, total, text))

    def _leave_database(self) -> None:
        """Give this thread's connection back."""
        if self._database is not None:
            with suppress(Exception):  # of a server that has gone
                self._database.remove_session()

    def close(self) -> None:
        """Close all connections to the database."""
        self._leave_database()
        if self._database is not None:
            self._database.engine.dispose()

    # -- trials --------------------------------------------------------------------------------------------------------

    def _opened(self, storage: str) -> "optuna.Study":
        """The trials, those that were interrupted asked for once more."""
        import optuna

        url = storage or _made(self.study.folder / TRIALS)
        name = self.space.doc.name
        race = self.space.doc.race
        pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
        if race.p:
            pruner = optuna.pruners.WilcoxonPruner(p_threshold=race.p, n_startup_steps=race.least)
        with _url_errors():
            self._database = optuna.storages.RDBStorage(url)
            # Looked for first: a database that was made while its disk was full may let a name be there twice.
            if name in optuna.get_all_study_names(self._database):
                found = optuna.load_study(study_name=name, storage=self._database, pruner=pruner)
            else:
                found = optuna.create_study(study_name=name, storage=self._database, pruner=pruner, load_if_exists=True)
        identity = orjson.dumps(self.space.identity(), option=orjson.OPT_NON_STR_KEYS).decode()
        before = found.user_attrs.get("space")
        if before is not None and before != identity:
            cure = "Give the search space another name, or name another database"
            problem = f"has trials of another search space of the name {name!r}"
            raise InputError(problem, field="--storage", cure=cure)
        found.set_user_attr("space", identity)
        if not found.trials:
            found.enqueue_trial(dict(self.space.present))
        for trial in found.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            with suppress(optuna.exceptions.UpdateFinishedTrialError):
                found.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                found.enqueue_trial(trial.params, user_attrs={"again": trial.number})
        # The seed and what has been done decide what comes, so that a search which goes on does not begin again.
        seed = self.space.doc.seed + 1000 * len(found.trials)
        found.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=FIRST_RANDOM, multivariate=True)
        return found

    def _search(self, found: "optuna.Study", trials: int) -> None:
        done = len(_ended(found))
        if done == 0 and trials > 0:  # alone: the others race against it
            self._trial(found, trials)
            done = 1
        self._at_once(lambda _: self._trial(found, trials), range(max(0, trials - done)))

    def _trial(self, found: "optuna.Study", trials: int) -> None:
        """One trial: instance by instance, until it ends or is given up."""
        import optuna

        if self._stops():
            raise TuneStoppedError
        trial = found.ask()
        values = {
            path: _suggested(trial, path, doc, self.space.present[path])
            for path, doc in self.space.doc.parameters.items()
        }
        model = self._model(values)
        scores: list[float] = []
        state = optuna.trial.TrialState.COMPLETE
        for step, one in enumerate(self.training):
            scores.append(self._mean(one, model, range(1, self.space.doc.seeds + 1)))
            trial.report(scores[-1], step)
            if trial.number and trial.should_prune():
                state = optuna.trial.TrialState.PRUNED
                break
        trial.set_user_attr("instances", len(scores))
        found.tell(trial, fmean(scores) if state == optuna.trial.TrialState.COMPLETE else None, state=state)
        is_pruned = state == optuna.trial.TrialState.PRUNED
        ended = f"given up after {counted(len(scores), 'instance')}" if is_pruned else "complete"
        text = f"trial {trial.number}: {fmean(scores):.4f}, {ended}"
        with self._lock:
            self._say("trials", len(_ended(found)), trials, text)

    def _model(self, values: dict[str, Value]) -> SolverModel:
        return model_from_document(document_with(self.space.document, self.space.model, values))

    def _mean(self, one: Instance, model: SolverModel, seeds: Iterable[int]) -> float:
        records = [self._record(self._task(one, model, seed)) for seed in seeds]
        return fmean(self._score(record, self._known[one.name]) for record in records)

    # -- verdict -------------------------------------------------------------------------------------------------------

    def _finalists(self, found: "optuna.Study") -> list[dict[str, Value]]:
        """The present values, and those of the best trials."""
        import optuna

        complete = found.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
        ranked = sorted(complete, key=lambda trial: (trial.value or 0.0, trial.number))
        chosen = [self.space.present]
        for trial in ranked:
            if trial.params not in chosen and len(chosen) <= self.space.doc.finalists:
                chosen.append(trial.params)
        return chosen

    def _seeds(self) -> range:
        return range(1, self.space.doc.final_seeds + 1)

    def _best_of(self, finalists: Sequence[dict[str, Value]]) -> dict[str, Value]:
        """The finalist with the best mean over all seeds in training; the present model where none is better."""
        means: dict[int, float] = {}

        def measure(number: int) -> None:
            model = self._model(finalists[number])
            mean = fmean(self._mean(one, model, self._seeds()) for one in self.training)
            with self._lock:
                means[number] = mean
                name = "the present model" if number == 0 else f"finalist {number}"
                self._say("finalists", len(means), len(finalists), f"{name}: {mean:.4f}")

        self._at_once(measure, range(len(finalists)))
        return finalists[min(means, key=lambda number: (means[number], number))]

    def _judged(self, best: dict[str, Value], found: "optuna.Study") -> TuneVerdict:
        """Compare on both sides, with the held-out runs done alone; write what was found."""
        changed = {path: (self.space.present[path], value) for path, value in best.items()}
        changed = {path: values for path, values in changed.items() if values[0] != values[1]}
        model = self._model(best)
        training = side_of(
            [
                Pair(
                    one.name,
                    one.family,
                    self._mean(one, self.space.model, self._seeds()),
                    self._mean(one, model, self._seeds()),
                )
                for one in sorted(self.training, key=lambda one: one.name)
            ]
        )
        before = _load()
        test = self._tested(model) if changed else None
        decisive = self._runs_of(self.training if test is None else self.sides.test, (self.space.model, model))
        verdict = TuneVerdict(
            study=self.space.doc.name,
            model=self.space.model.name,
            model_hash=self.space.model.hash,
            objective=self.space.doc.objective,
            budget_s=self.space.budget_s,
            seeds=self.space.doc.final_seeds,
            changed=changed,
            training=training,
            test=test,
            shared_families=self.sides.shared,
            tried=_tried(found, self.space.present),
            load=(before, _load()) if self.cluster is None else None,
            date=datetime.now(UTC).date().isoformat(),
            revision=revision(),
            versions=versions(),
            cpu=", ".join(sorted({record.cpu for record in decisive})),
            hosts=tuple(sorted({record.host for record in decisive})),
        )
        self._write(verdict, best)
        return verdict

    def _runs_of(self, instances: Iterable[Instance], models: Sequence[SolverModel]) -> list[RunRecord]:
        """Those that a verdict is about; all are done."""
        return [
            self._records[self._task(one, model, seed).run]
            for one in instances
            for model in models
            for seed in self._seeds()
        ]

    def _tested(self, model: SolverModel) -> Side:
        pairs = []
        for number, one in enumerate(self.sides.test):
            records = {
                name: [self._record(self._task(one, of, seed, alone=True), alone=True) for seed in self._seeds()]
                for name, of in (("present", self.space.model), ("found", model))
            }
            known = best_values([record for of in records.values() for record in of])
            figures = {name: fmean(self._score(record, known) for record in of) for name, of in records.items()}
            pairs.append(Pair(one.name, one.family, figures["present"], figures["found"]))
            text = f"{one.name}: {figures['present']:.4f} present, {figures['found']:.4f} found"
            self._say("test", number + 1, len(self.sides.test), text)
        return side_of(pairs)

    def _write(self, verdict: TuneVerdict, best: dict[str, Value]) -> None:
        folder = self.study.folder
        document = document_with(self.space.document, self.space.model, best)
        document |= {
            "name": self.space.doc.name,
            "summary": f"{self.space.model.name}, tuned: {verdict.result}",
            "budget_s": self.space.budget_s,
            "provenance": {
                "study": verdict.study,
                "revision": verdict.revision,
                "date": verdict.date,
                "verdict": verdict_text(verdict).splitlines()[0],
            },
        }
        model_from_document(document, str(folder / MODEL))
        write_model(document, folder / MODEL)
        for name, content in (
            (VERDICT, orjson.dumps(verdict.document(), option=orjson.OPT_INDENT_2)),
            (TEXT, verdict_text(verdict).encode()),
        ):
            cure = "Make room and run the same command again: nothing is measured twice"
            with written(folder / name, cure), replacing(folder / name) as partial:
                partial.write_bytes(content)


def _made(path: Path) -> str:
    """The address of the study's own database, which is made in one step: on a full disk there is none, and not half.

    Raises
    ------
    InputError
        It cannot be written.
    """
    import optuna

    if not path.exists():
        with written(path, "Make room and run the same command again"), replacing(path) as partial:
            made = optuna.storages.RDBStorage(f"sqlite:///{partial}")
            made.remove_session()
            made.engine.dispose()
    return f"sqlite:///{path}"


@contextmanager
def _url_errors() -> Iterator[None]:
    import sqlalchemy

    try:
        yield
    except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError, ValueError) as error:
        cure = "Write it like sqlite:///trials.db or postgresql+psycopg://user@host/name"
        raise InputError(f"is no database: {printable(str(error))}", field="--storage", cure=cure) from None


def _suggested(trial: "optuna.Trial", path: str, doc: ParameterDoc, present: Value) -> Value:
    """The trial's value: a whole number where the present one is."""
    if doc.low is None or doc.high is None:
        chosen: Value = trial.suggest_categorical(path, doc.choices)  # type: ignore[assignment]
        return chosen
    if isinstance(present, int):
        return trial.suggest_int(path, int(doc.low), int(doc.high), log=doc.log)
    return trial.suggest_float(path, float(doc.low), float(doc.high), log=doc.log)


def _ended(found: "optuna.Study") -> list[Any]:
    """Trials that count: complete, or given up."""
    import optuna

    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return found.get_trials(deepcopy=False, states=states)


def _tried(found: "optuna.Study", present: dict[str, Value]) -> tuple[Tried, ...]:
    ended = [trial for trial in found.get_trials(deepcopy=False) if trial.state.is_finished()]
    whole = [trial for trial in ended if trial.state.name == "COMPLETE" and trial.params == present]
    base = whole[0].intermediate_values if whole else {}
    return tuple(
        Tried(
            trial.number,
            trial.state.name.lower(),
            trial.value if trial.state.name == "COMPLETE" else None,
            _difference(trial.intermediate_values, base),
            int(trial.user_attrs.get("instances", 0)),
            dict(trial.params),
        )
        for trial in ended
    )


def _difference(own: dict[int, float], base: dict[int, float]) -> float | None:
    steps = own.keys() & base.keys()
    return fmean(own[step] - base[step] for step in sorted(steps)) if steps else None


def _load() -> float:
    """Processes that want to run, per core, over the last minute."""
    return os.getloadavg()[0] / cores()
