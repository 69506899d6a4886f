"""Names of constraint families and objective stages: those that ship, and those of installed packages."""

from kai_solver.domain import FAMILIES, OPTIONAL_STAGES, STAGES, rule_names
from kai_solver.errors.extensions import entry_points

FAMILY_GROUP = "kai_solver.constraint_families"
STAGE_GROUP = "kai_solver.objective_stages"


def usual_families() -> tuple[str, ...]:
    """Constraint families of a model that names none: those that ship, and those of installed rules."""
    return tuple(dict.fromkeys((*FAMILIES, *rule_names())))


def known_families() -> tuple[str, ...]:
    """Constraint families that a model may name."""
    return _with_installed(usual_families(), FAMILY_GROUP)


def known_stages() -> tuple[str, ...]:
    """Objective stages that a model may name."""
    return _with_installed((*STAGES, *OPTIONAL_STAGES), STAGE_GROUP)


def _with_installed(shipped: tuple[str, ...], group: str) -> tuple[str, ...]:
    installed = sorted(point.name for point in entry_points(group=group))
    return tuple(dict.fromkeys((*shipped, *installed)))
