"""Why an action does nothing for a gang: every refusal is made here (docs/kai-behaviour.md#reasons).

In the order in which they are asked: the gang is not ready; a queue's limit or quota; a pod larger than every node; the
preemption delay; no room (``shortage``); what forbids an action that evicts or moves pods; the course of the cycle.
Texts hold ``{gang}`` and ``{pod:i}`` for names: ``pending.py`` puts them in.
"""

from collections import Counter
from dataclasses import replace

from kai_solver.domain import (
    Blocker,
    FitError,
    Proof,
    QueueDetails,
    QueueVector,
    Reason,
    TopologyConstraint,
)
from kai_solver.fairness import capping_queue
from kai_solver.placement.placing import Placer
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits
from kai_solver.planstate.eligibility import delay_remaining_s
from kai_solver.planstate.outcome import Refusal, proven
from kai_solver.planstate.state import State
from kai_solver.problem import GangShape, Leaf, Problem, TreeNode
from kai_solver.problem.charges import Charge
from kai_solver.reasons.attempt import attempt, constraint_of
from kai_solver.reasons.looks import Looks
from kai_solver.reasons.node_reasons import BeyondLargest, beyond_every_node
from kai_solver.topology import DomainTree
from kai_solver.units import GPU, format_amount, go_duration, rfc3339

# -- the gang is not ready ---------------------------------------------------------------------------------------------


def not_ready(problem: Problem, gang: GangShape, units_of_gang: AllocationUnits) -> Refusal | None:
    """Why ``gang`` is not considered at all; None where it is."""
    leaf = units_of_gang.lone
    if (
        leaf is not None
        and not (leaf.blocked or leaf.topology or gang.root.topology)
        and units_of_gang.is_reachable(leaf)
    ):
        return None
    blocked = [pod for leaf in gang.leaves for pod in leaf.blocked]
    if blocked and not (gang.pending and units_of_gang.is_reachable(gang.root)):
        return _blocked(problem, blocked[0])
    if not units_of_gang.is_reachable(gang.root):
        return _waiting_for_members(gang, units_of_gang)
    missing = _missing_topology(problem, gang.root)
    if missing:
        blocker = Blocker("topology", missing, "exists", "missing")
        return proven(Reason.TOPOLOGY, missing, "rule", blocker, fit_errors=(_pod_error(missing),))
    return None


def _waiting_for_members(gang: GangShape, units_of_gang: AllocationUnits) -> Refusal:
    """KAI's event ``NotReady``: every podset that is short of pods (``status_updater``), then the usual phrase."""
    short = [leaf for leaf in gang.leaves if not units_of_gang.is_reachable(leaf)]
    text = "Job is not ready for scheduling." + "".join(_members_text(leaf) for leaf in short)
    ready = sum(_ready(leaf) for leaf in short)
    needed = sum(leaf.min_member for leaf in short)
    text = f"{text.removesuffix('.')}. Gang waiting for members: {ready} of {needed} are ready"
    blockers = [Blocker("pods", leaf.name, str(leaf.min_member), str(_ready(leaf))) for leaf in short]
    return proven(Reason.NOT_READY, text, "rule", *blockers)


def _members_text(leaf: Leaf) -> str:
    counts = f"currently {_ready(leaf) + leaf.gated} exist, {leaf.gated} are gated"
    if leaf.name == "default":
        return f" Waiting for {leaf.min_member} pods, {counts}"
    return f" Waiting for {leaf.min_member} pods for SubGroup {leaf.name}, {counts}."


def _ready(leaf: Leaf) -> int:
    return len(leaf.pending) + len(leaf.active)


def _missing_topology(problem: Problem, node: TreeNode | Leaf) -> str:
    missing = topology_missing(node.topology, problem.domains)
    if missing or isinstance(node, Leaf):
        return missing
    return next(filter(None, (_missing_topology(problem, child) for child in node.children)), "")


def _blocked(problem: Problem, pod: int) -> Refusal:
    """A pod that no node can take until something outside changes, in a gang that cannot do without it."""
    key, missing = problem.pods[pod].key, problem.pods[pod].constraints.blocked
    text = f"Scheduling conditions were not met for pod {key}:\n" + "\n".join(missing)
    blockers = [Blocker("pod", key, "its conditions", why) for why in missing]
    error = _pod_error(f"Resources were not found for pod {key} due to: {text}")
    return proven(Reason.POD_SCHEDULING_ERRORS, text, "rule", *blockers, fit_errors=(error,))


def _pod_error(text: str) -> FitError:
    return FitError(Reason.POD_SCHEDULING_ERRORS.value, (text,))


def topology_missing(constraint: TopologyConstraint | None, domains: dict[str, DomainTree]) -> str:
    """Why ``constraint`` can never hold: its topology or required level does not exist; empty where it can."""
    if constraint is None or not constraint.required:
        return ""
    tree = domains.get(constraint.topology)
    if tree is None:
        return f"Requested topology {constraint.topology} does not exist"
    if tree.level_index(constraint.required) is None:
        return f"Topology {constraint.topology} has no level {constraint.required}"
    return ""


