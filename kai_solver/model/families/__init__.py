"""Constraint families of the core, one file each. A family is a function that adds its rows; switching it off leaves
them out. Every optional rule is a family, too, which adds the rows of `RuleFacts.add_rows`.

A package of your own may add one by an entry point in the group ``kai_solver.constraint_families`` whose object is
such a function, and name it in a model file.
"""

from collections.abc import Callable, Iterable
from functools import partial

from kai_solver.errors.extensions import entry_points, loaded
from kai_solver.model.families import (
    capacity,
    entitlement,
    gang,
    limit,
    moves,
    priority,
    quota,
    subgroup,
    topology,
    units,
)
from kai_solver.model.variables import Variables
from kai_solver.problem.rules import installed_rules

Family = Callable[[Variables], None]

GROUP = "kai_solver.constraint_families"

BUILT_IN: dict[str, Family] = {
    "gang": gang.add,
    "subgroup": subgroup.add,
    "capacity": capacity.add,
    "limit": limit.add,
    "quota": quota.add,
    "entitlement": entitlement.add,
    "priority": priority.add,
    "topology": topology.add,
    "units": units.add,
    "moves": moves.add,
}


def family(name: str) -> Family:
    """The family called ``name``; raises ``KeyError`` where neither we nor an installed package has it."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if any(rule.name == name for rule in installed_rules()):
        return partial(_add_rows_of_rule, name)
    for point in entry_points(group=GROUP, name=name):
        found: Family = loaded(point)
        return found
    raise KeyError(name)


def are_kept_by_all(families: Iterable[str]) -> bool:
    """True where the working state and the bounds keep all ``families``: those of the core, and of rules.

    One that a package adds as a family alone binds the model, and nothing else.
    """
    return set(families) <= {*BUILT_IN, *(rule.name for rule in installed_rules())}


def _add_rows_of_rule(name: str, v: Variables) -> None:
    """The rows of rule ``name``; none where no object uses it."""
    for facts in v.joint.problem.rules:
        if facts.name == name:
            facts.add_rows(v)
