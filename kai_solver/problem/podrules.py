"""Of which pods do the rules between pods speak? Only those need their labels to be told apart."""

from collections.abc import Iterable

from kai_solver.domain import Pod
from kai_solver.predicates import PodSelector, selectors_of

NAMESPACE = "\0namespace"
"""Key under which a pod's namespace stands among its labels."""

Labels = tuple[tuple[str, str], ...]

_SPOKEN_OF: Labels = ((NAMESPACE, ""),)
"""Of pods that rules are about which look at no labels."""


class PodRules:
    """Selectors of all hard rules between the pods of one snapshot; false where no pod carries any.

    Parameters
    ----------
    bearers
        All pods that carry such rules.
    """

    def __init__(self, bearers: Iterable[Pod]) -> None:
        seen: set[tuple[int, str]] = set()
        self._selectors: set[PodSelector] = set()
        for pod in bearers:
            key = (id(pod.constraints), pod.namespace)
            if key not in seen:
                seen.add(key)
                self._selectors.update(selectors_of(pod.constraints, pod.namespace))
        self._keys = frozenset(r.key for selector in self._selectors for r in selector.requirements)
        self._chosen: dict[Labels, bool] = {}
        self._is_borne = bool(seen)

    def __bool__(self) -> bool:
        return self._is_borne

    def labels_of(self, pod: Pod) -> Labels:
        """Namespace and those labels of ``pod`` that some rule looks at; empty where no rule is about it."""
        if not self._selectors:  # Ports and tenants: the pod's own constraints say it all.
            return _SPOKEN_OF if pod.constraints.binds_pods else ()
        labels = sorted((key, value) for key, value in pod.labels.items() if key in self._keys)
        told = (*labels, (NAMESPACE, pod.namespace))
        if pod.constraints.binds_pods:
            return told
        chosen = self._chosen.get(told)
        if chosen is None:
            chosen = self._chosen[told] = any(selector.matches(pod) for selector in self._selectors)
        return told if chosen else ()
