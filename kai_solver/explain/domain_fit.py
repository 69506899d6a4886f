"""Gangs against the domains of their topology: which one limits them, and what a better place would give."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import TopologyConstraint
from kai_solver.explain.domain_lines import HOST
from kai_solver.explain.explanation import DomainFit, DomainRoom
from kai_solver.explain.node_fit import required_pods
from kai_solver.reduction import GangShape, Leaf, Problem, TreeNode
from kai_solver.reduction.capacity import fitting
from kai_solver.reduction.gangs import leaves_below
from kai_solver.topology import Domain, DomainTree, named_topology
from kai_solver.units import MILLI

Ints = NDArray[np.int64]
_NAMED = 3


def waiting_fits(after: Problem, gang: GangShape) -> Iterator[DomainFit]:
    """For every part of a waiting gang under a required level: the domains that could hold it now, or if empty.

    Parts that are alike (segments) are told of together.
    """
    required = set(required_pods(gang))
    alike: dict[tuple[object, ...], list[tuple[str, list[int]]]] = {}
    for node in _constrained(gang.root):
        pods = [pod for leaf in leaves_below(node) for pod in leaf.pending if pod in required]
        if pods:
            likeness = node.topology, tuple(sorted(after.by_shape(pods).items()))
            alike.setdefault(likeness, []).append(("" if node is gang.root else node.name, pods))
    for (topology, _), parts in alike.items():
        asked = topology if isinstance(topology, TopologyConstraint) else None
        tree = after.domains.get(asked.topology) if asked is not None else None
        level = tree.level_index(asked.required) if tree is not None and asked is not None else None
        if tree is not None and level is not None:
            yield _waiting_fit(after, tree, level, parts)


def _waiting_fit(after: Problem, tree: DomainTree, level: int, parts: Sequence[tuple[str, list[int]]]) -> DomainFit:
    label = tree.topology.levels[level].node_label
    name, pods = parts[0]
    best = _rooms(after, tree, level, pods)
    text = _waiting_text(name, label, len(pods), best)
    text = f"subgroup {text}" if name and len(parts) == 1 else text
    if len(parts) > 1 and len(after.by_shape(pods)) == 1:
        together = _rooms(after, tree, level, [pod for _, mine in parts for pod in mine])
        now, empty = (sum(min(getattr(r, of) // len(pods), len(parts)) for r in together) for of in ("now", "empty"))
        text = f"{len(parts)} subgroups like {text}; {now} of the {len(parts)} find room now, {empty} if all were empty"
    return DomainFit(name, tree.topology.name, label, len(pods), text, tuple(best[:_NAMED]))


def placed_fits(after: Problem, gang: GangShape) -> Iterator[DomainFit]:
    """For every level above single nodes: in how many domains the gang's pods lie, and how few would do now."""
    name = named_topology(gang.gang.root, after.domains)
    pods = [pod for pod in gang.active if after.pod_node[pod] >= 0]
    if name is None or len(pods) < 2:
        return
    tree = after.domains[name]
    for level, of_node in enumerate(tree.domain_of):
        label = tree.topology.levels[level].node_label
        lies = np.unique(of_node[[after.pod_node[pod] for pod in pods]])
        if label == HOST or -1 in lies:
            continue
        best = _rooms(after, tree, level, pods, own=True)
        few = _fewest(best, len(pods))
        yield DomainFit("", name, label, len(pods), _placed_text(label, len(pods), len(lies), few), tuple(few))


def _constrained(node: TreeNode | Leaf) -> Iterator[TreeNode | Leaf]:
    if node.topology is not None and node.topology.required:
        yield node
    for child in () if isinstance(node, Leaf) else node.children:
        yield from _constrained(child)


def _rooms(after: Problem, tree: DomainTree, level: int, pods: Sequence[int], *, own: bool = False) -> list[DomainRoom]:
    """Domains of a level by how many of ``pods`` they take, shape by shape; ``own``: as if these had left."""
    of_node = tree.domain_of[level]
    inside = of_node >= 0
    count = len(tree.names[level])
    now, empty = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for shape, wanted in after.by_shape(pods).items():
        free, devices = (after.capacity - after.held, after.device_free)
        takes = fitting(after, free, devices, shape)
        if own:
            np.add.at(takes, [after.pod_node[pod] for pod in pods if after.pod_shape[pod] == shape], 1)
        whole = np.where(np.arange(devices.shape[1]) < after.gpus[:, None], MILLI, 0)
        alone = fitting(after, after.capacity, whole, shape)
        for sums, room in ((now, takes), (empty, alone)):
            of_shape = np.bincount(of_node[inside], weights=room[inside], minlength=count).astype(np.int64)
            sums += np.minimum(of_shape, wanted)
    order = np.lexsort((np.arange(count), -empty, -now)).tolist()
    return [DomainRoom(tree.title(Domain(level, d)), int(now[d]), int(empty[d])) for d in order]


def _waiting_text(part: str, level: str, pods: int, best: Sequence[DomainRoom]) -> str:
    who = f"{part}: " if part else ""
    asks = f"{who}{pods} pods must be in one domain of {level}"
    roomy = [room for room in best if room.now >= pods]
    if roomy:
        return f"{asks}; {_listed(roomy)} would take them, each part alone"
    if not best:
        return f"{asks}, and there is none"
    able = [room for room in best if room.empty >= pods]
    most = f"{best[0].domain} has room for {best[0].now}, no domain for more"
    if not able:
        return f"{asks}; {most}, and none would take them even if it were empty"
    return f"{asks}; {most}; if they were empty, {len(able)} of {len(best)} domains would take them"


def _fewest(best: Sequence[DomainRoom], pods: int) -> list[DomainRoom]:
    """The fewest domains that take so many pods now, those with the most room."""
    chosen: list[DomainRoom] = []
    for room in best:
        if pods > 0 and room.now > 0:
            chosen.append(room)
            pods -= room.now
    return chosen


def _placed_text(level: str, pods: int, lies: int, few: Sequence[DomainRoom]) -> str:
    here = f"{pods} pods in {lies} domain{'s' if lies > 1 else ''} of {level}"
    if lies <= len(few):
        return f"{here}: no fewer would take them now"
    return f"{here}, where {len(few)} would do: {_listed(few)}"


def _listed(rooms: Sequence[DomainRoom]) -> str:
    named = ", ".join(f"{room.domain} ({room.now})" for room in rooms[:_NAMED])
    more = len(rooms) - _NAMED
    return f"{named} and {more} more" if more > 0 else named
