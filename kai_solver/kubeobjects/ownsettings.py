"""Settings that KAI does not have: in a member of its snapshot that it skips, or in annotations of its objects."""

from dataclasses import replace
from typing import Any

from kai_solver.domain import Policy
from kai_solver.errors import InputError, shown
from kai_solver.kubeobjects.raw import Raw
from kai_solver.units import parse_whole

MEMBER = "kaiSolver"
"""Member of a KAI snapshot."""

PREFIX = "kai-solver/"
"""Annotations of a Config or SchedulingShard: ``kai-solver/non-preemptible-priority`` and so on."""

NON_PREEMPTIBLE = "nonPreemptiblePriority"
GPUS = "gpuResources"
SHARED_GPUS = "sharedGpuResources"
ANNOTATIONS = {
    PREFIX + "non-preemptible-priority": NON_PREEMPTIBLE,
    PREFIX + "gpu-resources": GPUS,
    PREFIX + "shared-gpu-resources": SHARED_GPUS,
}


def own_member(policy: Policy) -> dict[str, Any]:
    """The settings that are not the defaults, as a member of a snapshot."""
    base = Policy()
    found: dict[str, Any] = {}
    if policy.non_preemptible_priority != base.non_preemptible_priority:
        found[NON_PREEMPTIBLE] = policy.non_preemptible_priority
    if policy.gpu_resources != base.gpu_resources:
        found[GPUS] = list(policy.gpu_resources)
    if policy.shared_gpu_resources != base.shared_gpu_resources:
        found[SHARED_GPUS] = list(policy.shared_gpu_resources)
    return found


def with_own_member(raw: Raw, policy: Policy) -> Policy:
    """``policy`` with what the member of a snapshot states.

    Raises
    ------
    InputError
        A value has the wrong type, or no GPU resource is left.
    """
    stated = raw.get(MEMBER)
    return _with(
        policy,
        priority=stated.integer(NON_PREEMPTIBLE, policy.non_preemptible_priority),
        gpus=_names(stated, GPUS, policy.gpu_resources),
        shared=_names(stated, SHARED_GPUS, policy.shared_gpu_resources),
    )


def with_own_annotations(raw: Raw, policy: Policy) -> Policy:
    """``policy`` with what the annotations of a Config or SchedulingShard state; lists are separated by commas.

    Raises
    ------
    InputError
        The priority is no whole number, or no GPU resource is left.
    """
    annotations = raw.strings("metadata.annotations")
    stated = {field: annotations[name] for name, field in ANNOTATIONS.items() if name in annotations}
    priority = stated.get(NON_PREEMPTIBLE, str(policy.non_preemptible_priority))
    number = parse_whole(priority.removeprefix("-"), 10)
    if number is None:
        field = f"metadata.annotations.{PREFIX}non-preemptible-priority"
        raise InputError(f"{shown(priority)} is not a priority", field=field, cure='Write a whole number, like "100"')
    return _with(
        policy,
        priority=-number if priority.startswith("-") else number,
        gpus=_split(stated[GPUS]) if GPUS in stated else policy.gpu_resources,
        shared=_split(stated[SHARED_GPUS]) if SHARED_GPUS in stated else policy.shared_gpu_resources,
    )


def _with(policy: Policy, priority: int, gpus: tuple[str, ...], shared: tuple[str, ...]) -> Policy:
    if not gpus:
        raise InputError("names no resource", field=GPUS, cure="Name at least one, like nvidia.com/gpu")
    return replace(policy, non_preemptible_priority=priority, gpu_resources=gpus, shared_gpu_resources=shared)


def _names(stated: Raw, field: str, default: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.text() for name in stated.items(field)) if stated.get(field) else default


def _split(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))
