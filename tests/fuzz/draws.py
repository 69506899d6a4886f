"""What is drawn for a random cluster: its features, and the chance that one of them shows."""

from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

Document = dict[str, Any]
Sizes = Literal["small", "mixed", "large"]

FEATURES = (
    "affinity", "ages", "budgets", "claims", "cordons", "elastic", "failed-gpus", "foreign", "fractions", "gpu-memory",
    "limits", "links", "mig", "non-preemptible", "node-terms", "numa", "placement", "policies", "ports", "queue-trees",
    "ranks", "rows", "runtimes", "segments", "shared-claims", "spares", "spread", "stale", "statuses", "subgroups",
    "taints", "tenants", "time-slices", "topology", "unequal", "unknown-devices", "usage", "volumes",
)  # fmt: skip
"""Each is in a cluster or not; how many are is drawn, from few to all."""

SLICES = ("nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-3g.40gb")
SHARED = "nvidia.com/gpu.shared"


@dataclass
class Draw:
    """The random numbers of one cluster.

    Attributes
    ----------
    given
        Features, in place of a draw.
    """

    seed: int
    sizes: Sizes
    given: frozenset[str] | None = None
    random: Random = field(init=False)
    features: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Draw the features."""
        self.random = Random(f"{self.sizes}-{self.seed}")
        part = self.random.choice((0.1, 0.3, 0.3, 0.6, 0.9, 1.0))
        drawn = frozenset(name for name in FEATURES if self.random.random() < part)
        self.features = drawn if self.given is None else self.given

    def chance(self, feature: str, part: float) -> bool:
        """Whether a feature of this cluster shows here; the draw is made in any case, so that clusters stay alike."""
        return self.random.random() < part and feature in self.features
