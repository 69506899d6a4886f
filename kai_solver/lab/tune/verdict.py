"""What came of tuning: the present model beside the one that was found, on instances that the search never saw."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import orjson
from pydantic import TypeAdapter, ValidationError

from kai_solver.errors import InputError
from kai_solver.lab.runs import PairedDifference, paired_difference
from kai_solver.lab.runs.scoring import Objective
from kai_solver.lab.tune.parameters import Value
from kai_solver.units import counted

FORMAT = "kai-tuning/v1"

Result = Literal["better", "worse", "no difference", "too few instances", "the present model is the best"]


@dataclass(frozen=True, slots=True)
class Pair:
    """One instance: the mean of the figure over the seeds, of the present model and of the one that was found."""

    instance: str
    family: str
    present: float
    found: float


@dataclass(frozen=True, slots=True)
class Side:
    """Training or test: one pair for each instance, and the test of their differences (found minus present)."""

    pairs: tuple[Pair, ...]
    difference: PairedDifference

    @property
    def present(self) -> float:
        """Mean of the present model."""
        return fmean(pair.present for pair in self.pairs)

    @property
    def found(self) -> float:
        """Mean of the one that was found."""
        return fmean(pair.found for pair in self.pairs)


def side_of(pairs: Sequence[Pair]) -> Side:
    """Test the pairs. Instances are what is drawn: seeds of one instance are no pairs of their own."""
    difference = paired_difference([pair.found for pair in pairs], [pair.present for pair in pairs])
    return Side(tuple(pairs), difference)


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial.

    Attributes
    ----------
    state
        How it ended: complete, pruned or fail.
    value
        Mean of the figure over all training instances; None: it is not complete.
    difference
        Mean of the figure minus that of the present model, over the instances that it came to; so trials that were
        given up can be compared as well. None: it came to none.
    instances
        How many it came to.
    values
        Of its parameters.
    """

    number: int
    state: str
    value: float | None
    difference: float | None
    instances: int
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class TuneVerdict:
    """What a study of tuning says.

    Attributes
    ----------
    changed
        Parameters of the model that was found with values other than the present ones: (present, found).
    test
        None where the present model itself was the best in training: then there is nothing to test.
    shared_families
        On both sides: a test of them proves less.
    load
        Of the machine by ``uptime``, per core, when the runs of the verdict began and when they ended; None: they were
        done on a cluster.
    cpu, hosts
        Machines that did the runs of the verdict: those of the test, or of training where there is none.
    """

    study: str
    model: str
    model_hash: str
    objective: Objective
    budget_s: float
    seeds: int
    changed: Mapping[str, tuple[Value, Value]]
    training: Side
    test: Side | None
    shared_families: tuple[str, ...]
    tried: tuple[Tried, ...]
    load: tuple[float, float] | None
    date: str
    revision: str
    versions: str
    cpu: str
    hosts: tuple[str, ...] = ()

    @property
    def result(self) -> Result:
        """In one word or two: what the test on held-out instances says."""
        if self.test is None:
            return "the present model is the best"
        words: Mapping[str, Result] = {"less": "better", "more": "worse", "no difference": "no difference"}
        return words.get(self.test.difference.verdict, "too few instances")

    def document(self) -> dict[str, Any]:
        """As JSON: ``verdict.json``."""
        members = asdict(self)
        for name, side in (("training", self.training), ("test", self.test)):
            if side is not None:
                members[name] |= {"present": side.present, "found": side.found}
        return {"format": FORMAT, "result": self.result} | members


def read_verdict(path: Path) -> TuneVerdict:
    """Read ``verdict.json`` of a study.

    Raises
    ------
    InputError
        It is none, or of another version.
    """
    cure = "Make it again: kai-solver tune SPACE --study FOLDER measures nothing twice"
    try:
        document = orjson.loads(path.read_bytes())
        found = document.get("format")
        if found != FORMAT:
            problem = f"is of another version: {found!r} in place of {FORMAT!r}"
            raise InputError(problem, file=str(path), field="format", cure=cure)
        return TypeAdapter(TuneVerdict).validate_python(document)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot be read: {reason}", file=str(path), cure=cure) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"is of another version: {first['msg']}", file=str(path), field=where, cure=cure) from None
    except (ValueError, AttributeError) as error:
        raise InputError(f"is no verdict: {error}", file=str(path), cure=cure) from None


def verdict_text(verdict: TuneVerdict) -> str:
    """The verdict in plain words, then the figures."""
    lines = [headline(verdict), ""]
    if verdict.changed:
        lines += ["Changed:"]
        lines += [f"  {path}: {before!r} -> {after!r}" for path, (before, after) in verdict.changed.items()]
        lines += [""]
    lines += [side_text("training", verdict.training)]
    if verdict.test is not None:
        lines += [side_text("held out", verdict.test)]
    if verdict.shared_families:
        lines += [f"These families are on both sides, so the test proves less: {', '.join(verdict.shared_families)}."]
    states = [one.state for one in verdict.tried]
    lines += [
        "",
        f"Trials: {states.count('complete')} complete, {states.count('pruned')} ended early.",
        f"Figure: {verdict.objective}, {verdict.budget_s:g} s of CPU time, {verdict.seeds} seeds. Less is better.",
        _where(verdict),
    ]
    if verdict.test is not None:
        lines += ["", "Held-out instances: present, found, difference"]
        lines += [
            f"  {pair.instance:<32} {pair.present:8.4f} {pair.found:8.4f} {pair.found - pair.present:+8.4f}"
            for pair in verdict.test.pairs
        ]
    return "\n".join(lines) + "\n"


def _where(verdict: TuneVerdict) -> str:
    if verdict.load is None:
        return f"The last runs were done one at a time on {', '.join(verdict.hosts)} ({verdict.cpu})."
    return f"Load of the machine per core: {verdict.load[0]:.1f} before the last runs, {verdict.load[1]:.1f} after."


def headline(verdict: TuneVerdict) -> str:
    """The verdict in one sentence."""
    where = "on instances that the search never saw"
    match verdict.result:
        case "better":
            return f"The model that was found is better than {verdict.model} {where}."
        case "worse":
            return f"The model that was found is worse than {verdict.model} {where}: keep {verdict.model}."
        case "no difference":
            return f"No difference from {verdict.model} can be shown {where}: keep {verdict.model}."
        case "too few instances":
            return f"Too few held-out instances differ to say anything: keep {verdict.model}."
        case _:
            return f"No trial was better than {verdict.model} in training: keep {verdict.model}."


def side_text(name: str, side: Side) -> str:
    """The figures of one side, and what the test says of them."""
    test = side.difference
    text = f"{name}: {side.present:.4f} present, {side.found:.4f} found, {counted(len(side.pairs), 'instance')}"
    text += f" ({test.less} better, {test.more} worse)"
    if test.median is not None and test.low is not None and test.high is not None:
        text += f"; median difference {test.median:+.4f}, 95% interval {test.low:+.4f} to {test.high:+.4f}"
    return text + (f"; p = {test.p:.3f}" if test.p is not None else "")
