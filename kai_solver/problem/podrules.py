"""Of which pods do rules and wishes between pods speak? Only those relate to other pods, and the rest are plain."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from kai_solver.domain import Pod
from kai_solver.predicates import PodSelector, SelectorIndex, selectors_of, wished_selectors_of

NAMESPACE = "\0namespace"
"""Key under which a pod's namespace stands among its labels."""

Labels = tuple[tuple[str, str], ...]

Concerned = tuple[range, Pod]
"""Numbers of pods that no rule between pods tells apart, and one of them; some such rule may be about them, or theirs.
"""

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

    @property
    def have_selectors(self) -> bool:
        """Whether some rule is about pods with certain labels; others are about what a pod holds of its node."""
        return bool(self._rules)

    def may_be_about(self, labels: AbstractSet[tuple[str, str]]) -> bool:
        """Whether some rule or wish could be about a pod with no other labels than these."""
        return self._rules.may_match(labels) or self._wishes.may_match(labels)

    def labels_of(self, pod: Pod) -> Labels:
        """Namespace and those labels of ``pod`` that some rule looks at; empty where no rule is about it."""
        if not pod.constraints.binds_pods and not self._rules.speaks_of(pod):
            return ()
        if not self.have_selectors:  # Ports and tenants: the pod's own constraints say it all.
            return _SPOKEN_OF
        labels = sorted((key, value) for key, value in pod.labels.items() if key in self._keys)
        return (*labels, (NAMESPACE, pod.namespace))

    def wished(self, concerned: Iterable[Concerned], pod_gang: Sequence[int]) -> tuple[set[int], set[int]]:
        """Numbers of pods that carry a wish about others, or that such a wish is about: none but the ``concerned``.

        And those of them of which some such wish is not about pods of one gang alone. A pod that prefers to be beside
        pods like it, of which there is no other, is in neither.
        """
        found: set[int] = set()
        outward: set[int] = set()
        if not self._wishes:
            return found, outward
        matched: dict[PodSelector, list[int]] = {}
        bearers: dict[PodSelector, list[int]] = {}
        for alike, pod in concerned:
            for selector in self._wishes.matching(pod):
                matched.setdefault(selector, []).extend(alike)
            if pod.constraints.preferred_spread:  # Prefers nodes with the key of its domains even where it is alone.
                found.update(alike)
                outward.update(alike)
            if pod.constraints.preferred_pods or pod.constraints.preferred_spread:
                for selector in wished_selectors_of(pod.constraints, pod.namespace):
                    bearers.setdefault(selector, []).extend(alike)
        for selector, numbers in matched.items():
            if len(numbers) > 1 or numbers != bearers[selector]:
                found.update(numbers, bearers[selector])
                gangs = {pod_gang[number] for number in (*numbers, *bearers[selector])}
                if len(gangs) > 1 or -1 in gangs:
                    outward.update(numbers, bearers[selector])
        return found, outward
