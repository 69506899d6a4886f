"""Pods against every node as a plan leaves it: how many nodes fail for which reason."""

from collections import Counter
from dataclasses import dataclass

from kai_solver.explaining.capacity_fit import Lack, lacks, request_words, room, room_when_empty, shortage
from kai_solver.explaining.explanation import NodeReason, PodFit
from kai_solver.problem import GangShape, Problem, Shape
from kai_solver.reasons.node_reasons import beyond_every_node
from kai_solver.units import format_amount


@dataclass(frozen=True, slots=True)
class ShapeFit:
    """One shape against all nodes; see ``PodFit``."""

    reasons: tuple[NodeReason, ...]
    room: int
    fitting_nodes: int
    nearest: str
    at_most: int
    beyond: str


class NodeFit:
    """Fits of shapes on the nodes of one problem, each computed once.

    Parameters
    ----------
    after
        The problem of the cluster as the plan leaves it.
    """

    def __init__(self, after: Problem) -> None:
        self._after = after
        self._fits: dict[int, ShapeFit] = {}

    def gang(self, gang: GangShape) -> tuple[PodFit, ...]:
        """One entry for each kind of waiting pod of ``gang``."""
        by_shape: dict[int, list[int]] = {}
        for pod in gang.pending:
            by_shape.setdefault(self._after.pod_shape[pod], []).append(pod)
        first = set(required_pods(gang))
        return tuple(self._pods(shape, pods, len(first & set(pods))) for shape, pods in by_shape.items())

    def _pods(self, shape: int, pods: list[int], required: int) -> PodFit:
        if shape not in self._fits:
            self._fits[shape] = self._shape(self._after.shapes.shapes[shape], pods[0])
        fit = self._fits[shape]
        return PodFit(
            pods=tuple(self._after.pods[pod].key for pod in pods),
            request=request_words(self._after, self._after.shapes.shapes[shape]),
            waiting=len(pods),
            required=required,
            room=fit.room,
            nodes=len(self._after.nodes),
            fitting_nodes=fit.fitting_nodes,
            reasons=fit.reasons,
            nearest=fit.nearest if fit.room < required else "",
            at_most=fit.at_most,
            beyond=fit.beyond,
        )

    def _shape(self, shape: Shape, pod: int) -> ShapeFit:
        counts: Counter[Lack] = Counter()
        places = fitting = at_most = 0
        shortages = []
        others: dict[int, str] = {}
        for rule in reversed(self._after.rules):
            others.update(rule.refusals(self._after, pod))
        for node in range(len(self._after.nodes)):
            refusal = self._after.predicates.reason(shape.constraints, node) or others.get(node, "")
            found = [(refusal, refusal)] if refusal else lacks(self._after, shape, node)
            counts.update(found)
            at_most += 0 if refusal else room_when_empty(self._after, shape, node)
            if not found:
                fitting += 1
                places += room(self._after, shape, node)
            elif not refusal:
                shortages.append(shortage(self._after, shape, node))
        reasons = tuple(
            NodeReason(n, kai, kubernetes) for (kai, kubernetes), n in sorted(counts.items(), key=_by_count)
        )
        lacking = beyond_every_node(self._after, shape)
        beyond = format_amount(lacking[0], lacking[2]) if lacking is not None else ""
        return ShapeFit(reasons, places, fitting, min(shortages)[1] if shortages else "", at_most, beyond)


def required_pods(gang: GangShape) -> tuple[int, ...]:
    """The waiting pods that the gang needs to start; one of its surplus where it has what it needs."""
    missing = [pod for leaf in gang.leaves for pod in leaf.pending[: max(0, leaf.min_member - len(leaf.active))]]
    return tuple(missing) or gang.pending[:1]


def _by_count(item: tuple[Lack, int]) -> tuple[int, Lack]:
    return -item[1], item[0]
