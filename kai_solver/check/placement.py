"""Rule ``predicates``: may the pod be on that node at all, and beside the pods there."""

from collections.abc import Iterator

from kai_solver.check.columns import stays
from kai_solver.check.scene import Scene, destination, is_immediate
from kai_solver.check.violation import Violation
from kai_solver.domain import Bind, Constraints, Move, Pod, Requirement
from kai_solver.predicates import (
    Placed,
    SpreadDomains,
    clashes_with_pods,
    fits_node,
    is_attracted,
    kept_off,
    labels_match,
)


def judge_placement(scene: Scene) -> Iterator[Violation]:
    """Selectors, taints, cordons, then ports, (anti-)affinity and spread in the state that the plan leads to."""
    verdicts: dict[tuple[int, int], str | None] = {}
    refused: set[str] = set()
    for (entry, pod, node, _), row in zip(scene.come, scene.got.rows.tolist(), strict=True):
        key = id(pod.constraints), row
        if key not in verdicts:
            verdicts[key] = fits_node(pod, node)
        if text := verdicts[key]:
            refused.add(entry.pod)
            yield Violation("predicates", entry.pod, f"pod {entry.pod}: may not be on node {node.name}: {text}")
    neighbours = Neighbours(scene)
    for entry in scene.arrivals() if neighbours.minded else ():
        if entry.pod not in refused and (text := neighbours.clash(entry)):
            name = destination(entry)
            yield Violation("predicates", entry.pod, f"pod {entry.pod}: may not be on node {name}: {text}")


class Neighbours:
    """Which pods are beside which when the plan is done, as far as a rule is about that.

    Pods that start at once must also get on with those that are still leaving, as far as ports and anti-affinity go.
    And those that they require must run and stay, or start as well.
    Where no rule is (``minded`` is False) nothing is tested.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.minded = _is_minded(scene)
        if not self.minded:
            return
        leaving = scene.leaving
        held = scene.everywhere()
        come = [Placed(arrival.pod, arrival.node) for arrival in scene.come]
        kept = [Placed(holder.pod, scene.nodes[holder.pod.node]) for holder in held if stays(holder.pod, leaving)]
        gone = [Placed(holder.pod, scene.nodes[holder.pod.node]) for holder in held if not stays(holder.pod, leaving)]
        self._placed = {"later": [*kept, *come], "leaving": gone}
        self._waiting = {arrival.pod.key for arrival in scene.come if not is_immediate(arrival.entry)}
        self._bearers = {
            name: [placed for placed in pods if placed.pod.constraints.anti_affinity]
            for name, pods in self._placed.items()
        }
        self._chosen: dict[tuple[int, str, str], list[Placed]] = {}
        self._repellers: dict[tuple[frozenset[tuple[str, str]], str], list[Placed]] = {}
        self._domains = SpreadDomains(scene.snapshot.nodes, self._placed["later"])

    def clash(self, entry: Bind | Move) -> str | None:
        """Why the pod of ``entry`` may not be beside the others; None where it may."""
        pod, node = self._scene.pods[entry.pod], self._scene.nodes[destination(entry)]
        others = self._others(pod, "later")
        if others or pod.constraints.binds_pods:
            text = clashes_with_pods(pod, node, others, self._scene.snapshot.nodes, self._domains)
            if text is not None:
                return text
        if not is_immediate(entry):
            return None
        starting = [other for other in others if other.pod.key not in self._waiting]
        if pod.constraints.affinity and not is_attracted(pod, node, starting):
            return "pods that it requires beside it do not start with it"
        return kept_off(pod, node, self._others(pod, "leaving"))

    def _others(self, pod: Pod, moment: str) -> list[Placed]:
        others = {placed.pod.key: placed for placed in self._choose(pod, moment)}
        others.update((bearer.pod.key, bearer) for bearer in self._repelling(pod, moment))
        others.pop(pod.key, None)
        return list(others.values())

    def _repelling(self, pod: Pod, moment: str) -> list[Placed]:
        """Bearers of anti-affinity that may be about ``pod``; chosen once for pods with the same labels."""
        key = frozenset(pod.labels.items()), moment
        if key not in self._repellers:
            bearers = self._bearers[moment]
            distinct = {id(b.pod.constraints): b.pod for b in bearers}
            repelling = {number for number, owner in distinct.items() if _may_repel(owner, pod)}
            self._repellers[key] = [b for b in bearers if id(b.pod.constraints) in repelling]
        return self._repellers[key]

    def _choose(self, pod: Pod, moment: str) -> list[Placed]:
        """Pods that the constraints of ``pod`` speak of; chosen once per constraints and namespace."""
        if not pod.constraints.binds_pods:
            return []
        key = id(pod.constraints), pod.namespace, moment
        if key not in self._chosen:
            selectors = _selectors(pod.constraints)
            ports = bool(pod.constraints.host_ports)
            self._chosen[key] = [
                placed
                for placed in self._placed[moment]
                if (ports and placed.pod.constraints.host_ports)
                or any(labels_match(selector, placed.pod.labels) for selector in selectors)
            ]
        return self._chosen[key]


def _is_minded(scene: Scene) -> bool:
    """True if a rule of a new pod is about the pods beside it, or a rule of a placed pod about new ones."""
    known = scene.census.constraints.values()
    if not any(constraints.binds_pods or constraints.anti_affinity for constraints in known):
        return False
    rules = {id(arrival.pod.constraints): arrival.pod.constraints for arrival in scene.come}
    if any(constraints.binds_pods for constraints in rules.values()):
        return True
    snapshot = scene.snapshot
    here = [pod for gang in snapshot.gangs for pod in gang.pods if pod.constraints.anti_affinity]
    here += [pod for pod in snapshot.foreign if pod.constraints.anti_affinity]
    return any(pod.status.holds_resources and pod.node in scene.nodes for pod in here)


def _selectors(constraints: Constraints) -> list[tuple[Requirement, ...]]:
    near_or_far = [term.selector for term in (*constraints.affinity, *constraints.anti_affinity)]
    return near_or_far + [spread.selector for spread in constraints.spread]


def _may_repel(owner: Pod, pod: Pod) -> bool:
    return any(labels_match(term.selector, pod.labels) for term in owner.constraints.anti_affinity)
