"""Whether anything could be decided in an instance."""

from typing import TYPE_CHECKING

from kai_solver.domain import Snapshot
from kai_solver.errors import InputError

if TYPE_CHECKING:
    from kai_solver.instances_io.importers import Loaded


def check_nodes(file: str, snapshot: Snapshot) -> None:
    """Refuse a cluster without nodes.

    Raises
    ------
    InputError
        It has none.
    """
    if not snapshot.nodes:
        raise InputError("has no nodes", file=file, cure="Add the nodes of the cluster: kubectl get nodes -o yaml")


def check_complete(file: str, loaded: "Loaded") -> None:
    """Refuse an instance in which nothing could be decided.

    Raises
    ------
    InputError
        It has no nodes; or nothing in it asks for a place, and something was set aside.
    """
    snapshot = loaded.snapshot
    check_nodes(file, snapshot)
    aside = [notice for notice in snapshot.notices if notice.kind == "set-aside"]
    if aside and not snapshot.gangs:
        problem = f"has nothing to schedule, and {aside[0].object} was set aside: {aside[0].text}"
        raise InputError(problem, file=file, cure="Correct that object")
