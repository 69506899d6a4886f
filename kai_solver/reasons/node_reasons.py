"""Why single nodes do not take a pod, counted in KAI's words.

Source: docs/kai-behaviour.md#reasons; ``common_info/pod_errors.go``.

KAI looks at resources first and reports of each node all that it lacks; the rules of a node (taints, affinity, ...)
are asked only where there is room, and the first that says no is reported.
"""

from collections import Counter
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kai_solver.placement.node_caps import NodeCaps, capacity_text
from kai_solver.planstate.state import State
from kai_solver.problem import Shape
from kai_solver.problem.gpurows import fitting_in_rows, needs_row
from kai_solver.problem.rowtexts import no_row_text
from kai_solver.problem.zones import NOT_ALIGNED
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS
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


class NodeReasons:
    """What keeps one more ``pod`` from every node in the present state; looked at once for all who ask."""

    def __init__(self, state: State, pod: int) -> None:
        self.state = state
        self.pod = pod
        self.index = state.problem.pod_shape[pod]
        self.shape = state.problem.shapes.shapes[self.index]
        self.short = _short(state, self.shape, self.index)
        nobody = np.zeros(len(state.problem.nodes), dtype=np.bool_)
        self.lacking: BoolArray = np.logical_or.reduce([*self.short.values(), nobody], axis=0)

    def kai(self, allowed: BoolArray | None) -> Counter[str]:
        """Nodes of ``allowed`` (all where None) by reason, in KAI's words."""
        lacking = self.lacking if allowed is None else self.lacking & allowed
        counts = Counter[str]()
        for resource in self.short:
            idle = _is_short_of_idle(self.state, self.shape, self.index, resource)
            for text, where in idle.items():
                counts[text] += int(np.count_nonzero(lacking & where))
        return _present(counts, self._rules if allowed is None else self._by_rules(allowed))

    def kubernetes(self) -> Counter[str]:
        """All nodes by reason, in the words of kube-scheduler that people look for."""
        texts = {r: _kubernetes_text(self.state, self.shape, r) for r in self.short}
        counts = Counter({texts[r]: int(np.count_nonzero(nodes)) for r, nodes in self.short.items()})
        return _present(counts, self._rules)

    @cached_property
    def _rules(self) -> Counter[str]:
        return self._by_rules(np.ones_like(self.lacking))

    def _by_rules(self, inside: BoolArray) -> Counter[str]:
        return _by_rules(self.state, self.pod, self.shape, inside & ~self.lacking)


def _present(counts: Counter[str], rules: Counter[str]) -> Counter[str]:
    """Both together, without what counts nobody."""
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
    """By resource asked for, (N,) True where it is short even once everybody who leaves has left."""
    short = {r: state.future[r] < amount for r, amount in enumerate(shape.request) if amount and r != GPU}
    if shape.gpu.devices:
        parts = state.problem.shapes.parts(index)
        fitting = state.whole_later if shape.gpu.is_whole else (state.device_future >= parts[:, None]).sum(axis=1)
        names = state.problem.snapshot.schema.names
        kinds = [short.pop(r) for r in list(short) if names[r] in state.problem.policy.gpu_resources]
        short[GPU] = np.logical_or.reduce([fitting < shape.gpu.devices, parts > WHOLE, *kinds], axis=0)
    return short


def _is_short_of_idle(state: State, shape: Shape, index: int, resource: int) -> dict[str, BoolArray]:
    """What KAI says of a node that lacks something: its comparison counts as free what is idle now, whole GPUs only."""
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
    if state.affinity is not None:
        open_to_it = left & state.affinity.mask(problem.pods[pod])
        counts.update(state.affinity.reasons(problem.pods[pod], left & ~open_to_it))
        left = open_to_it
    if needs_row(shape.gpu):
        scattered = _scattered(state, shape, left)
        counts.update(scattered.values())
        left = left & ~np.isin(np.arange(len(left)), list(scattered))
    kept = state.spares.open_to(pod) if state.spares is not None else None
    if kept is not None and state.spares is not None:
        counts.update(state.spares.reasons(left & ~kept))
        left = left & kept
    counts[NOT_ALIGNED] += _unaligned(state, shape, left)
    return counts


def _scattered(state: State, shape: Shape, left: BoolArray) -> dict[int, str]:
    """What to say of nodes that have enough free GPUs, but not in a row."""
    whole = state.device_future == WHOLE
    known = state.unidentified.known_later
    rows = fitting_in_rows(state.problem, whole, shape.gpu, slice(None), known)
    scattered = np.flatnonzero(left & (rows == 0)).tolist()
    problem, gpu = state.problem, shape.gpu
    return {n: no_row_text(problem, gpu, n, whole[n], is_known=bool(known[n])) for n in scattered}


def _unaligned(state: State, shape: Shape, left: BoolArray) -> int:
    """Nodes that have enough in all, but in no zones that their Topology Manager would take the pod into."""
    ledger, alignment = state.zones, shape.alignment
    if ledger is None or alignment is None:
        return 0
    rows = [row for row, node in enumerate(ledger.table.nodes) if left[node] and ledger.table.binding[row]]
    return sum(ledger.table.align(alignment, row, ledger.future[row]) is None for row in rows)


def _reservations(state: State, shape: int) -> IntArray:
    """(N,) reservation pods that come with one pod of ``shape``: one for each GPU that it is the first to share."""
    joined = (state.sharers_later > 0) & (state.device_future >= state.problem.shapes.parts(shape)[:, None])
    missing: IntArray = state.problem.shapes.shapes[shape].gpu.devices - joined.sum(axis=1)
    return np.maximum(missing, 0)
