"""Which pods a rule speaks of."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain

from kai_solver.domain import Constraints, Pod, PodAffinityTerm, Requirement, SpreadConstraint
from kai_solver.predicates.matching import labels_match


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods by labels and namespaces; ``("*",)`` is every namespace."""

    requirements: tuple[Requirement, ...]
    namespaces: tuple[str, ...]

    def matches(self, pod: Pod) -> bool:
        """Whether the rule speaks of ``pod``."""
        in_scope = "*" in self.namespaces or pod.namespace in self.namespaces
        return in_scope and labels_match(self.requirements, pod.labels)

    @property
    def one_of(self) -> tuple[tuple[str, str], ...] | None:
        """Labels, one of which every pod has that the selector matches; None if there are no such labels."""
        found = next((r for r in self.requirements if r.operator == "In"), None)
        return None if found is None else tuple((found.key, value) for value in found.values)


class SelectorIndex:
    """Selectors by the labels that they require: a pod is compared with few of them, however many there are."""

    def __init__(self, selectors: Iterable[PodSelector]) -> None:
        self._by_label: dict[tuple[str, str], list[PodSelector]] = {}
        self._others: list[PodSelector] = []
        for selector in dict.fromkeys(selectors):
            if selector.one_of is None:
                self._others.append(selector)
            for label in selector.one_of or ():
                self._by_label.setdefault(label, []).append(selector)
        self._keys = frozenset(r.key for selector in self._others for r in selector.requirements)
        self._known: dict[tuple[str, frozenset[tuple[str, str]]], tuple[PodSelector, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_label or self._others)

    def may_match(self, labels: AbstractSet[tuple[str, str]]) -> bool:
        """Whether any of the selectors could match a pod with no other labels than these."""
        return bool(self._others) or not self._by_label.keys().isdisjoint(labels)

    def speaks_of(self, pod: Pod) -> bool:
        """Whether any of the selectors matches ``pod``."""
        return bool(self.matching(pod))

    def matching(self, pod: Pod) -> Sequence[PodSelector]:
        """Selectors that match ``pod``, each once."""
        others = self._others_matching(pod) if self._others else ()
        if self._by_label.keys().isdisjoint(pod.labels.items()):
            return others
        labelled = chain.from_iterable(self._by_label.get(label, ()) for label in pod.labels.items())
        return (*(selector for selector in labelled if selector.matches(pod)), *others)

    def _others_matching(self, pod: Pod) -> tuple[PodSelector, ...]:
        """Of selectors without such a label, which are asked once about pods that they cannot tell apart."""
        labels = frozenset(item for item in pod.labels.items() if item[0] in self._keys)
        found = self._known.get((pod.namespace, labels))
        if found is None:
            found = tuple(selector for selector in self._others if selector.matches(pod))
            self._known[pod.namespace, labels] = found
        return found


def of_term(term: PodAffinityTerm, namespace: str) -> PodSelector:
    """The pods that ``term`` of a pod in ``namespace`` speaks of."""
    return PodSelector(term.selector, term.namespaces or (namespace,))


def of_spread(spread: SpreadConstraint, namespace: str) -> PodSelector:
    """The pods that ``spread`` of a pod in ``namespace`` counts."""
    return PodSelector(spread.selector, (namespace,))


def selectors_of(constraints: Constraints, namespace: str) -> Iterator[PodSelector]:
    """Everything that the hard rules of a pod in ``namespace`` speak of."""
    for term in (*constraints.affinity, *constraints.anti_affinity):
        yield of_term(term, namespace)
    for spread in constraints.spread:
        yield of_spread(spread, namespace)


def wished_selectors_of(constraints: Constraints, namespace: str) -> Iterator[PodSelector]:
    """Everything that the wishes of a pod in ``namespace`` speak of."""
    for _, term in constraints.preferred_pods:
        yield of_term(term, namespace)
    for spread in constraints.preferred_spread:
        yield of_spread(spread, namespace)
