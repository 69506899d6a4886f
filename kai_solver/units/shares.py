"""Shares of a GPU in integers: what a pod takes of a device, and what its queue pays for it.

There are two amounts. Each has its unit, and is rounded in one direction and in one place, here:

- *Parts*: what is taken of a device, and what is free of it. A device has ``WHOLE`` = 10^12 parts. A fraction of f
  thousandths takes ``f * WHOLE / 1000``, which is exact; ``m`` MiB of a device of ``M`` MiB take ``m * WHOLE / M``,
  rounded down. This does not change what fits: sums of shares are multiples of 1/(1000 M) of a device, and k
  shares lose less than k / WHOLE by it. So shares fit on a device exactly if they fit in MiB, which is how KAI
  counts (docs/kai-behaviour.md#fractions), for k M up to 10^9: a thousand shares of a device of 1 TB. On devices beyond
  ``LARGEST_MIB`` parts are rounded up: then a device may seem full early, and never holds too much.
- *Thousandths that are charged*: what counts against quota, limit and fair share, and what a plan says of a device.
  KAI rounds a request by memory up to a hundredth of a GPU (docs/kai-behaviour.md#fractions). What pods that fill a
  device are charged may exceed 1000 together, so capacity is never counted in it.

A MIG slice ``<g>g`` is charged as g GPUs (docs/kai-behaviour.md#mig), a replica of a time-sliced GPU as 1/replicas,
rounded down to a thousandth, so that all replicas are charged no more than the GPU. Both are whole units of an extended
resource: capacity counts units.

Bounds may compare thousandths where demand and supply are both rounded down by device (`floor_milli`): of pods on one
device, the parts rounded down are together never more than those of the device, rounded down.
"""

from typing import overload

import numpy as np
from numpy.typing import NDArray

from kai_solver.units.resources import MILLI

WHOLE = 10**12
"""Parts of one GPU."""

PARTS_OF_MILLI = WHOLE // MILLI
LARGEST_MIB = 10**6
UNKNOWN_MIB = 100
"""Memory of a device without stated memory, as KAI assumes (``DefaultGpuMemory``)."""


def parts_of(milli: int, memory_mib: int, device_mib: int) -> int:
    """Parts of a device of ``device_mib`` MiB (0: unknown) that a share takes: by memory if it requests memory.

    May exceed `WHOLE`: then it does not fit such a device.
    """
    if not memory_mib:
        return milli * PARTS_OF_MILLI
    device_mib = device_mib or UNKNOWN_MIB
    if device_mib > LARGEST_MIB:
        return -(-memory_mib * WHOLE // device_mib)
    return memory_mib * WHOLE // device_mib


def charged_milli(milli: int, memory_mib: int, device_mib: int) -> int:
    """Thousandths of a GPU that a queue pays for a share of a device of ``device_mib`` MiB (0: unknown)."""
    if not memory_mib:
        return milli
    return -(-memory_mib * 100 // (device_mib or UNKNOWN_MIB)) * (MILLI // 100)


def replica_milli(replicas: int) -> int:
    """Thousandths of a GPU that a queue pays for one of the replicas into which it is time-sliced."""
    return MILLI // replicas


@overload
def floor_milli(parts: int) -> int: ...


@overload
def floor_milli(parts: NDArray[np.int64]) -> NDArray[np.int64]: ...


def floor_milli(parts: int | NDArray[np.int64]) -> int | NDArray[np.int64]:
    """Thousandths, rounded down; 0 for negative parts."""
    if isinstance(parts, int):
        return max(parts, 0) // PARTS_OF_MILLI
    found: NDArray[np.int64] = np.maximum(parts, 0) // PARTS_OF_MILLI
    return found
