"""What looks like a mistake in an instance that can be used: each with what to do about it."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from kai_solver.domain import Gang, Node, Notice, Pod, Queue, Snapshot, SubGroup
from kai_solver.domain.gpus import counted_gpu_milli, resource_like
from kai_solver.errors import nearest
from kai_solver.fairness import QueueTree
from kai_solver.units import CPU, GPU, MEMORY, MILLI, QUEUE_RESOURCES, UNLIMITED, counted, format_amount
from kai_solver.units.resources import FIXED
from kai_solver.units.shares import floor_milli

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Lint:
    """One finding. ``error``: nothing will run until it is mended; ``warning``: probably not meant."""

    severity: Severity
    object: str
    text: str
    cure: str


def lints(snapshot: Snapshot) -> tuple[Lint, ...]:
    """All findings, in the order of the rules below."""
    return tuple(lint for rule in RULES for lint in rule(snapshot))


def lint(snapshot: Snapshot) -> tuple[Notice, ...]:
    """The findings as notices, for display beside those of the import."""
    return tuple(Notice("warning", found.object, f"{found.text}. {found.cure}") for found in lints(snapshot))


def limit_zero(snapshot: Snapshot) -> Iterator[Lint]:
    """A limit of 0 allows nothing; in a KAI Queue it is what an unset limit means."""
    for queue in snapshot.queues:
        closed = [name for name, limit in zip(QUEUE_RESOURCES, queue.limit, strict=True) if limit == 0]
        if closed and _uses(snapshot, queue):
            text = (
                f"its limit of {', '.join(closed)} is 0: nothing that asks for it may run (KAI reads an unset limit so)"
            )
            yield Lint("error", f"queue {queue.name}", text, "Set the limit, or -1 for no limit")


def nothing_preemptible(snapshot: Snapshot) -> Iterator[Lint]:
    """Every priority in use is non-preemptible: nothing can ever be reclaimed or moved."""
    used = sorted({gang.priority for gang in snapshot.gangs})
    if used and not any(gang.preemptible for gang in snapshot.gangs):
        text = (
            f"every gang is non-preemptible (priorities {', '.join(map(str, used))}): none may go over quota or yield"
        )
        cure = f"Give training work a priority below {snapshot.policy.non_preemptible_priority}, or say preemptible"
        yield Lint("warning", "gangs", text, cure)


def quotas_above_parent(snapshot: Snapshot) -> Iterator[Lint]:
    """Children are promised more than their parent has; roots are left out of a flat hierarchy."""
    for queue in snapshot.queues:
        if not (queue.parent or snapshot.policy.full_hierarchy):
            continue
        children = [child for child in snapshot.queues if child.parent == queue.name]
        for index, name in enumerate(QUEUE_RESOURCES):
            promised = sum(max(child.quota[index], 0) for child in children)
            if UNLIMITED != queue.quota[index] < promised:
                has = format_amount(name, queue.quota[index])
                text = f"its children's quotas sum to {format_amount(name, promised)}, its own is {has}"
                yield Lint("warning", f"queue {queue.name}", text, "Raise its quota, or lower theirs")


def quotas_above_cluster(snapshot: Snapshot) -> Iterator[Lint]:
    """Roots are promised more than the cluster has: quotas cannot all be honoured."""
    roots = [queue for queue in snapshot.queues if not queue.parent]
    for index, name in enumerate(QUEUE_RESOURCES):
        promised = sum(max(queue.quota[index], 0) for queue in roots)
        has = sum(_counted(snapshot, node, index) for node in snapshot.nodes if node.schedulable)
        if promised > has:
            sums = f"{format_amount(name, promised)}, the cluster has {format_amount(name, has)}"
            text = f"the top queues' quotas sum to {sums}"
            yield Lint("warning", "queues", text, "Lower the quotas, or add nodes")


def _counted(snapshot: Snapshot, node: Node, index: int) -> int:
    """What the node adds to quotas: of GPUs, with its MIG slices and parts of GPUs."""
    return counted_gpu_milli(node, snapshot.schema, snapshot.policy) if index == GPU else node.allocatable[index]


def no_gpus(snapshot: Snapshot) -> Iterator[Lint]:
    """GPUs are asked for and no node advertises one."""
    asked = any(pod.gpu.devices for gang in snapshot.gangs for pod in gang.pods)
    if asked and not any(_counted(snapshot, node, GPU) for node in snapshot.nodes):
        cure = "Install the NVIDIA device plugin or the GPU operator, and check that its pods run"
        yield Lint("error", "nodes", "no node advertises a GPU, but pods ask for them", cure)


def larger_than_cluster(snapshot: Snapshot) -> Iterator[Lint]:
    """A gang's minimum is more than all schedulable nodes have."""
    size = snapshot.schema.size
    total = [sum(n.allocatable[i] for n in snapshot.nodes if n.schedulable) for i in range(size)]
    largest = max((node.gpu_memory_mib for node in snapshot.nodes), default=0)
    for gang in snapshot.gangs:
        if any(pod.node for pod in gang.pods):
            continue
        needed = least_load(gang, size, largest)
        for name, need, have in zip(snapshot.schema.names, needed, total, strict=True):
            if need > have == 0 and name not in FIXED:
                like = resource_like(name, snapshot)
                cure = f"Did you mean {like}?" if like else "Correct the name, or install what advertises it"
                yield Lint("warning", f"gang {gang.key}", f"it asks for {name}, and no node has any", cure)
            elif need > have:
                text = (
                    f"it needs at least {format_amount(name, need)}, the whole cluster has {format_amount(name, have)}"
                )
                yield Lint("warning", f"gang {gang.key}", text, "Ask for less, or add nodes")


