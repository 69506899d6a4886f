"""How drawn clusters are tried out."""

from hypothesis import HealthCheck, Phase, settings


def some(examples: int) -> settings:
    """So many clusters, each with as much time as it takes."""
    return settings(
        max_examples=examples,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),  # shrinking a cluster takes minutes; print_blob repeats it
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
