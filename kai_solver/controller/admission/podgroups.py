"""PodGroups: the rules of KAI's webhook on subgroups and minimums, and queues that do not exist.

Source: docs/kai-behaviour.md#podgroup.
"""

from kai_solver.controller.admission.annotations import own_annotations
from kai_solver.controller.admission.lookup import Lookup
from kai_solver.controller.admission.queues import named_queue
from kai_solver.controller.admission.verdict import FINE, Verdict, refuse, warn
from kai_solver.errors import InputError
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.tree import idle_minimums, read_topology, read_tree, unreachable_minimums

_TOPOLOGY = "topologyConstraint"


def pod_group_verdict(pod_group: Raw, lookup: Lookup, *, is_new: bool, refuses_unknown: bool = True) -> Verdict:
    """All rules on a PodGroup that is made or changed.

    One with an owner was made by a pod grouper: its queue is not refused, as only a PodGroup lets
    the pods learn why they wait.
    """
    spec = pod_group.get("spec")
    queue, is_made = spec.text("queue"), bool(pod_group.items("metadata.ownerReferences"))
    verdict = _tree(spec, is_new) + _topologies(spec) + own_annotations(pod_group, "PodGroup")
    return verdict + named_queue(queue, lookup, refuses=refuses_unknown and not is_made) if queue else verdict


def _tree(spec: Raw, is_new: bool) -> Verdict:
    try:
        read_tree(Raw(_without_topology(spec.value), "spec"))
    except InputError as error:
        return refuse(error)
    idle = tuple(idle_minimums(spec))
    return Verdict(idle if is_new else (), (*(() if is_new else idle), *unreachable_minimums(spec)))


def _topologies(spec: Raw) -> Verdict:
    """KAI keeps constraints that name no topology; here their gang is set aside, so its author should know."""
    verdict = FINE
    for part in (spec, *spec.items("subGroups")):
        try:
            read_topology(part)
        except InputError as error:
            verdict += warn(error)
    return verdict


def _without_topology(value: object) -> object:
    """A spec without constraints on topology, which are judged on their own."""
    if isinstance(value, dict):
        return {name: _without_topology(part) for name, part in value.items() if name != _TOPOLOGY}
    return [_without_topology(part) for part in value] if isinstance(value, list) else value
