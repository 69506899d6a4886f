"""Gang trees flattened to indices: which pods belong to which leaf, and what every inner node needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from kai_solver.domain import NO_PLACEMENT, Gang, Placement, Pod, PodSet, PodStatus, SubGroup, TopologyConstraint


class Leaf(NamedTuple):
    """A podset with its pods.

    Attributes
    ----------
    pending
        Pod indices that may be placed, first to be placed first.
    active
        Pod indices that run or are about to, same order: the last is the first victim.
    gated
        Number of pods behind scheduling gates.
    blocked
        Pods that wait for something outside (a claim, a ConfigMap) and that no node can take until it is there.
    """

    name: str
    min_member: int
    topology: TopologyConstraint | None
    pending: tuple[int, ...]
    active: tuple[int, ...]
    gated: int
    blocked: tuple[int, ...] = ()


class TreeNode(NamedTuple):
    """An inner node: children are indices of leaves (``leaves``) or further nodes, in the gang's order."""

    name: str
    needed: int
    topology: TopologyConstraint | None
    children: tuple["TreeNode | Leaf", ...]


@dataclass(slots=True, eq=False)
class GangShape:
    """A gang as the search sees it; never changed (not frozen, since that takes longer to make).

    Attributes
    ----------
    index, first
        Its number, and that of the first of its pods.
    placement
        What holds for its pods: its own word, else its queues'.
    family
        Number that gangs share whose pods ``placement`` is about together; -1 where it asks for nothing of the kind:
        then it makes no difference which of the gang's pods are on one node.
    """

    index: int
    gang: Gang
    queue: int
    root: TreeNode
    leaves: tuple[Leaf, ...]
    placement: Placement = NO_PLACEMENT
    family: int = -1
    first: int = 0

    @property
    def is_flat(self) -> bool:
        """True for a gang of one podset and no choice: its minimum is the podset's."""
        return len(self.leaves) == 1 and self.root.needed == 1 and self.root.children[0] is self.leaves[0]

    @property
    def is_spaced(self) -> bool:
        """True where a rule says how its pods lie on nodes, together with those of its ``family``."""
        return self.placement.is_rule

    @property
    def active(self) -> tuple[int, ...]:
        """All its active pods."""
        if len(self.leaves) == 1:
            return self.leaves[0].active
        return tuple(pod for leaf in self.leaves for pod in leaf.active)

    @property
    def waits(self) -> bool:
        """True where some pod may be placed, or may be once its gates open or what it misses is there."""
        return any(_waits(leaf) for leaf in self.leaves) if len(self.leaves) != 1 else _waits(self.leaves[0])

    @property
    def pending(self) -> tuple[int, ...]:
        """All its pods that may be placed."""
        if len(self.leaves) == 1:
            return self.leaves[0].pending
        return tuple(pod for leaf in self.leaves for pod in leaf.pending)


class Standing(NamedTuple):
    """Offsets in their gang of the pods of one podset, by how they stand; ``gated``: how many."""

    pending: Sequence[int] = ()
    active: Sequence[int] = ()
    gated: int = 0
    blocked: Sequence[int] = ()


_NOBODY = Standing()

Standings = dict[str, Standing]
"""By name of the podset."""


def standings(pods: Sequence[Pod]) -> Standings:
    """How the pods of a gang, which are in order, stand."""
    found: dict[str, tuple[list[int], list[int], list[int], list[int]]] = {}
    for offset, pod in enumerate(pods):
        pending, active, gated, blocked = found.setdefault(pod.podset, ([], [], [], []))
        if pod.status is PodStatus.PENDING:
            (blocked if pod.constraints.blocked else pending).append(offset)
        elif pod.status is PodStatus.GATED:
            gated.append(offset)
        elif pod.status.is_active:
            active.append(offset)
    return {
        name: Standing(pending, active, len(gated), blocked)
        for name, (pending, active, gated, blocked) in found.items()
    }


def standings_of(pod: Pod, count: int) -> Standings:
    """How ``count`` pods like ``pod`` stand: the same object for all such gangs; do not change it."""
    status = pod.status
    number = 0 if status is PodStatus.PENDING else 1 if status.is_active else 2 if status is PodStatus.GATED else 3
    return _uniform(pod.podset, count, number)


