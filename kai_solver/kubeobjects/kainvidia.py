"""Objects of ``kai.nvidia.com/v1``: quotas become queues, strategies become policy, the rest is named.

The group is not KAI's own (that is ``scheduling.run.ai`` and ``kai.scheduler``) but is written about, so people try it.
Every field that is not honoured is listed in a warning, field path by field path.
"""

import re
from dataclasses import dataclass, field, replace

from kai_solver.domain import Policy, Queue
from kai_solver.domain.placement import Strategy
from kai_solver.errors import InputError
from kai_solver.kubeobjects.honoured import ANYTHING, YES, Rules, unhonoured
from kai_solver.kubeobjects.notices import Notices, object_name
from kai_solver.kubeobjects.objects import Object, group_of, kind_of
from kai_solver.kubeobjects.quotas import Shares, hierarchy_queues, namespace_queue
from kai_solver.kubeobjects.raw import Raw
from kai_solver.units import MILLI

GROUP = "kai.nvidia.com"

HONOURED: dict[str, Rules] = {
    "ResourceQuota": {
        re.compile(r"spec\.hierarchy\[\d+\](\.children\[\d+\])*\.(name|weight)"): ANYTHING,
        re.compile(r"spec\.(namespace|(guaranteed|burst)Quota\.(gpus|memory)|preemptionAllowed)"): ANYTHING,
    },
    "Quota": {
        re.compile(r"spec\.(namespace|(guaranteed|burst)Quota\.(gpus|memory)|preemptionAllowed)"): ANYTHING,
    },
    "QueuePolicy": {
        re.compile(r"spec\.scheduling\.algorithmName"): re.compile("fair-share"),
        re.compile(r"spec\.scheduling\.fairShareConfig\.(weightedFairnessEnabled|preemptionEnabled)"): YES,
    },
    "SchedulingPolicy": {
        re.compile(r"spec\.strategyName"): re.compile("bin-pack|binpack|spread"),
        re.compile(r"spec\.placementStrategy\.prefer(Few|Many)Nodes"): YES,
    },
    "PreemptionPolicy": {re.compile(r"spec\.enabled"): YES},
    "KAISchedulerConfig": {
        re.compile(r"spec\.enable(GangScheduling|FairShare|Preemption|QueueManagement)"): YES,
        re.compile(r"spec\.preemptionEnabled"): YES,
        re.compile(r"spec\.schedulingPolicy"): re.compile("fair-share"),
        re.compile(r"spec\.placementStrategy"): re.compile("bin-pack|binpack|spread"),
        re.compile(r"spec\.clusterResources\.totalGpus"): ANYTHING,
    },
}
"""What is honoured, by kind: paths of fields, and the values that are (others are what we do not do)."""

_STRATEGIES: dict[str, Strategy] = {"bin-pack": "binpack", "binpack": "binpack", "spread": "spread"}


@dataclass(slots=True)
class NvidiaReading:
    """Queues, queues whose work is non-preemptible, the quota of each namespace, and strategies by object."""

    queues: dict[str, Queue] = field(default_factory=dict)
    guarded: set[str] = field(default_factory=set)
    quota_of: dict[str, str] = field(default_factory=dict)
    strategies: dict[str, Strategy] = field(default_factory=dict)

    def policy(self, base: Policy, notices: Notices) -> Policy:
        """The policy with the strategy that all objects agree on; where they differ, it stays as it is."""
        wanted = set(self.strategies.values())
        if len(wanted) > 1:
            listed = ", ".join(f"{name}: {strategy}" for name, strategy in sorted(self.strategies.items()))
            text = f"strategies differ ({listed}); one holds for the whole cluster, so {base.gpu_placement} stays"
            notices.warn("SchedulingPolicy", text)
        if len(wanted) != 1:
            return base
        (strategy,) = wanted
        return replace(base, gpu_placement=strategy, cpu_placement=strategy)


