"""Names of resources that stand for GPUs, whole or in part."""

import re

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
"""Whole GPUs, as device plugins name them."""

SHARED_GPU_RESOURCES = ("nvidia.com/gpu.shared",)
"""Replicas of time-sliced GPUs under a name of their own (NVIDIA's device plugin with ``renameByDefault``)."""

_MIG = re.compile(r"nvidia\.com/mig-(?:[0-9]{1,3}c\.)?([0-9]{1,3})g\.[0-9]{1,6}gb.*")


def mig_slices(resource: str) -> int:
    """GPU slices of one device of a MIG resource (``nvidia.com/mig-2g.10gb``: 2); 0 for any other resource."""
    match = _MIG.fullmatch(resource)
    return int(match[1]) if match else 0
