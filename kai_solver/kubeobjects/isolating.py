"""Leaves out the objects that make the whole reading fail.

A barrier around each object stops nearly all errors (`read_each`). Other errors come from several objects together, or
from a step that handles all of them: then the objects that cause them are found by leaving some out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from kai_solver.domain import Notice, Snapshot
from kai_solver.errors import KaiSolverError
from kai_solver.errors.barrier import caught
from kai_solver.errors.culprits import without_culprits
from kai_solver.kubeobjects.bare import bare_forms
from kai_solver.kubeobjects.notices import object_name, reason_text
from kai_solver.kubeobjects.objects import KINDS, RawObjects, kind_of
from kai_solver.kubeobjects.raw import Raw

FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 3600.0
"""How long such an object is left out before it is tried again: twice as long each time while it is unchanged."""

_KIND_OF = {kind.field: kind.kind for kind in KINDS}
_FIELDS = (*(kind.field for kind in KINDS if kind.field != "pods"), "other", "pods")
"""Pods last: if an error needs a pod and another object, the pod is left out."""


@dataclass(slots=True)
class _Spoiler:
    value: object
    notice: Notice
    pause_s: float
    until_s: float


@dataclass(slots=True)
class Spoilers:
    """Objects that made a whole reading fail, kept from one reading to the next; by their identity.

    ``alive``: called before each attempt of a search. In a large cluster the search takes longer than a loop may stand
    still, and a process that is ended for it would begin the same search again.
    """

    alive: Callable[[], None] = lambda: None
    _known: dict[int, _Spoiler] = field(default_factory=dict)

    def read(self, objects: RawObjects, now_s: float, read: Callable[[RawObjects], Snapshot]) -> Snapshot:
        """What ``read`` returns for ``objects``, without those that make it fail, and with a notice for each of these.

        Raises
        ------
        KaiSolverError
            Errors that concern no object, such as a plug-in that cannot be loaded.
        Exception
            No object causes the error, or too many do.
        """
        if self._known:
            here = {id(value) for name in _FIELDS for value in getattr(objects, name)}
            self._known = {key: known for key, known in self._known.items() if key in here}
        resting = [known for known in self._known.values() if now_s < known.until_s]
        objects = _without(objects, {id(known.value): known.notice for known in resting})
        try:
            return read(objects)
        except KaiSolverError:
            raise
        except Exception as error:
            return self._isolated(objects, now_s, read, error)

    def _isolated(
        self, objects: RawObjects, now_s: float, read: Callable[[RawObjects], Snapshot], error: Exception
    ) -> Snapshot:
        things = list(_things(objects))
        notices = [Notice("set-aside", name, "") for name, _ in things]

        def attempt(left_out: frozenset[int]) -> Snapshot:
            self.alive()
            return read(_without(objects, {id(things[number][1]): notices[number] for number in left_out}))

        found, blamed = without_culprits(len(things), attempt, error)
        if not blamed:
            caught("reading", "the cluster", error)
        replaced = {}
        for number, cause in blamed.items():
            name, value = things[number]
            notice = Notice("set-aside", name, reason_text(name, cause))
            replaced[notices[number]] = notice
            last = self._known.get(id(value))
            pause_s = min(2 * last.pause_s, LONGEST_PAUSE_S) if last is not None else FIRST_PAUSE_S
            self._known[id(value)] = _Spoiler(value, notice, pause_s, now_s + pause_s)
        return replace(found, notices=tuple(replaced.get(notice, notice) for notice in found.notices))


def _things(objects: RawObjects) -> Iterator[tuple[str, object]]:
    """Name and object of all."""
    for name in _FIELDS:
        for value in getattr(objects, name):
            yield object_name(_KIND_OF.get(name) or kind_of(value) or "Object", Raw(value)), value


def _without(objects: RawObjects, left_out: dict[int, Notice]) -> RawObjects:
    """All but the objects of those identities; a pod that has a node leaves its load."""
    if not left_out:
        return objects
    kept: dict[str, tuple[object, ...]] = {}
    for name in _FIELDS:
        values = getattr(objects, name)
        if any(id(value) in left_out for value in values):
            kept[name] = tuple(_kept(values, left_out, is_pods=name == "pods"))
    return replace(objects, **kept, notices=(*objects.notices, *left_out.values()))  # type: ignore[arg-type]


def _kept(values: tuple[object, ...], left_out: dict[int, Notice], *, is_pods: bool) -> Iterator[object]:
    for value in values:
        if id(value) not in left_out:
            yield value
        elif is_pods:
            yield from list(bare_forms(value))[-1:]
