"""Rule ``predicates``: may the pod be on that node at all, and beside the pods there."""

from collections.abc import Iterator

from kai_solver.check.capacity import stays
from kai_solver.check.scene import Scene, destination, is_immediate
from kai_solver.check.violation import Violation
from kai_solver.domain import Bind, Constraints, Move, Pod, Requirement
from kai_solver.predicates import Placed, clashes_with_pods, fits_node, labels_match


def minds_neighbours(pod: Pod) -> bool:
    """True where the pod's constraints speak of other pods."""
    constraints = pod.constraints
    return bool(constraints.affinity or constraints.anti_affinity or constraints.spread or constraints.host_ports)


def judge_placement(scene: Scene) -> Iterator[Violation]:
    """Selectors, taints, cordons, then ports, (anti-)affinity and spread in the state that the plan leads to."""
    verdicts: dict[tuple[int, str], str | None] = {}
    refused: set[str] = set()
    for entry in scene.arrivals():
        pod, node = scene.pods[entry.pod], scene.nodes[destination(entry)]
        key = id(pod.constraints), node.name
        if key not in verdicts:
            verdicts[key] = fits_node(pod, node)
        if text := verdicts[key]:
            refused.add(entry.pod)
            yield Violation("predicates", entry.pod, f"pod {entry.pod}: may not be on node {node.name}: {text}")
    neighbours = Neighbours(scene)
    for entry in scene.arrivals():
        if entry.pod not in refused and (text := neighbours.clash(entry)):
            name = destination(entry)
            yield Violation("predicates", entry.pod, f"pod {entry.pod}: may not be on node {name}: {text}")


class Neighbours:
    """Who is beside whom when the plan is done, as far as anybody minds.

    Pods that start at once must also get on with those that are still leaving.
    """

    def __init__(self, scene: Scene) -> None:
        leaving = scene.leaving()
        self._scene = scene
        held = scene.holders
        come = [Placed(scene.pods[e.pod], scene.nodes[destination(e)]) for e in scene.arrivals()]
        self._minded = any(minds_neighbours(placed.pod) for placed in come) or any(
            holder.pod.constraints.anti_affinity for holder in held
        )
        if not self._minded:
            return
        kept = [Placed(holder.pod, scene.nodes[holder.pod.node]) for holder in held if stays(holder, leaving)]
        gone = [Placed(holder.pod, scene.nodes[holder.pod.node]) for holder in held if not stays(holder, leaving)]
        self._later = [*kept, *come]
        self._at_once = [*kept, *come, *gone]
        self._bearers_later = [placed for placed in self._later if placed.pod.constraints.anti_affinity]
        self._bearers_at_once = [placed for placed in self._at_once if placed.pod.constraints.anti_affinity]
        self._chosen: dict[tuple[int, str, bool], list[Placed]] = {}

    def clash(self, entry: Bind | Move) -> str | None:
        """Why the pod of ``entry`` may not be beside the others; None where it may."""
        if not self._minded:
            return None
        pod, node = self._scene.pods[entry.pod], self._scene.nodes[destination(entry)]
        bearers = self._bearers_at_once if is_immediate(entry) else self._bearers_later
        others = {placed.pod.key: placed for placed in self._choose(pod, is_immediate(entry))}
        others.update((bearer.pod.key, bearer) for bearer in bearers if _may_repel(bearer.pod, pod))
        if not others and not minds_neighbours(pod):
            return None
        others.pop(entry.pod, None)
        return clashes_with_pods(pod, node, others.values(), self._scene.snapshot.nodes)

    def _choose(self, pod: Pod, at_once: bool) -> list[Placed]:
        """Pods that the constraints of ``pod`` speak of; chosen once per constraints and namespace."""
        if not minds_neighbours(pod):
            return []
        key = id(pod.constraints), pod.namespace, at_once
        if key not in self._chosen:
            selectors = _selectors(pod.constraints)
            ports = bool(pod.constraints.host_ports)
            self._chosen[key] = [
                placed
                for placed in (self._at_once if at_once else self._later)
                if (ports and placed.pod.constraints.host_ports)
                or any(labels_match(selector, placed.pod.labels) for selector in selectors)
            ]
        return self._chosen[key]


def _selectors(constraints: Constraints) -> list[tuple[Requirement, ...]]:
    near_or_far = [term.selector for term in (*constraints.affinity, *constraints.anti_affinity)]
    return near_or_far + [spread.selector for spread in constraints.spread]


def _may_repel(owner: Pod, pod: Pod) -> bool:
    return any(labels_match(term.selector, pod.labels) for term in owner.constraints.anti_affinity)
