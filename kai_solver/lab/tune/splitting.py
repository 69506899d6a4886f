"""Which instances a search may see, and which ones judge it."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal

from pydantic import Field

from kai_solver.errors import InputError, nearest
from kai_solver.instances_io.fields import Strict
from kai_solver.lab.runs import Source

Use = Literal["training", "test"]


class SplitDoc(Strict):
    """Which instances are held out; where an instance has ``use``, that counts."""

    families: tuple[str, ...] = ()
    """Held out as a whole."""
    fraction: float | None = Field(default=None, gt=0, lt=1)
    """Of the families, rounded up: those whose names have the lowest hashes."""
    after: datetime | date | None = None
    """Instances of that time or later are held out."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a search space. ``at_s``: its time, seconds since 1970; None: not known."""

    name: str
    source: Source
    family: str
    at_s: float | None = None
    use: Use | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """Both sides, and families that are on both without a time that separates them: a test of them proves less."""

    training: tuple[Instance, ...]
    test: tuple[Instance, ...]
    shared: tuple[str, ...]


def split(instances: Sequence[Instance], doc: SplitDoc) -> Split:
    """Divide the instances.

    Raises
    ------
    InputError
        A family is unknown, an instance has no time to go by, or one side is empty.
    """
    families = sorted({one.family for one in instances})
    for family in doc.families:
        if family not in families:
            near = nearest(family, families)
            cure = f"Did you mean {near}?" if near else f"Families: {', '.join(families)}"
            raise InputError(f"no instance is of the family {family!r}", field="split.families", cure=cure)
    held = set(doc.families)
    if doc.fraction is not None:
        by_hash = sorted(families, key=lambda family: hashlib.sha256(family.encode()).hexdigest())
        held |= set(by_hash[: math.ceil(doc.fraction * len(families))])
    training = tuple(one for one in instances if not _is_test(one, doc, held))
    test = tuple(one for one in instances if _is_test(one, doc, held))
    for side, found in (("training", training), ("test", test)):
        if not found:
            cure = "Give `use` for instances, or families, a fraction or a time in `split`, both sides need some"
            raise InputError(f"no instance is for {side}", field="split", cure=cure)
    return Split(training, test, tuple(family for family in families if _is_shared(family, training, test)))


def _is_test(one: Instance, doc: SplitDoc, held: set[str]) -> bool:
    if one.use is not None:
        return one.use == "test"
    if one.family in held:
        return True
    if doc.after is None:
        return False
    if one.at_s is None:
        cure = "Give its time as `at`, or its side as `use`"
        raise InputError(f"the instance {one.name!r} has no time", field="split.after", cure=cure)
    return one.at_s >= seconds_of(doc.after)


def seconds_of(at: datetime | date) -> float:
    """Seconds since 1970 of a moment, or of the first one of a day; UTC where no zone is given."""
    if not isinstance(at, datetime):
        return datetime(at.year, at.month, at.day, tzinfo=UTC).timestamp()
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _is_shared(family: str, training: Sequence[Instance], test: Sequence[Instance]) -> bool:
    """True where the family is on both sides, and training does not end before the test begins."""
    seen = [one.at_s for one in training if one.family == family]
    judged = [one.at_s for one in test if one.family == family]
    if not seen or not judged:
        return False
    times = [at_s for at_s in (*seen, *judged) if at_s is not None]
    if len(times) < len(seen) + len(judged):
        return True
    return max(at_s for at_s in seen if at_s is not None) >= min(at_s for at_s in judged if at_s is not None)
