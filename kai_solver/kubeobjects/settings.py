"""How the cluster's scheduler is set up: names of labels, thresholds, policy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kai_solver.domain import Action, Notice, Policy
from kai_solver.domain.placement import Strategy
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.access import OPEN, Access
from kai_solver.kubeobjects.kinddefaults import KindDefault
from kai_solver.kubeobjects.notices import Notices
from kai_solver.kubeobjects.ownsettings import with_own_member
from kai_solver.kubeobjects.raw import Raw, wrong_type
from kai_solver.kubeobjects.trust import Trust
from kai_solver.kubeobjects.usagedb import UsageStore

_NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class KubeSettings:
    """What a KAI installation may name otherwise (docs/kai-behaviour.md#config, #shard). Defaults are KAI's.

    Attributes
    ----------
    node_pool
        The shard: nodes, queues and PodGroups whose label ``node_pool_key`` has this value; empty: those without.
    default_priority, default_priority_class
        Of a priority class that does not exist; of grouped work whose kind has no default of its own.
    kind_defaults
        Priority and preemptibility by kind of workload, before what the kinds have of their own.
    groups_pods
        Pods that name no PodGroup become gangs by owners and labels; else they wait for another component.
    numa, numa_ignored, numa_reconstruct
        Heed the NUMA zones that NodeResourceTopology objects report; resources that are not aligned all the same
        (KAI: ``ignoreList``); reckon what is free there from the pods (``reconstructAvailable``).
    no_shares
        Why pods that ask for a part of a GPU cannot be served, with the cure; empty where they can.
    extended_claims
        Extended resources that only a DeviceClass offers can be had: a component makes the claims for them.
    trust
        What is believed of what users can write.
    access
        Which namespaces may use which queues, and spare nodes.
    block_visible_devices
        Pods may not name devices of NVIDIA's runtime themselves; for admission (docs/kai-behaviour.md#config).
    usage_url, past_usage
        The Prometheus that KAI's Config names; the one that is asked for past usage, None for none.
    notices
        What could not be taken over from where the settings came from.
    """

    scheduler_name: str = "kai-scheduler"
    queue_label_key: str = names.QUEUE
    node_pool_key: str = names.NODE_POOL
    node_pool: str = ""
    default_queue: str = "default-queue"
    default_priority: int = 50
    default_priority_class: str = "train"
    kind_defaults: tuple[KindDefault, ...] = ()
    policy: Policy = field(default_factory=Policy)
    groups_pods: bool = True
    numa: bool = True
    numa_ignored: frozenset[str] = frozenset()
    numa_reconstruct: bool = True
    no_shares: str = ""
    extended_claims: bool = True
    trust: Trust = field(default_factory=Trust)
    access: Access = OPEN
    block_visible_devices: bool = False
    usage_url: str = ""
    past_usage: UsageStore | None = None
    notices: tuple[Notice, ...] = ()


def ignored_resources(text: str, gpu_resources: tuple[str, ...]) -> frozenset[str]:
    """Names of the schema in an ``ignoreList`` of KAI's plugin ``numa``."""
    named = (name.strip() for name in text.split(","))
    found = frozenset(name for name in named if name)
    return found | {"gpu"} if found & set(gpu_resources) else found


def in_pool(labels: Mapping[str, str], settings: KubeSettings) -> bool:
    """Whether an object with these labels is in our node pool; the default pool is of those without the label."""
    return labels.get(settings.node_pool_key, "") == settings.node_pool


def settings_from_kai(document: Raw) -> KubeSettings:
    """Settings of a KAI snapshot: its ``schedulerParams`` and the plugin arguments in its ``config``.

    KAI omits false and empty fields, so a missing flag is false; a missing number is the default.
    """
    notices = Notices()
    parameters = document.get("schedulerParams")
    if not parameters:
        notices.warn("schedulerParams", "the snapshot has none: KAI's defaults are taken")
        return KubeSettings(policy=with_own_member(document, Policy()), notices=notices.all())
    base = KubeSettings()
    _warn_of_unused(document, parameters, notices)
    plugins = _plugin_arguments(document, notices)
    numa = plugins.get("numa", Raw(None))
    return replace(
        base,
        scheduler_name=parameters.text("schedulerName") or base.scheduler_name,
        queue_label_key=parameters.text("queueLabelKey") or base.queue_label_key,
        node_pool_key=parameters.text("partitionParams.NodePoolLabelKey") or base.node_pool_key,
        node_pool=parameters.text("partitionParams.NodePoolLabelValue"),
        policy=with_own_member(document, _policy(document, parameters, plugins, notices)),
        numa="numa" in plugins or not plugins,
        numa_ignored=ignored_resources(numa.text("ignoreList"), base.policy.gpu_resources),
        numa_reconstruct=numa.text("reconstructAvailable").lower() != "false",
        notices=notices.all(),
    )


def _warn_of_unused(document: Raw, parameters: Raw, notices: Notices) -> None:
    """Settings that change what KAI decides and that nothing here looks at (docs/kai-behaviour.md#cycle)."""
    if document.get("config.queueDepthPerAction"):
        notices.warn("config.queueDepthPerAction", "is not used: every gang has its turn in every action")
    if document.get("config.usageDBConfig"):
        notices.warn("config.usageDBConfig", "is not used: a snapshot holds no past usage, fair share is without it")
    if parameters.flag("scheduleCSIStorage"):
        notices.warn("schedulerParams.scheduleCSIStorage", "is not used: volumes of the same cycle do not count")


def _policy(document: Raw, parameters: Raw, plugins: dict[str, Raw], notices: Notices) -> Policy:
    base = Policy()
    placement = plugins.get("nodeplacement", Raw(None))
    proportion = plugins.get("proportion", Raw(None))
    minruntime = plugins.get("minruntime", Raw(None))
    return replace(
        base,
        gpu_placement=_strategy(placement.get("gpu"), notices),
        cpu_placement=_strategy(placement.get("cpu"), notices),
        gpu_sharing_placement="spread" if "gpuspread" in plugins else "binpack",
        max_consolidation_gangs=_consolidation(parameters, notices),
        consolidating_reclaim=parameters.flag("allowConsolidatingReclaim"),
        staleness_grace_s=_nanoseconds(parameters.get("globalDefaultStalenessGracePeriod"), base.staleness_grace_s),
        saturation_multiplier=max(1.0, _float(proportion.get("relcaimerSaturationMultiplier"), 1.0)),
        k_value=max(0.0, _float(proportion.get("kValue"), 1.0)),
        reclaim_min_runtime_s=minruntime.duration_s("defaultReclaimMinRuntime") or 0.0,
        preempt_min_runtime_s=minruntime.duration_s("defaultPreemptMinRuntime") or 0.0,
        reclaim_resolve="queue" if minruntime.text("reclaimResolveMethod") == "queue" else "lca",
        full_hierarchy=parameters.flag("fullHierarchyFairness"),
        restrict_node_scheduling=parameters.flag("restrictSchedulingNodes"),
        stuck_in_releasing_s=_nanoseconds(parameters.get("stuckInReleasingThreshold"), base.stuck_in_releasing_s),
        disabled_actions=_disabled(document, notices),
    )


def _disabled(document: Raw, notices: Notices) -> frozenset[Action]:
    """Actions that the snapshot's own list leaves out; a snapshot without a list leaves out none, an empty one all."""
    if document.get("config.actions").value is None:
        return frozenset()
    stated = [name.strip() for name in document.text("config.actions").split(",")]
    disabled = [action for action in Action if action.value not in stated]
    if disabled:
        names = ", ".join(action.value for action in disabled)
        notices.warn("config.actions", f"the snapshot leaves out {names}: disabled here, too")
    return frozenset(disabled)


def _consolidation(parameters: Raw, notices: Notices) -> int:
    """KAI omits a zero; its limit of 16 guards its own search, ours is exact and has none by default."""
    stated = parameters.get("maxNumberConsolidationPreemptees")
    if not stated:
        notices.warn("schedulerParams.maxNumberConsolidationPreemptees", "not stated: kai-solver's -1 (no limit) holds")
        return Policy().max_consolidation_gangs
    value = stated.integer()
    if value != Policy().max_consolidation_gangs:
        notices.warn(stated.path, f"the snapshot's own {value} holds, not kai-solver's -1 (no limit)")
    return value


def _plugin_arguments(document: Raw, notices: Notices) -> dict[str, Raw]:
    """Arguments by plugin name, of all tiers."""
    found: dict[str, Raw] = {}
    try:
        for tier in document.items("config.tiers"):
            for plugin in tier.items("plugins"):
                found[plugin.text("name")] = plugin.get("arguments")
    except InputError as error:
        notices.set_aside("config", error)
    return found


def _strategy(raw: Raw, notices: Notices) -> Strategy:
    value = raw.text(default="binpack")
    if value in ("binpack", "spread"):
        return "spread" if value == "spread" else "binpack"
    notices.warn(raw.path, f"{value!r} is neither binpack nor spread; binpack is taken")
    return "binpack"


def _nanoseconds(raw: Raw, default_s: float) -> float:
    return raw.integer() / _NANOSECONDS if raw else default_s


def _float(raw: Raw, default: float) -> float:
    """Plugin arguments are strings, also where they are numbers."""
    if not raw:
        return default
    try:
        value = float(raw.value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise wrong_type(raw, "a number")
    return value
