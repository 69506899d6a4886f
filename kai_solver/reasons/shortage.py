"""Why a chunk finds no place, in the words that users and tools look for, and what blocks it.

Source: docs/kai-behaviour.md#reasons.
"""

from collections import Counter

from kai_solver.domain import Blocker, FitError, Placement, Proof, Reason
from kai_solver.placement.placing import Placer
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Refusal
from kai_solver.planstate.state import State
from kai_solver.reasons.fit_errors import attempt, constraint_of

_MOST_LINES = 10
"""Lines about single domains in a message for people; the fit errors have all."""


def shortage(state: State, placer: Placer, chunk: AllocationUnit, proof: Proof) -> Refusal:
    """The refusal for ``chunk``: KAI's texts, then what we know beyond them; blockers where ``proof`` has none."""
    tried = attempt(placer, chunk)
    constraint = constraint_of(chunk.root)
    rule = state.problem.gangs[chunk.gang].placement
    reason = Reason.TOPOLOGY if constraint is not None and tried.stuck is None else Reason.NOT_ENOUGH_RESOURCES
    lines = message_lines(tried.errors)
    blocking = proof.blocking
    if rule.is_rule and _is_only_the_rule(state, placer, chunk):
        reason = Reason.PLACEMENT
        lines.insert(0, f"There is room for its pods, but not as its placement asks: {_in_words(rule)}")
        needs = f"{len(chunk.pods)} pods"
        blocking = blocking or (Blocker("placement", _in_words(rule), needs, f"room for {tried.placed}"),)
    total = len(state.problem.nodes)
    if tried.nodes:
        lines.append(f"{tried.available}/{total} nodes are available: {_counted(tried.nodes)}.")
    if tried.stuck is not None and _without_gpus(state, tried.stuck):
        lines.append(_NO_GPUS.format(name=" or ".join(state.problem.policy.gpu_resources)))
    blocking = blocking or tuple(_blocker(text, count, total) for text, count in tried.nodes.most_common())
    return Refusal(reason, "\n".join(lines), Proof(proof.state, proof.method, blocking), tried.errors)


_NO_GPUS = "No node advertises {name}: install the device plugin, or the GPU operator, on the nodes that have GPUs"


def message_lines(errors: tuple[FitError, ...]) -> list[str]:
    """The texts of ``errors``, the first lines of many domains only."""
    domains = [text for error in errors if error.domain for text in error.messages]
    others = [text for error in errors if not error.domain for text in error.messages]
    left = len(domains) - _MOST_LINES
    return others + domains[:_MOST_LINES] + ([f"and {left} more node-groups"] if left > 0 else [])


def _without_gpus(state: State, pod: int) -> bool:
    """True where the pod wants GPUs and no node of the cluster has any: a cure that only an administrator knows."""
    problem = state.problem
    return bool(problem.pods[pod].gpu.devices) and not problem.gpus.any()


def _counted(nodes: Counter[str]) -> str:
    return ", ".join(f"{count} {text}" for text, count in sorted(nodes.items(), key=lambda item: (-item[1], item[0])))


def _blocker(text: str, count: int, nodes: int) -> Blocker:
    """What keeps ``count`` nodes of ``nodes`` from the first pod that finds no place."""
    name = text.removeprefix("Insufficient ")
    kind = "resource" if name != text or text == "Too many pods" else "rule"
    return Blocker(kind, name.removeprefix("node(s) "), "1 node", f"{nodes - count} of {nodes} nodes")


def _is_only_the_rule(state: State, placer: Placer, chunk: AllocationUnit) -> bool:
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
