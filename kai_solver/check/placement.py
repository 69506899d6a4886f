"""Rule ``predicates``: may the pod be on that node at all."""

from collections.abc import Iterator

from kai_solver.check.scene import Scene, destination
from kai_solver.check.violation import Violation


def judge_placement(scene: Scene) -> Iterator[Violation]:
    """Cordoned nodes and blocked pods."""
    for entry in scene.arrivals():
        node = scene.nodes[destination(entry)]
        if not node.schedulable:
            yield Violation("predicates", entry.pod, f"pod {entry.pod}: node {node.name} takes no new pods")
