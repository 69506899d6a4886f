"""Of which pods do rules and wishes between pods speak? Only those relate to other pods, and the rest are plain."""

from collections.abc import Iterable

from kai_solver.domain import Pod
from kai_solver.predicates import PodSelector, SelectorIndex, selectors_of, wished_selectors_of

NAMESPACE = "\0namespace"
"""Key under which a pod's namespace stands among its labels."""

Labels = tuple[tuple[str, str], ...]

_SPOKEN_OF: Labels = ((NAMESPACE, ""),)
"""Of pods that rules are about which look at no labels."""


class PodRules:
    """Selectors of all rules and wishes between the pods of one snapshot; false where no pod carries a rule.

    Parameters
    ----------
    bearers
        All pods that carry such rules or wishes.
    """

    def __init__(self, bearers: Iterable[Pod]) -> None:
        seen: set[tuple[int, str]] = set()
        rules: dict[PodSelector, None] = {}
        wishes: dict[PodSelector, None] = {}
        self._is_borne = False
        for pod in bearers:
            key = (id(pod.constraints), pod.namespace)
            if key not in seen:
                seen.add(key)
                self._is_borne = self._is_borne or pod.constraints.binds_pods
                rules.update(dict.fromkeys(selectors_of(pod.constraints, pod.namespace)))
                wishes.update(dict.fromkeys(wished_selectors_of(pod.constraints, pod.namespace)))
        self._keys = frozenset(r.key for selector in rules for r in selector.requirements)
        self._rules, self._wishes = SelectorIndex(rules), SelectorIndex(wishes)

    def __bool__(self) -> bool:
        return self._is_borne

    def labels_of(self, pod: Pod) -> Labels:
        """Namespace and those labels of ``pod`` that some rule looks at; empty where no rule is about it."""
        if not pod.constraints.binds_pods and not self._rules.speaks_of(pod):
            return ()
        if not self._rules:  # Ports and tenants: the pod's own constraints say it all.
            return _SPOKEN_OF
        labels = sorted((key, value) for key, value in pod.labels.items() if key in self._keys)
        return (*labels, (NAMESPACE, pod.namespace))

    @property
    def has_wishes(self) -> bool:
        """True where some pod carries a wish about other pods."""
        return bool(self._wishes)

    def is_wished(self, pod: Pod) -> bool:
        """Whether ``pod`` carries a wish about other pods, or such a wish is about it."""
        return pod.constraints.speaks_of_pods or self._wishes.speaks_of(pod)
