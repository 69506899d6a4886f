"""Rule ``moves``, second half: what leaves a node because that node is to be drained, and for no gang."""

from collections.abc import Iterator, Sequence

from kai_solver.check.scene import Change, Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import Action, Move, Pod, PodSet, SubGroup


def judge_drains(scene: Scene, actions: Sequence[Action]) -> Iterator[Violation]:
    """Moves for drains: where moves are allowed, of preemptible pods that would not end in time, and not too early."""
    for change in scene.changes.values() if scene.plan.moves else ():
        drains = [move for move in change.moves if move.cause == "drain"]
        for move in drains:
            if (text := _fault(scene, change, move, drains, actions)) is not None:
                yield Violation("moves", move.pod, f"pod {move.pod}: moved for a drain, but {text}")


def _fault(scene: Scene, change: Change, move: Move, drains: Sequence[Move], actions: Sequence[Action]) -> str | None:
    gang, pod = change.gang, scene.pods[move.pod]
    if move.helps or move.action is not Action.CONSOLIDATION:
        return "as if it helped a gang"
    if Action.CONSOLIDATION not in actions or scene.snapshot.policy.max_consolidation_gangs == 0:
        return "moves are switched off"
    if not gang.preemptible:
        return f"its gang {gang.key} is not preemptible"
    if not pod.is_replaced:
        return "no controller would make it again"
    if change.binds or change.evictions:
        return f"its gang {gang.key} gets or loses pods in the same plan"
    if not _has_to_leave(scene, move):
        if not _lies_together(gang.root):
            return f"node {move.source} is not to be drained soon, or it ends before"
        if not any(_has_to_leave(scene, other) for other in drains):
            return f"no pod of its gang {gang.key} has to leave its node"
    if scene.nodes[move.target].drain_at_s is not None and _end_s(pod, scene.snapshot.now_s) is None:
        return f"node {move.target} is to be drained, too"
    return None


def _has_to_leave(scene: Scene, move: Move) -> bool:
    """Whether its node is to be drained so soon that it has to go, and it would not have ended by then."""
    at_s, pod, now_s = scene.nodes[move.source].drain_at_s, scene.pods[move.pod], scene.snapshot.now_s
    if at_s is None or at_s - now_s >= lead_s(scene, pod):
        return False
    end_s = _end_s(pod, now_s)
    return end_s is None or end_s > at_s


def lead_s(scene: Scene, pod: Pod) -> float:
    """Seconds before a drain from which on pods like ``pod`` leave the node (docs/operating.md#maintenance)."""
    return pod.grace_s + scene.snapshot.policy.drain_lead_s


def _end_s(pod: Pod, now_s: float) -> float | None:
    """When it ends at the latest, epoch seconds; None where that is not known, or was wrong."""
    if pod.run_time_s is None:
        return None
    end_s = pod.run_time_s + (pod.started_s if pod.started_s is not None else now_s)
    return end_s if end_s > now_s else None


def _lies_together(part: SubGroup | PodSet) -> bool:
    """Whether a topology holds pods of ``part`` together, so that one cannot leave without others."""
    if part.topology is not None and part.topology.required:
        return True
    return isinstance(part, SubGroup) and any(map(_lies_together, part.children))
