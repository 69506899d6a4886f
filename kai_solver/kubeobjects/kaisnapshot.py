"""KAI's own snapshots (``/get-snapshot``, docs/kai-behaviour.md#snapshots), in and out."""

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from typing import Any

from kai_solver.domain import Action, Notice
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names, ownsettings
from kai_solver.kubeobjects.bare import part
from kai_solver.kubeobjects.objects import KINDS, Object, RawObjects
from kai_solver.kubeobjects.raw import Raw, epoch_s, format_time, parse_time_s
from kai_solver.kubeobjects.settings import KubeSettings, settings_from_kai
from kai_solver.kubeobjects.usagedb import without_login

MEMBER = "snapshot.json"
"""The only member of the zip."""

_OTHER = "other"
"""Member that KAI does not know and skips: owners, and objects of ``kai.nvidia.com``."""

_NOT_KAIS = frozenset({"namespaces", "disruption_budgets"})
"""Fields of kinds that KAI's snapshots do not have, and whose members it skips."""

_NOTED = (names.LAST_START, names.STALE_SINCE)
"""Annotations of a PodGroup that are times."""

_OF_CONTAINERS = ("startedAt", "finishedAt")

_PLUGINS = (
    "predicates",
    "proportion",
    "priority",
    "elastic",
    "kubeflow",
    "ray",
    "nodeavailability",
    "gpusharingorder",
    "gpupack",
    "resourcetype",
    "subgrouporder",
    "taskorder",
    "nominatednode",
    "dynamicresources",
    "nodeplacement",
    "minruntime",
    "topology",
    "snapshot",
    "sg-nodelocalgreedy",
    "sg-multinodegang",
)
"""Plugins of a running KAI in their order, the victim generators last; one that is not named is off."""

_BUDGETS = {
    "maxActionSearchDuration": {"default": "5m0s"},
    "maxJobSearchDuration": "4m0s",
    "minJobSearchDuration": "0s",
    "maxGeneratorSearchDuration": {"MultiNodeGang": "2m0s", "NodeLocalGreedy": "30s", "default": "2m0s"},
}
"""How long KAI searches for victims: its defaults, which nothing here looks at."""

_PERIOD_S, _STATUS_WORKERS = 1.0, 5
"""KAI's defaults for what a running scheduler has and a decision does not need."""

_DISCOVERY = {
    "serverVersion": {"major": "1", "minor": "34"},
    "resources": [
        {
            "groupVersion": "resource.k8s.io/v1",
            "resources": [
                {
                    "name": f"{kind.lower()}{end}",
                    "singularName": kind.lower(),
                    "namespaced": namespaced,
                    "kind": kind,
                    "verbs": ["get", "list", "watch"],
                }
                for kind, end, namespaced in (
                    ("DeviceClass", "es", False),
                    ("ResourceClaim", "s", True),
                    ("ResourceClaimTemplate", "s", True),
                    ("ResourceSlice", "s", False),
                )
            ],
        }
    ],
}
"""What KAI reads of it: without a version and the group of devices that are claimed, its tool leaves claims out."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
_NANOSECONDS = 1e9


def load_kai_snapshot(document: object) -> tuple[RawObjects, KubeSettings, float]:
    """Take a KAI snapshot apart.

    Parameters
    ----------
    document
        Parsed ``snapshot.json``.

    Returns
    -------
    objects, settings, now_s
        ``now_s`` is the newest time that any object names: the snapshot does not say when it was taken.

    Raises
    ------
    InputError
        It is not a KAI snapshot, or a setting is malformed.
    """
    raw = Raw(document)
    members = raw.get("rawObjects")
    if not isinstance(members.value, dict):
        raise InputError(
            "is not a KAI snapshot", field="rawObjects", cure="Take it from /get-snapshot of KAI's scheduler"
        )
    known = {kind.member: kind.field for kind in KINDS} | {_OTHER: _OTHER}
    found: dict[str, tuple[Object, ...]] = {}
    notices = []
    for name, member in members.fields():
        if name in known:
            found[known[name]] = tuple(element.value for element in member.items())  # type: ignore[misc]
        else:
            notices.append(Notice("warning", f"rawObjects.{name}", "is not known to kai-solver and not used"))
    objects = RawObjects(**found, notices=tuple(notices))
    return objects, settings_from_kai(raw), newest_time_s(objects)


def export_kai_snapshot(objects: RawObjects, settings: KubeSettings | None = None) -> bytes:
    """The zip that KAI's ``/get-snapshot`` would answer, byte for byte the same for the same objects."""
    settings = settings or KubeSettings()
    own = ownsettings.own_member(settings.policy)
    document = {
        "config": _config(settings, zones=settings.numa and bool(objects.node_resource_topologies)),
        "schedulerParams": _parameters(settings),
        **({ownsettings.MEMBER: own} if own else {}),
        "rawObjects": _members(objects),
        "discovery": _DISCOVERY,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        entry = zipfile.ZipInfo(MEMBER, _EPOCH)
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, json.dumps(document, separators=(",", ":"), default=_written))
    return buffer.getvalue()


