"""Settings from KAI's own configuration objects: Config and SchedulingShard (docs/kai-behaviour.md#shard, #config)."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kai_solver.domain import Action, Policy
from kai_solver.domain.placement import Strategy
from kai_solver.errors import InputError
from kai_solver.kubeobjects.honoured import ANYTHING, Rules, unhonoured
from kai_solver.kubeobjects.kinddefaults import kind_defaults
from kai_solver.kubeobjects.notices import Notices, object_name
from kai_solver.kubeobjects.objects import Object, RawObjects, group_of, kind_of
from kai_solver.kubeobjects.ownsettings import with_own_annotations
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.settings import KubeSettings, ignored_resources
from kai_solver.kubeobjects.shardargs import HONOURED, with_args, with_plugins
from kai_solver.kubeobjects.usagedb import HONOURED as HONOURED_OF_USAGE
from kai_solver.kubeobjects.usagedb import UsageStore, read_store, store_of_config

GROUP = "kai.scheduler"
KINDS = ("SchedulingShard", "Config")

Reader = Callable[[Raw, KubeSettings, Notices], KubeSettings]

NOTHING = re.compile(r"\{\}|\[\]")

_SHARD: Rules = {
    re.compile(r"spec\.placementStrategy\.(gpu|cpu)"): re.compile("binpack|spread"),
    re.compile(r"spec\.partitionLabelValue"): ANYTHING,
    re.compile(r"spec\.minRuntime\.(preempt|reclaim)MinRuntime"): ANYTHING,
    re.compile(r"spec\.kValue"): ANYTHING,
    **HONOURED,
    **HONOURED_OF_USAGE,
    re.compile(r"spec\.plugins\.numa\.(enabled|arguments\.(ignoreList|reconstructAvailable))"): ANYTHING,
    re.compile(r"spec(\.\w+)*"): NOTHING,
}


def is_of_kai(value: Object) -> bool:
    """Whether an object is KAI's Config or a SchedulingShard, by its kind and group."""
    return kind_of(value) in KINDS and group_of(value.get("apiVersion")) == GROUP


def settings_from_objects(objects: RawObjects) -> KubeSettings:
    """Settings as the cluster's Config and SchedulingShard state them; KAI's defaults where there are none.

    Of several shards the default one counts (no ``partitionLabelValue``), else the first. Config is about the
    installation but for three names and where default priorities are; fields of a shard that are not honoured are
    listed in a notice.
    """
    found = [Raw(value) for value in objects.other if is_of_kai(value)]
    notices = Notices()
    settings = KubeSettings()
    for raw in found:
        if kind_of(raw.value) == "Config":
            settings = _guarded(_with_names, raw, settings, notices)
            settings = _guarded(partial(with_config, config_maps=objects.config_maps), raw, settings, notices)
    shards = [raw for raw in found if kind_of(raw.value) == "SchedulingShard"]
    if shards:
        shard = next((raw for raw in shards if _is_default(raw)), shards[0])
        settings = _guarded(with_shard, shard, settings, notices)
        note_moves(object_name("SchedulingShard", shard), settings.policy, notices)
        if settings.past_usage is not None:
            text = "past usage is not asked for here: fair shares count what annotations of the Queues say"
            notices.warn(object_name("SchedulingShard", shard), text)
        for other in shards:
            if other is not shard:
                name = object_name("SchedulingShard", shard)
                notices.warn(object_name("SchedulingShard", other), f"is another scheduler's; {name} counts here")
    return replace(settings, notices=notices.all())


def _guarded(read: Reader, raw: Raw, settings: KubeSettings, notices: Notices) -> KubeSettings:
    """The settings with what ``read`` finds; a broken object changes nothing."""
    try:
        return read(raw, settings, notices)
    except InputError as error:
        notices.set_aside(object_name(kind_of(raw.value), raw), error)
        return settings


def _with_names(raw: Raw, settings: KubeSettings, _: Notices) -> KubeSettings:
    names = raw.get("spec.global")
    return replace(
        settings,
        scheduler_name=names.text("schedulerName") or settings.scheduler_name,
        queue_label_key=names.text("queueLabelKey") or settings.queue_label_key,
        node_pool_key=names.text("nodePoolLabelKey") or settings.node_pool_key,
    )


