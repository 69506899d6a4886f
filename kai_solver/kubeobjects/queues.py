"""Queues (``queues.scheduling.run.ai/v2``) and topologies.

Source: docs/kai-behaviour.md#queue-object, #topology-object.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from kai_solver.domain import DEFAULT_QUEUE_PRIORITY, Queue, QueueVector, Topology, TopologyLevel
from kai_solver.domain.object_limits import MOST_LEVELS, MOST_QUEUE_LEVELS
from kai_solver.errors import InputError, shown
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.domains import with_rules
from kai_solver.kubeobjects.notices import Notices, read_each
from kai_solver.kubeobjects.objects import Object
from kai_solver.kubeobjects.placements import read_placement
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.rulesettings import read_rule_settings
from kai_solver.kubeobjects.settings import KubeSettings, in_pool
from kai_solver.units import QUEUE_RESOURCES, UNLIMITED

_SCALE = {"cpu": 1.0, "memory": 1e6, "gpu": 1e3}
"""From a queue's units (millicores, megabytes, GPUs) to ours (milli, bytes, milli)."""

MOST = 2**53
"""Largest quota or limit, in our units: exact as a JSON number, and a thousand of them can be added."""

_DEFAULT_PARENT = "default-parent-queue"

NO_RESOURCES = "resources must be specified"
"""What KAI's webhook says of a queue without ``spec.resources`` (docs/kai-behaviour.md#queue-object)."""


def read_queues(
    objects: tuple[Object, ...], settings: KubeSettings, notices: Notices, more: Mapping[str, Queue] | None = None
) -> tuple[Queue, ...]:
    """Read the queues of our node pool; broken and doubled ones are set aside with a notice.

    ``more``: queues that other objects describe; a Queue of that name comes first.
    """

    def read(raw: Raw) -> Queue | None:
        return read_queue(raw, notices) if in_pool(raw.strings("metadata.labels"), settings) else None

    queues = read_each("Queue", objects, notices, read)
    found = {**(more or {}), **queues}
    return noted(found, notices) if settings.policy.full_hierarchy else tuple(found.values())


def with_shipped_queue(
    queues: tuple[Queue, ...], wanted: Iterable[str], settings: KubeSettings, notices: Notices
) -> tuple[Queue, ...]:
    """KAI's default queue and its parent, for an input without Queue objects whose work falls back to it.

    ``wanted``: queues that gangs name. KAI's chart installs the two with quota 0, no limit and weight 1.
    """
    name = settings.default_queue
    if name not in set(wanted) or any(queue.name in (name, _DEFAULT_PARENT) for queue in queues):
        return queues
    notices.warn(f"Queue {name}", "no Queue is given, so the one that KAI installs is added: quota 0, no limit")
    free = (UNLIMITED, UNLIMITED, UNLIMITED)
    parent = Queue(_DEFAULT_PARENT, limit=free, weight=(1.0, 1.0, 1.0))
    return (*queues, parent, replace(parent, name=name, parent=_DEFAULT_PARENT))


def noted(queues: dict[str, Queue], notices: Notices) -> tuple[Queue, ...]:
    """All queues, with a notice for each whose parents do not end at a root.

    KAI drops those with all below them (docs/kai-behaviour.md#queues), and so does the engine; work there learns why.
    """
    parents = {queue.name: queue.parent for queue in queues.values()}
    for name in parents:
        problem = chain_problem(name, parents)
        if problem:
            notices.set_aside(f"Queue {name}", problem)
    return tuple(queues.values())


def read_topologies(objects: tuple[Object, ...], notices: Notices) -> tuple[Topology, ...]:
    """Read topologies; broken and doubled ones are set aside with a notice, and so are rules that cannot be."""

    def read(raw: Raw) -> Topology:
        return with_rules(read_topology(raw), raw, notices)

    return tuple(read_each("Topology", objects, notices, read).values())


