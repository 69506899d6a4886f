"""Decides a cycle again after an unexpected error, without the one gang or node that causes it."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import chain
from traceback import walk_tb

from kai_solver.domain import (
    NO_CONSTRAINTS,
    NO_PLACEMENT,
    Gang,
    Node,
    Pending,
    Plan,
    Pod,
    PodStatus,
    Snapshot,
    flat_gang,
)
from kai_solver.errors import GangError
from kai_solver.errors.barrier import caught, in_words
from kai_solver.errors.culprits import MOST_CULPRITS, without_culprits, without_many
from kai_solver.reasons.pending import left_out
from kai_solver.units import counted

CYCLE = "the cycle"
"""What an error affects if no gang or node causes it: all decisions of one cycle."""

_FEW = 8
"""Elements of a tuple that are inspected."""


class Extent(Enum):
    """How much an attempt does."""

    FULL = "all that the model asks for"
    GREEDY = "the greedy alone"
    FREE_ROOM = "the greedy on free room alone: no running work leaves or moves"


Attempt = Callable[[Snapshot, Extent], Plan]
"""Decides a cycle."""


Form = Callable[[Snapshot, Mapping[str, Exception]], Snapshot]
"""The remains of gangs that are left out, and the reasons."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """Decides one cycle, even if parts of it fail.

    Attributes
    ----------
    attempt
        May raise anything.
    may_search
        Whether there is time for another attempt to find the cause. If not, all remaining candidates of the search are
        left out.
    report
        Called with each error.
    """

    attempt: Attempt
    may_search: Callable[[], bool]
    report: Callable[[Exception], None]

    def decide(self, snapshot: Snapshot) -> Plan:
        """The plan; gangs and nodes that make it fail take no part, and its notes say so."""
        try:
            return self.attempt(snapshot, Extent.FULL)
        except Exception as error:
            self.report(error)
            cause = _cause(error)
            plan = self._without_gangs(snapshot, error) or self._without_suspect(snapshot, cause)
            return plan or self._without_cause(snapshot, cause)

    def _without_gangs(self, snapshot: Snapshot, error: Exception) -> Plan | None:
        """The plan without the gangs whose turns failed; None if that does not help."""
        blamed: dict[str, Exception] = {}
        while isinstance(error, GangError) and error.gang not in blamed and len(blamed) < MOST_CULPRITS:
            blamed[error.gang] = error.cause
            try:
                plan = self.attempt(_aside(snapshot, blamed), Extent.FULL)
            except Exception as another:
                error = another
            else:
                return _reported(snapshot, *self._with_innocent(snapshot, plan, blamed))
        is_another = isinstance(error, GangError) and error.gang not in blamed
        return self._without_many(snapshot, _cause(error)) if is_another else None

    def _with_innocent(
        self, snapshot: Snapshot, plan: Plan, blamed: dict[str, Exception]
    ) -> tuple[Plan, dict[str, Exception]]:
        """The same without gangs that were blamed first and do not fail once the later ones are left out.

        An error that comes between the turns of gangs is blamed on the gang that had its turn before it.
        """
        for key in list(blamed)[:-1]:
            fewer = {other: error for other, error in blamed.items() if other != key}
            if not self.may_search():
                break
            with suppress(Exception):
                plan, blamed = self.attempt(_aside(snapshot, fewer), Extent.FULL), fewer
        return plan, blamed

    def _without_suspect(self, snapshot: Snapshot, cause: Exception) -> Plan | None:
        """The greedy's plan without one gang that the failed functions worked on; None if that does not help.

        Also None if the greedy alone does not fail: then no gang causes the error.
        """
        suspects = _suspects(snapshot, cause)
        if not suspects or not self._fails(snapshot):
            return None
        for key in suspects:
            if not self.may_search():
                break
            try:
                plan = self.attempt(_aside(snapshot, {key: cause}), Extent.GREEDY)
            except Exception:  # noqa: S112 - another gang causes it; the first error is reported
                continue
            return _reported(snapshot, plan, {key: cause})
        return None

    def _fails(self, snapshot: Snapshot) -> bool:
        try:
            self.attempt(snapshot, Extent.GREEDY)
        except Exception:
            return True
        return False

    def _without_cause(self, snapshot: Snapshot, cause: Exception) -> Plan:
        """The greedy's plan, without gangs and nodes that make even that fail.

        If none causes it, or there is no time to find which, the binds on free room; an empty plan if even these fail.
        """
        nodes = [node.name for node in snapshot.nodes]
        keys = [*nodes, *(gang.key for gang in snapshot.gangs)]
        for form in (_aside, _bare, _held):
            attempt = partial(self._attempt_without, snapshot, keys, len(nodes), form, cause)
            try:
                plan, blamed = without_culprits(len(keys), attempt, cause, may_try=self.may_search)
            except Exception as another:
                cause = _cause(another)
                continue
            if not blamed:
                note = f"decided by the greedy alone: an unexpected error ({caught('deciding', CYCLE, cause)})"
                return replace(plan, notes=(note, *plan.notes))
            found = {keys[number]: error for number, error in blamed.items()}
            if len(blamed) <= MOST_CULPRITS:
                return _reported(snapshot, plan, found)
            return self._on_free_room(snapshot, cause) or _reported(snapshot, plan, found, unsure=True)
        last = self._on_free_room(snapshot, cause) or self._without_many(snapshot, cause)
        if last is None:
            caught("deciding", CYCLE, cause)
        return last or _nothing(snapshot, cause)

    def _without_many(self, snapshot: Snapshot, cause: Exception) -> Plan | None:
        """The greedy's plan without any number of gangs that make it fail; None if no gang that waits is left."""
        keys = [gang.key for gang in snapshot.gangs]
        kinds = [frozenset((pod.request, pod.gpu) for pod in gang.pods) for gang in snapshot.gangs]

        def named(error: Exception) -> int | None:
            return keys.index(error.gang) if isinstance(error, GangError) and error.gang in keys else None

        for form in (_aside, _bare, _held):
            attempt = partial(self._attempt_without, snapshot, keys, 0, form, cause)
            try:
                found = without_many(kinds, attempt, named, may_try=self.may_search)
            except Exception:  # noqa: S112 - gangs of another form may fail no more; the first error is reported
                continue
            blamed = {keys[number]: _cause(error) for number, error in found.blamed.items()}
            unknown = [keys[number] for number in sorted(found.unknown)]
            if blamed.keys() | set(unknown) >= set(_waiting(snapshot)):
                return None
            plan = _reported(snapshot, found.result, blamed) if blamed else found.result
            if not unknown:
                return plan
            return self._on_free_room(snapshot, cause) or _not_searched(plan, snapshot, unknown, cause)
        return None

    def _on_free_room(self, snapshot: Snapshot, cause: Exception) -> Plan | None:
        """The binds on free room, with no gang or node left out; None if even these fail."""
        try:
            plan = self.attempt(snapshot, Extent.FREE_ROOM)
        except Exception:
            return None
        said = caught("deciding", CYCLE, cause)
        note = f"decided on free room alone, nothing is evicted or moved: an unexpected error ({said})"
        return replace(plan, notes=(note, *plan.notes))

    def _attempt_without(
        self, snapshot: Snapshot, keys: list[str], nodes: int, form: Form, cause: Exception, left_out: frozenset[int]
    ) -> Plan:
        """The greedy's plan without some of ``keys``, of which the first are ``nodes``."""
        gone = frozenset(keys[number] for number in left_out if number < nodes)
        gangs = {keys[number]: cause for number in left_out if number >= nodes}
        return self.attempt(_with_nodes(form(snapshot, gangs), gone), Extent.GREEDY)


