"""Rule ``spacing``: most pods and GPUs of a workload on one node, and the least number of nodes that it is on."""

from collections import Counter
from collections.abc import Iterable, Iterator

from kai_solver.check.accounts import QueueTree
from kai_solver.check.scene import Scene, destination, gpu_milli, unchanged
from kai_solver.check.violation import Violation
from kai_solver.domain import NO_PLACEMENT, Bind, Gang, Move, Placement, inherited
from kai_solver.units import MILLI


def judge_spacing(scene: Scene, tree: QueueTree) -> Iterator[Violation]:
    """Judge workloads of which pods come or move.

    Nodes that get such a pod hold no more than the most. Where the others stay on S nodes and a pods come, the workload
    ends on at least ``min(min_nodes, S + a)`` nodes. Gangs of one ``workload`` and one rule are judged together.
    """
    judged: set[str] = set()
    ruled = _ruled_leaves(tree)
    for change in scene.changes.values():
        if change.gang.queue not in ruled and _says_nothing(change.gang):
            continue
        if not change.arrivals or change.gang.key in judged:
            continue
        rule = _rule(change.gang, tree)
        if rule is not None and rule.is_rule:
            gangs = _fellows(scene, tree, change.gang, rule)
            judged.update(gang.key for gang in gangs)
            yield from _judge(scene, change.gang, gangs, rule)


def _says_nothing(gang: Gang) -> bool:
    return gang.placement is NO_PLACEMENT or gang.placement == NO_PLACEMENT


def _ruled_leaves(tree: QueueTree) -> set[str]:
    """Leaves whose queues say something of places."""
    return {
        leaf for leaf, path in tree.paths.items() if any(tree.queues[name].placement != NO_PLACEMENT for name in path)
    }


def _rule(gang: Gang, tree: QueueTree) -> Placement | None:
    """What holds for the gang; None where it is set aside or its queue is no leaf."""
    if gang.set_aside or gang.queue not in tree.paths:
        return None
    return inherited([gang.placement, *(tree.queues[name].placement for name in tree.paths[gang.queue])])


def _fellows(scene: Scene, tree: QueueTree, gang: Gang, rule: Placement) -> list[Gang]:
    """Gangs that are one workload with ``gang``, itself included."""
    if not gang.workload:
        return [gang]
    identical = [g for g in scene.snapshot.gangs if (g.namespace, g.workload) == (gang.namespace, gang.workload)]
    return [other for other in identical if _rule(other, tree) == rule]


def _judge(scene: Scene, gang: Gang, gangs: Iterable[Gang], rule: Placement) -> Iterator[Violation]:
    changes = [scene.changes.get(g.key) or unchanged(g) for g in gangs]
    stay = [pod for c in changes for key, pod in c.before.items() if key not in c.left and pod.node in scene.nodes]
    come = [entry for change in changes for entry in change.arrivals]
    pods, milli = Counter(pod.node for pod in stay), Counter[str]()
    for pod in stay:
        milli[pod.node] += gpu_milli(pod, scene.nodes[pod.node])
    before = len(pods)
    for entry in come:
        pods[destination(entry)] += 1
        milli[destination(entry)] += _gpus(scene, entry)
    for text in _faults(scene, come, pods, milli, before, rule):
        yield Violation("spacing", gang.key, f"gang {gang.key}: {text}")


def _gpus(scene: Scene, entry: Bind | Move) -> int:
    return gpu_milli(scene.pods[entry.pod], scene.nodes[destination(entry)])


def _faults(
    scene: Scene, come: list[Bind | Move], pods: Counter[str], milli: Counter[str], stay: int, rule: Placement
) -> Iterator[str]:
    for name in sorted({destination(entry) for entry in come}):
        if rule.max_pods_per_node is not None and pods[name] > rule.max_pods_per_node:
            yield f"{pods[name]} of its pods would be on node {name}, at most {rule.max_pods_per_node} may"
    for name in sorted({destination(entry) for entry in come if _gpus(scene, entry)}):
        if rule.max_gpus_per_node is not None and milli[name] > rule.max_gpus_per_node * MILLI:
            yield f"{milli[name]}m of its GPUs would be on node {name}, at most {rule.max_gpus_per_node} may"
    least = min(rule.min_nodes or 0, stay + len(come))
    if len(pods) < least:
        yield f"its pods would be on {len(pods)} nodes, at least {least} are required"
