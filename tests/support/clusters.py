"""How many drawn clusters a test tries: few in ``make test``, and all of its campaign in ``make campaigns``."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

WHOLE = os.environ.get("KAI_SOLVER_CAMPAIGNS") == "whole"
"""Whether campaigns run at full length."""


def some(examples: int, *, campaign: int = 0) -> Callable[[Any], Any]:
    """So many clusters, each with as much time as it takes; ``campaign``: how many where campaigns run whole."""
    length = settings(
        max_examples=campaign if WHOLE and campaign else examples,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),  # shrinking a cluster takes minutes; print_blob repeats it
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    return (lambda test: pytest.mark.campaign(length(test))) if campaign else length


def seeds(count: int, *, campaign: int) -> list[Any]:
    """Values for a parameter ``seed``; ``campaign``: how many where campaigns run whole."""
    return [pytest.param(seed, marks=pytest.mark.campaign) for seed in range(campaign if WHOLE else count)]
