"""Where a pod may run: selectors, affinity, tolerations, spread, ports, volumes, ConfigMaps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kai_solver.domain import Constraints, NodeTerm, PodAffinityTerm, Requirement
from kai_solver.domain.object_limits import bounded
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import Notices
from kai_solver.kubeobjects.raw import Raw, parse_json
from kai_solver.kubeobjects.selectors import (
    Namespaces,
    equality_term,
    label_selector,
    node_term,
    node_terms,
    pod_affinity_term,
    spread_constraint,
    toleration,
)
from kai_solver.kubeobjects.settings import KubeSettings
from kai_solver.kubeobjects.trust import Trust
from kai_solver.kubeobjects.volumes import ONE_POD, Claims
from kai_solver.predicates import CLUSTER_KEY

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104  (host ports that are bound on every address)


@dataclass(frozen=True, slots=True)
class ConstraintReader:
    """Reads constraints; equal ones become one object, so that classes of pods are cheap to find."""

    claims: Claims
    namespaces: Namespaces
    settings: KubeSettings
    notices: Notices
    _known: dict[Constraints, Constraints] = field(default_factory=dict)

    def read(self, pod: Raw, labels: dict[str, str], implied: tuple[tuple[NodeTerm, ...], ...] = ()) -> Constraints:
        """Constraints of one pod; ``implied``: entries of node terms beside those that it states.

        Raises
        ------
        InputError
            A field has the wrong type or an unknown operator; names the field.
        """
        spec = pod.get("spec")
        affinity = spec.get("affinity")
        needs, stated = self.claims.of_pod(pod), _stated_blocks(pod, self.settings.trust)
        terms = (*_selected(spec), *needs.terms, *implied)
        spread = [spread_constraint(rule, labels) for rule in spec.items("topologySpreadConstraints")]
        constraints = Constraints(
            node_terms=tuple(dict.fromkeys(terms)),
            preferred=tuple(_preferred(term) for term in affinity.items(f"nodeAffinity.{_PREFERRED}")),
            tolerations=tuple(toleration(element) for element in spec.items("tolerations")),
            affinity=self._pod_terms(affinity, "podAffinity", labels),
            anti_affinity=(*self._pod_terms(affinity, "podAntiAffinity", labels), *map(_alone_with, needs.alone_with)),
            spread=tuple(rule for must, rule in spread if must),
            preferred_pods=(
                *self._preferred_pods(affinity, "podAffinity", 1, labels),
                *self._preferred_pods(affinity, "podAntiAffinity", -1, labels),
            ),
            preferred_spread=tuple(rule for must, rule in spread if not must),
            host_ports=_host_ports(spec),
            blocked=(*(text for text in needs.blocked if not text.startswith(stated)), *stated),
        )
        constraints = bounded(constraints)
        return self._known.setdefault(constraints, constraints)

    def _pod_terms(self, affinity: Raw, kind: str, labels: Mapping[str, str]) -> tuple[PodAffinityTerm, ...]:
        return tuple(self._pod_term(term, labels) for term in affinity.items(f"{kind}.{_REQUIRED}"))

    def _preferred_pods(
        self, affinity: Raw, kind: str, sign: int, labels: Mapping[str, str]
    ) -> Iterator[tuple[int, PodAffinityTerm]]:
        for raw in affinity.items(f"{kind}.{_PREFERRED}"):
            yield sign * raw.integer("weight", 1), self._pod_term(raw.get("podAffinityTerm"), labels)

    def _pod_term(self, raw: Raw, labels: Mapping[str, str]) -> PodAffinityTerm:
        if raw.get("namespaceSelector") and label_selector(raw.get("namespaceSelector")) and not self.namespaces.labels:
            text = "namespaceSelector matches nothing: no Namespace objects are given. Export them too"
            self.notices.warn(raw.path, text)
        if self.settings.trust.strict and raw.text("topologyKey") == CLUSTER_KEY:
            # By Kubernetes' rules no node has it; by ours it is all nodes, and would keep all pods from all nodes.
            cure = "Write a label that nodes have"
            raise InputError(f"{CLUSTER_KEY!r} is kept for the scheduler", field=raw.get("topologyKey").path, cure=cure)
        return pod_affinity_term(raw, self.namespaces, labels)


def marks(constraints: Constraints) -> dict[str, str]:
    """Labels by which other pods know what a pod has that only one pod may have."""
    terms = (term for term in constraints.anti_affinity if term.topology_key == CLUSTER_KEY)
    return {r.key: "" for term in terms for r in term.selector if r.key.startswith(ONE_POD)}


def _alone_with(claim: str) -> PodAffinityTerm:
    """No other pod of the namespace that uses ``claim``, anywhere (ReadWriteOncePod)."""
    return PodAffinityTerm((Requirement(f"{ONE_POD}{claim}", "Exists"),), CLUSTER_KEY)


def _selected(spec: Raw) -> tuple[tuple[NodeTerm, ...], ...]:
    """Node selector and required node affinity, one entry each."""
    entries: list[tuple[NodeTerm, ...]] = []
    labels = spec.strings("nodeSelector")
    if labels:
        entries.append((equality_term(labels),))
    required = spec.get(f"affinity.nodeAffinity.{_REQUIRED}")
    if required:
        entries.append(node_terms(required.get("nodeSelectorTerms")))
    return tuple(entries)


def _preferred(raw: Raw) -> tuple[int, NodeTerm]:
    return raw.integer("weight", 1), node_term(raw.get("preference"))


def _host_ports(spec: Raw) -> tuple[str, ...]:
    """``port/protocol``, followed by ``/address`` where it is bound on one address only."""
    ports = set()
    in_host = spec.flag("hostNetwork")
    for container in (*spec.items("containers"), *spec.items("initContainers")):
        for port in container.items("ports"):
            number = port.count("hostPort") or (port.count("containerPort") if in_host else 0)
            address = port.text("hostIP")
            if number:
                ports.add(f"{number}/{port.text('protocol') or 'TCP'}" + f"/{address}" * (address not in _EVERYWHERE))
    return tuple(sorted(ports))


def _stated_blocks(pod: Raw, trust: Trust) -> tuple[str, ...]:
    """What another format knew to keep the pod from starting, in its words (our own annotation)."""
    text = trust.stated(pod.strings("metadata.annotations"), names.OWN_BLOCKED)
    if not text:
        return ()
    return tuple(element.text() for element in parse_json(text, names.OWN_BLOCKED, "Write a list of strings").items())
