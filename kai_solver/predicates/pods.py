"""Which pods a rule speaks of."""

from collections.abc import Iterator
from dataclasses import dataclass

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
