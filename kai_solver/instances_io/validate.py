"""Whether a snapshot makes sense: what contradicts itself is set aside with a reason, and the rest goes on.

Every importer ends with :func:`sanitize`. After it, names are unique, every pod that holds resources is on a known
node, and every gang without ``set_aside`` has a usable tree. Queues without a way up to a root, and gangs of a queue
that does not exist, takes no part or is no leaf, are noted and left as they are: plans have reasons for them. A node
that is over-committed is a fact, not an error: it is noted, and the checker sees that it does not get worse.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kai_solver.claims import lower, raised
from kai_solver.domain import Gang, Node, Notice, Pod, PodStatus, Queue, Snapshot
from kai_solver.domain.object_limits import MOST_QUEUE_LEVELS
from kai_solver.errors import InputError, nearest
from kai_solver.instances_io.trees import mended_tree, tree_problem
from kai_solver.units import GPU, MILLI, UNLIMITED
from kai_solver.units.shares import PARTS_OF_MILLI

Named = TypeVar("Named")


def refuse_duplicates(snapshot: Snapshot) -> None:
    """Raise for a name that occurs twice: in a file written by hand that is a slip, not a fact to live with.

    Raises
    ------
    InputError
        Names the first one.
    """
    pods = [pod.key for gang in snapshot.gangs for pod in gang.pods] + [pod.key for pod in snapshot.foreign]
    kinds = (
        ("nodes", [node.name for node in snapshot.nodes]),
        ("queues", [queue.name for queue in snapshot.queues]),
        ("topologies", [topology.name for topology in snapshot.topologies]),
        ("gangs", [gang.key for gang in snapshot.gangs]),
        ("pods", pods),
        ("disruptionBudgets", [budget.key for budget in snapshot.budgets]),
    )
    for kind, names in kinds:
        for name, times in Counter(names).items():
            if times > 1:
                cure = "Names are unique; in entries with a count, use {i} in the name"
                raise InputError(f"the name {name!r} occurs {times} times", field=kind, cure=cure)


def sanitize(snapshot: Snapshot) -> Snapshot:
    """The same snapshot with what contradicts itself set aside, each with a notice.

    Raises
    ------
    InputError
        A vector of the wrong length, or a negative amount: no reading of it is safe.
    """
    snapshot = raised(snapshot)
    _check_vectors(snapshot)
    work = _Work(snapshot, list(snapshot.notices))
    nodes = work.unique(snapshot.nodes, "node", lambda node: node.name)
    queues = work.unique(snapshot.queues, "queue", lambda queue: queue.name)
    work.note_orphans(queues)
    work.nodes = {node.name: node for node in nodes}
    work.queues = {queue.name: queue for queue in queues}
    work.parents = {queue.parent for queue in queues if queue.parent}
    gangs = [work.gang(gang) for gang in snapshot.gangs]
    foreign = [pod for pod in snapshot.foreign if work.foreign_counts(pod)]
    work.note_overcommitted(gangs, foreign)
    sane = replace(
        snapshot,
        nodes=tuple(nodes),
        queues=tuple(queues),
        topologies=tuple(work.unique(snapshot.topologies, "topology", lambda topology: topology.name)),
        gangs=tuple(gangs),
        foreign=tuple(foreign),
        budgets=tuple(work.unique(snapshot.budgets, "disruption budget", lambda budget: budget.key)),
        notices=tuple(dict.fromkeys(work.notices)),
    )
    return lower(sane)


@dataclass(slots=True)
class _Work:
    """What is known so far while a snapshot is gone through."""

    snapshot: Snapshot
    notices: list[Notice]
    nodes: dict[str, Node] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    parents: set[str] = field(default_factory=set)
    orphans: dict[str, str] = field(default_factory=dict)
    meant: dict[str, str] = field(default_factory=dict)
    """The queue that one that does not exist was probably meant to be."""
    gang_keys: set[str] = field(default_factory=set)
    pod_keys: set[str] = field(default_factory=set)

    def set_aside(self, thing: str, text: str) -> None:
        self.notices.append(Notice("set-aside", thing, text))

    def unique(self, things: Iterable[Named], kind: str, name: Callable[[Named], str]) -> list[Named]:
        """The first of each name."""
        kept: dict[str, Named] = {}
        for thing in things:
            if name(thing) in kept:
                self.set_aside(f"{kind} {name(thing)}", "the name occurs twice; the first is used")
            kept.setdefault(name(thing), thing)
        return list(kept.values())

    def note_orphans(self, queues: list[Queue]) -> None:
        """Queues whose ancestors do not end at a root take no part, as in KAI (docs/kai-behaviour.md#queues)."""
        by_name = {queue.name: queue for queue in queues}
        noted = {notice.object.lower() for notice in self.notices if notice.kind == "set-aside"}
        for queue in queues:
            problem = _ancestry_problem(queue, by_name) if self.snapshot.policy.full_hierarchy else ""
            if problem:
                self.orphans[queue.name] = problem
                if f"queue {queue.name}".lower() not in noted:
                    self.set_aside(f"queue {queue.name}", problem)

    def gang(self, gang: Gang) -> Gang:
        """``gang`` under a unique name, with its pods where they can be; set aside where it cannot be considered."""
        problems: list[str] = []
        if gang.key in self.gang_keys:
            problems.append(f"the name {gang.key} occurs twice")
        name = _free_name(gang.name, lambda candidate: f"{gang.namespace}/{candidate}" in self.gang_keys)
        tree = mended_tree(gang.root)
        if tree is not gang.root:
            self.notices.append(Notice("warning", f"gang {gang.key}", "a negative minimum is read as 0"))
        pods = [pod for p in gang.pods if (pod := self._pod(p, problems)) is not None]
        if broken := tree_problem(tree, pods):
            problems.append(broken)
        problems = [problem for problem in problems if problem not in gang.set_aside]
        reasons = "; ".join(filter(None, (gang.set_aside, *problems)))
        # The root is the gang itself: a name of its own means nothing.
        gang = replace(
            gang, name=name, root=replace(tree, name="") if tree.name else tree, pods=tuple(pods), set_aside=reasons
        )
        self.gang_keys.add(gang.key)
        for problem in (*problems, self._queue_problem(gang.queue)):
            if problem:
                self.set_aside(f"gang {gang.key}", problem)
        return gang

    def _queue_problem(self, queue: str) -> str:
        """Why nothing of ``queue`` can be scheduled; such gangs stay pending with a reason of their own."""
        if queue not in self.queues:
            if queue not in self.meant:
                self.meant[queue] = nearest(queue, sorted(self.queues.keys() - self.parents))
            like = f". Did you mean {self.meant[queue]}?" if self.meant[queue] else ""
            return f"queue {queue!r} does not exist{like}"
        if queue in self.orphans:
            return f"queue {queue!r} takes no part: {self.orphans[queue]}"
        return f"queue {queue!r} is not a leaf" if queue in self.parents else ""

    def _pod(self, pod: Pod, problems: list[str]) -> Pod | None:
        """``pod`` as it can be used, None where it is on no known node; what is wrong joins ``problems``."""
        if pod.key in self.pod_keys:
            problems.append(f"the pod {pod.key} occurs twice")
            free = _free_name(pod.name, lambda candidate: f"{pod.namespace}/{candidate}" in self.pod_keys)
            pod = replace(pod, name=free)
        self.pod_keys.add(pod.key)
        if pod.status.holds_resources and pod.node not in self.nodes:
            where = f"is on the node {pod.node!r}, which is not in the instance" if pod.node else "is on no node"
            problems.append(f"the pod {pod.key} is {pod.status.value} and {where}")
            return None
        if problem := _gpu_problem(pod):
            problems.append(f"the pod {pod.key} asks for {problem}")
        if pod.node and not pod.status.holds_resources:
            pod = self._without_node(pod)
        if pod.nominated_node and pod.nominated_node not in self.nodes:
            pod = replace(pod, nominated_node="")
        return self._with_real_devices(pod)

    def _without_node(self, pod: Pod) -> Pod:
        if pod.status in (PodStatus.PENDING, PodStatus.GATED):
            text = (
                f"it is {pod.status.value}, so its node {pod.node!r} is not used: a pod on a node is Running or Bound"
            )
            self.notices.append(Notice("warning", f"pod {pod.key}", text))
        return replace(pod, node="", devices=())

    def _with_real_devices(self, pod: Pod) -> Pod:
        node = self.nodes.get(pod.node)
        if not pod.devices or node is None:
            return pod
        fits = len(pod.devices) == pod.gpu.devices and len(set(pod.devices)) == len(pod.devices)
        if fits and all(0 <= index < node.gpus for index in pod.devices):
            return pod
        text = f"its devices {list(pod.devices)} do not fit its request or node {node.name}: not used"
        self.notices.append(Notice("warning", f"pod {pod.key}", text))
        return replace(pod, devices=())

    def foreign_counts(self, pod: Pod) -> bool:
        """Whether a foreign pod is load on a known node."""
        if pod.status.holds_resources and pod.node in self.nodes:
            return True
        if pod.status.holds_resources:
            self.set_aside(f"pod {pod.key}", f"it is on the node {pod.node!r}, which is not in the instance")
        return False

    def note_overcommitted(self, gangs: list[Gang], foreign: list[Pod]) -> None:
        """One warning per node whose pods hold more than it has."""
        holding = [pod for gang in gangs for pod in gang.pods if pod.status.holds_resources] + foreign
        load: dict[str, list[int]] = {name: [0] * self.snapshot.schema.size for name in self.nodes}
        for pod in holding:
            node = self.nodes[pod.node]
            held = load[pod.node]
            for index, amount in enumerate(pod.request):
                held[index] += amount
            held[GPU] += pod.gpu.devices * pod.gpu.parts_on(node.gpu_memory_mib)
        for name, held in load.items():
            held[GPU] = -(-held[GPU] // PARTS_OF_MILLI)
            have = self.nodes[name].allocatable
            over = [r for r, h, a in zip(self.snapshot.schema.names, held, have, strict=True) if h > a]
            if over:
                text = f"its pods hold more {', '.join(over)} than it has; nothing is added there"
                self.notices.append(Notice("warning", f"node {name}", text))


def _free_name(name: str, taken: Callable[[str], bool]) -> str:
    candidate, number = name, 1
    while taken(candidate):
        number += 1
        candidate = f"{name}~{number}"
    return candidate


def _ancestry_problem(queue: Queue, by_name: dict[str, Queue]) -> str:
    """Why the way up from ``queue`` ends nowhere; empty where it ends at a root."""
    passed, here = {queue.name}, queue
    while here.parent:
        if here.parent not in by_name:
            return f"the parent {here.parent!r} of queue {here.name!r} does not exist"
        if here.parent in passed:
            return f"its parents form a cycle through {here.parent!r}"
        if len(passed) >= MOST_QUEUE_LEVELS:
            return f"it lies deeper than {MOST_QUEUE_LEVELS} queues"
        passed.add(here.parent)
        here = by_name[here.parent]
    return ""


def _gpu_problem(pod: Pod) -> str:
    gpu = pod.gpu
    if gpu.devices < 0 or gpu.memory_mib < 0 or not 0 <= gpu.milli <= MILLI:
        return f"{gpu.devices} GPUs with {gpu.milli} thousandths each"
    if gpu.devices and not gpu.milli and not gpu.memory_mib:
        return "a share of 0 of a GPU"
    return ""


def _check_vectors(snapshot: Snapshot) -> None:
    size = snapshot.schema.size
    for kind, name, vector in _vectors(snapshot):
        if len(vector) != size or min(vector) < 0:
            problem = f"{kind} {name}: {list(vector)} is not a vector of {size} amounts of zero or more"
            raise InputError(problem, cure="Quantities are zero or more")
    for queue in snapshot.queues:
        if min(*queue.quota, *queue.limit) < UNLIMITED or min(*queue.weight) < 0:
            problem = f"queue {queue.name} has a negative quota, limit or weight"
            raise InputError(problem, cure="Give zero or more, or -1 for unlimited quotas and limits")


def _vectors(snapshot: Snapshot) -> Iterable[tuple[str, str, Any]]:
    yield from (("node", node.name, node.allocatable) for node in snapshot.nodes)
    yield from (("pod", pod.key, pod.request) for gang in snapshot.gangs for pod in gang.pods)
    yield from (("pod", pod.key, pod.request) for pod in snapshot.foreign)
