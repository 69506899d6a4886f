"""Selectors, affinities, tolerations and spread, from Kubernetes' words to the domain's."""

from collections.abc import Mapping
from dataclasses import dataclass

from kai_solver.domain import NodeTerm, PodAffinityTerm, Requirement, SpreadConstraint, Toleration
from kai_solver.errors import InputError
from kai_solver.kubeobjects.raw import Raw
from kai_solver.predicates import labels_match

Selector = tuple[Requirement, ...]

NOTHING: Selector = (Requirement("metadata.name", "In", ()),)
"""A selector that nothing matches: Kubernetes' missing selector (an empty one matches everything)."""

_NO_NAMESPACE = ("",)
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_TOLERATION_OPERATORS = ("Equal", "Exists")


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Labels of the namespaces that are known, for namespace selectors."""

    labels: Mapping[str, Mapping[str, str]]

    def matching(self, selector: Selector) -> tuple[str, ...]:
        """Names of the namespaces that ``selector`` matches."""
        return tuple(sorted(name for name, labels in self.labels.items() if labels_match(selector, labels)))


def label_selector(raw: Raw) -> Selector:
    """A ``labelSelector``; a missing one matches nothing, an empty one everything."""
    if not raw:
        return NOTHING
    labels = [Requirement(key, "In", (value,)) for key, value in sorted(raw.strings("matchLabels").items())]
    return (*labels, *(_requirement(expression) for expression in raw.items("matchExpressions")))


def equality_term(labels: Mapping[str, str]) -> NodeTerm:
    """A ``nodeSelector``: every label with its one value."""
    return tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items()))


def node_terms(raw: Raw) -> tuple[NodeTerm, ...]:
    """``nodeSelectorTerms``: one of them must hold; an empty term holds nowhere, as in Kubernetes."""
    return tuple(term for term in (node_term(element) for element in raw.items()) if term)


def node_term(raw: Raw) -> NodeTerm:
    """One node selector term; the field ``metadata.name`` keeps its name as a key."""
    expressions = [_requirement(expression) for expression in raw.items("matchExpressions")]
    return (*expressions, *(_requirement(field) for field in raw.items("matchFields")))


def toleration(raw: Raw) -> Toleration:
    """One toleration; the operator is ``Equal`` where not said."""
    operator = raw.text("operator") or "Equal"
    if operator not in _TOLERATION_OPERATORS:
        raise InputError(f"{operator!r} is no operator", field=f"{raw.path}.operator", cure="Write Equal or Exists")
    return Toleration(raw.text("key"), operator, raw.text("value"), raw.text("effect"))  # type: ignore[arg-type]


def pod_affinity_term(raw: Raw, namespaces: Namespaces) -> PodAffinityTerm:
    """A required pod (anti-)affinity term; namespace selectors are resolved to names."""
    named = tuple(element.text() for element in raw.items("namespaces"))
    by_label = raw.get("namespaceSelector")
    if by_label:
        selector = label_selector(by_label)
        named = ("*",) if not selector else (*named, *namespaces.matching(selector)) or _NO_NAMESPACE
    return PodAffinityTerm(label_selector(raw.get("labelSelector")), raw.required("topologyKey"), named)


def spread_constraint(raw: Raw, labels: Mapping[str, str]) -> SpreadConstraint | None:
    """A hard spread constraint of a pod with ``labels``; None for ``ScheduleAnyway``, which is a wish."""
    if raw.text("whenUnsatisfiable", "DoNotSchedule") != "DoNotSchedule":
        return None
    own = [key.text() for key in raw.items("matchLabelKeys")]
    same = tuple(Requirement(key, "In", (labels[key],)) for key in own if key in labels)
    skew = raw.count("maxSkew", 1)
    if skew < 1:
        raise InputError("0 is not a skew", field=f"{raw.path}.maxSkew", cure="Write one or more")
    return SpreadConstraint((*label_selector(raw.get("labelSelector")), *same), raw.required("topologyKey"), skew)


def _requirement(raw: Raw) -> Requirement:
    operator = raw.required("operator")
    if operator not in _OPERATORS:
        raise InputError(
            f"{operator!r} is no operator", field=f"{raw.path}.operator", cure=f"Write one of {', '.join(_OPERATORS)}"
        )
    values = tuple(value.text() for value in raw.items("values"))
    return Requirement(raw.required("key"), operator, values)  # type: ignore[arg-type]
