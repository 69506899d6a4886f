"""Gangs that cannot be considered yet, in KAI's words (reference 1.13, 3.9)."""

from kai_solver.domain import Blocker, Reason
from kai_solver.greedy.chunks import Chunker
from kai_solver.greedy.evicting import topology_missing
from kai_solver.greedy.outcome import Refusal, proven
from kai_solver.reduction import GangShape, Leaf, Problem, TreeNode


def not_ready(problem: Problem, gang: GangShape, chunker: Chunker) -> Refusal | None:
    """Why ``gang`` is not considered at all; None where it is."""
    if not chunker.is_reachable(gang.root):
        return _waiting_for_members(gang, chunker)
    missing = _missing_topology(problem, gang.root)
    if missing:
        return proven(Reason.TOPOLOGY, missing, "rule", Blocker("topology", missing, "exists", "missing"))
    return _blocked(problem, gang)


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


def _blocked(problem: Problem, gang: GangShape) -> Refusal | None:
    """A pod that no node can take until something outside changes holds back a gang that needs all its pods."""
    for pod in gang.pending:
        blocked = problem.pods[pod].constraints.blocked
        if blocked:
            key = problem.pods[pod].key
            text = f"Scheduling conditions were not met for pod {key}:\n" + "\n".join(blocked)
            blockers = [Blocker("pod", key, why, "missing") for why in blocked]
            return proven(Reason.POD_SCHEDULING_ERRORS, text, "rule", *blockers)
    return None
