"""KAI's fit errors for an allocation unit without room: the same attempt as KAI's, and the text of each step.

Source: KAI's ``actions/common/allocate.go``. Texts hold ``{gang}`` and ``{pod:i}`` (the i-th pod of the unit), so that
one refusal serves all gangs of one shape; ``pending.py`` puts the names in.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import FitError, Reason, TopologyConstraint
from kai_solver.placement.placing import FEW_PODS, Placer
from kai_solver.planstate.allocation_units import AllocationUnit, Part
from kai_solver.reasons.domain_reasons import DomainReasons, known_level
from kai_solver.reasons.looks import Looks
from kai_solver.reasons.node_reasons import NodeReasons, counted, not_met

BoolArray = NDArray[np.bool_]

GANG = "{gang}"
_POD_ERRORS = Reason.POD_SCHEDULING_ERRORS.value
NO_POD = "Unable to schedule pod"
"""KAI's error of a pod for which no node was even asked."""

_MOST_DOMAINS = 64
"""Domains tried for the texts; KAI tries all, and a unit rarely passes its count and fails its try."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an attempt left behind.

    Attributes
    ----------
    errors
        What KAI would say.
    stuck
        The first pod that no node took; None where the look at the domains ended the attempt.
    nodes, available
        Of that pod: all nodes by the reason that they refuse it, in Kubernetes' words, and how many would take it.
    placed
        Pods of the unit that had a place when it was that pod's turn.
    """

    errors: tuple[FitError, ...]
    stuck: int | None
    nodes: Counter[str]
    available: int
    placed: int


def attempt(placer: Placer, unit: AllocationUnit, looks: Looks) -> Attempt:
    """Try ``unit`` as KAI would in the present state, that of ``looks``, which is left as it was."""
    mark = placer.state.mark()
    walk = _Walk(placer, unit, looks)
    walk.part(unit.root, None)
    placer.state.rollback(mark)
    return Attempt(tuple(dict.fromkeys(walk.errors)), walk.stuck, walk.nodes, walk.available, walk.placed)


