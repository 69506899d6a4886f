"""Pods by selector, node and domain, and which nodes (anti-)affinity and topology spread so leave to a pod.

Semantics are those of kube-scheduler's plugins InterPodAffinity and PodTopologySpread.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Constraints, Node, Pod, SpreadConstraint
from kai_solver.predicates import CLUSTER_KEY, NodePredicates, PodSelector, domain_codes, of_spread, of_term

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
_K = TypeVar("_K")

_Selectors = frozenset[PodSelector]
"""Selectors that a pod must all match."""


Refused = tuple[str, BoolArray]
"""kube-scheduler's words for a rule, and (N,) True where it keeps a pod off."""

IN_USE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
REPELLED = "node(s) didn't satisfy existing pods anti-affinity rules"
REPELS = "node(s) didn't match pod anti-affinity rules"
LONELY = "node(s) didn't match pod affinity rules"
UNEVEN = "node(s) didn't match pod topology spread constraints"


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A term of a placed pod: pods that match it, near or far within one value of the key."""

    selector: PodSelector
    topology_key: str


class _Tally:
    """Amounts by node for one rule, which is about the pods that match all ``selectors``; ``number`` is their sum.

    An array is made when it is first asked for. On 20,000 unequal nodes 987 jobs prefer their own company, few of them
    are asked about, and the arrays of all, in three views, took about 500 MiB (2026-11-28).
    """

    __slots__ = ("_amounts", "_few", "_nodes", "number", "selectors")

    def __init__(self, nodes: int, selectors: _Selectors) -> None:
        self._nodes = nodes
        self._few: dict[int, int] = {}
        self._amounts: IntArray | None = None
        self.number = 0
        self.selectors = selectors

    @property
    def amounts(self) -> IntArray:
        """(N,)"""
        if self._amounts is None:
            self._amounts = np.zeros(self._nodes, dtype=np.int64)
            self._amounts[list(self._few)] = list(self._few.values())
            self._few = {}
        return self._amounts

    def add(self, node: int, amount: int) -> None:
        """Add ``amount`` at ``node``."""
        if self._amounts is None:
            self._few[node] = self._few.get(node, 0) + amount
        else:
            self._amounts[node] += amount
        self.number += amount

    def copy(self) -> "_Tally":
        """The same amounts, to be changed apart."""
        found = _Tally(self._nodes, self.selectors)
        found._few, found.number = self._few.copy(), self.number
        found._amounts = None if self._amounts is None else self._amounts.copy()
        return found


class _Tallies(Generic[_K]):
    """Tallies by rule. A rule is asked once about a kind of pods that have a label which it requires."""

    __slots__ = ("_about", "_by_label", "_known", "_others", "_rules", "nodes")

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._known: dict[_K, _Tally] = {}
        self._rules: list[tuple[_K, _Tally]] = []
        self._by_label: dict[tuple[str, str], list[int]] = {}
        self._others: list[int] = []
        self._about: dict[int, tuple[int, list[tuple[_K, _Tally]]]] = {}

    def __contains__(self, key: _K) -> bool:
        return key in self._known

    def of(self, key: _K, selectors: _Selectors) -> _Tally:
        """The tally of the rule ``key``, made where there is none."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _Tally(self.nodes, selectors)
            one_of = _one_of(selectors)
            for numbers in [self._others] if one_of is None else [self._by_label.setdefault(at, []) for at in one_of]:
                numbers.append(len(self._rules))
            self._rules.append((key, found))
        return found

    def about(self, pod: Pod, kind: int) -> Sequence[tuple[_K, _Tally]]:
        """Rules that are about ``pod``, which is of ``kind``, in the order in which they came up."""
        asked, found = self._about.get(kind, (0, []))
        if asked < len(self._rules):
            lists = [self._others, *(self._by_label[label] for label in pod.labels.items() if label in self._by_label)]
            for number in sorted(number for numbers in lists for number in numbers[bisect_left(numbers, asked) :]):
                key, tally = self._rules[number]
                if _are_about(tally.selectors, pod):
                    found.append((key, tally))
            self._about[kind] = len(self._rules), found
        return found

    def copy(self) -> "_Tallies[_K]":
        """The same rules and amounts, to be changed apart."""
        found: _Tallies[_K] = _Tallies(self.nodes)
        found._known = {key: tally.copy() for key, tally in self._known.items()}
        found._rules = [(key, found._known[key]) for key, _ in self._rules]
        found._by_label = {label: numbers.copy() for label, numbers in self._by_label.items()}
        found._others = self._others.copy()
        found._about = {
            kind: (asked, [(key, found._known[key]) for key, _ in rules])
            for kind, (asked, rules) in self._about.items()
        }
        return found


