"""How the pods of a workload lie, in words: what is asked, what blocks, and the cluster without the rule."""

from dataclasses import replace

from kai_solver.domain import NO_PLACEMENT, Blocker, Placement, Snapshot
from kai_solver.units import counted

CURE = "no rule of placement"


def say_most(rule: Placement) -> str:
    """The most that ``rule`` allows on a node; empty where it sets none."""
    words = []
    if rule.max_pods_per_node is not None:
        words.append(f"at most {rule.max_pods_per_node} of its pods")
    if rule.max_gpus_per_node is not None:
        words.append(f"at most {rule.max_gpus_per_node} of its GPUs")
    return " and ".join(words)


def _asked(rule: Placement) -> str:
    asked = {
        "at most {} of its GPUs on one node": rule.max_gpus_per_node,
        "at most {} of its pods on one node": rule.max_pods_per_node,
        "pods on at least {} nodes": rule.min_nodes,
    }
    return ", ".join(text.format(value) for text, value in asked.items() if value is not None)


def message(rule: Placement) -> str:
    """What a gang is told that only ``rule`` keeps from running."""
    return f"There is room for its pods, but not as its placement asks: {_asked(rule)}"


def refused(rule: Placement, pods: int, placed: int) -> Blocker:
    """``rule`` as what blocks ``pods``, of which ``placed`` find places."""
    return Blocker("placement", _asked(rule), counted(pods, "pod"), f"room for {placed:,}")


def without(snapshot: Snapshot, gang: str) -> Snapshot:
    """The cluster in which ``gang``, and all that have the placement of their queues, lie as they like."""
    queues = tuple(replace(queue, placement=NO_PLACEMENT) for queue in snapshot.queues)
    gangs = tuple(replace(g, placement=NO_PLACEMENT) if g.key == gang else g for g in snapshot.gangs)
    return replace(snapshot, gangs=gangs, queues=queues)