def no_entitlement(snapshot: Snapshot) -> Iterator[Lint]:
    """A leaf with neither quota nor weight of GPUs is served only if no other queue requests GPUs."""
    parents = {queue.parent for queue in snapshot.queues}
    for queue in snapshot.queues:
        if queue.name not in parents and not queue.quota[GPU] and not queue.weight[GPU] and _uses(snapshot, queue):
            text = "it has neither a quota nor a weight of GPUs: everything it gets can be reclaimed at any time"
            yield Lint("warning", f"queue {queue.name}", text, "Give it a quota or an over-quota weight")


def unknown_queue(snapshot: Snapshot) -> Iterator[Lint]:
    """Gangs of queues that do not exist or hold other queues wait for ever."""
    names, parents = {q.name for q in snapshot.queues}, {q.parent for q in snapshot.queues}
    dropped = QueueTree.from_queues(snapshot.queues, snapshot.policy).dropped
    for queue, gangs in Counter(gang.queue for gang in snapshot.gangs).items():
        if queue in dropped and queue not in parents:
            text = f"{_name_it(gangs)}. {dropped[queue]}"
            yield Lint("error", f"queue {queue}", text, "Give it a parent that exists and leads to a root")
        elif queue not in names:
            like = nearest(queue, sorted(names - parents))
            cure = f"Did you mean {like}?" if like else "Create it, or name another"
            yield Lint("error", f"queue {queue}", f"{_name_it(gangs)}, and it does not exist", cure)
        elif queue in parents:
            text = f"{_name_it(gangs)}, and it is not a leaf"
            yield Lint("error", f"queue {queue}", text, "Submit to a queue without children")


def _name_it(gangs: int) -> str:
    return counted(gangs, "gang names it", "gangs name it")


def unknown_topology(snapshot: Snapshot) -> Iterator[Lint]:
    """Gangs that ask for a topology or a level that does not exist."""
    known = {topology.name: topology for topology in snapshot.topologies}
    for gang in snapshot.gangs:
        told: set[str] = set()
        for name, level in sorted(set(_levels(gang.root)), key=lambda asked: (asked[0], asked[1] or "")):
            if name not in known and name in told:
                continue
            if name not in known:
                told.add(name)
                like = nearest(name, sorted(known))
                text = f"it asks for the topology {name!r}, which does not exist"
                cure = f"Did you mean {like}?" if like else "Create it"
            elif level and known[name].level_index(level) is None:
                text = f"it asks for the level {level!r}, which the topology {name!r} does not have"
                cure = f"Levels: {', '.join(x.node_label for x in known[name].levels)}"
            else:
                continue
            yield Lint("error", f"gang {gang.key}", text, cure)


def unlabelled_nodes(snapshot: Snapshot) -> Iterator[Lint]:
    """Nodes without a level's label are outside the topology (docs/kai-behaviour.md#topology)."""
    for topology in snapshot.topologies:
        for level in topology.levels:
            bare = [n.name for n in snapshot.nodes if n.allocatable[GPU] and level.node_label not in n.labels]
            if bare:
                some = ", ".join(bare[:3]) + (", ..." if len(bare) > 3 else "")
                text = f"{len(bare)} GPU nodes ({some}) lack the label {level.node_label} and are outside it"
                yield Lint("info", f"topology {topology.name}", text, "Label them, if they belong to it")


def kept_whole(snapshot: Snapshot) -> Iterator[Lint]:
    """No domain has more nodes than it keeps free: work that may not use spares gets none that is idle."""
    for topology in snapshot.topologies:
        rule = topology.spares
        depth = topology.level_index(rule.level) if rule is not None else None
        if rule is None or depth is None:
            continue
        labels = [level.node_label for level in topology.levels]
        inside = [node.labels for node in snapshot.nodes if node.gpus and all(key in node.labels for key in labels)]
        largest = max(Counter(tuple(of[key] for key in labels[: depth + 1]) for of in inside).values(), default=0)
        if 0 < largest <= rule.nodes:
            text = f"of each {rule.level} {rule.nodes} nodes are kept free, and none has more than {largest}"
            cure = "Keep fewer, else only gangs that may use spares get an idle node"
            yield Lint("warning", f"topology {topology.name}", text, cure)


