"""The order in which plans are compared, stage by stage."""

from collections.abc import Iterable


def stage_order(*stages: Iterable[str]) -> list[str]:
    """Names of all stages in their order; of one kind (``evicted-work/<priority>``) the highest priority first.

    A plan has no stage of a stratum that it does not touch: vectors are compared by name, in the order of the plan with
    more kinds of stages.
    """
    names = [list(of_plan) for of_plan in stages]
    kinds_of = [list(dict.fromkeys(name.partition("/")[0] for name in of_plan)) for of_plan in names]
    kinds = list(dict.fromkeys(kind for kinds in sorted(kinds_of, key=len, reverse=True) for kind in kinds))

    def key(name: str) -> tuple[int, int, str]:
        kind, _, stratum = name.partition("/")
        return kinds.index(kind), -int(stratum) if stratum.lstrip("-").isdigit() else 0, name

    return sorted({name for of_plan in names for name in of_plan}, key=key)
