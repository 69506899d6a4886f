"""The place where importers say what they could not use."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeVar

from kai_solver.domain import Notice
from kai_solver.errors import KaiSolverError, printable
from kai_solver.errors.barrier import caught
from kai_solver.kubeobjects.raw import Raw

Thing = TypeVar("Thing")

REPORT = "Correct the object, or report this as a fault of kai-solver"


class Notices:
    """Notices in the order in which they came up, each once."""

    def __init__(self, initial: tuple[Notice, ...] = ()) -> None:
        self._notices: dict[Notice, None] = dict.fromkeys(initial)
        self._said: list[Notice] = []
        self._passing = 0

    def warn(self, name: str, text: str, *, is_passing: bool = False) -> None:
        """Something was used, but not all of it; ``is_passing``: because of the time, so that it may change alone."""
        self._passing += is_passing
        self._say(Notice("warning", name, text))

    def set_aside(self, name: str, reason: str | Exception) -> str:
        """The object takes no part; returns the reason. Listeners of barriers get an unexpected error."""
        text = reason_text(name, reason) if isinstance(reason, Exception) else reason
        self._passing += isinstance(reason, Exception) and not isinstance(reason, KaiSolverError)
        self._say(Notice("set-aside", name, text))
        return text

    def heard(self, make: Callable[[], Thing]) -> tuple[Thing, tuple[Notice, ...] | None]:
        """What ``make`` gives, and its notices; None for these if they may be others when nothing changed.

        That is so where the time is a cause of one, or an unexpected error.
        """
        said, passing = len(self._said), self._passing
        thing = make()
        return thing, tuple(self._said[said:]) if self._passing == passing else None

    def say_again(self, notices: Iterable[Notice]) -> None:
        """Notices of something that was remembered."""
        for notice in notices:
            self._say(notice)

    def _say(self, notice: Notice) -> None:
        self._notices[notice] = None
        self._said.append(notice)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._notices)

    def all(self) -> tuple[Notice, ...]:
        """Every notice."""
        return tuple(self._notices)


def joined(notices: Iterable[Notice]) -> Iterator[Notice]:
    """One notice of each kind for an object: of several with one reason an object would get the newest event only."""
    found: dict[tuple[Literal["warning", "set-aside"], str], list[str]] = {}
    for notice in notices:
        found.setdefault((notice.kind, notice.object), []).append(notice.text)
    for (kind, name), texts in found.items():
        yield Notice(kind, name, ". ".join(texts))


def reason_text(name: str, error: Exception) -> str:
    """Why an object cannot be read; an error that no code raises on purpose is a fault of kai-solver."""
    if isinstance(error, KaiSolverError):
        return str(error)
    return f"an unexpected error stopped its reading ({caught('reading', name, error)}). {REPORT}"


def object_name(kind: str, raw: Raw) -> str:
    """``Pod ns/name`` for people, also of objects that are broken."""
    value = raw.value
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict):
        return f"{kind} without a name"
    name, namespace = metadata.get("name"), metadata.get("namespace")
    parts = [part for part in (namespace, name) if isinstance(part, str) and part]
    return printable(f"{kind} {'/'.join(parts)}") if isinstance(name, str) and name else f"{kind} without a name"


def namespaced_key(raw: Raw) -> str:
    """``namespace/name`` of an object; the namespace ``default`` where a manifest leaves it out."""
    return f"{raw.text('metadata.namespace') or 'default'}/{raw.required('metadata.name')}"


def cluster_key(raw: Raw) -> str:
    """Name of an object without a namespace."""
    return raw.required("metadata.name")


def _read(raw: Raw, key: Callable[[Raw], str], read: Callable[[Raw], Thing | None]) -> tuple[str, Thing | None]:
    return key(raw), read(raw)


def read_each(
    kind: str,
    objects: Iterable[object],
    notices: Notices,
    read: Callable[[Raw], Thing | None],
    key: Callable[[Raw], str] = cluster_key,
    known: Callable[[object], tuple[str, Thing] | None] = lambda _: None,
    rescue: Callable[[object], tuple[str, Thing] | None] = lambda _: None,
) -> dict[str, Thing]:
    """Read every object by its key; broken and doubled ones are set aside with a notice, None is left out.

    ``known``: key and thing of an object that need not be read, because it was before; ``rescue``: what must be known
    even of one that cannot be read.
    """
    things: dict[str, Thing] = {}
    for value in objects:
        try:
            name, thing = known(value) or _read(Raw(value), key, read)
        except Exception as error:
            notices.set_aside(object_name(kind, Raw(value)), error)
            saved = rescue(value)
            if saved is None:
                continue
            name, thing = saved
        if name in things:
            notices.set_aside(f"{kind} {name}", "a second one of that name; the first one counts. Remove one")
        elif thing is not None:
            things[name] = thing
    return things
