"""Constraint families, one file each. A family is a function that adds its rows; switching it off leaves them out.

A package of your own may add one by an entry point in the group ``kai_solver.constraint_families`` whose object is
such a function, and name it in a model file.
"""

from collections.abc import Callable
from importlib.metadata import entry_points

from kai_solver.model.families import (
    affinity,
    budgets,
    capacity,
    entitlement,
    gang,
    gpurows,
    limit,
    moves,
    numa,
    placement,
    ports,
    priority,
    quota,
    spares,
    spread,
    subgroup,
    tenants,
    topology,
    units,
)
from kai_solver.model.variables import Variables

Family = Callable[[Variables], None]

GROUP = "kai_solver.constraint_families"

BUILT_IN: dict[str, Family] = {
    "gang": gang.add,
    "subgroup": subgroup.add,
    "capacity": capacity.add,
    "numa": numa.add,
    "limit": limit.add,
    "quota": quota.add,
    "entitlement": entitlement.add,
    "priority": priority.add,
    "topology": topology.add,
    "units": units.add,
    "moves": moves.add,
    "affinity": affinity.add,
    "spread": spread.add,
    "ports": ports.add,
    "placement": placement.add,
    "budgets": budgets.add,
    "tenants": tenants.add,
    "spares": spares.add,
    "gpurows": gpurows.add,
}


def family(name: str) -> Family:
    """The family called ``name``; raises ``KeyError`` where neither we nor an installed package has it."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    for point in entry_points(group=GROUP, name=name):
        loaded: Family = point.load()
        return loaded
    raise KeyError(name)
