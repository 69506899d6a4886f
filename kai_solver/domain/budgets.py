"""Disruption budgets: how many of some running pods may be evicted now (Kubernetes: ``PodDisruptionBudget``)."""

from dataclasses import dataclass, field

from kai_solver.domain.constraints import Requirement

HELD_BY_BUDGETS = "disruption-budget"
"""Kind of the element "disruption budgets hold pods that could make room"."""


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A budget of the pods in ``namespace`` that ``selector`` matches; an empty one matches them all.

    Every pod that leaves counts, also one that gets another place: to move a pod is to evict it. Pods that have not
    begun to run (Kubernetes: phase ``Pending``) do not count. A pod that several budgets match can never be evicted.

    Attributes
    ----------
    allowed
        How many of them may be evicted now.
    spares_unready
        Pods that are not ready may go without being counted (``unhealthyPodEvictionPolicy``, and whether as many are
        healthy as should be).
    """

    namespace: str
    name: str
    selector: tuple[Requirement, ...]
    allowed: int
    spares_unready: bool = False
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Write ``namespace/name`` once."""
        object.__setattr__(self, "key", f"{self.namespace}/{self.name}")
