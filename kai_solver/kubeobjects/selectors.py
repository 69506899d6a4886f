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
        raise InputError(f"{operator!r} is not an operator", field=f"{raw.path}.operator", cure="Write Equal or Exists")
    return Toleration(raw.text("key"), operator, raw.text("value"), raw.text("effect"))  # type: ignore[arg-type]


def pod_affinity_term(raw: Raw, namespaces: Namespaces, labels: Mapping[str, str]) -> PodAffinityTerm:
    """A pod (anti-)affinity term of a pod with ``labels``; namespace selectors are resolved to names.

    ``matchLabelKeys`` and ``mismatchLabelKeys`` become requirements with the pod's own values, as the API server does.
    """
    named = tuple(element.text() for element in raw.items("namespaces"))
    by_label = raw.get("namespaceSelector")
    if by_label:
        selector = label_selector(by_label)
        named = ("*",) if not selector else (*named, *namespaces.matching(selector)) or _NO_NAMESPACE
    own = (*_own(raw, "matchLabelKeys", "In", labels), *_own(raw, "mismatchLabelKeys", "NotIn", labels))
    selector = _joined(label_selector(raw.get("labelSelector")), own)
    return PodAffinityTerm(selector, raw.required("topologyKey"), named)


def spread_constraint(raw: Raw, labels: Mapping[str, str]) -> tuple[bool, SpreadConstraint]:
    """Whether the rule must hold (``ScheduleAnyway`` need not), and the rule of a pod with ``labels``."""
    must = _choice(raw, "whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway")) == "DoNotSchedule"
    counts = {field: raw.count(field, 1) for field in ("maxSkew", "minDomains")}
    for field, count in counts.items():
        if count < 1:
            raise InputError(f"0 is not allowed as {field}", field=f"{raw.path}.{field}", cure="Write one or more")
    return must, SpreadConstraint(
        _joined(label_selector(raw.get("labelSelector")), _own(raw, "matchLabelKeys", "In", labels)),
        raw.required("topologyKey"),
        counts["maxSkew"],
        counts["minDomains"] if must else 1,
        honours_affinity=_choice(raw, "nodeAffinityPolicy", ("Honor", "Ignore")) == "Honor",
        honours_taints=_choice(raw, "nodeTaintsPolicy", ("Ignore", "Honor")) == "Honor",
    )


def _own(raw: Raw, field: str, operator: str, labels: Mapping[str, str]) -> Selector:
    """Requirements with the pod's own values of the label keys that ``field`` lists; keys that it lacks say nothing."""
    keys = [key.text() for key in raw.items(field)]
    return tuple(Requirement(key, operator, (labels[key],)) for key in keys if key in labels)  # type: ignore[arg-type]


def _joined(selector: Selector, more: Selector) -> Selector:
    """Both; the API server may have written the second into the first already."""
    return (*selector, *(requirement for requirement in more if requirement not in selector))


def _choice(raw: Raw, field: str, choices: tuple[str, ...]) -> str:
    """One of ``choices``; the first where the field is absent."""
    chosen = raw.text(field, choices[0]) or choices[0]
    if chosen not in choices:
        raise InputError(
            f"{chosen!r} is not a valid {field}", field=f"{raw.path}.{field}", cure=f"Write one of {', '.join(choices)}"
        )
    return chosen


def _requirement(raw: Raw) -> Requirement:
    operator = raw.required("operator")
    if operator not in _OPERATORS:
        raise InputError(
            f"{operator!r} is not an operator",
            field=f"{raw.path}.operator",
            cure=f"Write one of {', '.join(_OPERATORS)}",
        )
    values = tuple(value.text() for value in raw.items("values"))
    return Requirement(raw.required("key"), operator, values)  # type: ignore[arg-type]