def absurd_amounts(snapshot: Snapshot) -> Iterator[Lint]:
    """Amounts in a unit that was not meant: CPU with the suffix of memory, memory without one."""
    for node in snapshot.nodes:
        if 0 < node.allocatable[MEMORY] < _LEAST_MEMORY:
            text = f"its memory is {counted(node.allocatable[MEMORY], 'byte')}, less than 1Gi"
            yield Lint("warning", f"node {node.name}", text, "Write it with a suffix, like 64Gi")
        if node.allocatable[CPU] > _MOST_CPU:
            yield _absurd_cpu(f"node {node.name}", node.allocatable[CPU])
    for gang in snapshot.gangs:
        most = max((pod.request[CPU] for pod in gang.pods), default=0)
        if most > _MOST_CPU:
            yield _absurd_cpu(f"gang {gang.key}", most)


_LEAST_MEMORY = 2**30
_MOST_CPU = 1_000_000 * MILLI
"""Of one node or pod, in thousandths of a core. ``1Mi`` as CPU is 1,048,576 cores."""


def _absurd_cpu(subject: str, milli: int) -> Lint:
    cure = "Write CPU without the suffix of memory: 64, or 500m"
    return Lint("warning", subject, f"its CPU is {milli // MILLI:,} cores", cure)


def unfilled_names(snapshot: Snapshot) -> Iterator[Lint]:
    """A name with a placeholder in it: it is filled in entries with a count alone."""
    subjects = [f"node {node.name}" for node in snapshot.nodes] + [f"queue {queue.name}" for queue in snapshot.queues]
    for gang in snapshot.gangs:
        pods = [f"pod {pod.key}" for pod in gang.pods if _is_unfilled(pod.key)]
        subjects += [f"gang {gang.key}"] if _is_unfilled(gang.key) else pods[:1]
    for subject in filter(_is_unfilled, subjects):
        text = "its name has a placeholder that nothing fills"
        yield Lint("warning", subject, text, "Give the entry a count, or write the name in full")


def _is_unfilled(name: str) -> bool:
    return "}" in name.partition("{")[2]


def too_few_pods(snapshot: Snapshot) -> Iterator[Lint]:
    """A gang that waits, and whose minimum is more than its pods; of one that runs some may have ended."""
    for gang in snapshot.gangs:
        if any(pod.status.is_active for pod in gang.pods):
            continue
        have = Counter(pod.podset for pod in gang.pods)
        for name, least in _needed_podsets(gang.root).items():
            if gang.pods and have[name] < least and not gang.set_aside:
                where = "" if name == "default" else f" of sub-group {name}"
                text = f"its minMember{where} is {least:,}, and it has {counted(have[name], 'pod')}"
                yield Lint("warning", f"gang {gang.key}", text, "Create the other pods, or lower minMember")


RULES: tuple[Callable[[Snapshot], Iterator[Lint]], ...] = (
    no_gpus,
    unknown_queue,
    unknown_topology,
    limit_zero,
    no_entitlement,
    nothing_preemptible,
    quotas_above_parent,
    quotas_above_cluster,
    larger_than_cluster,
    unlabelled_nodes,
    kept_whole,
    absurd_amounts,
    unfilled_names,
    too_few_pods,
)


def least_load(gang: Gang, size: int, gpu_memory_mib: int) -> list[int]:
    """A load that no way of running the gang's minimum stays below: the smallest pods of every podset it needs."""
    needed = _needed_podsets(gang.root)
    load = [0] * size
    for index in range(size):
        for name, members in needed.items():
            amounts = sorted(_amount(p, index, gpu_memory_mib) for p in gang.pods if p.podset == name)
            load[index] += sum(amounts[:members])
    return load


def _needed_podsets(group: SubGroup) -> dict[str, int]:
    """Minimum of every podset that cannot be left out."""
    if group.needed < len(group.children):
        return {}
    found: dict[str, int] = {}
    for child in group.children:
        found |= _needed_podsets(child) if isinstance(child, SubGroup) else {child.name: child.min_member}
    return found


def _amount(pod: Pod, index: int, gpu_memory_mib: int) -> int:
    if index != GPU:
        return pod.request[index]
    return pod.gpu.devices * min(floor_milli(pod.gpu.parts_on(gpu_memory_mib)), MILLI)


def _levels(group: SubGroup) -> Iterator[tuple[str, str]]:
    parts = [group.topology, *(child.topology for child in group.children if not isinstance(child, SubGroup))]
    for asked in parts:
        if asked is not None:
            yield from ((asked.topology, level) for level in (asked.required, asked.preferred))
    for child in group.children:
        if isinstance(child, SubGroup):
            yield from _levels(child)


def _uses(snapshot: Snapshot, queue: Queue) -> bool:
    """Whether some gang is in ``queue`` or below it."""
    parents = {q.name: q.parent for q in snapshot.queues}
    for name in {gang.queue for gang in snapshot.gangs}:
        here, steps = name, 0
        while here and steps <= len(parents):
            if here == queue.name:
                return True
            here, steps = parents.get(here, ""), steps + 1
    return False
