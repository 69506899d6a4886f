"""PodDisruptionBudgets: how many of the pods that they match the Eviction API lets go now.

The API server answers by the status that the disruption controller wrote (``registry/core/pod/storage/eviction.go``).
Pods that were evicted since, and are terminating, are not in it yet; so the pods that are still healthy are counted.
"""

from collections.abc import Iterable, Mapping, Sequence

from kai_solver.domain import DisruptionBudget, PodStatus
from kai_solver.kubeobjects.notices import Notices, namespaced_key, object_name, read_each
from kai_solver.kubeobjects.objects import Object
from kai_solver.kubeobjects.pods import RawPod
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.selectors import label_selector
from kai_solver.predicates import labels_match


def read_budgets(objects: Sequence[Object], pods: Iterable[RawPod], notices: Notices) -> tuple[DisruptionBudget, ...]:
    """All that can be read. One without status, or with that of an older spec, allows no eviction: nor does the API."""
    if not objects:
        return ()
    for value in objects:
        if isinstance(value, dict) and not value.get("status"):
            text = "has no status: no pod that it matches may be evicted. Take it from a cluster (kubectl get -o yaml)"
            notices.warn(object_name("PodDisruptionBudget", Raw(value)), text)
    healthy: dict[str, list[RawPod]] = {}
    for pod in pods:
        if pod.status is PodStatus.RUNNING and pod.ready:
            healthy.setdefault(pod.namespace, []).append(pod)
    found = read_each("PodDisruptionBudget", objects, notices, lambda raw: _budget(raw, healthy), namespaced_key)
    return tuple(found.values())


def _budget(raw: Raw, healthy: Mapping[str, Sequence[RawPod]]) -> DisruptionBudget:
    namespace = raw.text("metadata.namespace") or "default"
    selector, status = label_selector(raw.get("spec.selector")), raw.get("status")
    should, are = status.count("desiredHealthy", 0), status.count("currentHealthy", 0)
    allowed = status.count("disruptionsAllowed", 0)
    if status.count("observedGeneration", 0) < raw.count("metadata.generation", 0):
        allowed = 0
    if allowed and should:
        gone = {name for name, _ in status.fields("disruptedPods")}
        left = sum(p.name not in gone and labels_match(selector, p.labels) for p in healthy.get(namespace, ()))
        allowed = min(allowed, max(0, left - should))
    spares = raw.text("spec.unhealthyPodEvictionPolicy") == "AlwaysAllow" or are >= should > 0
    return DisruptionBudget(namespace, raw.required("metadata.name"), selector, allowed, spares)
