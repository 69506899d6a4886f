"""The published lines of a recording (``kai-shadow/v1``): one JSON object a line; keys are added, never renamed."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
import structlog
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, TypeAdapter, ValidationError

from kai_solver.errors import InputError
from kai_solver.kubeobjects.raw import parse_time_s
from kai_solver.units import FIRST_S, LAST_S

FORMAT = "kai-shadow/v1"
_NEWER = re.compile(r"kai-shadow/v([2-9]|[1-9][0-9]{1,5})")


_LOG = structlog.get_logger(__name__)


def time_text(stamp_s: float) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return datetime.fromtimestamp(stamp_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time_s(value: object) -> object:
    """Epoch seconds, of a time that RFC 3339 cannot say the first or last that it can."""
    found = parse_time_s(value) if isinstance(value, str) else value
    return min(max(found, FIRST_S), LAST_S) if isinstance(found, int | float) else found


Moment = Annotated[float, BeforeValidator(_time_s), PlainSerializer(time_text)]
"""Epoch seconds; RFC 3339 in a file."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True)


class Place(_Part):
    """A pod would get this node; ``promised``: once others have left it."""

    pod: str
    node: str
    promised: bool = False


class Leaver(_Part):
    """A pod would be evicted for these gangs; none where its own gang is stale."""

    pod: str
    node: str
    reason: str
    helps: tuple[str, ...] = Field(default=(), validation_alias="for", serialization_alias="for")


class Mover(_Part):
    """A pod would be evicted and placed again elsewhere, for these gangs."""

    pod: str
    source: str = Field(validation_alias="from", serialization_alias="from")
    target: str = Field(validation_alias="to", serialization_alias="to")
    helps: tuple[str, ...] = Field(default=(), validation_alias="for", serialization_alias="for")


class Wait(_Part):
    """The gang, or its surplus, would get nothing."""

    reason: str
    message: str
    proof: str


class Begin(_Part):
    """A recording begins, or goes on after a restart: what happened before is not known."""

    kind: Literal["begin"] = "begin"
    at: Moment
    version: str = ""


class Look(_Part):
    """A cycle ended. ``began``: when it looked at the cluster."""

    kind: Literal["cycle"] = "cycle"
    at: Moment
    began: Moment
    cycle: int
    pending: int = 0


Word = Literal["bind", "promise", "evict", "move", "pending"]


class Decision(_Part):
    """What a cycle would do with a gang; written when it is not what the cycle before would have done.

    Attributes
    ----------
    decision
        The first of what it would do, in the order of `Word`.
    runs
        Pods of the gang hold nodes already: ``binds`` and ``pending`` are about further pods.
    gpus
        What its pending pods ask for.
    """

    kind: Literal["decision"] = "decision"
    at: Moment
    cycle: int
    gang: str
    queue: str
    priority: int
    created: Moment | None = None
    gpus: float = 0.0
    runs: bool = False
    decision: Word
    binds: tuple[Place, ...] = ()
    evictions: tuple[Leaver, ...] = ()
    moves: tuple[Mover, ...] = ()
    pending: Wait | None = None


class Bound(_Part):
    """A pod was bound by the scheduler at work. ``since``: as its condition says, to the second; else when seen."""

    kind: Literal["bound"] = "bound"
    at: Moment
    since: Moment
    gang: str
    queue: str
    pod: str
    node: str
    created: Moment | None = None
    gpus: float = 0.0


class Left(_Part):
    """A pod no longer holds its node. ``after``: it still did then.

    ``how``: it ended by itself; it was deleted; its condition says that it was disrupted.
    """

    kind: Literal["left"] = "left"
    at: Moment
    after: Moment
    gang: str
    queue: str
    pod: str
    node: str
    how: Literal["ended", "deleted", "disrupted"]


class Marked(_Part):
    """The PodGroup says that the scheduler at work evicted pods of the gang at this time."""

    kind: Literal["evicted"] = "evicted"
    at: Moment
    since: Moment
    gang: str


class Gone(_Part):
    """A gang is there no longer and was never bound."""

    kind: Literal["gone"] = "gone"
    at: Moment
    gang: str


Line = Begin | Look | Decision | Bound | Left | Marked | Gone

_LINES: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def document_of(line: Line) -> dict[str, Any]:
    """The line as it is published, without what is empty."""
    found = line.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"format": FORMAT, "kind": line.kind} | found


def text_of(line: Line) -> str:
    """The line as text, without its end."""
    return orjson.dumps(document_of(line)).decode()


def read_lines(raw: Iterable[bytes], name: str) -> Iterator[Line]:
    """The lines of a file; one of a kind that this version does not know is left out, as is a last one cut short.

    Lines of a newer format are left out, and a warning says how many: a version that was upgraded and rolled back wrote
    them, and both begin with a `Begin` of their own.

    Raises
    ------
    InputError
        A line is of no format of ours, or all are of newer ones: names file and line.
    """
    cut: InputError | None = None
    newer, known = Counter[str](), 0
    for number, text in enumerate(raw, 1):
        if cut is not None:
            raise cut
        if not text.strip():
            continue
        where, cure = f"line {number}", f"Give files that a controller stored, of the format {FORMAT}"
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            cut = InputError(
                f"is not JSON: {error}", file=name, field=where, cure=cure
            )  # an error unless it is the last
            continue
        stated = str(document.get("format", "")) if isinstance(document, dict) else ""
        if _NEWER.fullmatch(stated):
            newer[stated] += 1
            continue
        if stated != FORMAT:
            raise InputError(f"is not of the format {FORMAT}", file=name, field=where, cure=cure)
        known += 1
        if str(document.get("kind")) not in _KINDS:
            continue
        try:
            yield _LINES.validate_python(document)
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{path}: {first['msg']}", file=name, field=where, cure=cure) from None
    if newer and not known:
        problem = f"all lines have the format {max(newer)}, which a newer kai-solver wrote"
        raise InputError(problem, file=name, cure=f"Use that version; this one reads {FORMAT}")
    if newer:
        _LOG.warning("lines that a newer version wrote are left out", file=name, lines=newer.total(), reads=FORMAT)


_KINDS = frozenset({"begin", "cycle", "decision", "bound", "left", "evicted", "gone"})