# -- limits and quotas of queues ---------------------------------------------------------------------------------------


def refused_by_queue(
    state: State, gang: GangShape, request: Charge, reason: Reason, message: str, blocker: Blocker
) -> Refusal:
    """A limit or quota refuses ``request``: the text, and the queue's numbers at this moment."""
    method = "limit" if reason is Reason.OVER_LIMIT else "quota"
    error = FitError(reason.value, (message,), queue=_details(state, gang, request, reason))
    return proven(reason, message, method, blocker, fit_errors=(error,))


def _details(state: State, gang: GangShape, request: Charge, reason: Reason) -> QueueDetails:
    problem, tree = state.problem, state.problem.queues
    over_limit = reason is Reason.OVER_LIMIT
    caps, used = (tree.limits, state.allocated) if over_limit else (tree.quotas, state.allocated_fixed)
    found = capping_queue(tree, caps, used, gang.queue, request)
    queue = gang.queue if found is None else found
    return QueueDetails(
        name=tree.names[queue],
        requested=queue_vector(problem.request[queue].tolist()),
        deserved=tree.quotas[queue],
        allocated=queue_vector(state.allocated[queue]),
        allocated_fixed=queue_vector(state.allocated_fixed[queue]),
        limits=tree.limits[queue],
        gang_requested=request,
        gang_fixed=(0, 0, 0) if gang.gang.preemptible else request,
    )


def queue_vector(amounts: list[int]) -> QueueVector:
    """Three amounts as a queue has them."""
    cpu, memory, gpu = amounts
    return cpu, memory, gpu


def over_cap_where_room_is(state: State, reason: Reason, queue: int) -> Refusal:
    """A request by GPU memory would cost ``queue`` more than its limit or quota on the nodes with room."""
    tree = state.problem.queues
    word, caps, used = (
        ("limit", tree.limits, state.allocated)
        if reason is Reason.OVER_LIMIT
        else ("quota", tree.quotas, state.allocated_fixed)
    )
    need, have = format_amount("gpu", used[queue][GPU]), format_amount("gpu", caps[queue][GPU])
    text = f"{tree.title(queue)} would pass its {word} of {have} on the nodes that have room"
    blocker = Blocker(f"queue-{word}", tree.title(queue), need, have)
    return Refusal(reason, text, Proof("unknown", word, (blocker,)))


# -- a pod larger than every node --------------------------------------------------------------------------------------


