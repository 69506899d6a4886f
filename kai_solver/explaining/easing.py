"""The cluster as it would be with one element of a blocking set out of the way: for questions of "what if"."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from kai_solver.domain import (
    NO_CONSTRAINTS,
    Blocker,
    Gang,
    Node,
    PodSet,
    Queue,
    QueueVector,
    Snapshot,
    SubGroup,
    Toleration,
)
from kai_solver.problem.rules import rule_of_kind
from kai_solver.units import GPU, MILLI, QUEUE_RESOURCES, UNLIMITED

PLENTY = 1 << 50
"""A quota beyond every request: what its queue asks for is granted before anything is shared out."""


def eased(snapshot: Snapshot, gang: str, blocker: Blocker) -> Snapshot | None:
    """``snapshot`` without ``blocker`` in the way of ``gang`` (its key); None where that is not known.

    A resource grows by what is short on every node that the element is about; a queue's number by what is short; a rule
    is dropped, for the gang where it is the gang's, else for every gang.
    """
    rule = rule_of_kind(blocker.kind)
    if rule is not None:
        return rule.eased(snapshot, gang, blocker)
    ease = _BY_KIND.get(blocker.kind) or _RULES.get(blocker.name)
    return ease(snapshot, gang, blocker) if ease is not None else None


# -- capacity ------------------------------------------------------------------------------------------------------


def _more_capacity(snapshot: Snapshot, _gang: str, blocker: Blocker) -> Snapshot | None:
    if not blocker.resource:
        return None
    resource = snapshot.schema.index(blocker.resource)
    inside = nodes_of(snapshot, blocker.where)
    nodes = (_larger(n, resource, blocker.short) if n.name in inside else n for n in snapshot.nodes)
    return replace(snapshot, nodes=tuple(nodes))


def _larger(node: Node, resource: int, amount: int) -> Node:
    if resource == GPU:
        devices = -(-amount // MILLI)
        return replace(_with(node, GPU, devices * MILLI), gpus=node.gpus + devices)
    return _with(node, resource, amount)


def _with(node: Node, resource: int, amount: int) -> Node:
    vector = list(node.allocatable)
    vector[resource] += amount
    return replace(node, allocatable=tuple(vector))


def nodes_of(snapshot: Snapshot, domain: str) -> frozenset[str]:
    """Names of the nodes of a domain (label values from the outermost level in, with ``/``); of all for ``""``."""
    if not domain:
        return frozenset(node.name for node in snapshot.nodes)
    found = set()
    for topology in snapshot.topologies:
        labels = [level.node_label for level in topology.levels]
        for node in snapshot.nodes:
            path = [node.labels.get(label, "") for label in labels]
            if domain in {"/".join(path[: depth + 1]) for depth in range(len(path))}:
                found.add(node.name)
    return frozenset(found)


# -- queues --------------------------------------------------------------------------------------------------------


def _higher_cap(snapshot: Snapshot, _gang: str, blocker: Blocker) -> Snapshot:
    """A limit or a quota raised by what is short."""

    def of_queue(queue: Queue) -> Queue:
        if queue.title != blocker.name:
            return queue
        if blocker.kind == "queue-limit":
            return replace(queue, limit=_raised(queue.limit, blocker))
        return replace(queue, quota=_raised(queue.quota, blocker))

    return replace(snapshot, queues=tuple(map(of_queue, snapshot.queues)))


def _raised(amounts: QueueVector, blocker: Blocker) -> QueueVector:
    return _vector(
        amount + blocker.short if name == blocker.resource and amount != UNLIMITED else amount
        for name, amount in zip(QUEUE_RESOURCES, amounts, strict=True)
    )


def _vector(amounts: Iterable[int]) -> QueueVector:
    cpu, memory, gpu = amounts
    return cpu, memory, gpu


def _more_share(snapshot: Snapshot, gang: str, blocker: Blocker) -> Snapshot:
    """Whatever its queues hold and ask for is theirs: no quota of the resource from its queue up binds any more."""
    chain = {queue.name for queue in _chain(snapshot, gang)}

    def of_queue(queue: Queue) -> Queue:
        if queue.name not in chain:
            return queue
        amounts = zip(QUEUE_RESOURCES, queue.quota, strict=True)
        return replace(queue, quota=_vector(PLENTY if n == blocker.resource else amount for n, amount in amounts))

    return replace(snapshot, queues=tuple(map(of_queue, snapshot.queues)))


def _others_own_nothing(snapshot: Snapshot, gang: str, _blocker: Blocker) -> Snapshot:
    """All that other queues hold is above their share."""
    chain = {queue.name for queue in _chain(snapshot, gang)}
    queues = (
        queue if queue.name in chain else replace(queue, quota=(0, 0, 0), weight=(0.0, 0.0, 0.0))
        for queue in snapshot.queues
    )
    return replace(snapshot, queues=tuple(queues))


def _chain(snapshot: Snapshot, gang: str) -> list[Queue]:
    by_name = {queue.name: queue for queue in snapshot.queues}
    name = next((g.queue for g in snapshot.gangs if g.key == gang), "")
    found: list[Queue] = []
    while name in by_name and by_name[name] not in found:
        found.append(by_name[name])
        name = found[-1].parent
    return found


# -- rules ---------------------------------------------------------------------------------------------------------


def _changed(snapshot: Snapshot, gang: str, change: Callable[[Gang], Gang]) -> Snapshot:
    return replace(snapshot, gangs=tuple(change(g) if g.key == gang else g for g in snapshot.gangs))


def _any_domain(snapshot: Snapshot, gang: str, _blocker: Blocker) -> Snapshot:
    return _changed(snapshot, gang, lambda g: replace(g, root=_without_topology(g.root)))


def _without_topology(group: SubGroup) -> SubGroup:
    children = tuple(
        replace(child, topology=None) if isinstance(child, PodSet) else _without_topology(child)
        for child in group.children
    )
    return replace(group, children=children, topology=None)


def _any_node(snapshot: Snapshot, gang: str, _blocker: Blocker) -> Snapshot:
    free = replace(NO_CONSTRAINTS, tolerations=(Toleration(operator="Exists"),))

    def of_gang(g: Gang) -> Gang:
        return replace(g, pods=tuple(replace(pod, constraints=free) for pod in g.pods))

    nodes = tuple(replace(node, schedulable=True, taints=()) for node in snapshot.nodes)
    return replace(_changed(snapshot, gang, of_gang), nodes=nodes)


def _all_preemptible(snapshot: Snapshot, gang: str, _blocker: Blocker) -> Snapshot:
    gangs = tuple(g if g.key == gang else replace(g, preemptible=True) for g in snapshot.gangs)
    return replace(snapshot, gangs=gangs)


def _itself_preemptible(snapshot: Snapshot, gang: str, _blocker: Blocker) -> Snapshot:
    return _changed(snapshot, gang, lambda g: replace(g, preemptible=True))


def _first_in_queue(snapshot: Snapshot, gang: str, _blocker: Blocker) -> Snapshot:
    highest = max(g.priority for g in snapshot.gangs) + 1
    return _changed(snapshot, gang, lambda g: replace(g, priority=highest, never_preempts=False))


def _none_protected(snapshot: Snapshot, _gang: str, _blocker: Blocker) -> Snapshot:
    policy = replace(snapshot.policy, reclaim_min_runtime_s=0.0, preempt_min_runtime_s=0.0)
    queues = tuple(replace(q, reclaim_min_runtime_s=None, preempt_min_runtime_s=None) for q in snapshot.queues)
    return replace(snapshot, policy=policy, queues=queues)


def _all_may_move(snapshot: Snapshot, _gang: str, _blocker: Blocker) -> Snapshot:
    return replace(snapshot, policy=replace(snapshot.policy, max_consolidation_gangs=-1))


Ease = Callable[[Snapshot, str, Blocker], Snapshot | None]

_BY_KIND: dict[str, Ease] = {
    "resource": _more_capacity,
    "domain": _any_domain,
    "queue-limit": _higher_cap,
    "queue-quota": _higher_cap,
    "fair-share": _more_share,
    "surplus": _others_own_nothing,
}
_RULES: dict[str, Ease] = {
    "node-rules": _any_node,
    "preemptibility": _all_preemptible,
    "consolidation": _itself_preemptible,
    "priority": _first_in_queue,
    "minruntime": _none_protected,
    "max-consolidation-gangs": _all_may_move,
    "largest node": _more_capacity,
}
