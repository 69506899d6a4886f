"""KAI's own snapshots (``/get-snapshot``, docs/kai-behaviour.md#snapshots), in and out."""

import io
import json
import zipfile
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from kai_solver.domain import Notice
from kai_solver.errors import InputError
from kai_solver.kubeobjects import ownsettings
from kai_solver.kubeobjects.objects import KINDS, Object, RawObjects
from kai_solver.kubeobjects.raw import Raw, epoch_s, format_time, parse_time_s
from kai_solver.kubeobjects.settings import KubeSettings, settings_from_kai

MEMBER = "snapshot.json"
"""The only member of the zip."""

_OTHER = "other"
"""Member that KAI does not know and skips: owners, and objects of ``kai.nvidia.com``."""

_NOT_KAIS = frozenset({"namespaces", "disruption_budgets"})
"""Fields of kinds that KAI's snapshots do not have, and whose members it skips."""

_NOT_YET = frozenset({"deletionTimestamp", "notAfter", "notBefore"})
"""Times that may lie ahead: a pod's deletion time is the end of its grace period."""

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
        It is no KAI snapshot, or a setting is malformed.
    """
    raw = Raw(document)
    members = raw.get("rawObjects")
    if not isinstance(members.value, dict):
        raise InputError("is no KAI snapshot", field="rawObjects", cure="Take it from /get-snapshot of KAI's scheduler")
    known = {kind.member: kind.field for kind in KINDS} | {_OTHER: _OTHER}
    found: dict[str, tuple[Object, ...]] = {}
    notices = []
    for name, member in members.fields():
        if name in known:
            found[known[name]] = tuple(element.value for element in member.items())  # type: ignore[misc]
        else:
            notices.append(Notice("warning", f"rawObjects.{name}", "is not known to kai-solver and not used"))
    return RawObjects(**found, notices=tuple(notices)), settings_from_kai(raw), newest_time_s(members.value)


def export_kai_snapshot(objects: RawObjects, settings: KubeSettings | None = None) -> bytes:
    """The zip that KAI's ``/get-snapshot`` would answer, byte for byte the same for the same objects."""
    settings = settings or KubeSettings()
    own = ownsettings.own_member(settings.policy)
    document = {
        "config": _config(settings),
        "schedulerParams": _parameters(settings),
        **({ownsettings.MEMBER: own} if own else {}),
        "rawObjects": _members(objects),
        "discovery": {"serverVersion": {}, "resources": []},
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        entry = zipfile.ZipInfo(MEMBER, _EPOCH)
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, json.dumps(document, separators=(",", ":"), default=_written))
    return buffer.getvalue()


def newest_time_s(value: object) -> float:
    """The newest RFC 3339 time anywhere in ``value``, epoch seconds; 0 where there is none."""
    return max(_times(value), default=0.0)


def _times(value: object) -> Iterator[float]:
    """All times, without recursion: the input may be deep. YAML has made dates of some of them."""
    pending = [value]
    while pending:
        here = pending.pop()
        if isinstance(here, dict):
            pending.extend(inner for key, inner in here.items() if key not in _NOT_YET)
        elif isinstance(here, list):
            pending.extend(here)
        elif isinstance(here, datetime):
            yield epoch_s(here)
        elif isinstance(here, str) and 20 <= len(here) <= 40:
            stamp = parse_time_s(here)
            if stamp is not None:
                yield stamp


def _written(value: object) -> str:
    """Dates that YAML has read are times again."""
    return format_time(epoch_s(value)) if isinstance(value, datetime) else str(value)


def _members(objects: RawObjects) -> dict[str, list[Object]]:
    members = {kind.member: list(getattr(objects, kind.field)) for kind in KINDS}
    for kind in KINDS:
        if kind.field in _NOT_KAIS and not members[kind.member]:
            del members[kind.member]
    return members | ({_OTHER: list(objects.other)} if objects.other else {})


def _config(settings: KubeSettings) -> dict[str, Any]:
    policy = settings.policy
    plugins = [
        {"name": "nodeplacement", "arguments": {"gpu": policy.gpu_placement, "cpu": policy.cpu_placement}},
        {"name": "gpuspread" if policy.gpu_sharing_placement == "spread" else "gpupack"},
        {
            "name": "proportion",
            "arguments": {
                "kValue": repr(policy.k_value),
                "relcaimerSaturationMultiplier": repr(policy.saturation_multiplier),
            },
        },
        {
            "name": "minruntime",
            "arguments": {
                "defaultReclaimMinRuntime": _go_duration(policy.reclaim_min_runtime_s),
                "defaultPreemptMinRuntime": _go_duration(policy.preempt_min_runtime_s),
                "reclaimResolveMethod": policy.reclaim_resolve,
            },
        },
    ]
    if settings.numa:
        plugins.append({"name": "numa", "arguments": _numa_arguments(settings)})
    actions = "allocate, consolidation, reclaim, preempt, stalegangeviction"
    return {"actions": actions, "tiers": [{"plugins": plugins}]}


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
        "fullHierarchyFairness": policy.full_hierarchy,
        "allowConsolidatingReclaim": policy.consolidating_reclaim,
        "globalDefaultStalenessGracePeriod": round(policy.staleness_grace_s * _NANOSECONDS),
        "stuckInReleasingThreshold": round(policy.stuck_in_releasing_s * _NANOSECONDS),
        "queueLabelKey": settings.queue_label_key,
    }


def _go_duration(seconds: float) -> str:
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