class _Walk:
    """One attempt to place a unit, in KAI's order: subgroup sets, then podsets, pod by pod."""

    def __init__(self, placer: Placer, unit: AllocationUnit, looks: Looks) -> None:
        self.placer = placer
        self.looks = looks
        self.state = placer.state
        self.unit = unit
        self.gang = placer.state.problem.gangs[unit.gang]
        self.errors: list[FitError] = []
        self.stuck: int | None = None
        self.nodes = Counter[str]()
        self.available = 0
        self.placed = 0
        self._position = {pod: i for i, pod in enumerate(unit.pods)}
        self._reasons: dict[int, Counter[str]] = {}

    def part(self, part: Part, allowed: BoolArray | None) -> bool:
        """Place ``part`` in the first domain that takes it; False with the errors noted."""
        constraint = part.topology
        if constraint is None or not any(True for _ in part.all_pods()):
            return self._inside(part, allowed)
        tree = self.state.problem.domains.get(constraint.topology)
        if tree is None:
            self._note(f"Requested topology {constraint.topology} does not exist")
            return False
        if not known_level(tree, constraint):
            return self._inside(part, allowed)
        answer = DomainReasons(self.looks.domain_room(), tree, part, constraint, GANG).answer(allowed)
        self.errors += answer.errors
        for domain in answer.domains[:_MOST_DOMAINS]:
            mark = self.state.mark()
            if self._inside(part, self._mask(tree.nodes_of(domain), allowed)):
                return True
            self.state.rollback(mark)
        return False

    def _mask(self, nodes: NDArray[np.int64], allowed: BoolArray | None) -> BoolArray:
        mask = np.zeros(len(self.state.problem.nodes), dtype=np.bool_)
        mask[nodes] = True
        return mask if allowed is None else mask & allowed

    def _inside(self, part: Part, allowed: BoolArray | None) -> bool:
        if not all(self.part(child, allowed) for child in part.parts):
            return False
        placed = self._all_that_fit(part.pods, allowed)
        for index, pod in enumerate(part.pods[placed:], start=placed):
            reason = self._beyond(pod)
            if not reason and self.placer.place_pod(pod, allowed):
                continue
            nodes = NodeReasons(self.state, pod, self.looks.node_room(self.state.problem.pod_shape[pod]))
            if self.stuck is None:
                self._stop_at(pod, nodes)
            self._refused(part, index, pod, reason or self._why(nodes, allowed))
            return False
        return True

    def _all_that_fit(self, pods: tuple[int, ...], allowed: BoolArray | None) -> int:
        """Place the first of ``pods`` at once, as many as fit; 0 where they have to be placed one by one."""
        shapes = {self.state.problem.pod_shape[pod] for pod in pods}
        if not self.placer.at_once or len(pods) < FEW_PODS or len(shapes) > 1:
            return 0
        if not self.placer.is_plain(pods) or self._beyond(pods[0]):
            return 0
        now, later = self.placer.fits.counts(shapes.pop())
        if allowed is not None:
            now, later = now[allowed], later[allowed]
        count = min(len(pods), int(now.sum()))
        can_start = count == min(len(pods), int(later.sum())) and count > 0
        return count if can_start and self.placer.fill(pods[:count], allowed) else 0

    def _stop_at(self, pod: int, nodes: NodeReasons) -> None:
        problem = self.state.problem
        self.placed = sum(other in self.state.places for other in self.unit.pods)
        takes = self.placer.fits.counts(problem.pod_shape[pod])[1] > 0
        for rule in self.state.rules:
            closed = rule.closed(problem.pod_shape[pod], pod, takes)
            takes = takes if closed is None else takes & ~closed
        self.stuck, self.nodes, self.available = pod, nodes.kubernetes(), int(takes.sum())

    def _beyond(self, pod: int) -> str:
        """Why no node could ever take the pod, from its size alone."""
        name = self._name(pod)
        text = self.looks.beyond_largest.text(self.state.problem.pod_shape[pod], name)
        return not_met(name, "MaxNodePoolResources", text) if text else ""

    def _why(self, nodes: NodeReasons, allowed: BoolArray | None) -> str:
        """What the nodes say; a pod that is tried in several domains keeps what it heard in each."""
        if not self.state.problem.nodes:
            return NO_POD
        heard = self._reasons.setdefault(nodes.pod, Counter())
        heard.update(nodes.kai(allowed))
        return counted(heard)

    def _refused(self, part: Part, index: int, pod: int, reason: str) -> None:
        """KAI's line about the pod, the gang or the subgroup (``handleFailedTaskAllocation``)."""
        leaves = self.gang.leaves
        position = self.state.leaf_of[pod]
        leaf = leaves[position]
        active = len(self.state.gangs[self.gang.index].active[position])
        if all(other.min_member <= 1 for other in leaves) or active >= leaf.min_member:
            self._note(f"Resources were not found for pod {self._name(pod)} due to: {reason}")
        elif len(leaves) == 1 and leaf.name == "default":
            self._note(
                f"Resources were found for {index} pods while {leaf.min_member} are required for gang scheduling. "
                f"Additional pods cannot be scheduled due to: {reason}"
            )
        else:
            self._note(
                f"Resources were found for {index} pods from all sub-groups while sub-group {part.name} requires "
                f"{leaf.min_member} pods for gang scheduling. "
                f"Additional pods cannot be scheduled in this sub-group due to: {reason}"
            )

    def _name(self, pod: int) -> str:
        return f"{{pod:{self._position[pod]}}}"

    def _note(self, text: str) -> None:
        self.errors.append(FitError(_POD_ERRORS, (text,)))


def constraint_of(part: Part) -> TopologyConstraint | None:
    """The first required level in the tree of a unit; None without one."""
    if part.topology is not None and part.topology.required:
        return part.topology
    return next(filter(None, (constraint_of(child) for child in part.parts)), None)
