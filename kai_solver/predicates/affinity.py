"""Rules between pods: required (anti-)affinity, topology spread, host ports. They change with every placement.

Semantics are those of kube-scheduler's plugins InterPodAffinity, PodTopologySpread and NodePorts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Constraints, Node, Pod, PodAffinityTerm, Requirement, SpreadConstraint
from kai_solver.predicates.matching import labels_match, ports_clash
from kai_solver.predicates.nodes import BoolArray, NodePredicates, label_value

IntArray = NDArray[np.int64]
_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class _PodSelector:
    """Pods by labels and namespaces; ``("*",)`` is every namespace."""

    requirements: tuple[Requirement, ...]
    namespaces: tuple[str, ...]

    def matches(self, pod: Pod) -> bool:
        in_scope = "*" in self.namespaces or pod.namespace in self.namespaces
        return in_scope and labels_match(self.requirements, pod.labels)


_Selectors = frozenset[_PodSelector]
"""Selectors that a pod must all match."""


@dataclass(frozen=True, slots=True)
class _AntiTerm:
    """An anti-affinity term of a placed pod: it keeps matching pods out of the domains of its bearers."""

    selector: _PodSelector
    topology_key: str


class PodAffinityIndex:
    """Who is where, counted only for selectors, terms and ports that somebody asked about.

    Selectors are met when the first pod that bears them is asked about or placed; pods placed before are then
    counted. A snapshot without such pods costs one append per placement.
    """

    def __init__(self, nodes: Sequence[Node], predicates: NodePredicates | None = None) -> None:
        self._nodes = tuple(nodes)
        self._predicates = predicates or NodePredicates(nodes)
        self._codes: dict[str, IntArray] = {}
        self._placed: dict[tuple[str, int], Pod] = {}
        self._counts: dict[_Selectors, IntArray] = {}
        self._bearers: dict[_AntiTerm, IntArray] = {}
        self._ports: dict[str, IntArray] = {}

    def place(self, pod: Pod, node: int) -> None:
        """Count ``pod`` on ``node``."""
        self._placed[pod.key, node] = pod
        self._shift(pod, node, 1)

    def remove(self, pod: Pod, node: int) -> None:
        """Take back ``place``; nothing happens where the pod was not placed there."""
        if self._placed.pop((pod.key, node), None) is not None:
            self._shift(pod, node, -1)

    def mask(self, pod: Pod) -> BoolArray:
        """(N,) True where the pods placed so far let ``pod`` in. The node's own properties are not looked at."""
        constraints = pod.constraints
        mask = np.ones(len(self._nodes), dtype=np.bool_)
        for term, bearers in self._bearers.items():
            if bearers.any() and term.selector.matches(pod):
                mask &= ~self._reached(term.topology_key, bearers)
        for affinity in constraints.anti_affinity:
            counts = self._count(frozenset({_selector(affinity, pod)}))
            mask &= ~self._reached(affinity.topology_key, counts)
        if constraints.affinity:
            mask &= self._near(pod)
        for spread in constraints.spread:
            mask &= self._even(pod, spread)
        for port in constraints.host_ports:
            for taken, counts in self._ports.items():
                if ports_clash(port, taken):
                    mask &= counts == 0
        return mask

    def _near(self, pod: Pod) -> BoolArray:
        """Nodes whose domain holds, for every affinity term, a pod that matches all of the terms.

        Where nobody does and the pod itself would, it may start anywhere: the first of a self-affine gang.
        """
        terms = pod.constraints.affinity
        selectors = frozenset(_selector(term, pod) for term in terms)
        counts = self._count(selectors)
        is_first = not counts.any() and all(selector.matches(pod) for selector in selectors)
        mask = np.ones(len(self._nodes), dtype=np.bool_)
        for term in terms:
            mask &= self._code(term.topology_key) >= 0 if is_first else self._reached(term.topology_key, counts)
        return mask

    def _even(self, pod: Pod, spread: SpreadConstraint) -> BoolArray:
        """Nodes that keep the skew: matching pods in the domain, with this one, less the emptiest domain's.

        Domains are those of nodes that the pod's node affinity admits and that bear every key of its constraints.
        """
        selector = _PodSelector(spread.selector, (pod.namespace,))
        code = self._code(spread.topology_key)
        counted = self._predicates.affinity_mask(pod.constraints) & self._has_keys(pod.constraints)
        held = np.zeros(int(code.max(initial=-1)) + 1, dtype=np.int64)
        np.add.at(held, code[counted], self._count(frozenset({selector}))[counted])
        least = held[code[counted]].min() if counted.any() else 0
        own = int(selector.matches(pod))
        mask = code >= 0
        mask[mask] = held[code[mask]] + own - least <= spread.max_skew
        return mask

    def _has_keys(self, constraints: Constraints) -> BoolArray:
        mask = np.ones(len(self._nodes), dtype=np.bool_)
        for spread in constraints.spread:
            mask &= self._code(spread.topology_key) >= 0
        return mask

    def _reached(self, key: str, counts: IntArray) -> BoolArray:
        """(N,) True where the node's domain under ``key`` holds a counted pod."""
        code = self._code(key)
        held = np.zeros(int(code.max(initial=-1)) + 2, dtype=np.bool_)
        held[code[counts > 0]] = True
        held[-1] = False
        reached: BoolArray = held[code]
        return reached

    def _code(self, key: str) -> IntArray:
        """(N,) number of the node's value of ``key``, -1 where it has none."""
        code = self._codes.get(key)
        if code is None:
            index: dict[str | None, int] = {None: -1}
            values = [label_value(node, key) for node in self._nodes]
            code = np.array([index.setdefault(value, len(index) - 1) for value in values], dtype=np.int64)
            self._codes[key] = code
        return code

    def _count(self, selectors: _Selectors) -> IntArray:
        """(N,) placed pods that match all ``selectors``."""
        counts = self._counts.get(selectors)
        if counts is None:
            counts = np.zeros(len(self._nodes), dtype=np.int64)
            for (_, node), pod in self._placed.items():
                counts[node] += all(selector.matches(pod) for selector in selectors)
            self._counts[selectors] = counts
        return counts

    def _shift(self, pod: Pod, node: int, sign: int) -> None:
        for selectors, counts in self._counts.items():
            if all(selector.matches(pod) for selector in selectors):
                counts[node] += sign
        for term in pod.constraints.anti_affinity:
            anti = _AntiTerm(_selector(term, pod), term.topology_key)
            self._tally(self._bearers, anti)[node] += sign
        for port in pod.constraints.host_ports:
            self._tally(self._ports, port)[node] += sign

    def _tally(self, tallies: dict[_K, IntArray], key: _K) -> IntArray:
        if key not in tallies:
            tallies[key] = np.zeros(len(self._nodes), dtype=np.int64)
        return tallies[key]


def _selector(term: PodAffinityTerm, pod: Pod) -> _PodSelector:
    return _PodSelector(term.selector, term.namespaces or (pod.namespace,))
