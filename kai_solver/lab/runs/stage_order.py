"""The order in which plans are compared, stage by stage."""

from collections.abc import Iterable

from kai_solver.model.stages import DISRUPTING

_ZERO_WHERE_ABSENT = ("pending-gangs", *DISRUPTING, "moved-work")
"""Beginnings of the names of stages that count something which a plan without them has none of."""


def stage_order(*stages: Iterable[str]) -> list[str]:
    """Names of all stages in their order; of one kind (``evicted-work/<priority>``) the highest priority first.

    A plan has no stage of a stratum that it does not touch: vectors are compared by name, in the order of the plan with
    more kinds of stages. Other stages that some plan lacks, such as the victim order, its model did not ask for: they
    are left out.
    """
    names = [list(of_plan) for of_plan in stages]
    kinds_of = [list(dict.fromkeys(name.partition("/")[0] for name in of_plan)) for of_plan in names]
    kinds = list(dict.fromkeys(kind for kinds in sorted(kinds_of, key=len, reverse=True) for kind in kinds))

    def key(name: str) -> tuple[int, int, str]:
        kind, _, stratum = name.partition("/")
        return kinds.index(kind), -int(stratum) if stratum.lstrip("-").isdigit() else 0, name

    every = {name for of_plan in names for name in of_plan}
    stated = {name for name in every if all(name in of_plan for of_plan in names)}
    return sorted((name for name in every if name in stated or name.startswith(_ZERO_WHERE_ABSENT)), key=key)