class _Kinds:
    """Numbers for pods that no selector can tell apart: one namespace, the same labels.

    ``samples``: one pod of each kind. ``nodes``: by kind, how many of its pods are placed on which nodes.
    """

    def __init__(self) -> None:
        self.samples: list[Pod] = []
        self.nodes: list[Counter[int]] = []
        self._numbers: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self._by_label: dict[tuple[str, str], list[int]] = {}
        self._known: dict[int, tuple[Pod, int]] = {}

    def __call__(self, pod: Pod) -> int:
        """The pod's number; looked up by its identity, so the pod is held on to."""
        found = self._known.get(id(pod))
        if found is None:
            key = pod.namespace, frozenset(pod.labels.items())
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self.samples)
                self.samples.append(pod)
                self.nodes.append(Counter())
                for label in pod.labels.items():
                    self._by_label.setdefault(label, []).append(number)
            found = self._known[id(pod)] = pod, number
        return found[1]

    def copy(self) -> "_Kinds":
        """The same pods, to be changed apart."""
        found = _Kinds()
        found.samples, found.nodes = self.samples.copy(), [nodes.copy() for nodes in self.nodes]
        found._numbers, found._known = self._numbers.copy(), self._known.copy()
        found._by_label = {label: numbers.copy() for label, numbers in self._by_label.items()}
        return found

    def matching(self, selectors: _Selectors) -> Iterator[int]:
        """Kinds whose pods match all ``selectors``."""
        one_of = _one_of(selectors)
        if one_of is None:
            numbers: Iterable[int] = range(len(self.samples))
        else:
            numbers = [number for label in dict.fromkeys(one_of) for number in self._by_label.get(label, ())]
        return (number for number in numbers if _are_about(selectors, self.samples[number]))


@dataclass(frozen=True, slots=True)
class _Guard:
    """A spread rule of new pods: pods placed later may not break it."""

    constraints: Constraints
    spread: SpreadConstraint
    selector: PodSelector


@dataclass(frozen=True, slots=True)
class _RequiredAffinity:
    """Peers that new pods require in their domains of ``keys``; ``own``: the affinity matches the pods themselves."""

    selectors: _Selectors
    keys: frozenset[str]
    own: bool


