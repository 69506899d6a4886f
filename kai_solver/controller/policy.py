"""Cluster-wide policy, followed while the controller runs: our settings, KAI's SchedulingShard and Config, defaults.

What a setting states counts. What it leaves open is the word of the SchedulingShard of our node pool, then of KAI's
Config, and last KAI's default (docs/kai-behaviour.md#shard, #config). An object that cannot be read changes nothing:
what it said before stays.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import structlog

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import CONFIG_MAPS, KAI_CONFIGS, SCHEDULING_SHARDS, Resource
from kai_solver.cluster.store import Store
from kai_solver.controller.settings import ControllerSettings, PolicySettings
from kai_solver.domain import Action, Policy
from kai_solver.errors import InputError
from kai_solver.kubeobjects import KubeSettings
from kai_solver.kubeobjects.kinddefaults import default_priorities
from kai_solver.kubeobjects.notices import Notices, joined, object_name
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.settings import ignored_resources
from kai_solver.kubeobjects.shards import note_moves, with_config, with_shard

_LOG = structlog.get_logger(__name__)

BLOCKS = "admission.block_nvidia_visible_devices"
PAST_USAGE = "past_usage"
"""Settings of other parts of ours that KAI's Config or a SchedulingShard states, too."""

_NAMES = {"schedulerName": "scheduler_name", "queueLabelKey": "queue_label_key", "nodePoolLabelKey": "node_pool_key"}
"""Names in a Config's ``spec.global``, and our settings of the same meaning."""

_OF_POLICY = frozenset(field.name for field in fields(Policy))

Read = Callable[[Raw, KubeSettings, Notices], KubeSettings]


@dataclass(frozen=True, slots=True)
class Stated:
    """What our settings state: values by the setting's name, and the field of `Policy` or `KubeSettings` each is.

    ``implied``: settings that are left open and follow another one.
    """

    values: dict[str, Any]
    field_of: dict[str, str]
    implied: frozenset[str]

    @classmethod
    def by(cls, settings: ControllerSettings) -> "Stated":
        """Of all settings that are not left open."""
        found = {name: value for name, value in _choices(settings.policy) if value is not None}
        implied = frozenset({"policy.gpu_sharing_placement"} - found.keys())
        if "policy.gpu_placement" in found:
            found.setdefault("policy.gpu_sharing_placement", found["policy.gpu_placement"])
        if settings.admission.block_nvidia_visible_devices is not None:
            found[BLOCKS] = settings.admission.block_nvidia_visible_devices
        if settings.past_usage.store is not None:
            found[PAST_USAGE] = settings.past_usage.store
        return cls(found, {name: _field_of(name) for name in found}, implied)

    def over(self, settings: KubeSettings) -> KubeSettings:
        """``settings`` with what is stated here in place of what stands there."""
        policy = {field: self.values[name] for name, field in self.field_of.items() if field in _OF_POLICY}
        others = {field: self.values[name] for name, field in self.field_of.items() if field not in _OF_POLICY}
        return replace(settings, policy=replace(settings.policy, **policy), **others)

    def conflicts(self, settings: KubeSettings) -> Iterator[str]:
        """What ``settings``, read from an object, says otherwise."""
        for name, field in self.field_of.items():
            found = getattr(settings.policy if field in _OF_POLICY else settings, field)
            if found != self.values[name] and name not in self.implied:
                yield f"settings.{name} {_shown(self.values[name])} counts, not {_shown(found)}: leave one of them open"


def _choices(settings: PolicySettings) -> Iterator[tuple[str, Any]]:
    for name in PolicySettings.model_fields:
        value = getattr(settings, name)
        if name == "numa_ignored" and value is not None:
            value = ignored_resources(",".join(value), settings.gpu_resources or Policy().gpu_resources)
        yield f"policy.{name}", value


def _field_of(name: str) -> str:
    """Settings in seconds lack the unit in their names, as all settings do."""
    short = "block_visible_devices" if name == BLOCKS else name.rpartition(".")[2]
    return f"{short}_s" if f"{short}_s" in _OF_POLICY else short


def _shown(value: object) -> str:
    if not isinstance(value, tuple | frozenset):
        return str(value)
    names = (one.value if isinstance(one, Action) else str(one) for one in value)
    return ", ".join(sorted(names)) or "none"


