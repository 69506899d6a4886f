"""What one run leaves: which arrivals were placed or failed, and the curves over arrived demand."""

from dataclasses import dataclass

import numpy as np

from kai_solver.lab.experiments.cluster import Devices
from kai_solver.lab.experiments.trace import Bools, Floats, Ints, Trace


@dataclass(frozen=True, slots=True)
class Record:
    """A run, by arrival.

    Attributes
    ----------
    node, devices
        Where an arrival finally is, shape (E,), -1: it failed; and on which GPUs of that node.
    decided
        Arrivals that were known when it was decided, shape (E,); for a policy without a window its own number.
    fragmentation
        F summed over nodes when it was decided, in thousandths of GPUs, shape (E,).
    moved
        Moves of running pods up to and with its decision, shape (E,).
    seconds
        Wall time of the run.
    """

    node: Ints
    devices: tuple[Devices, ...]
    decided: Ints
    fragmentation: Floats
    moved: Ints
    seconds: float

    @property
    def placed(self) -> Bools:
        """True for arrivals that run, shape (E,)."""
        return self.node >= 0


def allocation(trace: Trace, record: Record) -> Floats:
    """Share of the GPUs that is allocated after every arrival, in percent, each counted when it arrived; shape (E,)."""
    milli = np.array([shape.total_milli for shape in trace.shapes], dtype=np.int64)[trace.arrivals]
    shares: Floats = 100.0 * np.cumsum(milli * record.placed) / trace.capacity_milli
    return shares


def waited_allocation(trace: Trace, record: Record) -> Floats:
    """The same, each counted when it was decided: what runs at the moment of every arrival; shape (E,)."""
    milli = np.array([shape.total_milli for shape in trace.shapes], dtype=np.int64)[trace.arrivals]
    running = np.bincount(record.decided, milli * record.placed, minlength=len(milli))
    shares: Floats = 100.0 * np.cumsum(running) / trace.capacity_milli
    return shares