def read_queue(raw: Raw, notices: Notices) -> Queue:
    """One queue.

    Raises
    ------
    InputError
        A field is of the wrong type or not usable; names the field.
    """
    name = raw.required("metadata.name")
    resources = raw.get("spec.resources")
    if not resources:
        text = f"spec.resources: {NO_RESOURCES}; without them nothing is allowed. Give quota, limit and weight"
        notices.warn(f"Queue {name}", text)
    return Queue(
        name=name,
        parent=raw.text("spec.parentQueue"),
        priority=raw.integer("spec.priority", DEFAULT_QUEUE_PRIORITY),
        created_s=raw.time_s("metadata.creationTimestamp") or 0.0,
        quota=_vector(resources, "quota"),
        limit=_vector(resources, "limit"),
        weight=_weights(resources),
        reclaim_min_runtime_s=raw.duration_s("spec.reclaimMinRuntime"),
        preempt_min_runtime_s=raw.duration_s("spec.preemptMinRuntime"),
        usage=_usage(raw),
        placement=read_placement(raw.strings("metadata.annotations"), f"Queue {name}", notices),
        rules=read_rule_settings(raw.strings("metadata.annotations"), f"Queue {name}", notices),
        display_name=raw.text("spec.displayName"),
        uid=raw.text("metadata.uid"),
    )


def _vector(resources: Raw, field: str) -> QueueVector:
    cpu, memory, gpu = (_amount(resources.get(f"{name}.{field}"), _SCALE[name]) for name in QUEUE_RESOURCES)
    return cpu, memory, gpu


def _amount(raw: Raw, scale: float) -> int:
    """KAI's float64 to an integer, at most `MOST`; unset is 0 (no quota, nothing allowed), -1 unlimited."""
    value = raw.number()
    if value == UNLIMITED:
        return UNLIMITED
    if value < 0:
        raise InputError(f"{value:g} is negative", field=raw.path, cure="Write -1 for unlimited, else zero or more")
    return min(MOST, round(value * scale))


def _weights(resources: Raw) -> tuple[float, float, float]:
    cpu, memory, gpu = (resources.number(f"{name}.overQuotaWeight") for name in QUEUE_RESOURCES)
    if min(cpu, memory, gpu) < 0:
        raise InputError("an overQuotaWeight is negative", field=resources.path, cure="Write zero or more")
    return cpu, memory, gpu


def _usage(raw: Raw) -> tuple[float, float, float]:
    text = raw.strings("metadata.annotations").get(names.OWN_USAGE, "")
    if not text:
        return 0.0, 0.0, 0.0
    try:
        found = tuple(float(part) for part in text.split(",", 3))
    except ValueError:
        found = ()
    if len(found) != 3 or not all(map(math.isfinite, found)):
        problem = f"{shown(text)} is not three numbers"
        raise InputError(problem, field=names.OWN_USAGE, cure="Write cpu,memory,gpu")
    return found


def chain_problem(name: str, parents: Mapping[str, str]) -> str:
    """Why the parents of a queue do not lead to a root; empty where they do.

    ``parents``: by queue, empty for roots.
    """
    seen = {name}
    here = parents[name]
    while here:
        if here in seen:
            return f"its parents form a loop at {here!r}. Give one of them another parentQueue"
        if len(seen) >= MOST_QUEUE_LEVELS:
            return f"it lies deeper than {MOST_QUEUE_LEVELS} queues. Give it a parentQueue nearer to a root"
        if here not in parents:
            return f"the parent queue {here!r} does not exist. Create it, or correct spec.parentQueue"
        seen.add(here)
        here = parents[here]
    return ""


def read_topology(raw: Raw) -> Topology:
    """One topology, without the rules for its domains.

    Raises
    ------
    InputError
        It has no levels, or two of one node label.
    """
    levels = tuple(
        TopologyLevel(level.required("nodeLabel"), level.text("alias")) for level in raw.items("spec.levels")
    )
    if len(levels) > MOST_LEVELS:
        problem = f"{len(levels):,} levels; at most {MOST_LEVELS} are read"
        raise InputError(problem, field="spec.levels", cure="List those that matter")
    if not levels:
        raise InputError("has no levels", field="spec.levels", cure="List node labels, outermost first")
    labels = [level.node_label for level in levels]
    if len(set(labels)) < len(labels):
        raise InputError("names a node label twice", field="spec.levels", cure="Give every level its own label")
    return Topology(raw.required("metadata.name"), levels)