class ClusterPolicy:
    """How the cluster's objects are read, as of now; safe to use from any thread.

    Parameters
    ----------
    base
        What our settings say of all but the policy.
    """

    def __init__(self, store: Store, base: KubeSettings, settings: ControllerSettings) -> None:
        self._store = store
        self._base = base
        self._stated = Stated.by(settings)
        self._lock = threading.Lock()
        self._seen: tuple[Object | None, ...] | None = None
        self._good: dict[str, Object] = {}
        """The newest readable state of each object that counts, by kind and name."""
        self._found = self._stated.over(base)

    def __call__(self) -> KubeSettings:
        """The settings; their notices say what of KAI's objects does not count, and why."""
        with self._lock:
            shards, configs = self._store.all(SCHEDULING_SHARDS), self._store.all(KAI_CONFIGS)
            config_map = self._config_map(configs)
            seen = (*shards, None, *configs, config_map)
            if self._seen is None or not _is_same(seen, self._seen):
                self._seen = seen
                self._take(self._read(shards, configs, config_map))
            return self._found

    def _take(self, found: KubeSettings) -> None:
        before, after = self._found, found
        changed = {
            field.name: _shown(getattr(after.policy, field.name))
            for field in fields(Policy)
            if getattr(before.policy, field.name) != getattr(after.policy, field.name)
        }
        for name in ("block_visible_devices", "past_usage"):
            if getattr(before, name) != getattr(after, name):
                changed[name] = str(getattr(after, name))
        if changed:
            _LOG.info("the policy of the cluster changed", **changed)
        self._found = found

    def _config_map(self, configs: tuple[Object, ...]) -> Object | None:
        """The ConfigMap of default priorities that a Config names."""
        for config in configs:
            try:
                key = default_priorities(Raw(config))
            except InputError:
                continue  # said where the Config is read
            if key:
                return self._store.get(CONFIG_MAPS, key)
        return None

    def _read(self, shards: tuple[Object, ...], configs: tuple[Object, ...], config_map: Object | None) -> KubeSettings:
        notices, settings = Notices(), self._stated.over(self._base)
        scheduler, kept = self._base.scheduler_name, set[str]()
        if configs:
            config = Raw(min(configs, key=_name))
            maps = () if config_map is None else (config_map,)
            settings = self._with(KAI_CONFIGS, config, partial(with_config, config_maps=maps), settings, notices, kept)
            scheduler = _text(config, "spec.global.schedulerName") or scheduler
            self._compare_names(config, notices)
        mine = [one for one in shards if _text(Raw(one), "spec.partitionLabelValue") == self._base.node_pool]
        for one in sorted(mine, key=_name)[:1]:
            shard = Raw(one)
            named = shard.get("spec.args") if isinstance(one.get("spec"), dict) else Raw(None)
            served = _text(named, "scheduler-name") or scheduler
            if served == self._base.scheduler_name:
                settings = self._with(SCHEDULING_SHARDS, shard, with_shard, settings, notices, kept)
                note_moves(object_name("SchedulingShard", shard), settings.policy, notices)
            else:
                text = f"is of scheduler {served}. This one is {self._base.scheduler_name}, and does not follow it"
                notices.warn(object_name("SchedulingShard", shard), text)
        for one in sorted(mine, key=_name)[1:]:
            text = f"is of the same nodes as SchedulingShard {_name(min(mine, key=_name))}, which counts"
            notices.warn(object_name("SchedulingShard", Raw(one)), text)
        self._good = {name: value for name, value in self._good.items() if name in kept}
        return replace(settings, notices=(*self._base.notices, *joined(notices.all())))

    def _with(
        self, kind: Resource, raw: Raw, read: Read, settings: KubeSettings, notices: Notices, kept: set[str]
    ) -> KubeSettings:
        """``settings`` with what the object says, or said while it could be read; what our settings state counts."""
        name = object_name(kind.kind, raw)
        kept.add(name)
        try:
            found = read(raw, settings, notices)
            self._good[name] = raw.value  # type: ignore[assignment]
        except Exception as error:
            before = self._good.get(name)
            notices.set_aside(name, error)
            text = "KAI's defaults and our settings count" if before is None else "what it said before stays in force"
            notices.warn(name, f"while it cannot be read, {text}")
            if before is None:
                return settings
            found = read(Raw(before), settings, Notices())
        for text in self._stated.conflicts(found):
            notices.warn(name, text)
        names = {setting: getattr(self._base, setting) for setting in (*_NAMES.values(), "node_pool")}
        return replace(self._stated.over(found), **names)

    def _compare_names(self, config: Raw, notices: Notices) -> None:
        """Names are fixed when the process starts: one that differs is said, and not followed."""
        for theirs, ours in _NAMES.items():
            found, mine = _text(config, f"spec.global.{theirs}"), getattr(self._base, ours)
            if found and found != mine:
                text = f"says spec.global.{theirs} {found}; settings.{ours} {mine} counts. Set it to the same value"
                notices.warn(object_name("Config", config), text)


def _is_same(seen: tuple[Object | None, ...], before: tuple[Object | None, ...]) -> bool:
    return len(seen) == len(before) and all(one is other for one, other in zip(seen, before, strict=True))


def _name(value: Object) -> str:
    metadata = value.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _text(raw: Raw, path: str) -> str:
    """What can be read of it: what is wrong is said where the object as a whole is read."""
    try:
        return raw.text(path) if path.startswith("spec.") else raw.key(path).text()
    except InputError:
        return ""
