"""Pods that should leave a node which is to be drained, and stay: events on the pod and on the node."""

from collections import defaultdict
from dataclasses import dataclass, field

from kai_solver.cluster.resources import NODES
from kai_solver.controller.loop import Cycle
from kai_solver.controller.reporting.context import ReportContext
from kai_solver.domain import Unmoved
from kai_solver.errors.barrier import barrier
from kai_solver.reasons.events import Event
from kai_solver.units import counted

_NAMED = 5


@dataclass(slots=True)
class UnmovedPods:
    """Reports what changed since the last cycle."""

    context: ReportContext
    _said: dict[str, Unmoved] = field(default_factory=dict)
    _of_node: dict[str, str] = field(default_factory=dict)

    def cycle(self, cycle: Cycle) -> None:
        """Pods that stay now, each once for one reason, and how many they are on each node."""
        plan = cycle.plan
        if not plan.unmoved and not self._said:
            return
        by_node: dict[str, list[str]] = defaultdict(list)
        now: dict[str, Unmoved] = {}
        for entry in plan.unmoved:
            by_node[entry.node].append(entry.pod)
            now[entry.pod] = entry
            if self._said.get(entry.pod) != entry:
                with barrier("reporting", entry.pod):
                    text = f"Pod {entry.pod} stays: {entry.message}"
                    self.context.event(Event("Pod", entry.pod, "Warning", "NotMoved", text), state=True)
        self._said = now
        texts = {node: _text(pods) for node, pods in by_node.items()}
        for node, text in texts.items():
            if self._of_node.get(node) != text:
                with barrier("reporting", node):
                    about = self.context.about(NODES, node)
                    self.context.events.report(about, "Warning", "NotMoved", text, state=True)
        self._of_node = texts


def _text(pods: list[str]) -> str:
    more = f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else ""
    return (
        f"{counted(len(pods), 'pod stays', 'pods stay')} though the node is to be drained: {', '.join(pods[:_NAMED])}"
        f"{more}. Their events say why"
    )
