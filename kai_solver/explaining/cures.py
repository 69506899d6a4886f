"""What would make a gang fit: one change at a time, each tried out by planning the changed cluster."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kai_solver.domain import Blocker, Node, Plan, Snapshot
from kai_solver.explaining.easing import eased, nodes_of
from kai_solver.problem.rules import rule_of_kind
from kai_solver.units import counted, format_amount

Replan = Callable[[Snapshot], Plan]

MOST_NODES = 64
"""More nodes than that are no cure, but another cluster."""

_PROTECTIVE, _OPTIONAL = "protective rule", "optional rule"
"""Stand for the kinds of optional rules: of those that hold running pods, and of the others."""


@dataclass(frozen=True, slots=True)
class Cure:
    """One change, whether the gang then runs, and what blocks it else (empty where unknown)."""

    text: str
    runs: bool
    then: tuple[Blocker, ...] = ()


def cures(snapshot: Snapshot, gang: str, blocking: Sequence[Blocker], replan: Replan) -> tuple[Cure, ...]:
    """Ease every element of ``blocking`` in turn, those of queues first, nodes last; see whether ``gang`` runs.

    Capacity is added as whole empty nodes like the largest one of the domain.
    """
    return tuple(_tried(text, gang, replan(changed)) for text, changed in _changes(snapshot, gang, blocking))


def _tried(text: str, gang: str, plan: Plan) -> Cure:
    if any(admitted == gang for admitted, _ in plan.admitted):
        return Cure(text, runs=True)
    entry = next((entry for entry in plan.pending if entry.gang == gang), None)
    return Cure(text, runs=False, then=entry.proof.blocking if entry is not None else ())


def _changes(snapshot: Snapshot, gang: str, blocking: Sequence[Blocker]) -> Iterator[tuple[str, Snapshot]]:
    seen: set[str] = set()
    for blocker in sorted(blocking, key=_effort):
        eased = _without(snapshot, gang, blocker) if blocker.kind != "resource" else None
        rule = rule_of_kind(blocker.kind)
        is_of_nodes = blocker.kind == "resource" or (rule is not None and not rule.is_protective)
        added = _more_nodes(snapshot, blocker) if is_of_nodes else None
        for found in (eased, added):
            if found is not None and found[0] not in seen:
                seen.add(found[0])
                yield found


def _effort(blocker: Blocker) -> tuple[int, bool]:
    """What is changed with a line of YAML comes before what has to be bought; so rules about resources come last."""
    order = (
        "queue-limit",
        "queue-quota",
        "fair-share",
        "surplus",
        "rule",
        _PROTECTIVE,
        "domain",
        _OPTIONAL,
        "resource",
    )
    rule = rule_of_kind(blocker.kind)
    kind = blocker.kind if rule is None else _PROTECTIVE if rule.is_protective else _OPTIONAL
    return order.index(kind) if kind in order else len(order), kind == _OPTIONAL and bool(blocker.resource)


def _without(snapshot: Snapshot, gang: str, blocker: Blocker) -> tuple[str, Snapshot] | None:
    changed = eased(snapshot, gang, blocker)
    rule = rule_of_kind(blocker.kind)
    text = rule.cure if rule is not None else _TEXTS.get(blocker.kind) or _RULES.get(blocker.name)
    if changed is None or not text:
        return None
    short = format_amount(blocker.resource, blocker.short) if blocker.resource else ""
    return text.format(name=blocker.name, short=short, resource=blocker.resource), changed


def _more_nodes(snapshot: Snapshot, blocker: Blocker) -> tuple[str, Snapshot] | None:
    """As many more of the node that has most of the resource as hold what is short."""
    inside = nodes_of(snapshot, blocker.where)
    resource = snapshot.schema.index(blocker.resource) if blocker.resource else -1
    candidates = [node for node in snapshot.nodes if node.name in inside and node.schedulable]
    if resource < 0 or not candidates:
        return None
    model = max(candidates, key=lambda node: (node.allocatable[resource], node.name))
    if not model.allocatable[resource]:
        return None
    count = max(1, -(-blocker.short // model.allocatable[resource]))
    if count > MOST_NODES:
        return None
    where = f" in {blocker.where}" if blocker.where else ""
    fresh = tuple(_copy(snapshot, model, number) for number in range(1, count + 1))
    return f"{counted(count, 'more node')} like {model.name}{where}", replace(snapshot, nodes=(*snapshot.nodes, *fresh))


def _copy(snapshot: Snapshot, node: Node, number: int) -> Node:
    """``node`` once more, empty, under a name that no other bears."""
    names = {other.name for other in snapshot.nodes}
    name = f"{node.name}-more-{number}"
    while name in names:
        name += "-"
    labels = {key: name if value == node.name else value for key, value in node.labels.items()}
    return replace(node, name=name, labels=labels, gpu_uuids=())


_TEXTS = {
    "queue-limit": "the limit of queue {name} raised by {short}",
    "queue-quota": "the quota of queue {name} raised by {short}",
    "fair-share": "a quota of queue {name}, and of those above it, for all the {resource} that it asks for",
    "surplus": "no quota and no weight for other queues",
    "domain": "no required {name}",
}
_RULES = {
    "priority": "the highest priority in its queue",
    "preemptibility": "all other work preemptible",
    "consolidation": "itself preemptible",
    "minruntime": "no minimum run times",
    "node-rules": "no selectors, affinity, taints or cordons in its way",
    "max-consolidation-gangs": "any number of gangs may be moved for it",
    "largest node": "nodes with {short} more",
}