def with_config(
    raw: Raw, settings: KubeSettings, notices: Notices, config_maps: tuple[Object, ...] = ()
) -> KubeSettings:
    """Settings with what a Config says beside names: of admission, default priorities, past usage, and our annotations.

    Raises
    ------
    InputError
        A value cannot be read; names the field.
    """
    policy = with_own_annotations(raw, settings.policy)
    blocks = raw.flag("spec.admission.blockNvidiaVisibleDevices", settings.block_visible_devices)
    defaults = kind_defaults(raw, config_maps, notices)
    url = store_of_config(raw) or settings.usage_url
    return replace(settings, policy=policy, block_visible_devices=blocks, kind_defaults=defaults, usage_url=url)


def with_shard(raw: Raw, settings: KubeSettings, notices: Notices) -> KubeSettings:
    """Settings with what a SchedulingShard states; what it leaves open stays as it is in ``settings``.

    Raises
    ------
    InputError
        A value cannot be read; names the field.
    """
    spec = raw.get("spec")
    base = settings.policy
    gpu = _strategy(spec.get("placementStrategy.gpu"), base.gpu_placement)
    policy = replace(
        base,
        gpu_placement=gpu,
        cpu_placement=_strategy(spec.get("placementStrategy.cpu"), base.cpu_placement),
        gpu_sharing_placement=gpu if spec.get("placementStrategy.gpu") else base.gpu_sharing_placement,
        k_value=max(0.0, spec.number("kValue", base.k_value)),
        reclaim_min_runtime_s=_duration(spec.get("minRuntime.reclaimMinRuntime"), base.reclaim_min_runtime_s),
        preempt_min_runtime_s=_duration(spec.get("minRuntime.preemptMinRuntime"), base.preempt_min_runtime_s),
    )
    settings = with_args(spec, replace(settings, policy=policy))
    policy = with_own_annotations(raw, with_plugins(spec, settings.policy))
    ignored = list(unhonoured(raw, _SHARD))
    if ignored:
        notices.warn(object_name("SchedulingShard", raw), f"not honoured yet: {', '.join(ignored)}")
    disabled = [action.value for action in Action if not spec.flag(f"actions.{action.value}.enabled", default=True)]
    if disabled:
        notices.warn(object_name("SchedulingShard", raw), f"disables {', '.join(disabled)}, as in KAI")
    numa = spec.get("plugins.numa")
    ignored_by_numa = numa.get("arguments.ignoreList")
    return replace(
        settings,
        node_pool=spec.text("partitionLabelValue"),
        past_usage=_past_usage(raw, settings, notices) if spec.get("usageDBConfig") else settings.past_usage,
        policy=policy,
        numa=numa.flag("enabled", default=settings.numa),
        numa_ignored=ignored_resources(ignored_by_numa.text(), settings.policy.gpu_resources)
        if ignored_by_numa
        else settings.numa_ignored,
        numa_reconstruct=numa.text("arguments.reconstructAvailable", str(settings.numa_reconstruct)).lower() != "false",
    )


def _past_usage(raw: Raw, settings: KubeSettings, notices: Notices) -> UsageStore | None:
    """The store of past usage that the shard names; one that cannot be asked leaves the rest of the shard in force."""
    name = object_name("SchedulingShard", raw)
    try:
        return read_store(raw.get("spec"), settings.usage_url, name)
    except InputError as error:
        notices.warn(name, f"past usage is not used: {error}")
        return None


def note_moves(name: str, policy: Policy, notices: Notices) -> None:
    """What becomes of consolidation by the policy of the shard of this name, where KAI's users may not expect it."""
    if Action.CONSOLIDATION in policy.disabled_actions:
        return
    if policy.max_consolidation_gangs == 0:
        notices.warn(name, "has no consolidation, so nothing is moved to make room, as in KAI")
    elif "spread" in (policy.gpu_placement, policy.cpu_placement):
        notices.warn(name, "spreads: KAI would then move nothing to make room, kai-solver does")


def _is_default(raw: Raw) -> bool:
    try:
        return not raw.text("spec.partitionLabelValue")
    except InputError:
        return False


def _strategy(raw: Raw, stated: Strategy) -> Strategy:
    if not raw:
        return stated
    return "spread" if raw.text() == "spread" else "binpack"


def _duration(raw: Raw, stated_s: float) -> float:
    found_s = raw.duration_s()
    return stated_s if found_s is None else found_s
