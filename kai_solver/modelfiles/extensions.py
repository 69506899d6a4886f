"""Names of constraint families and objective stages: those that ship, and those of installed packages."""

from importlib.metadata import entry_points

from kai_solver.domain import FAMILIES, OPTIONAL_STAGES, STAGES

FAMILY_GROUP = "kai_solver.constraint_families"
STAGE_GROUP = "kai_solver.objective_stages"


def known_families(*, built_in: bool = False) -> tuple[str, ...]:
    """Constraint families that a model may name; ``built_in``: only those that ship with kai-solver."""
    return FAMILIES if built_in else _with_installed(FAMILIES, FAMILY_GROUP)


def known_stages() -> tuple[str, ...]:
    """Objective stages that a model may name."""
    return _with_installed((*STAGES, *OPTIONAL_STAGES), STAGE_GROUP)


def _with_installed(shipped: tuple[str, ...], group: str) -> tuple[str, ...]:
    installed = sorted(point.name for point in entry_points(group=group))
    return tuple(dict.fromkeys((*shipped, *installed)))
