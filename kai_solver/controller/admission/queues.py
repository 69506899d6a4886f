"""Queues: KAI's rules (docs/kai-behaviour.md#queue-object), and names that do not exist."""

import math
from collections.abc import Iterator

from kai_solver.cluster.api import Object, meta
from kai_solver.controller.admission.annotations import own_annotations
from kai_solver.controller.admission.lookup import Lookup, hint, names_of
from kai_solver.controller.admission.verdict import FINE, Verdict, refuse, warn
from kai_solver.errors import InputError, nearest
from kai_solver.kubeobjects.notices import Notices
from kai_solver.kubeobjects.queues import NO_RESOURCES, chain_problem, read_queue
from kai_solver.kubeobjects.raw import Raw
from kai_solver.units import UNLIMITED

_SHOWN = {"cpu": ("CPU", ".0f"), "gpu": ("GPU", ".2f"), "memory": ("Memory", ".0f")}
"""KAI's names of resources, and how it writes their amounts."""


def queue_verdict(queue: Raw, lookup: Lookup, *, refuses_unknown: bool = True, quota_warnings: bool = False) -> Verdict:
    """All rules on a queue that is made or changed."""
    if not queue.get("spec.resources"):
        return refuse(f"{NO_RESOURCES}. Give quota, limit and overQuotaWeight of gpu, cpu and memory")
    verdict = _readable(queue) + own_annotations(queue, "Queue") + _parent(queue, lookup, refuses_unknown)
    return verdict + Verdict(warnings=tuple(quota_excess(queue, lookup.queues()))) if quota_warnings else verdict


def named_queue(name: str, lookup: Lookup, *, refuses: bool) -> Verdict:
    """A queue that a workload names: it must exist, and should be a leaf.

    Where no queue is known at all nothing is said: then the default queue needs no object, or we have not listed yet.
    """
    known = lookup.queue(name)
    if known is not None:
        stated = Raw(known).get("status.childQueues").value
        return warn(f"Queue '{name}' has child queues; work waits until it names one of them") if stated else FINE
    others = names_of(lookup.queues())
    if not others or lookup.has_queue(name):
        return FINE
    text = f"Queue '{name}' does not exist. {hint(name, others)}"
    return refuse(text) if refuses else warn(text)


def quota_excess(queue: Raw, others: tuple[Object, ...]) -> Iterator[str]:
    """Where quotas of children are above their parent's: of this queue and its siblings, and of its own children."""
    name, parent = queue.text("metadata.name"), queue.text("spec.parentQueue")
    by_name = {key: Raw(value) for value in others if (key := str(meta(value).get("name"))) != name} | {name: queue}
    if parent in by_name:
        yield from _excess(by_name[parent], by_name, queue)
    yield from _excess(queue, by_name, None)


def _excess(parent: Raw, by_name: dict[str, Raw], child: Raw | None) -> Iterator[str]:
    """Texts of KAI's webhook; ``child`` is the queue in question, None where the parent is."""
    name = parent.text("metadata.name")
    children = [value for value in by_name.values() if value.text("spec.parentQueue") == name and value is not parent]
    of_parent = f"parent queue {name}" if child is not None else "parent"
    for key, (shown, form) in _SHOWN.items():
        most = _quota(parent, key)
        own, total = _quota(child, key) if child is not None else 0.0, sum(_quota(value, key) for value in children)
        above = f"exceeds {of_parent} {shown} quota ({most:{form}})"
        if own > most:
            yield f"child queue {shown} quota ({_shown(own, form)}) {above}"
        if children and total > most:
            yield f"total children {shown} quota ({_shown(total, form)}) {above}"


def _quota(queue: Raw, resource: str) -> float:
    """In KAI's units; infinite where unlimited."""
    try:
        stated = queue.get(f"spec.resources.{resource}").number("quota")
    except InputError:
        return 0.0  # reported for that queue itself
    return math.inf if stated == UNLIMITED else stated


def _shown(amount: float, form: str) -> str:
    return "unlimited" if math.isinf(amount) else f"{amount:{form}}"


def _readable(queue: Raw) -> Verdict:
    """What the scheduler could not use of it: KAI keeps such a queue, so it is not refused."""
    notices = Notices()
    try:
        read_queue(queue, notices)
    except InputError as error:
        return warn(InputError(error.problem, field=error.field, cure=f"{error.cure}; until then it takes no part"))
    return Verdict(warnings=tuple(notice.text for notice in notices.all()))


def _parent(queue: Raw, lookup: Lookup, refuses: bool) -> Verdict:
    """The parent exists, and its own parents do not lead back here.

    A parent that does not exist is refused where a queue of a similar name does: a typo. Without one it is more likely
    still to come, as files and charts do not always list parents first.
    """
    name, parent = queue.text("metadata.name"), queue.text("spec.parentQueue")
    if not parent:
        return FINE
    known = {str(meta(value).get("name")): _stated_parent(value) for value in lookup.queues()} | {name: parent}
    problem = chain_problem(name, known)
    if "form a loop" in problem:
        return refuse(problem)
    if parent in known:
        return warn(problem) if problem else FINE
    if lookup.has_queue(parent):
        return FINE
    others = sorted(set(known) - {name})
    text = f"the parent queue {parent!r} does not exist. {hint(parent, others)}"
    return refuse(text) if refuses and nearest(parent, others) else warn(f"{text}. Until then this queue takes no part")


def _stated_parent(queue: Object) -> str:
    spec = queue.get("spec")
    parent = spec.get("parentQueue") if isinstance(spec, dict) else None
    return parent if isinstance(parent, str) else ""
