"""The slowest link between the GPUs of a gang that has its places, and what another place would give."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.explaining.explanation import BetterLink, LinkFit
from kai_solver.explaining.gpu_boards import GpuBoard, GpuBoards, Holder, SetLink, ranges
from kai_solver.links import gpus_of, known_tables, mask_of
from kai_solver.problem import GangShape, Leaf, Problem, TreeNode
from kai_solver.problem.capacity import fitting
from kai_solver.problem.gangs import leaves_below
from kai_solver.units.shares import WHOLE

CLIQUE = "nvidia.com/gpu.clique"
"""Label of nodes: their NVLink domain."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Set:
    """A pod with several GPUs."""

    pod: int
    board: GpuBoard
    holder: Holder
    link: SetLink | None


def link_fit(boards: GpuBoards, after: Problem, gang: GangShape) -> LinkFit | None:
    """What limits the traffic between the GPUs of ``gang``; None where no pod of it has several whole ones.

    Parameters
    ----------
    boards, after
        The cluster as the plan leaves it.
    """
    sets = list(_sets(boards, after, gang))
    if not sets:
        return None
    between = _between(after, [found.pod for found in sets])
    untold = [found for found in sets if found.link is None]
    told = [(found.link.gb_s, _grade(found, found.link), found) for found in sets if found.link is not None]
    if not told:
        why = _why(untold[0])
        text = f"The {why}" if _is_unlinked(untold[0]) else f"which link limits it is not known: {why}"
        return LinkFit(len(sets), len(untold), between, _whole(text, between))
    _, grade, slowest = min(told, key=lambda entry: entry[:2])
    identical = sum(entry[1] == grade for entry in told)
    link = slowest.link
    assert link is not None  # noqa: S101  (told)
    better = tuple(_better(boards, after, gang, slowest, grade))
    rest = f" Of {len(untold)} of {len(sets)} pods it is not known: {_why(untold[0])}." if untold else ""
    return LinkFit(
        len(sets),
        len(untold),
        between,
        _whole(f"{_words(slowest, link, identical, len(told))}; {_better_words(better)}", between) + rest,
        slowest.holder.pod,
        slowest.board.node,
        link.gpus,
        link.kind,
        link.gb_s,
        slowest.holder.known,
        better,
    )


def _sets(boards: GpuBoards, after: Problem, gang: GangShape) -> Iterator[_Set]:
    for pod in gang.active:
        asked, node = after.pods[pod], after.pod_node[pod]
        if node >= 0 and asked.gpu.is_whole and asked.gpu.devices > 1:
            board = boards.of(after.nodes[node].name)
            holder = next((held for held in board.holders if held.pod == asked.key), None)
            if holder is not None:
                yield _Set(pod, board, holder, board.link(holder))


def _grade(found: _Set, link: SetLink) -> int:
    pair = link.gpus or (0, 1)
    return int(found.board.graph.grade[pair])


def _between(after: Problem, pods: Sequence[int]) -> str:
    """What joins the nodes of these pods: nothing on one node, a clique's name, ``network``."""
    nodes = {after.pod_node[pod] for pod in pods}
    if len(nodes) < 2:
        return ""
    cliques = {after.nodes[node].labels.get(CLIQUE, "") for node in nodes}
    only = next(iter(cliques))
    return only if len(cliques) == 1 and only else "network"


# -- better places -----------------------------------------------------------------------------------------------------


def _better(boards: GpuBoards, after: Problem, gang: GangShape, found: _Set, grade: int) -> Iterator[BetterLink]:
    """The best set that is free now, and the best of an empty node where that is better still."""
    pod, own = found.pod, after.pod_node[found.pod]
    inside = _allowed(after, gang, pod)
    shape = after.pod_shape[pod]
    free = fitting(after, after.capacity - after.held, after.device_free, shape) > 0
    free[own] = True
    whole = np.where(np.arange(after.device_free.shape[1]) < after.gpus[:, None], WHOLE, 0)
    empty = fitting(after, after.capacity, whole, shape) > 0
    for when, takes in (("now", free), ("empty", empty)):
        best = _best(boards, after, takes & inside, found, is_empty=when == "empty")
        if best is not None and best[0] > grade:
            grade = best[0]
            yield best[1]