class PodAffinityIndex:
    """Counts of placed pods, only for selectors and terms that were asked about.

    Selectors are met when the first pod that bears them is asked about or placed; pods placed before are then
    counted. A snapshot without such pods costs one append per placement.
    """

    def __init__(self, nodes: Sequence[Node], predicates: NodePredicates | None = None) -> None:
        self.nodes = tuple(nodes)
        self._predicates = predicates or NodePredicates(nodes)
        self._codes: dict[str, IntArray] = {}
        self._placed: dict[tuple[str, int], tuple[Pod, bool]] = {}
        self._counts: _Tallies[_Selectors] = _Tallies(len(self.nodes))
        self._bearers: _Tallies[PodTerm] = _Tallies(len(self.nodes))
        self._guards: _Tallies[_Guard] = _Tallies(len(self.nodes))
        self._required: _Tallies[_RequiredAffinity] = _Tallies(len(self.nodes))
        self._eligible: dict[tuple[Constraints, SpreadConstraint], BoolArray] = {}
        self._bearing: dict[tuple[str, ...], BoolArray] = {}
        self._pulls: _Tallies[PodTerm] = _Tallies(len(self.nodes))
        self._kinds = _Kinds()

    def copy(self) -> "PodAffinityIndex":
        """The same pods, to be changed apart; what depends on the nodes alone is shared."""
        found = PodAffinityIndex(self.nodes, self._predicates)
        found._codes, found._eligible, found._bearing = self._codes, self._eligible, self._bearing
        found._placed, found._kinds = self._placed.copy(), self._kinds.copy()
        found._counts, found._bearers, found._guards = self._counts.copy(), self._bearers.copy(), self._guards.copy()
        found._required, found._pulls = self._required.copy(), self._pulls.copy()
        return found

    def place(self, pod: Pod, node: int, *, new: bool = False) -> None:
        """Count ``pod`` on ``node``; ``new``: its spread and affinity must hold for pods placed later."""
        self._placed[pod.key, node] = pod, new
        self._shift(pod, node, 1, new=new)

    def remove(self, pod: Pod, node: int) -> None:
        """Take back ``place``; nothing happens where the pod was not placed there."""
        found = self._placed.pop((pod.key, node), None)
        if found is not None:
            self._shift(pod, node, -1, new=found[1])

    def mask(self, pod: Pod) -> BoolArray:
        """(N,) True where the pods placed so far let ``pod`` in. The node's own properties are not looked at."""
        mask = self.clear(pod)
        for _, refused in self._misfits(pod):
            mask &= ~refused
        return mask

    def is_near(self, pod: Pod, node: int) -> bool:
        """Whether the domains of ``node`` hold the pods that ``pod`` requires beside it."""
        return bool(self._near(pod)[node])

    def clear(self, pod: Pod) -> BoolArray:
        """(N,) True where no pod placed so far conflicts with ``pod`` by anti-affinity, either way."""
        mask = np.ones(len(self.nodes), dtype=np.bool_)
        for _, refused in self._keepers(pod):
            mask &= ~refused
        return mask

    def reason_by_node(self, pod: Pod) -> dict[int, str]:
        """By node, kube-scheduler's words for the first rule that keeps ``pod`` off; only nodes that are closed."""
        found: dict[int, str] = {}
        for text, refused in (*self._keepers(pod), *self._misfits(pod)):
            for node in np.flatnonzero(refused).tolist():
                found.setdefault(node, text)
        return found

    def reasons(self, pod: Pod, nodes: BoolArray) -> dict[str, int]:
        """How many of ``nodes`` refuse ``pod`` for which reason; each node counts once, under its first."""
        return dict(Counter(text for node, text in self.reason_by_node(pod).items() if nodes[node]))

    def _keepers(self, pod: Pod) -> Iterator[Refused]:
        kind = self._kinds(pod)
        for term, bearers in self._bearers.about(pod, kind):
            if bearers.number:
                text = IN_USE if term.topology_key == CLUSTER_KEY else REPELLED
                yield text, self._reached(term.topology_key, bearers.amounts)
        for affinity in pod.constraints.anti_affinity:
            counts = self.count(frozenset({of_term(affinity, pod.namespace)}))
            yield REPELS, self._reached(affinity.topology_key, counts)

    def _misfits(self, pod: Pod) -> Iterator[Refused]:
        for spread in pod.constraints.spread:
            yield UNEVEN, ~self._even(pod, spread)
        for guard, bearers in self._guards.about(pod, self._kinds(pod)):
            if bearers.number:
                yield UNEVEN, self._breaks(guard, bearers.amounts)
        for required, seekers in self._seekers(pod):
            if required.own:
                yield LONELY, self._separated(required, seekers)
        if pod.constraints.affinity:
            yield LONELY, ~self._near(pod)

    def is_sought(self, pod: Pod) -> bool:
        """Whether a new pod requires pods like ``pod`` beside it, so that ``pod`` may not leave freely."""
        return any(True for _ in self._seekers(pod))

    def _seekers(self, pod: Pod) -> Iterator[tuple[_RequiredAffinity, IntArray]]:
        """Required affinities of new pods that match ``pod``, each with (N,) the number of such new pods by node."""
        for required, bearers in self._required.about(pod, self._kinds(pod)):
            if bearers.number:
                yield required, bearers.amounts

    def agrees(self, pod: Pod, node: int) -> bool:
        """Whether ``pod``, placed on ``node``, could be placed there again beside all other pods."""
        placed = self._placed.get((pod.key, node))
        self.remove(pod, node)
        agrees = bool(self.mask(pod)[node])
        if placed is not None:
            self.place(pod, node, new=placed[1])
        return agrees

    def is_crossed(self) -> bool:
        """Whether a pod is placed where anti-affinity forbids a new pod like it."""
        sums: dict[PodTerm, IntArray] = {}
        return any(self._is_crossed(pod, node, sums) for (_, node), (pod, _) in self._placed.items())

    def _is_crossed(self, pod: Pod, node: int, sums: dict[PodTerm, IntArray]) -> bool:
        for affinity in pod.constraints.anti_affinity:
            term = PodTerm(of_term(affinity, pod.namespace), affinity.topology_key)
            if term not in sums:
                sums[term] = summed(self.code(term.topology_key), self.count(frozenset({term.selector})))
            if sums[term][node] > int(term.selector.matches(pod)):
                return True
        return False

    def _near(self, pod: Pod) -> BoolArray:
        """Nodes whose domain holds, for every affinity term, a pod that matches all of the terms.

        If no pod does and the pod itself would, it may start anywhere: the first of a gang with affinity to itself.
        """
        terms = pod.constraints.affinity
        selectors = _peers_of(pod)
        counts = self.count(selectors)
        is_first = not counts.any() and _are_about(selectors, pod)
        mask = np.ones(len(self.nodes), dtype=np.bool_)
        for term in terms:
            mask &= self.code(term.topology_key) >= 0 if is_first else self._reached(term.topology_key, counts)
        return mask

    def _even(self, pod: Pod, spread: SpreadConstraint) -> BoolArray:
        """Nodes that keep the skew: matching pods in the domain, with this one, less the emptiest domain's."""
        selector = of_spread(spread, pod.namespace)
        held, least = self.held(pod.constraints, spread, selector)
        code = self.code(spread.topology_key)
        mask = code >= 0
        mask[mask] = held[code[mask]] + int(selector.matches(pod)) - least <= spread.max_skew
        return mask

    def _breaks(self, guard: _Guard, bearers: IntArray) -> BoolArray:
        """(N,) True where one more counted pod would pass the skew of new pods in the same domain."""
        key = guard.spread.topology_key
        held, least = self.held(guard.constraints, guard.spread, guard.selector)
        full = np.append(held + 1 - least > guard.spread.max_skew, False)
        breaks: BoolArray = (
            full[self.code(key)] & self._reached(key, bearers) & self.eligible(guard.constraints, guard.spread)
        )
        return breaks

    def _separated(self, required: _RequiredAffinity, seekers: IntArray) -> BoolArray:
        """(N,) True where one more peer would be in another domain than a new pod that was the first of its peers."""
        separated = np.zeros(len(self.nodes), dtype=np.bool_)
        if self.count(required.selectors).sum() == 1:
            for key in required.keys:
                separated |= ~self._reached(key, seekers)
        return separated

    def held(self, constraints: Constraints, spread: SpreadConstraint, selector: PodSelector) -> tuple[IntArray, int]:
        """Matching pods by domain (by its code), and in the emptiest; with too few domains that is 0."""
        code = self.code(spread.topology_key)
        counted = self.eligible(constraints, spread)
        held = np.zeros(int(code.max(initial=-1)) + 1, dtype=np.int64)
        np.add.at(held, code[counted], self.count(frozenset({selector}))[counted])
        domains = np.unique(code[counted])
        is_short = len(domains) < spread.min_domains or not len(domains)
        return held, 0 if is_short else int(held[domains].min())

    def eligible(self, constraints: Constraints, spread: SpreadConstraint) -> BoolArray:
        """(N,) nodes whose pods and domains count: they bear every key of the spread rules of that kind.

        And they are not ruled out by the pod's node affinity, or by taints, where the rule honours those.
        """
        found = self._eligible.get((constraints, spread))
        if found is None:
            kind = constraints.spread if spread in constraints.spread else constraints.preferred_spread
            found = self._bears(tuple(dict.fromkeys(other.topology_key for other in kind))).copy()
            if spread.honours_affinity:
                found &= self._predicates.affinity_mask(constraints)
            if spread.honours_taints:
                found &= self._predicates.tolerates(constraints)
            self._eligible[constraints, spread] = found
        return found

    def _bears(self, keys: tuple[str, ...]) -> BoolArray:
        """(N,) nodes that bear every key."""
        found = self._bearing.get(keys)
        if found is None:
            found = np.ones(len(self.nodes), dtype=np.bool_)
            for key in keys:
                found &= self.code(key) >= 0
            self._bearing[keys] = found
        return found

    def _reached(self, key: str, counts: IntArray) -> BoolArray:
        """(N,) True where the node's domain under ``key`` holds a counted pod."""
        code = self.code(key)
        held = np.zeros(int(code.max(initial=-1)) + 2, dtype=np.bool_)
        held[code[counts > 0]] = True
        held[-1] = False
        reached: BoolArray = held[code]
        return reached

    def code(self, key: str) -> IntArray:
        """(N,) number of the node's value of ``key``, -1 where it has none."""
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = domain_codes(self.nodes, key)
        return code

    def count(self, selectors: _Selectors) -> IntArray:
        """(N,) placed pods that match all ``selectors``."""
        is_new = selectors not in self._counts
        found = self._counts.of(selectors, selectors)
        if is_new:
            for kind in self._kinds.matching(selectors):
                for node, number in self._kinds.nodes[kind].items():
                    found.add(node, number)
        return found.amounts

    def pulls(self, pod: Pod) -> Iterator[tuple[str, IntArray]]:
        """Topology key and (N,) weights of the placed pods that like ``pod`` near (negative: that do not)."""
        kind = self._kinds(pod)
        for term, weights in self._pulls.about(pod, kind):
            if weights.amounts.any():
                yield term.topology_key, weights.amounts

    def _shift(self, pod: Pod, node: int, sign: int, *, new: bool) -> None:
        kind = self._kinds(pod)
        self._kinds.nodes[kind][node] += sign
        for _, counts in self._counts.about(pod, kind):
            counts.add(node, sign)
        constraints = pod.constraints
        if not constraints.speaks_of_pods:
            return
        for term in constraints.anti_affinity:
            anti = PodTerm(of_term(term, pod.namespace), term.topology_key)
            self._bearers.of(anti, frozenset({anti.selector})).add(node, sign)
        for weight, term in (*constraints.preferred_pods, *((1, term) for term in constraints.affinity)):
            pull = PodTerm(of_term(term, pod.namespace), term.topology_key)
            self._pulls.of(pull, frozenset({pull.selector})).add(node, sign * weight)
        for spread in constraints.spread if new else ():
            guard = _Guard(constraints, spread, of_spread(spread, pod.namespace))
            self._guards.of(guard, frozenset({guard.selector})).add(node, sign)
        if new and constraints.affinity:
            selectors = _peers_of(pod)
            keys = frozenset(term.topology_key for term in constraints.affinity)
            required = _RequiredAffinity(selectors, keys, _are_about(selectors, pod))
            self._required.of(required, selectors).add(node, sign)


def _peers_of(pod: Pod) -> _Selectors:
    """Selectors of the peers that the pod's affinity requires: pods that match all of its terms."""
    return frozenset(of_term(term, pod.namespace) for term in pod.constraints.affinity)


def _one_of(selectors: _Selectors) -> tuple[tuple[str, str], ...] | None:
    """Labels, one of which every pod has that matches all ``selectors``; None if there are no such labels."""
    return next((selector.one_of for selector in selectors if selector.one_of is not None), None)


def _are_about(selectors: _Selectors, pod: Pod) -> bool:
    return all(selector.matches(pod) for selector in selectors)


def summed(code: IntArray, amounts: IntArray) -> IntArray:
    """(N,) sum of ``amounts`` over each node's domain ``code``, 0 where it has none."""
    sums = np.zeros(int(code.max(initial=-1)) + 2, dtype=np.int64)
    np.add.at(sums, code, amounts)
    sums[-1] = 0
    found: IntArray = sums[code]
    return found
