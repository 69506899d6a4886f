"""Where the pods of a workload should and must go relative to one another: pack or spread, and how many on one node."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

Strategy = Literal["binpack", "spread"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement preferences and rules of a queue or a workload; None where the queues above decide.

    ``nodes`` and ``devices`` are preferences, the others are rules. KAI knows the first two for a whole cluster only.

    Attributes
    ----------
    nodes
        ``binpack``: the fullest node that fits. ``spread``: nodes with the fewest pods of the workload first.
    devices
        Pack shared GPUs on the devices of a node, or spread them.
    max_gpus_per_node, max_pods_per_node
        Most of the workload's GPUs and pods that one node may hold.
    min_nodes
        Its pods take different nodes until they are on so many.
    """

    nodes: Strategy | None = None
    devices: Strategy | None = None
    max_gpus_per_node: int | None = None
    max_pods_per_node: int | None = None
    min_nodes: int | None = None

    @property
    def is_rule(self) -> bool:
        """True where it forbids something."""
        return (self.max_gpus_per_node, self.max_pods_per_node) != (None, None) or (self.min_nodes or 0) > 1


NO_PLACEMENT = Placement()


def inherited(chain: Iterable[Placement]) -> Placement:
    """Placement of a workload: each field from the first that states it (the workload, its queue, the queues above)."""
    spoken = [placement for placement in chain if placement != NO_PLACEMENT]
    if not spoken:
        return NO_PLACEMENT
    values = {field.name: [getattr(placement, field.name) for placement in spoken] for field in fields(Placement)}
    return Placement(**{name: next((v for v in found if v is not None), None) for name, found in values.items()})
