"""How much hostile input is drawn, and how much of it was shown to the code.

``KAI_SOLVER_FUZZ=50`` draws fifty times as much as ``make test`` does, and other examples in every run.
"""

import os
from collections import Counter

from hypothesis import HealthCheck, Phase, settings

TIMES = int(os.environ.get("KAI_SOLVER_FUZZ", "1"))
SHOWN: Counter[str] = Counter()
"""By what it was; the tests count."""


def some(examples: int) -> settings:
    """So many examples, or `TIMES` as many; what fails is shrunk, and told with what repeats it."""
    return settings(
        max_examples=examples * TIMES,
        derandomize=TIMES == 1,
        deadline=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
