"""Settings from KAI's own configuration objects: Config and SchedulingShard (docs/kai-behaviour.md#shard, #config)."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kai_solver.domain import Policy
from kai_solver.domain.placement import Strategy
from kai_solver.errors import InputError
from kai_solver.kubeobjects.honoured import ANYTHING, Rules, unhonoured
from kai_solver.kubeobjects.kinddefaults import kind_defaults
from kai_solver.kubeobjects.notices import Notices, object_name
from kai_solver.kubeobjects.objects import RawObjects, group_of, kind_of
from kai_solver.kubeobjects.ownsettings import with_own_annotations
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.settings import KubeSettings, ignored_resources
from kai_solver.kubeobjects.shardargs import HONOURED, with_args, with_plugins

GROUP = "kai.scheduler"

Reader = Callable[[Raw, KubeSettings, Notices], KubeSettings]

NOTHING = re.compile(r"\{\}|\[\]")

_SHARD: Rules = {
    re.compile(r"spec\.placementStrategy\.(gpu|cpu)"): re.compile("binpack|spread"),
    re.compile(r"spec\.partitionLabelValue"): ANYTHING,
    re.compile(r"spec\.minRuntime\.(preempt|reclaim)MinRuntime"): ANYTHING,
    re.compile(r"spec\.kValue"): ANYTHING,
    **HONOURED,
    re.compile(r"spec\.plugins\.numa\.(enabled|arguments\.(ignoreList|reconstructAvailable))"): ANYTHING,
    re.compile(r"spec(\.\w+)*"): NOTHING,
}


def settings_from_objects(objects: RawObjects) -> KubeSettings:
    """Settings as the cluster's Config and SchedulingShard state them; KAI's defaults where there are none.

    Of several shards the default one counts (no ``partitionLabelValue``), else the first. Config is about the
    installation but for three names and where default priorities are; fields of a shard that are not honoured are
    listed in a notice.
    """
    found = [Raw(value) for value in objects.other if kind_of(value) and group_of(value.get("apiVersion")) == GROUP]
    notices = Notices()
    settings = KubeSettings()
    for raw in found:
        if kind_of(raw.value) == "Config":
            settings = _guarded(_with_names, raw, settings, notices)
            defaults = partial(_with_kind_defaults, objects)
            settings = _guarded(defaults, raw, settings, notices)
    shards = [raw for raw in found if kind_of(raw.value) == "SchedulingShard"]
    if shards:
        shard = next((raw for raw in shards if _is_default(raw)), shards[0])
        settings = _guarded(_with_shard, shard, settings, notices)
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
        policy=with_own_annotations(raw, settings.policy),
    )


def _with_kind_defaults(objects: RawObjects, raw: Raw, settings: KubeSettings, notices: Notices) -> KubeSettings:
    return replace(settings, kind_defaults=kind_defaults(raw, objects.config_maps, notices))


def _with_shard(raw: Raw, settings: KubeSettings, notices: Notices) -> KubeSettings:
    spec = raw.get("spec")
    gpu, cpu = _strategy(spec.get("placementStrategy.gpu")), _strategy(spec.get("placementStrategy.cpu"))
    base = settings.policy
    policy = replace(
        base,
        gpu_placement=gpu,
        cpu_placement=cpu,
        gpu_sharing_placement=gpu,
        k_value=max(0.0, spec.number("kValue", Policy().k_value)),
        reclaim_min_runtime_s=spec.duration_s("minRuntime.reclaimMinRuntime") or 0.0,
        preempt_min_runtime_s=spec.duration_s("minRuntime.preemptMinRuntime") or 0.0,
    )
    settings = with_args(spec, replace(settings, policy=policy))
    policy = with_own_annotations(raw, with_plugins(spec, settings.policy))
    name = object_name("SchedulingShard", raw)
    if policy.max_consolidation_gangs == 0:
        notices.warn(name, "has no consolidation, so nothing is moved to make room, as in KAI")
    elif "spread" in (gpu, cpu):
        notices.warn(name, "spreads: KAI would then move nothing to make room, kai-solver does")
    ignored = list(unhonoured(raw, _SHARD))
    if ignored:
        notices.warn(name, f"not honoured yet: {', '.join(ignored)}")
    numa = spec.get("plugins.numa")
    return replace(
        settings,
        node_pool=spec.text("partitionLabelValue"),
        policy=policy,
        numa=numa.flag("enabled", default=True),
        numa_ignored=ignored_resources(numa.text("arguments.ignoreList"), settings.policy.gpu_resources),
        numa_reconstruct=numa.text("arguments.reconstructAvailable").lower() != "false",
    )


def _is_default(raw: Raw) -> bool:
    try:
        return not raw.text("spec.partitionLabelValue")
    except InputError:
        return False


def _strategy(raw: Raw) -> Strategy:
    return "spread" if raw.text() == "spread" else "binpack"
