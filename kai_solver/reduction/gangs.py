"""Gang trees flattened to indices: which pods belong to which leaf, and what every inner node needs."""

from dataclasses import dataclass

from kai_solver.domain import NO_PLACEMENT, Gang, Placement, PodSet, PodStatus, SubGroup, TopologyConstraint


@dataclass(frozen=True, slots=True)
class Leaf:
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


@dataclass(frozen=True, slots=True)
class TreeNode:
    """An inner node: children are indices of leaves (``leaves``) or further nodes, in the gang's order."""

    name: str
    needed: int
    topology: TopologyConstraint | None
    children: tuple["TreeNode | Leaf", ...]


@dataclass(frozen=True, slots=True)
class GangShape:
    """A gang as the search sees it.

    Attributes
    ----------
    placement
        What holds for its pods: its own word, else its queues'.
    family
        Number that gangs share whose pods ``placement`` is about together; -1 where it asks for nothing of the kind.
    """

    index: int
    gang: Gang
    queue: int
    root: TreeNode
    leaves: tuple[Leaf, ...]
    placement: Placement = NO_PLACEMENT
    family: int = -1

    @property
    def active(self) -> tuple[int, ...]:
        """All its active pods."""
        return tuple(pod for leaf in self.leaves for pod in leaf.active)

    @property
    def waits(self) -> bool:
        """True where some pod may be placed, or may be once its gates open or what it misses is there."""
        return any(leaf.pending or leaf.gated or leaf.blocked for leaf in self.leaves)

    @property
    def pending(self) -> tuple[int, ...]:
        """All its pods that may be placed."""
        return tuple(pod for leaf in self.leaves for pod in leaf.pending)


def shape_gang(index: int, gang: Gang, queue: int, first_pod: int) -> GangShape:
    """Flatten ``gang``, whose pods have the indices ``first_pod...`` in the problem's table."""
    by_leaf: dict[str, list[int]] = {}
    for offset, pod in enumerate(gang.pods):
        by_leaf.setdefault(pod.podset, []).append(offset)
    leaves: list[Leaf] = []
    blocked = {first_pod + o for o, pod in enumerate(gang.pods) if pod.constraints.blocked}

    def leaf_of(podset: PodSet) -> Leaf:
        offsets = sorted(by_leaf.get(podset.name, ()), key=lambda o: (gang.pods[o].order, gang.pods[o].key))
        status = [(first_pod + o, gang.pods[o].status) for o in offsets]
        leaf = Leaf(
            podset.name,
            max(0, podset.min_member),
            podset.topology,
            tuple(i for i, s in status if s is PodStatus.PENDING and i not in blocked),
            tuple(i for i, s in status if s.is_active),
            sum(s is PodStatus.GATED for _, s in status),
            tuple(i for i, s in status if s is PodStatus.PENDING and i in blocked),
        )
        leaves.append(leaf)
        return leaf

    def node_of(group: SubGroup) -> TreeNode:
        children = tuple(leaf_of(c) if isinstance(c, PodSet) else node_of(c) for c in group.children)
        return TreeNode(group.name, group.needed, group.topology, children)

    root = node_of(gang.root)
    return GangShape(index, gang, queue, root, tuple(leaves))


def leaves_below(node: TreeNode | Leaf) -> tuple[Leaf, ...]:
    """All leaves of a subtree, in order."""
    if isinstance(node, Leaf):
        return (node,)
    return tuple(leaf for child in node.children for leaf in leaves_below(child))