def newest_time_s(objects: RawObjects) -> float:
    """The newest time that any of ``objects`` names, epoch seconds; 0 where none does.

    Looked at are the fields that say when something was done: creation, changes (``managedFields``), what KAI notes of
    a gang, and the times of a status, its conditions and its containers.
    """
    found: set[object] = set()
    for kind in fields(RawObjects):
        if kind.name != "notices":
            for value in getattr(objects, kind.name):
                found.update(time for time in _times(value) if isinstance(time, str | datetime))
    return max((_stamp_s(time) for time in found), default=0.0)


def _stamp_s(time: object) -> float:
    """Epoch seconds; 0 for what is no time. YAML has made dates of some."""
    return epoch_s(time) if isinstance(time, datetime) else parse_time_s(str(time)) or 0.0


def _times(value: object) -> Iterator[object]:
    """What stands in the time fields of one object."""
    metadata, status = part(value, "metadata"), part(value, "status")
    yield metadata.get("creationTimestamp")
    yield from (entry.get("time") for entry in _entries(metadata, "managedFields"))
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        yield from (annotations[name] for name in _NOTED if name in annotations)
    for name, inner in status.items():
        if name.endswith("Time"):
            yield inner
        elif name.endswith("onditions"):
            for condition in _entries(status, name):
                yield from (time for key, time in condition.items() if key.endswith("Time"))
        elif name.endswith("ontainerStatuses"):
            for container in _entries(status, name):
                for state in (*part(container, "state").values(), *part(container, "lastState").values()):
                    if isinstance(state, dict):
                        yield from (state.get(key) for key in _OF_CONTAINERS)


def _entries(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = value.get(name)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _written(value: object) -> str:
    """Dates that YAML has read are times again."""
    return format_time(epoch_s(value)) if isinstance(value, datetime) else str(value)


def _members(objects: RawObjects) -> dict[str, list[Object]]:
    members = {kind.member: list(getattr(objects, kind.field)) for kind in KINDS}
    for kind in KINDS:
        if kind.field in _NOT_KAIS and not members[kind.member]:
            del members[kind.member]
    return members | ({_OTHER: [_without_login(value) for value in objects.other]} if objects.other else {})


def _without_login(value: Object) -> Object:
    """A SchedulingShard or a Config without user and password in its address of Prometheus; others as they are."""
    for member, key in (("usageDBConfig", "connectionString"), ("prometheus", "externalPrometheusUrl")):
        spec = part(value, "spec")
        url = part(spec, member).get(key)
        if isinstance(url, str):
            value = {**value, "spec": {**spec, member: {**part(spec, member), key: without_login(url)}}}
    return value


def _config(settings: KubeSettings, *, zones: bool) -> dict[str, Any]:
    """Actions, all plugins in KAI's order, and budgets, as a running KAI writes them; ``numa`` where zones are."""
    policy = settings.policy
    arguments: dict[str, dict[str, str]] = {
        "proportion": {
            "kValue": repr(policy.k_value),
            "relcaimerSaturationMultiplier": repr(policy.saturation_multiplier),
        },
        "nodeplacement": {"gpu": policy.gpu_placement, "cpu": policy.cpu_placement},
        "minruntime": {
            "defaultReclaimMinRuntime": _go_duration(policy.reclaim_min_runtime_s),
            "defaultPreemptMinRuntime": _go_duration(policy.preempt_min_runtime_s),
            "reclaimResolveMethod": policy.reclaim_resolve,
        },
        "numa": _numa_arguments(settings),
    }
    sharing = "gpuspread" if policy.gpu_sharing_placement == "spread" else "gpupack"
    names_of_plugins = [sharing if name == "gpupack" else name for name in _PLUGINS] + ["numa"] * zones
    plugins = [
        {"name": name, **({"arguments": arguments[name]} if name in arguments else {})} for name in names_of_plugins
    ]
    actions = ", ".join(action.value for action in policy.enabled(Action))
    return {"actions": actions, "tiers": [{"plugins": plugins}], "scenarioSearchBudgets": _BUDGETS}


def _numa_arguments(settings: KubeSettings) -> dict[str, str]:
    ignored = sorted(settings.numa_ignored - {"gpu"})
    arguments = {"reconstructAvailable": str(settings.numa_reconstruct).lower()}
    return arguments | ({"ignoreList": ",".join(ignored)} if ignored else {})


def _parameters(settings: KubeSettings) -> dict[str, Any]:
    policy = settings.policy
    return {
        "schedulerName": settings.scheduler_name,
        "restrictSchedulingNodes": policy.restrict_node_scheduling,
        "partitionParams": {"NodePoolLabelKey": settings.node_pool_key, "NodePoolLabelValue": settings.node_pool},
        "maxNumberConsolidationPreemptees": policy.max_consolidation_gangs,
        "useSchedulingSignatures": True,
        "fullHierarchyFairness": policy.full_hierarchy,
        "allowConsolidatingReclaim": policy.consolidating_reclaim,
        "numOfStatusRecordingWorkers": _STATUS_WORKERS,
        "globalDefaultStalenessGracePeriod": round(policy.staleness_grace_s * _NANOSECONDS),
        "schedulePeriod": round(_PERIOD_S * _NANOSECONDS),
        "stuckInReleasingThreshold": round(policy.stuck_in_releasing_s * _NANOSECONDS),
        "queueLabelKey": settings.queue_label_key,
    }


def _go_duration(seconds: float) -> str:
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
