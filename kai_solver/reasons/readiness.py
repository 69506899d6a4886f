"""Gangs that cannot be considered yet, in KAI's words (docs/kai-behaviour.md#events, #gangs)."""

from kai_solver.domain import Blocker, FitError, Reason, TopologyConstraint
from kai_solver.planstate.allocation_units import AllocationUnits
from kai_solver.planstate.outcome import Refusal, proven
from kai_solver.problem import GangShape, Leaf, Problem, TreeNode
from kai_solver.topology import DomainTree


def not_ready(problem: Problem, gang: GangShape, gang_units: AllocationUnits) -> Refusal | None:
    """Why ``gang`` is not considered at all; None where it is."""
    leaf = gang_units.lone
    if leaf is not None and not (leaf.blocked or leaf.topology or gang.root.topology) and gang_units.is_reachable(leaf):
        return None
    blocked = [pod for leaf in gang.leaves for pod in leaf.blocked]
    if blocked and not (gang.pending and gang_units.is_reachable(gang.root)):
        return _blocked(problem, blocked[0])
    if not gang_units.is_reachable(gang.root):
        return _waiting_for_members(gang, gang_units)
    missing = _missing_topology(problem, gang.root)
    if missing:
        blocker = Blocker("topology", missing, "exists", "missing")
        return proven(Reason.TOPOLOGY, missing, "rule", blocker, fit_errors=(_pod_error(missing),))
    return None


def _waiting_for_members(gang: GangShape, gang_units: AllocationUnits) -> Refusal:
    """KAI's event ``NotReady``: every podset that lacks pods (``status_updater``), then the phrase people look for."""
    short = [leaf for leaf in gang.leaves if not gang_units.is_reachable(leaf)]
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
