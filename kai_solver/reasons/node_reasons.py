"""Why single nodes do not take a pod, counted in KAI's words (docs/kai-behaviour.md#messages).

Source: ``common_info/pod_errors.go``. KAI compares the pod with the largest node first (``MaxNodePoolResources``), and
then asks each node. It compares resources first and reports of each node every resource that is short. The rules of a
node (taints, affinity, ...) are asked only where there is room, and the first that refuses the pod is reported.
"""

from collections import Counter
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Reason
from kai_solver.fairness import over_limit_message, over_quota_message
from kai_solver.placement.node_caps import NodeCaps
from kai_solver.planstate.state import State
from kai_solver.problem import Problem, Shape
from kai_solver.problem.charges import charge
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS, humanized
from kai_solver.units.go_text import CORES, GB
from kai_solver.units.rows import row_sums
from kai_solver.units.shares import WHOLE

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

NO_NODES = "no nodes with enough resources were found"
GPUS = "node(s) didn't have enough resources: GPUs"
POD_COUNT = "node(s) pod number exceeded"
GPU_MEMORY = "node(s) didn't have enough resources: GPU memory"
_NAMES = {CPU: "CPU cores", MEMORY: "memory"}


def counted(reasons: Counter[str]) -> str:
    """KAI's sentence: the base error, then every count with its reason in the order of the texts (``"10 .."`` before
    ``"2 .."``), each ended by a full stop.
    """
    lines = sorted(f"{count} {text}" for text, count in reasons.items())
    return NO_NODES + (": " + ". \n".join(lines) + "." if lines else "")


class NodeRoom:
    """What nodes lack for one more pod of a shape in the present state, before rules are asked.

    Attributes
    ----------
    short, lacking
        By resource, (N,) nodes that are short of it; (N,) those that are short of any.
    """

    def __init__(self, state: State, index: int) -> None:
        self._state = state
        self._index = index
        self._shape = state.problem.shapes.shapes[index]
        self.short = _short(state, self._shape, index)
        none = np.zeros(len(state.problem.nodes), dtype=np.bool_)
        self.lacking: BoolArray = np.logical_or.reduce([*self.short.values(), none], axis=0)

    def kai(self, allowed: BoolArray | None) -> Counter[str]:
        """How many nodes of ``allowed`` (all where None) are short of what, in KAI's words."""
        return self._kai if allowed is None else self._count(self.lacking & allowed)

    @cached_property
    def _kai(self) -> Counter[str]:
        return self._count(self.lacking)

    def _count(self, lacking: BoolArray) -> Counter[str]:
        counts = Counter[str]()
        for text, where in self._idle:
            counts[text] += int(np.count_nonzero(lacking & where))
        return counts

    @cached_property
    def _idle(self) -> list[tuple[str, BoolArray]]:
        of = (_is_short_of_idle(self._state, self._shape, self._index, resource) for resource in self.short)
        return [pair for one in of for pair in one.items()]

    @cached_property
    def kubernetes(self) -> Counter[str]:
        """How many nodes are short of what, in the words of kube-scheduler."""
        texts = {r: _kubernetes_text(self._state, self._shape, r) for r in self.short}
        return Counter({texts[r]: int(np.count_nonzero(nodes)) for r, nodes in self.short.items()})


class NodeReasons:
    """What keeps one more ``pod`` from every node in the present state; computed once for all callers."""

    def __init__(self, state: State, pod: int, room: NodeRoom) -> None:
        """``room``: of the pod's shape."""
        self.state = state
        self.pod = pod
        self.shape = state.problem.shapes.shapes[state.problem.pod_shape[pod]]
        self.room = room

    def kai(self, allowed: BoolArray | None) -> Counter[str]:
        """Nodes of ``allowed`` (all where None) by reason, in KAI's words."""
        return _present(self.room.kai(allowed), self._rules if allowed is None else self._by_rules(allowed))

    def kubernetes(self) -> Counter[str]:
        """All nodes by reason, in the words of kube-scheduler."""
        return _present(self.room.kubernetes, self._rules)

    @cached_property
    def _rules(self) -> Counter[str]:
        return self._by_rules(np.ones_like(self.room.lacking))

    def _by_rules(self, inside: BoolArray) -> Counter[str]:
        return _by_rules(self.state, self.pod, self.shape, inside & ~self.room.lacking)


def _present(counts: Counter[str], rules: Counter[str]) -> Counter[str]:
    """Both together, without reasons that count no node."""
    return Counter({text: count for text, count in (counts + rules).items() if count})


def _kubernetes_text(state: State, shape: Shape, resource: int) -> str:
    if resource == PODS:
        return "Too many pods"
    return (
        f"Insufficient {gpu_name(state, shape) if resource == GPU else state.problem.snapshot.schema.names[resource]}"
    )


