"""A constraint family and an objective stage about nodes with the label ``lab.example/quiet``."""

from collections.abc import Iterator

from kai_solver.model.spec import Var
from kai_solver.model.stages import Objective
from kai_solver.model.variables import Variables

QUIET_LABEL = "lab.example/quiet"


def keep_quiet(v: Variables) -> None:
    """Family ``keep-quiet``: the solver gives nobody a new place on a quiet node."""
    for var in _places_on_quiet_nodes(v):
        v.spec.add_le([(1, var)], 0, family="keep-quiet")


def quiet_nodes_used(v: Variables) -> list[Objective]:
    """Stage ``quiet-pods``: as few new places on quiet nodes as possible."""
    return [Objective("quiet-pods", tuple((1, var) for var in _places_on_quiet_nodes(v)))]


def _places_on_quiet_nodes(v: Variables) -> Iterator[Var]:
    nodes = v.joint.problem.nodes
    for places in [*v.place.values(), *(scoped.place for scoped in v.scoped)]:
        for node, var in places.items():
            if QUIET_LABEL in nodes[node].labels:
                yield var