def _cause(error: Exception) -> Exception:
    return error.cause if isinstance(error, GangError) else error


def _suspects(snapshot: Snapshot, error: Exception) -> list[str]:
    """Gangs that the innermost failed functions worked on, the innermost first."""
    gang_of = {pod.key: gang.key for gang in snapshot.gangs for pod in gang.pods} | {
        g.key: g.key for g in snapshot.gangs
    }
    found: dict[str, None] = {}
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        values = frame.f_locals.values()
        for value in chain.from_iterable(each[:_FEW] if isinstance(each, tuple) else (each,) for each in values):
            key = value if isinstance(value, str) else getattr(getattr(value, "gang", value), "key", "")
            if isinstance(key, str) and key in gang_of:
                found[gang_of[key]] = None
    return list(found)[:MOST_CULPRITS]


def set_aside(gang: Gang, why: str) -> Gang:
    """The gang as one that cannot be considered: its pods hold what they hold."""
    return replace(gang, set_aside=gang.set_aside or why)


def bare(gang: Gang, why: str) -> Gang:
    """The same with nothing of its pods but what they hold and ask for."""
    pods = tuple(_bare_pod(pod) for pod in gang.pods)
    return replace(
        gang, set_aside=gang.set_aside or why, pods=pods, root=flat_gang(1), placement=NO_PLACEMENT, workload=""
    )


