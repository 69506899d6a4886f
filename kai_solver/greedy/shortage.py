"""Why a chunk finds no place, in the words that users and tools look for (reference 1.13)."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Blocker, Placement, Proof, Reason
from kai_solver.greedy.chunks import Chunk
from kai_solver.greedy.outcome import Refusal
from kai_solver.greedy.placing import Placer
from kai_solver.greedy.state import State
from kai_solver.reduction.capacity import fitting
from kai_solver.reduction.zones import NOT_ALIGNED
from kai_solver.units import GPU, MILLI, PODS

GANG = "{gang}"
"""Stands in messages for the gang's key: one refusal may serve many gangs of one shape."""

_NAMES = {0: "CPU cores", 1: "memory", PODS: "pods"}


def shortage(state: State, placer: Placer, chunk: Chunk, proof: Proof) -> Refusal:
    """The refusal for ``chunk`` with counts of nodes by what they lack; blockers are added where ``proof`` has none."""
    problem = state.problem
    placed, rules = _found_room(placer, chunk)
    first = next((pod for pod in chunk.pods if not placer.fits.counts(problem.pod_shape[pod])[1].any()), chunk.pods[-1])
    lacks = nodes_lacking(state, problem.pod_shape[first]) + rules
    detail = ", ".join(f"{count} {text}" for text, count in lacks.most_common())
    topology = _topology(chunk)
    reason = Reason.NOT_ENOUGH_RESOURCES
    rule = problem.gangs[chunk.gang].placement
    if rule.is_rule and _is_only_the_rule(state, placer, chunk):
        reason = Reason.PLACEMENT
        text = f"There is room for its pods, but not as its placement asks: {_in_words(rule)}"
    elif topology and all(placer.fits.counts(problem.pod_shape[pod])[1].any() for pod in chunk.pods):
        reason = Reason.TOPOLOGY
        text = (
            f"topology {topology[0]}, requirement {topology[1]} couldn't be satisfied for job <{GANG}>: "
            "not enough resources in one domain to allocate the job"
        )
    elif len(chunk.pods) > 1:
        text = (
            f"Resources were found for {placed} pods while {len(chunk.pods)} are required for gang scheduling. "
            f"Additional pods cannot be scheduled due to: {detail}"
        )
    else:
        text = f"no nodes with enough resources were found: {detail}"
    blocking = proof.blocking or tuple(_blocker(text, count, len(problem.nodes)) for text, count in lacks.items())
    if reason is Reason.PLACEMENT and not proof.blocking:
        blocking = (Blocker("placement", _in_words(rule), f"{len(chunk.pods)} pods", f"room for {placed}"),)
    return Refusal(reason, text, Proof(proof.state, proof.method, blocking))


def _is_only_the_rule(state: State, placer: Placer, chunk: Chunk) -> bool:
    """True where the chunk would find room if its rule of placement were not there."""
    mark = state.mark()
    found = Placer(state, fits=placer.fits, unruled=True).place_chunk(chunk)
    state.rollback(mark)
    return found


def _in_words(rule: Placement) -> str:
    asked = {
        "at most {} of its GPUs on one node": rule.max_gpus_per_node,
        "at most {} of its pods on one node": rule.max_pods_per_node,
        "pods on at least {} nodes": rule.min_nodes,
    }
    return ", ".join(text.format(value) for text, value in asked.items() if value is not None)


def _blocker(text: str, count: int, nodes: int) -> Blocker:
    """What keeps ``count`` nodes of ``nodes`` from the first pod that finds no place."""
    kind, _, name = text.removeprefix("node(s) ").partition("resources: ")
    return Blocker("resource" if name else "rule", name or kind, "1 node", f"{nodes - count} of {nodes} nodes")


def _topology(chunk: Chunk) -> tuple[str, str] | None:
    parts = [chunk.root]
    while parts:
        part = parts.pop()
        if part.topology is not None and part.topology.required:
            return part.topology.topology, part.topology.required
        parts.extend(part.parts)
    return None


def _found_room(placer: Placer, chunk: Chunk) -> tuple[int, Counter[str]]:
    """How many pods of the chunk find a place when each may go anywhere; and which pods keep the first off that fails.

    The rules between pods are counted on nodes that would take it otherwise.
    """
    state = placer.state
    mark, count, rules = state.mark(), 0, Counter[str]()
    for pod in chunk.pods:
        if placer.place_pod(pod):
            count += 1
        elif state.affinity is not None and not rules:
            open_to_it = placer.fits.counts(state.problem.pod_shape[pod])[1] > 0
            rules.update(state.affinity.reasons(state.problem.pods[pod], open_to_it))
    state.rollback(mark)
    return count, rules


def nodes_lacking(state: State, shape: int) -> Counter[str]:
    """How many nodes lack what for one pod of ``shape``; each node is counted under all that it lacks."""
    problem = state.problem
    spec = problem.shapes.shapes[shape]
    mask = problem.shapes.mask(shape)
    counter: Counter[str] = Counter(problem.predicates.reasons(spec.constraints))
    names = problem.snapshot.schema.names
    for resource, amount in enumerate(spec.request):
        if amount and resource != GPU:
            needed = amount + (_reservations(state, shape) if resource == PODS and spec.gpu.is_shared else 0)
            short = int((mask & (state.future[resource] < needed)).sum())
            if short:
                counter[f"node(s) didn't have enough resources: {_NAMES.get(resource, names[resource])}"] += short
    if spec.gpu.devices:
        milli = problem.shapes.milli(shape)[:, None]
        fitting = (state.device_future >= milli).sum(axis=1) if milli.max(initial=0) < MILLI else state.whole_later
        short = int((mask & (fitting < spec.gpu.devices)).sum())
        if short:
            counter["node(s) didn't have enough resources: GPUs"] += short
    unaligned = _unaligned(state, shape)
    if unaligned:
        counter[NOT_ALIGNED] += unaligned
    return counter


def _unaligned(state: State, shape: int) -> int:
    """Nodes that have enough in all, but in no zones that their Topology Manager would take the pod into."""
    problem = state.problem
    alignment, ledger = problem.shapes.shapes[shape].alignment, state.zones
    if ledger is None or alignment is None:
        return 0
    admits = problem.predicates.node_mask(problem.shapes.shapes[shape].constraints)
    room = fitting(problem, state.future, state.device_future, shape, admits) > 0
    rows = [row for row, node in enumerate(ledger.table.nodes) if room[node] and ledger.table.binding[row]]
    return sum(ledger.table.align(alignment, row, ledger.future[row]) is None for row in rows)


def _reservations(state: State, shape: int) -> NDArray[np.int64]:
    """(N,) reservation pods that come with one pod of ``shape``: one for each GPU that it is the first to share."""
    joined = (state.sharers_later > 0) & (state.device_future >= state.problem.shapes.milli(shape)[:, None])
    missing: NDArray[np.int64] = state.problem.shapes.shapes[shape].gpu.devices - joined.sum(axis=1)
    return np.maximum(missing, 0)
