"""Names of resources that stand for GPUs, whole or in part."""

import re
from collections.abc import Sequence

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
"""Whole GPUs, as device plugins name them."""

SHARED_GPU_RESOURCES = ("nvidia.com/gpu.shared",)
"""Replicas of time-sliced GPUs under a name of their own (NVIDIA's device plugin with ``renameByDefault``)."""

_MIG = re.compile(r"nvidia\.com/mig-(?:[0-9]{1,3}c\.)?([0-9]{1,3})g\.[0-9]{1,6}gb.*")


def shared_gpu_resource(names: Sequence[str]) -> str:
    """Of resources that are whole GPUs, the one by which a device is held that pods share, as KAI's agent knows it."""
    return GPU_RESOURCES[0] if GPU_RESOURCES[0] in names else names[0]


def mig_slices(resource: str) -> int:
    """GPU slices of one device of a MIG resource (``nvidia.com/mig-2g.10gb``: 2); 0 for any other resource."""
    match = _MIG.fullmatch(resource)
    return int(match[1]) if match else 0