def _bare_pod(pod: Pod) -> Pod:
    return Pod(
        pod.namespace,
        pod.name,
        pod.request,
        replace(pod.gpu, row=""),
        pod.status,
        node=pod.node,
        devices=pod.devices,
        gpu_groups=pod.gpu_groups,
        quota_gpu_milli=pod.quota_gpu_milli,
        constraints=NO_CONSTRAINTS,
        order=pod.order,
    )


def why_left_out(error: Exception) -> str:
    """The reason of a gang that makes a decision fail."""
    return f"an unexpected error stopped the decision about it ({in_words(error)})"


def _aside(snapshot: Snapshot, blamed: Mapping[str, Exception]) -> Snapshot:
    gangs = (set_aside(g, why_left_out(blamed[g.key])) if g.key in blamed else g for g in snapshot.gangs)
    return replace(snapshot, gangs=tuple(gangs))


def _bare(snapshot: Snapshot, blamed: Mapping[str, Exception]) -> Snapshot:
    gangs = (bare(g, why_left_out(blamed[g.key])) if g.key in blamed else g for g in snapshot.gangs)
    return replace(snapshot, gangs=tuple(gangs))


def _held(snapshot: Snapshot, blamed: Mapping[str, Exception]) -> Snapshot:
    """Only what their pods hold, as load without an owner: waiting pods are left out."""
    gone = [pod for g in snapshot.gangs if g.key in blamed for pod in g.pods if pod.status.holds_resources]
    gangs = tuple(g for g in snapshot.gangs if g.key not in blamed)
    return replace(snapshot, gangs=gangs, foreign=(*snapshot.foreign, *map(_bare_pod, gone)))


def _with_nodes(snapshot: Snapshot, gone: frozenset[str]) -> Snapshot:
    """Nodes that are left out stay, for what runs there; nothing new is placed on them."""
    return replace(snapshot, nodes=tuple(_bare_node(n) if n.name in gone else n for n in snapshot.nodes))


def _bare_node(node: Node) -> Node:
    return Node(node.name, node.allocatable, node.gpus, node.gpu_memory_mib, schedulable=False)


def _not_searched(plan: Plan, snapshot: Snapshot, unknown: Collection[str], cause: Exception) -> Plan:
    """The same with what is said of gangs that were left out and may not be the cause: they are not reported as it."""
    note = f"left out, too, as there was no time to find whether they are the cause: {counted(len(unknown), 'gang')}"
    return replace(
        plan, pending=_with_left_out(plan, snapshot, dict.fromkeys(unknown, cause)), notes=(*plan.notes, note)
    )


def _with_left_out(plan: Plan, snapshot: Snapshot, gone: Mapping[str, Exception]) -> tuple[Pending, ...]:
    """What waits, with the gangs that are ``gone`` and that the plan does not know."""
    known = {entry.gang for entry in plan.pending}
    more = [left_out(key, why_left_out(gone[key])) for key in _waiting(snapshot) if key in gone and key not in known]
    return tuple(sorted((*plan.pending, *more), key=lambda entry: entry.gang))


def _reported(snapshot: Snapshot, plan: Plan, blamed: Mapping[str, Exception], *, unsure: bool = False) -> Plan:
    for key, error in blamed.items():
        caught("deciding", key, error)
    named = ", ".join(list(blamed)[:5]) + (f" and {len(blamed) - 5} more" if len(blamed) > 5 else "")
    said = in_words(next(iter(blamed.values())))
    doubt = "; one of them is the cause, and there was no time to find which" if unsure else ""
    note = f"left out for an unexpected error ({said}): {named}{doubt}"
    return replace(plan, pending=_with_left_out(plan, snapshot, blamed), notes=(note, *plan.notes))


def _waiting(snapshot: Snapshot) -> list[str]:
    waiting = (g.key for g in snapshot.gangs if any(pod.status is PodStatus.PENDING for pod in g.pods))
    return sorted(waiting)


def _nothing(snapshot: Snapshot, error: Exception) -> Plan:
    """A plan that does nothing; all waiting gangs get the reason."""
    text = f"nothing is decided in this cycle: an unexpected error stopped it ({in_words(error)})"
    return Plan(pending=tuple(left_out(key, text) for key in _waiting(snapshot)), notes=(text,))