def gpu_name(state: State, shape: Shape) -> str:
    """The name under which ``shape`` asks for GPUs; the first of the configured ones where it does not say."""
    names = state.problem.policy.gpu_resources
    asked = state.problem.snapshot.schema.mapping(shape.request)
    return next((name for name in names if name in asked), names[0])


def _short(state: State, shape: Shape, index: int) -> dict[int, BoolArray]:
    """By resource asked for, (N,) True where it is short even once everything that leaves has left."""
    short = {r: state.future[r] < amount for r, amount in enumerate(shape.request) if amount and r != GPU}
    if shape.gpu.devices:
        parts = state.problem.shapes.parts(index)
        fitting = state.whole_later if shape.gpu.is_whole else row_sums(state.device_future >= parts[:, None])
        names = state.problem.snapshot.schema.names
        kinds = [short.pop(r) for r in list(short) if names[r] in state.problem.policy.gpu_resources]
        short[GPU] = np.logical_or.reduce([fitting < shape.gpu.devices, parts > WHOLE, *kinds], axis=0)
    return short


def _is_short_of_idle(state: State, shape: Shape, index: int, resource: int) -> dict[str, BoolArray]:
    """KAI's text for a node that is short of a resource: what is idle now counts as free, whole GPUs only."""
    if resource != GPU:
        idle = state.future[resource] - state.problem.releasing[resource]
        return {_resource_text(state, resource): idle < shape.request[resource]}
    if shape.gpu.memory_mib:
        memory = np.array([node.gpu_memory_mib for node in state.problem.nodes], dtype=np.int64)
        return {GPU_MEMORY: memory < shape.gpu.memory_mib}
    milli = state.problem.shapes.milli(index)
    return {GPUS: shape.gpu.devices * milli > state.whole_now * MILLI}


def _resource_text(state: State, resource: int) -> str:
    name = state.problem.snapshot.schema.names[resource]
    if is_mig(name):
        return f"node(s) didn't have enough of mig profile: {name}"
    return f"node(s) didn't have enough resources: {_NAMES.get(resource, name)}"


def is_mig(resource: str) -> bool:
    """True for MIG profiles (``nvidia.com/mig-1g.10gb``), which KAI reports apart."""
    return resource.rpartition("/")[2].startswith("mig-")


def _by_rules(state: State, pod: int, shape: Shape, left: BoolArray) -> Counter[str]:
    """Nodes with room, by the first rule that keeps the pod from them."""
    problem = state.problem
    counts = Counter[str]()
    if shape.gpu.memory_mib:
        dear = left & ~NodeCaps.of(state, pod).affordable()
        counts.update(capacity_text(state, pod, int(node)) for node in np.flatnonzero(dear))
        left = left & ~dear
    if shape.gpu.is_shared:
        full = left & (state.future[PODS] < shape.request[PODS] + _reservations(state, problem.pod_shape[pod]))
        counts[POD_COUNT] += int(full.sum())
        left = left & ~full
    refusals = problem.predicates.refusals(shape.constraints)
    for text, nodes in refusals.items():
        counts[text] += int((left & nodes).sum())
    left = left & ~np.logical_or.reduce([*refusals.values(), np.zeros_like(left)], axis=0)
    index = problem.pod_shape[pod]
    for rule in state.rules:
        closed = rule.closed(index, pod, left)
        if closed is not None:
            counts.update(rule.reasons(index, pod, closed))
            left = left & ~closed
    return counts


def _reservations(state: State, shape: int) -> IntArray:
    """(N,) reservation pods that come with one pod of ``shape``: one for each GPU that it is the first to share."""
    joined = (state.sharers_later > 0) & (state.device_future >= state.problem.shapes.parts(shape)[:, None])
    missing: IntArray = state.problem.shapes.shapes[shape].gpu.devices - joined.sum(axis=1)
    return np.maximum(missing, 0)


def capacity_text(state: State, pod: int, node: int) -> str:
    """KAI's reason for a node with room on which the pod would cost more than its queues may pay.

    Source: docs/kai-behaviour.md#limits, #quota.
    """
    problem = state.problem
    gang, tree = problem.gangs[problem.pod_gang[pod]], problem.queues
    price = charge(problem.pods[pod], problem.nodes[node].gpu_memory_mib)
    reason, text = Reason.OVER_LIMIT, over_limit_message(tree, state.allocated, gang.queue, price)
    if not text:
        gpus = price[GPU] / MILLI
        reason = Reason.NON_PREEMPTIBLE_OVER_QUOTA
        text = over_quota_message(tree, state.allocated_fixed, gang.queue, price, gpus)
    return f"node does not have enough capacity. Reason: {reason.value}, Details: {text}"


