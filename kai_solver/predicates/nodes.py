"""May a pod be on a node, as far as the node's own properties say: selectors, affinity, taints, cordons.

Every question is answered once per distinct label value or taint set, then spread over the nodes that bear it.
Semantics are those of kube-scheduler's plugins NodeUnschedulable, TaintToleration and NodeAffinity.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Constraints, Node, NodeTerm, Requirement, Taint
from kai_solver.domain.gpus import SHAREABLE
from kai_solver.predicates.matching import tolerated, value_matches

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

T = TypeVar("T", bound=Hashable)

NODE_NAME_KEY = "metadata.name"
"""Key in a node term that stands for the node's name."""

CLUSTER_KEY = "kai-solver/cluster"
"""Topology key of rules that hold anywhere in the cluster: all nodes are one domain."""

UNSCHEDULABLE = "node(s) were unschedulable"
AFFINITY_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
NOT_SHARED = "node(s) had GPUs that cannot be shared"


class NodePredicates:
    """Answers for the N nodes of one snapshot. Arrays that it returns are shared and read-only."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = tuple(nodes)
        self._schedulable = np.array([node.schedulable for node in nodes], dtype=np.bool_)
        self._taints = _Grouped([_binding_taints(node) for node in nodes])
        soft = [tuple(t for t in node.taints if t.effect == "PreferNoSchedule") for node in nodes]
        self._soft_taints = _Grouped(soft) if any(soft) else None
        self._labels: dict[str, _Grouped[str | None]] = {}
        self._terms: dict[NodeTerm, BoolArray] = {}
        self._masks: dict[Constraints, BoolArray] = {}
        self._refusals: dict[Constraints, dict[str, BoolArray]] = {}
        self._by_identity: dict[int, tuple[Constraints, BoolArray]] = {}

    @property
    def size(self) -> int:
        """Answers held: they stay as long as this object."""
        return max(len(self._masks), len(self._by_identity), len(self._refusals))

    def node_mask(self, constraints: Constraints) -> BoolArray:
        """(N,) True where a new pod with ``constraints`` may be placed, capacity and other pods aside."""
        known = self._by_identity.get(id(constraints))
        if known is not None:
            return known[1]
        mask = self._masks.get(constraints)
        if mask is None:
            mask = self._schedulable & self.tolerates(constraints) & self.affinity_mask(constraints)
            if constraints.blocked:
                mask = np.zeros_like(mask)
            self._masks[constraints] = _frozen(mask)
        self._by_identity[id(constraints)] = (constraints, mask)
        return mask

    def affinity_mask(self, constraints: Constraints) -> BoolArray:
        """(N,) True where node selector, required node affinity and volumes' node affinity all hold."""
        mask = np.ones(len(self._nodes), dtype=np.bool_)
        for alternatives in constraints.node_terms:
            either = np.zeros_like(mask)
            for term in alternatives:
                either |= self._term(term)
            mask &= either
        return mask

    def tolerates(self, constraints: Constraints) -> BoolArray:
        """(N,) True where every taint NoSchedule or NoExecute is tolerated."""
        return self._taints.spread(
            lambda taints: all(tolerated(taint, constraints.tolerations) for taint in taints),
        )

    def has_preference(self, constraints: Constraints) -> bool:
        """Whether nodes differ in what ``constraints`` prefer of the node itself."""
        return bool(constraints.preferred) or self._soft_taints is not None

    def preference(self, constraints: Constraints, candidates: BoolArray) -> IntArray:
        """(N,) score by preferred node affinity and by taints ``PreferNoSchedule``, over ``candidates``.

        Each is scaled to 0 .. 100 and weighs as in kube-scheduler's defaults: affinity 2, taints 3.
        """
        score = np.zeros(len(self._nodes), dtype=np.int64)
        for weight, term in constraints.preferred:
            score += weight * self._term(term)
        most = int(score[candidates].max(initial=0))
        score = score * 100 // most * 2 if most else np.zeros_like(score)
        if self._soft_taints is not None:
            covering = [t for t in constraints.tolerations if t.effect in ("", "PreferNoSchedule")]
            disliked = self._soft_taints.number(lambda taints: sum(not tolerated(t, covering) for t in taints))
            worst = int(disliked[candidates].max(initial=0))
            score += (100 - disliked * 100 // worst) * 3 if worst else 0
        return score

    def reason(self, constraints: Constraints, node: int) -> str:
        """Why ``node`` does not take such pods, in kube-scheduler's words and order; empty where it does."""
        if constraints.blocked:
            return constraints.blocked[0]
        if not self._schedulable[node]:
            return UNSCHEDULABLE
        taint = next((t for t in self._taints.value(node) if not tolerated(t, constraints.tolerations)), None)
        if taint is not None:
            return taint_message(taint)
        if self._not_shared(constraints)[node]:
            return NOT_SHARED
        return "" if self.affinity_mask(constraints)[node] else AFFINITY_MISMATCH

    def reasons(self, constraints: Constraints) -> dict[str, int]:
        """How many nodes refuse such pods for which reason; each node counts once, under its first."""
        counts = {text: int(nodes.sum()) for text, nodes in self.refusals(constraints).items()}
        return {text: count for text, count in sorted(counts.items()) if count}

    def refusals(self, constraints: Constraints) -> dict[str, BoolArray]:
        """By reason, (N,) True for the nodes that refuse such pods, each under its first. Do not write to them."""
        found = self._refusals.get(constraints)
        if found is None:
            found = self._refusals[constraints] = self._refused(constraints)
        return found

    def _refused(self, constraints: Constraints) -> dict[str, BoolArray]:
        if constraints.blocked:
            return {constraints.blocked[0]: np.ones_like(self._schedulable)}

        def first(taints: tuple[Taint, ...]) -> str:
            return next((taint_message(t) for t in taints if not tolerated(t, constraints.tolerations)), "")

        found = {UNSCHEDULABLE: ~self._schedulable}
        for text, nodes in self._taints.by(first).items():
            if text:
                found[text] = self._schedulable & nodes
        tolerates = self.tolerates(constraints)
        left = self._schedulable & tolerates
        found[NOT_SHARED] = left & self._not_shared(constraints)
        found[AFFINITY_MISMATCH] = left & ~found[NOT_SHARED] & ~self.affinity_mask(constraints)
        return {text: found[text] for text in sorted(found)}

    def _not_shared(self, constraints: Constraints) -> BoolArray:
        """(N,) True where the pod asks for a share of a GPU and GPUs are not shared."""
        found = np.zeros(len(self._nodes), dtype=np.bool_)
        for alternatives in constraints.node_terms:
            for term in alternatives:
                if SHAREABLE in term:
                    found |= ~self._term(term)
        return found

    def _term(self, term: NodeTerm) -> BoolArray:
        """(N,) True where all requirements of ``term`` hold; a term without any matches nothing (Kubernetes)."""
        mask = self._terms.get(term)
        if mask is None:
            mask = np.full(len(self._nodes), bool(term), dtype=np.bool_)
            for requirement in term:
                mask &= self._requirement(requirement)
            self._terms[term] = _frozen(mask)
        return mask

    def _requirement(self, requirement: Requirement) -> BoolArray:
        values = self._labels.get(requirement.key)
        if values is None:
            values = _Grouped([label_value(node, requirement.key) for node in self._nodes])
            self._labels[requirement.key] = values
        if requirement.operator == "In":  # a driver of local storage may list most nodes of a cluster
            return values.spread(frozenset(requirement.values).__contains__)
        return values.spread(lambda value: value_matches(requirement, value))


class _Grouped(Generic[T]):
    """One value per node, each distinct one held once."""

    def __init__(self, values: Sequence[T]) -> None:
        index: dict[T, int] = {}
        self._codes = np.array([index.setdefault(value, len(index)) for value in values], dtype=np.int64)
        self._distinct = tuple(index)

    def value(self, node: int) -> T:
        """The value of ``node``."""
        return self._distinct[int(self._codes[node])]

    def spread(self, holds: Callable[[T], bool]) -> BoolArray:
        """(N,) of ``holds``, asked once per distinct value."""
        answers: BoolArray = np.array([holds(value) for value in self._distinct], dtype=np.bool_)[self._codes]
        return answers

    def number(self, measure: Callable[[T], int]) -> IntArray:
        """(N,) of ``measure``, asked once per distinct value."""
        numbers: IntArray = np.array([measure(value) for value in self._distinct], dtype=np.int64)[self._codes]
        return numbers

    def by(self, key: Callable[[T], str]) -> dict[str, BoolArray]:
        """(N,) for every text that ``key`` gives: True for the nodes whose value gives it."""
        texts = np.array([key(value) for value in self._distinct], dtype=np.object_)
        return {text: (texts == text)[self._codes] for text in dict.fromkeys(texts.tolist())}


def label_value(node: Node, key: str) -> str | None:
    """Value of a node's label, or its name for ``metadata.name``; None where absent."""
    if key == CLUSTER_KEY:
        return ""
    return node.name if key == NODE_NAME_KEY else node.labels.get(key)


def domain_codes(nodes: Sequence[Node], key: str) -> IntArray:
    """(N,) number of each node's value of ``key``, -1 where it has none."""
    index: dict[str | None, int] = {None: -1}
    values = [label_value(node, key) for node in nodes]
    return np.array([index.setdefault(value, len(index) - 1) for value in values], dtype=np.int64)


def taint_message(taint: Taint) -> str:
    """kube-scheduler's sentence for a taint in the way."""
    return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"


def _binding_taints(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.taints if taint.effect != "PreferNoSchedule")


def _frozen(mask: BoolArray) -> BoolArray:
    mask.flags.writeable = False
    return mask
