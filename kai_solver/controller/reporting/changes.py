"""What has to be patched so that an object says what it should; None where it does already.

Each function gives a change for `Statuses.patch`: asked with what stands, perhaps more than once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kai_solver.cluster.api import Object, meta, version_of
from kai_solver.cluster.owner_resolver import has_node
from kai_solver.cluster.statuses import Change, condition_of
from kai_solver.kubeobjects.raw import format_time

Condition = dict[str, Any]
_COMPARED = ("status", "reason", "message")


def waits(reason: str, message: str, now_s: float) -> Change:
    """A pod's ``PodScheduled`` is false, as autoscalers read it; of a pod that has a node nothing is said."""

    def change(pod: Object) -> Mapping[str, Any] | None:
        if has_node(pod):
            return None
        return _with_condition(pod, {"type": "PodScheduled", "status": "False", "reason": reason, "message": message})

    return _stamped(change, now_s)


def not_bound(message: str, now_s: float) -> Change:
    """A pod's ``PodBound`` is false, as KAI's binder writes it; of a pod that has a node nothing is said."""

    def change(pod: Object) -> Mapping[str, Any] | None:
        if has_node(pod):
            return None
        condition = {"type": "PodBound", "status": "False", "reason": "BindingError", "message": message}
        return _with_condition(pod, condition)

    return _stamped(change, now_s)


def bound_after_all(node: str, now_s: float) -> Change:
    """A pod's ``PodBound`` is true, where its condition said that it was false."""

    def change(pod: Object) -> Mapping[str, Any] | None:
        if condition_of(pod, "PodBound") is None:
            return None
        message = f"Pod bound successfully to node {node}"
        return _with_condition(pod, {"type": "PodBound", "status": "True", "reason": "Bound", "message": message})

    return _stamped(change, now_s)


def promised(node: str, message: str, now_s: float) -> Change:
    """A pod's nominated node, and why it is not there yet."""
    waiting = waits("Pipelined", message, now_s)

    def change(pod: Object) -> Mapping[str, Any] | None:
        if has_node(pod):
            return None
        stands = (pod.get("status") or {}).get("nominatedNodeName") == node
        more = waiting(pod)
        if more is None:
            return None if stands else {"status": {"nominatedNodeName": node}}
        return {**more, "status": {**more["status"], "nominatedNodeName": node}}

    return change


def not_promised(pod: Object) -> Mapping[str, Any] | None:
    """A pod that waits has no nominated node any more."""
    if has_node(pod) or not (pod.get("status") or {}).get("nominatedNodeName"):
        return None
    return {"status": {"nominatedNodeName": None}}


def annotated(name: str, value: str | None) -> Change:
    """An annotation has this value; None: there is none."""

    def change(item: Object) -> Mapping[str, Any] | None:
        annotations = meta(item).get("annotations")
        stands = annotations.get(name) if isinstance(annotations, dict) else None
        return None if stands == value else {"metadata": {"annotations": {name: value}}}

    return change


def noted(annotations: Mapping[str, str], labels: Mapping[str, str]) -> Change:
    """These annotations and labels have these values."""

    def change(item: Object) -> Mapping[str, Any] | None:
        wanted = {"annotations": annotations, "labels": labels}
        differing = {part: news for part, one in wanted.items() if (news := _news(meta(item).get(part), one))}
        return {"metadata": differing} if differing else None

    return change


def _news(stands: object, wanted: Mapping[str, str]) -> dict[str, str]:
    known = stands if isinstance(stands, dict) else {}
    return {name: value for name, value in wanted.items() if known.get(name) != value}


def status(wanted: Mapping[str, Any]) -> Change:
    """These fields of the status have these values."""

    def change(item: Object) -> Mapping[str, Any] | None:
        stands = item.get("status")
        stands = stands if isinstance(stands, dict) else {}
        differing = {name: value for name, value in wanted.items() if stands.get(name) != value}
        if not differing:
            return None
        # A merge patch would leave resources that are no longer wanted where they stand.
        return {"status": {name: _replacing(stands.get(name), value) for name, value in differing.items()}}

    return change


def scheduling(condition: Condition | None, pool: str, now_s: float) -> Change:
    """A PodGroup's condition about this node pool, the newest last; None: there is none. Those of others stay."""

    def change(item: Object) -> Mapping[str, Any] | None:
        every = _scheduling_conditions(item)
        own = [found for found in every if found.get("nodePool") == pool]
        others = [found for found in every if found.get("nodePool") != pool]
        if condition is None:
            return _listed(item, others) if own else None
        if own and _says(own[-1]) == _says(condition):
            return None
        number = 1 + max((_transition(found) for found in every), default=0)
        stamp = {"lastTransitionTime": format_time(int(now_s)), "transitionID": str(number)}
        return _listed(item, [*others, condition | stamp])

    return change


def has_scheduling(item: Object, pool: str) -> bool:
    """Whether a PodGroup has a condition about this node pool."""
    return any(found.get("nodePool") == pool for found in _scheduling_conditions(item))


def _stamped(change: Change, now_s: float) -> Change:
    """Conditions of a change with their time: kept where the status is the same, as Kubernetes wants it.

    Written only upon what stands here: a pod that was bound since would be said to wait for ever.
    """

    def stamped(pod: Object) -> Mapping[str, Any] | None:
        body = change(pod)
        if body is None:
            return None
        (condition,) = body["status"]["conditions"]
        before = condition_of(pod, condition["type"]) or {}
        same = before.get("status") == condition["status"] and before.get("lastTransitionTime")
        stamp = {"lastTransitionTime": same or format_time(int(now_s))}
        version = {"metadata": {"resourceVersion": version_of(pod)}}
        return {**version, "status": {"conditions": [condition | stamp]}}

    return stamped


def _with_condition(pod: Object, wanted: Condition) -> Mapping[str, Any] | None:
    stands = condition_of(pod, wanted["type"]) or {}
    if all(stands.get(name) == wanted[name] for name in _COMPARED):
        return None
    return {"status": {"conditions": [wanted]}}


def _scheduling_conditions(item: Object) -> list[Condition]:
    found = (item.get("status") or {}).get("schedulingConditions")
    return [condition for condition in found if isinstance(condition, dict)] if isinstance(found, list) else []


def _says(condition: Condition) -> Condition:
    return {name: value for name, value in condition.items() if name not in ("lastTransitionTime", "transitionID")}


def _transition(condition: Condition) -> int:
    text = str(condition.get("transitionID", ""))
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _listed(item: Object, conditions: Sequence[Condition]) -> Mapping[str, Any]:
    """A list is replaced as a whole: only if there was no write since it was read."""
    version = {"metadata": {"resourceVersion": version_of(item)}}
    return {**version, "status": {"schedulingConditions": list(conditions)}}


def _replacing(stands: object, value: Any) -> Any:
    """A merge patch that leaves nothing of what stands but ``value``; one level of names is enough here."""
    if not (isinstance(stands, dict) and isinstance(value, Mapping)):
        return value
    gone = dict.fromkeys(stands.keys() - value.keys())
    return {**gone, **{name: _replacing(stands.get(name), part) for name, part in value.items()}}