def _best(
    boards: GpuBoards, after: Problem, takes: Bools, found: _Set, *, is_empty: bool
) -> tuple[int, BetterLink] | None:
    """Grade and place of the best set among nodes; of equals the pod's own node, then the first one."""
    tables, own = known_tables(), after.pod_node[found.pod]
    best: tuple[int, int, BetterLink] | None = None
    for node in np.flatnonzero(takes).tolist():
        board = boards.of(after.nodes[node].name)
        mask = _free_mask(board, found.holder if node == own else None, is_empty=is_empty)
        if mask is None:
            continue
        kind = tables.add(board.graph)
        chosen = tables.pick(kind, mask, found.holder.count)
        if chosen is None:
            continue
        table = tables.tables[kind]
        grade = int(table.grade[table.classes.state_of_one(chosen)])
        if best is None or (grade, node == own) > best[:2]:
            named = gpus_of(chosen) if board.free is not None or is_empty else ()
            link = tables.weakest(kind, board.graph, chosen)
            best = grade, node == own, BetterLink(board.node, named, *link, "empty" if is_empty else "now")
    return None if best is None else (best[0], best[2])


def _free_mask(board: GpuBoard, own: Holder | None, *, is_empty: bool) -> int | None:
    """GPUs that may be chosen; None where links or free GPUs are not known."""
    if not board.graph.is_known:
        return None
    # Where all pairs are equal it makes no difference which are free.
    if is_empty or board.graph.is_even:
        return (1 << board.graph.gpus) - 1
    if board.free is None:
        return None
    return mask_of((*board.free, *(own.gpus if own is not None else ())))


def _allowed(after: Problem, gang: GangShape, pod: int) -> Bools:
    """(N,) nodes to which the pod may go alone: those of the domains that it and the parts around it must not leave."""
    allowed = np.ones(len(after.nodes), dtype=np.bool_)
    for part in _around(gang.root, pod):
        asked = part.topology
        tree = after.domains.get(asked.topology) if asked is not None else None
        level = tree.level_index(asked.required) if tree is not None and asked is not None and asked.required else None
        if tree is not None and level is not None:
            of_node = tree.domain_of[level]
            allowed &= of_node == of_node[after.pod_node[pod]]
    return allowed


def _around(part: TreeNode | Leaf, pod: int) -> Iterator[TreeNode | Leaf]:
    """The parts of a gang that the pod is of, from the whole in."""
    if any(pod in leaf.active for leaf in leaves_below(part)):
        yield part
        for child in () if isinstance(part, Leaf) else part.children:
            yield from _around(child, pod)


# -- words -------------------------------------------------------------------------------------------------------------


def _words(found: _Set, link: SetLink, identical: int, pods: int) -> str:
    which = f"GPUs {link.gpus[0]} and {link.gpus[1]}" if link.gpus else "any two GPUs"
    slowest = f", the slowest of {pods} pods" if identical < pods else f", as for all {pods} pods" if pods > 1 else ""
    wish = ", if it has the GPUs that were chosen" if found.holder.known == "wish" else ""
    pod = found.holder.pod.rpartition("/")[2]
    return f"{link.gb_s} GB/s over {link.kind} between {which} of {found.board.node} (pod {pod}{slowest}{wish})"


def _better_words(better: Sequence[BetterLink]) -> str:
    if not better:
        return "no other place that it may have would give more"
    texts = []
    for place in better:
        if place.when == "now":
            which = f" (GPUs {ranges(place.gpus)})" if place.gpus else ""
            texts.append(f"{place.gb_s} GB/s over {place.kind} on {place.node} now{which}")
        else:
            texts.append(f"{place.gb_s} GB/s over {place.kind} on {place.node} if it were empty")
    return ", ".join(texts) if better[0].when == "now" else f"nothing better now, {texts[0]}"


def _whole(text: str, between: str) -> str:
    if not between:
        return f"{text}."
    if between == "network":
        network = "the network between them, of which nothing is known here, limits it where it is slower"
        return f"{text}. Its nodes are not one NVLink domain: {network}."
    return f"{text}. Its nodes are one NVLink domain ({between})."


def _is_unlinked(found: _Set) -> bool:
    return not found.board.graph.is_known


def _why(found: _Set) -> str:
    if _is_unlinked(found):
        notices = "; ".join(found.board.graph.notices).replace("no label", "it has no label", 1)
        return f"links of {found.board.node} are unknown: {notices}"
    return f"it is unknown which GPUs of {found.board.node} pod {found.holder.pod.rpartition('/')[2]} has"