def read_nvidia(objects: tuple[Object, ...], cluster_gpu_milli: int, notices: Notices) -> NvidiaReading:
    """Read all objects of the group.

    Parameters
    ----------
    cluster_gpu_milli
        Thousandths of GPUs of all schedulable nodes; 0 without nodes, then what ``KAISchedulerConfig`` says counts.
    """
    found = [Raw(value) for value in objects if kind_of(value) and group_of(value.get("apiVersion")) == GROUP]
    reading = NvidiaReading()
    total = _total_gpu_milli(found, cluster_gpu_milli, notices)
    for raw in sorted(found, key=_hierarchies_first):
        kind = kind_of(raw.value)
        name = object_name(kind, raw)
        try:
            _read(raw, kind, total, reading, notices)
            ignored = list(unhonoured(raw, HONOURED.get(kind, {})))
        except Exception as error:
            notices.set_aside(name, error)
            continue
        if ignored:
            notices.warn(name, f"not honoured yet: {', '.join(ignored)}")
    return reading


def _hierarchies_first(raw: Raw) -> bool:
    """Quotas refine the queues that a hierarchy made, so that one comes first."""
    spec = raw.value.get("spec") if isinstance(raw.value, dict) else None
    return not (isinstance(spec, dict) and "hierarchy" in spec)


def _read(raw: Raw, kind: str, total: int, reading: NvidiaReading, notices: Notices) -> None:
    if kind in ("ResourceQuota", "Quota"):
        if raw.get("spec.hierarchy"):
            for queue in hierarchy_queues(raw.items("spec.hierarchy"), Shares(total)):
                reading.queues[queue.name] = queue
        if raw.get("spec.guaranteedQuota") or raw.get("spec.burstQuota"):
            _read_quota(raw, object_name(kind, raw), reading, notices)
    elif kind in ("SchedulingPolicy", "KAISchedulerConfig"):
        stated = raw.text("spec.strategyName" if kind == "SchedulingPolicy" else "spec.placementStrategy")
        if stated in _STRATEGIES:
            reading.strategies[object_name(kind, raw)] = _STRATEGIES[stated]


def _read_quota(raw: Raw, name: str, reading: NvidiaReading, notices: Notices) -> None:
    namespace = raw.text("spec.namespace") or raw.text("metadata.namespace")
    if not namespace:
        raise InputError("is missing", field="spec.namespace", cure="Name the namespace that the quota is for")
    if namespace in reading.quota_of:
        notices.warn(name, f"replaces {reading.quota_of[namespace]}, for the same namespace. Keep one of them")
    reading.quota_of[namespace] = name
    reading.guarded.discard(namespace)
    queue = namespace_queue(raw.get("spec"), namespace, reading.queues.get(namespace))
    reading.queues[namespace] = queue
    if not raw.flag("spec.preemptionAllowed", default=True):
        reading.guarded.add(namespace)
        if queue.limit != queue.quota:
            text = "preemptionAllowed is false, so its work is non-preemptible and stays within guaranteedQuota"
            notices.warn(name, f"{text}; only work labelled preemptible can use burstQuota")


def _total_gpu_milli(found: list[Raw], cluster_gpu_milli: int, notices: Notices) -> int:
    """GPUs to share out: those of the nodes, else those that the configuration states."""
    for raw in found:
        if kind_of(raw.value) != "KAISchedulerConfig":
            continue
        try:
            stated = raw.count("spec.clusterResources.totalGpus", most=10**9) * MILLI
        except InputError:
            continue  # said where the object is read
        if not cluster_gpu_milli:
            return stated
        if stated and stated != cluster_gpu_milli:
            text = f"totalGpus is {stated // MILLI}, but the nodes have {cluster_gpu_milli / MILLI:g}: the nodes count"
            notices.warn(object_name("KAISchedulerConfig", raw), text)
    return cluster_gpu_milli
