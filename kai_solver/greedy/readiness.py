"""Gangs that cannot be considered yet, in KAI's words (reference 1.13, 3.9)."""

from kai_solver.domain import Blocker, Reason, TopologyConstraint
from kai_solver.greedy.chunks import Chunker
from kai_solver.greedy.outcome import Refusal, proven
from kai_solver.reduction import GangShape, Leaf, Problem, TreeNode
from kai_solver.topology import DomainTree


def not_ready(problem: Problem, gang: GangShape, chunker: Chunker) -> Refusal | None:
    """Why ``gang`` is not considered at all; None where it is."""
    blocked = [pod for leaf in gang.leaves for pod in leaf.blocked]
    if blocked and not (gang.pending and chunker.is_reachable(gang.root)):
        return _blocked(problem, blocked[0])
    if not chunker.is_reachable(gang.root):
        return _waiting_for_members(gang, chunker)
    missing = _missing_topology(problem, gang.root)
    if missing:
        return proven(Reason.TOPOLOGY, missing, "rule", Blocker("topology", missing, "exists", "missing"))
    return None


def _waiting_for_members(gang: GangShape, chunker: Chunker) -> Refusal:
    leaf = next(leaf for leaf in gang.leaves if not chunker.is_reachable(leaf))
    exist = len(leaf.pending) + len(leaf.active) + leaf.gated
    where = f" for SubGroup {leaf.name}" if len(gang.leaves) > 1 else ""
    text = (
        f"Gang waiting for members: Job is not ready for scheduling. Waiting for {leaf.min_member} pods{where}, "
        f"currently {exist} exist, {leaf.gated} are gated"
    )
    blocker = Blocker("pods", leaf.name, str(leaf.min_member), str(exist - leaf.gated))
    return proven(Reason.NOT_READY, text, "rule", blocker)


def _missing_topology(problem: Problem, node: TreeNode | Leaf) -> str:
    missing = topology_missing(node.topology, problem.domains)
    if missing or isinstance(node, Leaf):
        return missing
    return next(filter(None, (_missing_topology(problem, child) for child in node.children)), "")


def _blocked(problem: Problem, pod: int) -> Refusal:
    """A pod that no node can take until something outside changes, in a gang that cannot do without it."""
    key, missing = problem.pods[pod].key, problem.pods[pod].constraints.blocked
    text = f"Scheduling conditions were not met for pod {key}:\n" + "\n".join(missing)
    blockers = [Blocker("pod", key, why, "missing") for why in missing]
    return proven(Reason.POD_SCHEDULING_ERRORS, text, "rule", *blockers)


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
