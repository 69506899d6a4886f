"""Gangs against the domains of their topology: which one limits them, and what a better place would give."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import TopologyConstraint
from kai_solver.explaining.domain_lines import HOST
from kai_solver.explaining.explanation import DomainFit, DomainRoom
from kai_solver.explaining.node_fit import required_pods
from kai_solver.problem import GangShape, Leaf, Problem, TreeNode
from kai_solver.problem.capacity import fitting
from kai_solver.problem.gangs import leaves_below
from kai_solver.topology import Domain, DomainTree, named_topology
from kai_solver.units.shares import WHOLE

Ints = NDArray[np.int64]
_NAMED = 3


def waiting_fits(after: Problem, gang: GangShape) -> Iterator[DomainFit]:
    """For every part of a waiting gang under a required level: the domains that could hold it now, or if empty.

    Equal parts (segments) are reported together.
    """
    required = set(required_pods(gang))
    identical: dict[tuple[object, ...], list[tuple[str, list[int]]]] = {}
    for node in _constrained(gang.root, "required"):
        pods = [pod for leaf in leaves_below(node) for pod in leaf.pending if pod in required]
        if pods:
            likeness = node.topology, tuple(sorted(after.by_shape(pods).items()))
            identical.setdefault(likeness, []).append(("" if node is gang.root else node.name, pods))
    for (topology, _), parts in identical.items():
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
    """For every level above single nodes: in how many domains the gang's pods lie, and how few would do now.

    Of its parts only those are reported that are in more domains of their preferred level than necessary.
    """
    name = named_topology(gang.gang.root, after.domains)
    pods = [pod for pod in gang.active if after.pod_node[pod] >= 0]
    if name is not None and len(pods) > 1:
        tree, asked = after.domains[name], gang.root.topology
        preferred = tree.level_index(asked.preferred) if asked is not None and asked.topology == name else None
        for level, known in enumerate(tree.topology.levels):
            if known.node_label != HOST:
                yield from _placed_fit(after, tree, level, pods, preferred=level == preferred)
    for part in _constrained(gang.root, "preferred"):
        asked = part.topology
        tree_of_it = after.domains.get(asked.topology) if asked is not None and part is not gang.root else None
        wished = tree_of_it.level_index(asked.preferred) if tree_of_it is not None and asked is not None else None
        own = [pod for leaf in leaves_below(part) for pod in leaf.active if after.pod_node[pod] >= 0]
        if tree_of_it is not None and wished is not None and len(own) > 1:
            fits = _placed_fit(after, tree_of_it, wished, own, part.name, preferred=True)
            yield from (fit for fit in fits if fit.lies > 1)


def _placed_fit(
    after: Problem, tree: DomainTree, level: int, pods: Sequence[int], part: str = "", *, preferred: bool
) -> Iterator[DomainFit]:
    label = tree.topology.levels[level].node_label
    lies = np.unique(tree.domain_of[level][[after.pod_node[pod] for pod in pods]])
    if -1 in lies:
        return
    best = _rooms(after, tree, level, pods, own=True)
    few = _fewest(best, len(pods))
    text = _placed_text(label, len(pods), len(lies), few, best, preferred=preferred and len(lies) > 1)
    text = f"subgroup {part}: {text}" if part else text
    yield DomainFit(part, tree.topology.name, label, len(pods), text, tuple(few), len(lies), preferred)


def _constrained(node: TreeNode | Leaf, by: Literal["required", "preferred"]) -> Iterator[TreeNode | Leaf]:
    if node.topology is not None and getattr(node.topology, by):
        yield node
    for child in () if isinstance(node, Leaf) else node.children:
        yield from _constrained(child, by)


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
            np.add.at(takes, [after.pod_node[pod] for pod in pods if after.modelled_shape(pod) == shape], 1)
        whole = np.where(np.arange(devices.shape[1]) < after.gpus[:, None], WHOLE, 0)
        alone = fitting(after, after.capacity, whole, shape)
        for sums, room in ((now, takes), (empty, alone)):
            of_shape = np.bincount(of_node[inside], weights=room[inside], minlength=count).astype(np.int64)
            sums += np.minimum(of_shape, wanted)
    order = np.lexsort((np.arange(count), -empty, -now)).tolist()
    return [DomainRoom(tree.title(Domain(level, d)), int(now[d]), int(empty[d])) for d in order]


def _waiting_text(part: str, level: str, pods: int, best: Sequence[DomainRoom]) -> str:
    prefix = f"{part}: " if part else ""
    asks = f"{prefix}{pods} pods must be in one domain of {level}"
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


def _placed_text(
    level: str, pods: int, lies: int, few: Sequence[DomainRoom], best: Sequence[DomainRoom], *, preferred: bool
) -> str:
    here = f"{pods} pods in {lies} domain{'s' if lies > 1 else ''} of {level}"
    here = f"{here}, of which they prefer one" if preferred else here
    if lies > len(few):
        return f"{here}, where {len(few)} would do: {_listed(few)}"
    if lies == 1:
        return here
    able = [room.domain for room in best if room.empty >= pods]
    if not able:
        return f"{here}: no fewer would take them now"
    more = f" (or {len(able) - 1} more)" if len(able) > 1 else ""
    return f"{here}: no fewer would take them now; {able[0]}{more} would if it were empty"


def _listed(rooms: Sequence[DomainRoom]) -> str:
    named = ", ".join(f"{room.domain} ({room.now})" for room in rooms[:_NAMED])
    more = len(rooms) - _NAMED
    return f"{named} and {more} more" if more > 0 else named