# -- pods larger than every node ---------------------------------------------------------------------------------------

NODE_POOL = "default"
"""KAI's name for a node pool that has none."""


_POD = "{pod}"
"""Stands for the name of a pod."""


def beyond_largest(problem: Problem, shape: Shape, pod: str) -> str:
    """KAI's sentence where no node has as much of one resource as one pod asks for; empty where one has.

    ``pod`` is the name to put in. Requests by GPU memory are not looked at here, as in KAI.
    """
    found = _first_beyond(problem, shape)
    if found is None:
        return ""
    name, most, unit = found
    head = f"The pod {pod} requires {request_words(problem, shape)}. "
    if most == "0":
        return f"{head}No node in the {NODE_POOL} node-pool has {name} resources"
    return (
        f"{head}Max {name} resources available in a single node in the {NODE_POOL} node-pool is topped at {most}{unit}"
    )


class BeyondLargest:
    """`beyond_largest` of the shapes of a problem, each worked out once."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._texts: dict[int, str] = {}

    def text(self, shape: int, pod: str) -> str:
        """The sentence for ``pod`` of ``shape``; empty where some node is large enough."""
        found = self._texts.get(shape)
        if found is None:
            found = beyond_largest(self._problem, self._problem.shapes.shapes[shape], _POD)
            self._texts[shape] = found
        return found.replace(_POD, pod)


def beyond_every_node(problem: Problem, shape: Shape) -> tuple[str, int, int] | None:
    """(name, what one pod asks for, the most that a node has) of the first resource of which no node has enough."""
    names, gpu = problem.snapshot.schema.names, shape.gpu
    if gpu.devices and not gpu.memory_mib:
        asked, most = gpu.devices * gpu.milli, int(problem.gpus.max(initial=0)) * MILLI
        if asked > most:
            return names[GPU], asked, most
    for resource, amount in enumerate(shape.request):
        most = int(problem.capacity[resource].max(initial=0))
        if resource != GPU and amount > most:
            return names[resource], amount, most
    return None


def not_met(pod: str, predicate: str, text: str) -> str:
    """KAI's text for a condition that is asked once for a pod, before any node."""
    return f"Scheduling conditions were not met for pod {pod}:\n{predicate}: {text}.\n"


def _first_beyond(problem: Problem, shape: Shape) -> tuple[str, str, str] | None:
    """(name, most that a node has, its unit) of the first resource of which no node has enough."""
    gpu = shape.gpu
    most = int(problem.gpus.max(initial=0)) * MILLI
    if gpu.devices and not gpu.memory_mib and gpu.devices * gpu.milli > most:
        return "GPU", humanized(most, MILLI), ""
    for resource, (name, scale, unit) in _NAMED.items():
        have = int(problem.capacity[resource].max(initial=0))
        if shape.request[resource] > have:
            return name, humanized(have, scale), unit
    for resource, amount in enumerate(shape.request):
        if resource > PODS and amount > int(problem.capacity[resource].max(initial=0)):
            return problem.snapshot.schema.names[resource], "0", ""
    return None


_NAMED = {CPU: ("CPU", CORES, " cores"), MEMORY: ("memory", GB, " GB")}


def request_words(problem: Problem, shape: Shape) -> str:
    """What a pod asks for as KAI prints it: ``GPU: 1, CPU: 1 (cores), memory: 1 (GB), pods: 1``."""
    gpu = shape.gpu
    names = problem.snapshot.schema.names
    extended = {names[r]: amount for r, amount in enumerate(shape.request) if amount and r > PODS}
    slices = sum(_slices(name) * amount for name, amount in extended.items())
    milli = gpu.devices * gpu.milli + slices * MILLI
    words = [amounts_text((shape.request[CPU], shape.request[MEMORY], milli)), f"pods: {shape.request[PODS]}"]
    words += [f"{'mig ' if is_mig(name) else ''}{name}: {amount}" for name, amount in extended.items()]
    return ", ".join(words)


def _slices(name: str) -> int:
    """GPUs that KAI counts for one instance of a MIG profile."""
    size = name.partition("mig-")[2].partition("g.")[0]
    return int(size) if is_mig(name) and size.isdecimal() else 0


def amounts_text(amounts: tuple[int, int, int]) -> str:
    """(cpu milli, memory bytes, gpu milli) as KAI prints requirements: ``GPU: 1, CPU: 2 (cores), memory: 3 (GB)``."""
    cpu, memory, gpu = amounts
    return f"GPU: {humanized(gpu, MILLI)}, CPU: {humanized(cpu, CORES)} (cores), memory: {humanized(memory, GB)} (GB)"