class LargestNode:
    """Refuses allocation units with a pod larger than every node: no eviction helps. Each shape is computed once.

    Source: docs/kai-behaviour.md#invariant-prefilter.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._beyond = BeyondLargest(problem)

    def refuses(self, unit: AllocationUnit) -> Refusal | None:
        """The refusal of ``unit``; None where every pod of it fits some node that is empty."""
        shapes = self._problem.pod_shape
        large = {shape for shape in {shapes[pod] for pod in unit.pods} if self._beyond.text(shape, "")}
        if not large:
            return None
        position = next(i for i, pod in enumerate(unit.pods) if shapes[pod] in large)
        name = f"{{pod:{position}}}"
        text = self._beyond.text(shapes[unit.pods[position]], name)
        line = f"Resources were not found for pod {name} due to: {text}"
        error = FitError(Reason.POD_SCHEDULING_ERRORS.value, (line,))
        head, _, topped = text.partition(". ")
        need, have, resource, short = head.partition(" requires ")[2], topped[0].lower() + topped[1:], "", 0
        beyond = beyond_every_node(self._problem, self._problem.shapes.shapes[shapes[unit.pods[position]]])
        if beyond is not None:
            resource, asked, most = beyond
            need, have = f"{format_amount(resource, asked)} on one node", f"at most {format_amount(resource, most)}"
            short = asked - most
        blocker = Blocker("rule", "largest node", need, have, resource=resource, short=short)
        return proven(Reason.NOT_ENOUGH_RESOURCES, line, "size", blocker, fit_errors=(error,))


# -- preemption delay --------------------------------------------------------------------------------------------------


def within_delay(problem: Problem, gang: GangShape) -> Refusal | None:
    """The refusal while the gang may not yet cause evictions; None once it may."""
    left_s = delay_remaining_s(problem, gang)
    if left_s <= 0:
        return None
    text = (
        f"Workload is within its preemption delay window ({go_duration(gang.gang.preemption_delay_s)}) and may not "
        f"trigger evictions before {rfc3339(problem.snapshot.now_s + left_s)}"
    )
    error = FitError(Reason.PREEMPTION_DELAY.value, (text,))
    return proven(Reason.PREEMPTION_DELAY, text, "rule", fit_errors=(error,))


# -- no room -----------------------------------------------------------------------------------------------------------

_MOST_LINES = 10
"""Lines about single domains in a message for people; the fit errors have all."""


def shortage(state: State, placer: Placer, unit: AllocationUnit, proof: Proof, looks: Looks | None = None) -> Refusal:
    """The refusal for ``unit``: KAI's texts, then what we know beyond them; blockers where ``proof`` has none.

    ``looks``: of the same state, where it is asked for several units.
    """
    tried = attempt(placer, unit, looks or Looks(state))
    constraint = constraint_of(unit.root)
    reason = Reason.TOPOLOGY if constraint is not None and tried.stuck is None else Reason.NOT_ENOUGH_RESOURCES
    lines = message_lines(tried.errors)
    blocking = proof.blocking
    for rule in state.rules if state.problem.gangs[unit.gang].is_spaced else ():
        said = rule.in_the_way(unit.gang, unit.pods, tried.placed)
        if said is not None and _fits_without(state, placer, unit, rule.kind):
            reason = said.reason
            lines.insert(0, said.message)
            blocking = blocking or (said.blocker,)
    total = len(state.problem.nodes)
    if tried.nodes:
        lines.append(f"{tried.available}/{total} nodes are available: {_counted(tried.nodes)}.")
    if tried.stuck is not None and _without_gpus(state, tried.stuck):
        lines.append(_NO_GPUS.format(name=" or ".join(state.problem.policy.gpu_resources)))
    blocking = blocking or tuple(_blocker(text, count, total) for text, count in tried.nodes.most_common())
    return Refusal(reason, "\n".join(lines), replace(proof, blocking=blocking), tried.errors)


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


def _fits_without(state: State, placer: Placer, unit: AllocationUnit, rule: str) -> bool:
    """True where the unit would find room if the ``rule`` (its kind) were not there."""
    mark = state.mark()
    found = Placer(state, fits=placer.fits, without=rule).place_unit(unit)
    state.rollback(mark)
    return found


# -- what forbids an action that evicts or moves pods ------------------------------------------------------------------


def not_entitled(blocker: Blocker) -> Refusal:
    """The queue may not reclaim as much as the gang asks for."""
    text = f"Queue {blocker.name} may not reclaim {blocker.need}: it is entitled to {blocker.have}"
    return proven(Reason.NOT_ENOUGH_RESOURCES, text, "fair-share", blocker)


def may_not_move_pods() -> Refusal:
    """Consolidation serves preemptible gangs only."""
    text = "Only preemptible workloads may have others moved"
    blocker = Blocker("rule", "consolidation", "to be preemptible", "that it is not")
    return proven(Reason.NOT_ENOUGH_RESOURCES, text, "rule", blocker)


def consolidation_is_off() -> Refusal:
    """The policy allows no gang to be moved."""
    blocker = Blocker("rule", "max-consolidation-gangs", "others to be moved", "that the policy moves none")
    return proven(Reason.NOT_ENOUGH_RESOURCES, "Consolidation is switched off", "rule", blocker)


def too_few_gpus_to_move(wanted: int, free: int) -> Refusal:
    """Fewer GPU milli are ``free`` where pods of gangs may be than ``wanted``: moves cannot help."""
    need, have = (format_amount("gpu", amount) for amount in (wanted, free))
    text = f"Moving cannot help: {need} needed, {have} free in all where workloads may run"
    blocker = Blocker("resource", "gpu", need, have, resource="gpu", short=wanted - free)
    return proven(Reason.NOT_ENOUGH_RESOURCES, text, "count", blocker)


# -- the course of the cycle -------------------------------------------------------------------------------------------

LEFT_OUT = Refusal(
    Reason.SET_ASIDE,
    "Left out of this cycle: the checker refused a plan in which it took part",
    Proof("unknown", "check"),
)

BUDGET_ENDED = Refusal(
    Reason.NOT_ENOUGH_RESOURCES,
    "The time for this cycle ended before the workload had its turn",
    Proof("unknown", "budget"),
)

NO_CHAIN = Refusal(
    Reason.NOT_ENOUGH_RESOURCES,
    "No chain of moves was found that makes room for the workload",
    Proof("unknown", "chains"),
)

SHARE_ENDED = Refusal(
    Reason.NOT_ENOUGH_RESOURCES,
    "The workload takes more than its share of a cycle's time to place, and the other workloads left too little. "
    "Use fewer pods in one gang, or fewer rules between pods",
    Proof("unknown", "budget"),
)

GAVE_WAY = Refusal(
    Reason.NOT_ENOUGH_RESOURCES,
    "It fits, but a workload that may preempt it, or reclaim from its queue, starts there",
    Proof("unknown", "gave-way"),
)

TAKEN_BACK = Refusal(
    Reason.NOT_ENOUGH_RESOURCES,
    "Others were moved to make room for it, which another queue reclaimed in the same cycle",
    Proof("unknown", "reclaimed"),
)
