"""Whether anything could be decided in an instance."""

from typing import TYPE_CHECKING

from kai_solver.domain import Notice, Snapshot
from kai_solver.errors import InputError

if TYPE_CHECKING:
    from kai_solver.instances_io.importers import Loaded


def check_nodes(file: str, snapshot: Snapshot) -> None:
    """Refuse a cluster without nodes.

    Raises
    ------
    InputError
        It has none. Names a node or file that was set aside.
    """
    if snapshot.nodes:
        return
    aside = {notice.object.partition(" ")[0]: notice for notice in reversed(_set_aside(snapshot))}
    cause = aside.get("Node") or aside.get("File")
    if cause is None:
        raise InputError("has no nodes", file=file, cure="Add the nodes of the cluster: kubectl get nodes -o yaml")
    raise InputError(f"has no nodes, and {cause.object} was set aside: {cause.text}", file=file)


def _set_aside(snapshot: Snapshot) -> list[Notice]:
    return [notice for notice in snapshot.notices if notice.kind == "set-aside"]


def check_complete(file: str, loaded: "Loaded") -> None:
    """Refuse an instance in which nothing could be decided.

    Raises
    ------
    InputError
        It has no nodes; or nothing in it asks for a place, and something was set aside.
    """
    snapshot = loaded.snapshot
    check_nodes(file, snapshot)
    aside = _set_aside(snapshot)
    if aside and not snapshot.gangs:
        problem = f"has nothing to schedule, and {aside[0].object} was set aside: {aside[0].text}"
        raise InputError(problem, file=file, cure="Correct that object")