@lru_cache(maxsize=1024)
def _uniform(podset: str, count: int, status: int) -> Standings:
    offsets = range(count)
    if status == 0:
        return {podset: Standing(offsets)}
    if status == 1:
        return {podset: Standing((), offsets)}
    return {podset: Standing(gated=count) if status == 2 else _NOBODY}


def shape_gang(
    index: int,
    gang: Gang,
    stands: Standings,
    queue: int,
    first_pod: int,
    placement: Placement = NO_PLACEMENT,
    family: int = -1,
) -> GangShape:
    """Flatten a gang whose pods have the indices ``first_pod...`` in the problem's table."""
    group = gang.root
    if len(group.children) == 1 and isinstance(child := group.children[0], PodSet):
        # Most gangs: no walk.
        leaf = _leaf(child, stands.get(child.name, _NOBODY), first_pod)
        needed = 1 if group.min_subgroups is None else group.needed
        flat = TreeNode(group.name, needed, group.topology, (leaf,))
        return GangShape(index, gang, queue, flat, (leaf,), placement, family, first_pod)
    leaves: list[Leaf] = []
    root = _node(group, stands, first_pod, leaves)
    return GangShape(index, gang, queue, root, tuple(leaves), placement, family, first_pod)


def renumbered(shape: GangShape, index: int, first: int) -> GangShape:
    """The same gang with the number ``index``, and with pods from the number ``first`` on."""
    if shape.index == index and shape.first == first:
        return shape
    shift = first - shape.first
    if len(shape.leaves) == 1 and shape.root.children[0] is shape.leaves[0]:
        leaf = _shifted(shape.leaves[0], shift)
        group = shape.root
        flat = TreeNode(group.name, group.needed, group.topology, (leaf,))
        return GangShape(index, shape.gang, shape.queue, flat, (leaf,), shape.placement, shape.family, first)
    leaves: list[Leaf] = []
    root = _shifted_below(shape.root, shift, leaves)
    return GangShape(index, shape.gang, shape.queue, root, tuple(leaves), shape.placement, shape.family, first)


def _shifted_below(node: TreeNode, shift: int, leaves: list[Leaf]) -> TreeNode:
    children: list[TreeNode | Leaf] = []
    for child in node.children:
        if isinstance(child, Leaf):
            leaf = _shifted(child, shift)
            leaves.append(leaf)
            children.append(leaf)
        else:
            children.append(_shifted_below(child, shift, leaves))
    return node._replace(children=tuple(children))


def _shifted(leaf: Leaf, shift: int) -> Leaf:
    name, min_member, topology, pending, active, gated, blocked = leaf
    if pending:
        pending = tuple([pod + shift for pod in pending])
    if active:
        active = tuple([pod + shift for pod in active])
    if blocked:
        blocked = tuple([pod + shift for pod in blocked])
    return Leaf(name, min_member, topology, pending, active, gated, blocked)


def _node(group: SubGroup, stands: Standings, first: int, leaves: list[Leaf]) -> TreeNode:
    children: list[TreeNode | Leaf] = []
    for child in group.children:
        if isinstance(child, PodSet):
            leaf = _leaf(child, stands.get(child.name, _NOBODY), first)
            leaves.append(leaf)
            children.append(leaf)
        else:
            children.append(_node(child, stands, first, leaves))
    return TreeNode(group.name, group.needed, group.topology, tuple(children))


def _leaf(podset: PodSet, stands: Standing, first: int) -> Leaf:
    pending, active, gated, blocked = stands
    return Leaf(
        podset.name,
        max(0, podset.min_member),
        podset.topology,
        _numbered(pending, first) if pending else (),
        _numbered(active, first) if active else (),
        gated,
        _numbered(blocked, first) if blocked else (),
    )


def _numbered(offsets: Sequence[int], first: int) -> tuple[int, ...]:
    if isinstance(offsets, range):  # All pods of the gang, as nearly always.
        return tuple(range(first, first + len(offsets)))
    return tuple([first + offset for offset in offsets])


def _waits(leaf: Leaf) -> bool:
    return bool(leaf.pending or leaf.gated or leaf.blocked)


def leaves_below(node: TreeNode | Leaf) -> tuple[Leaf, ...]:
    """All leaves of a subtree, in order."""
    if isinstance(node, Leaf):
        return (node,)
    return tuple(leaf for child in node.children for leaf in leaves_below(child))
