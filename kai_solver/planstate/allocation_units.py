"""What a gang asks for next: the rest of its minimum, all or nothing, or one surplus step.

Source: docs/kai-behaviour.md#surplus.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from kai_solver.domain import TopologyConstraint
from kai_solver.planstate.gang_states import GangState
from kai_solver.planstate.state import State
from kai_solver.planstate.subgroup_order import subgroup_rank
from kai_solver.problem import GangShape, Leaf, TreeNode


class Part(NamedTuple):
    """A piece of an allocation unit under one node of the gang's tree.

    ``pods`` are to be placed in order; ``anchors`` are running pods under the same node, which fix the domain of a
    required topology.
    """

    name: str
    topology: TopologyConstraint | None
    pods: tuple[int, ...]
    parts: tuple["Part", ...]
    anchors: tuple[int, ...]

    def all_pods(self) -> Iterator[int]:
        """Pods of this part and of all below it."""
        yield from self.pods
        for part in self.parts:
            yield from part.all_pods()

    def leaves(self) -> Iterator["Part"]:
        """Parts that have pods of their own: one leaf of the gang's tree each."""
        if self.pods:
            yield self
        for part in self.parts:
            yield from part.leaves()


class AllocationUnit(NamedTuple):
    """What a gang asks for in one step.

    ``is_core``: it completes the minimum (else it is surplus). ``is_choice``: other pods or subgroups of the gang would
    have served as well, so that a "no" for this allocation unit is no "no" for the gang.
    """

    gang: int
    root: Part
    pods: tuple[int, ...]
    is_core: bool
    is_choice: bool = False


class AllocationUnits:
    """Chooses the next allocation unit of one gang in its present state.

    ``lone``: the only leaf of a gang without subgroups, as most are; their allocation units are made without a walk of
    the tree.
    """

    __slots__ = ("_avoided", "lone", "pod_shape", "position", "shape", "state")

    def __init__(self, shape: GangShape, state: GangState, pod_shape: Sequence[int] = ()) -> None:
        self.shape = shape
        self.state = state
        self.pod_shape = pod_shape
        self.lone = shape.leaves[0] if shape.is_flat else None
        self.position = {id(leaf): i for i, leaf in enumerate(shape.leaves)} if self.lone is None else {}
        self._avoided: frozenset[str] = frozenset()

    def waits(self) -> bool:
        """True where some pod of the gang waits for a place."""
        return bool(self.state.pending[0]) if self.lone is not None else any(self.state.pending)

    def next(self, avoiding: frozenset[str] = frozenset()) -> AllocationUnit | None:
        """The next allocation unit; None where nothing waits or the minimum cannot be reached with the pods there are.

        ``avoiding``: leaves, by name, whose waiting pods are not to be asked for.
        """
        if self.lone is not None and not avoiding:
            return self._next_of_lone(self.lone)
        if not self.waits():
            return None
        self._avoided = avoiding
        is_core = not self.is_satisfied(self.shape.root)
        part = self._missing(self.shape.root) if is_core else self._surplus(self.shape.root)
        if part is None:
            return None
        pods = tuple(part.all_pods())
        return (
            AllocationUnit(self.shape.index, part, pods, is_core, self._is_choice(pods, is_core=is_core))
            if pods
            else None
        )

    def _next_of_lone(self, leaf: Leaf) -> AllocationUnit | None:
        """As ``next``, of a gang without subgroups."""
        active, pending = self.state.active[0], self.state.pending[0]
        lacking = leaf.min_member - len(active)
        if not pending or lacking > len(pending):
            return None
        pods = tuple(pending[:lacking]) if lacking > 1 else (pending[0],)
        is_core = lacking > 0
        is_choice = len(pods) < len(pending) and self._is_choice(pods, is_core=is_core)
        root, anchors = self.shape.root, tuple(active)
        inner = Part(leaf.name, leaf.topology, pods, (), anchors)
        part = Part(root.name, root.topology, (), (inner,), anchors)
        return AllocationUnit(self.shape.index, part, pods, is_core, is_choice)

    def _is_choice(self, pods: tuple[int, ...], *, is_core: bool) -> bool:
        """True where the gang has other pods or subgroups waiting that this unit could have asked for instead."""
        waiting = [pending for pending in self.state.pending if pending]
        if len(pods) == sum(map(len, waiting)):
            return False
        optional = len(waiting) > 1 and (not is_core or self._chooses(self.shape.root))
        return optional or any(len({self.pod_shape[p] for p in pending}) > 1 for pending in waiting if self.pod_shape)

    def _chooses(self, node: TreeNode | Leaf) -> bool:
        if isinstance(node, Leaf):
            return False
        return node.needed < len(node.children) or any(self._chooses(child) for child in node.children)

    def is_satisfied(self, node: TreeNode | Leaf) -> bool:
        """True where ``node`` has its minimum."""
        if self.lone is not None:
            return len(self.state.active[0]) >= self.lone.min_member
        if isinstance(node, Leaf):
            return len(self._active(node)) >= node.min_member
        return sum(self.is_satisfied(child) for child in node.children) >= node.needed

    def is_whole(self) -> bool:
        """True where the gang has its minimum, and so has every part of it of which some pods run."""
        return self.is_satisfied(self.shape.root) and all(map(self.is_satisfied, self._running_parts(self.shape.root)))

    def _running_parts(self, node: TreeNode | Leaf) -> Iterator[TreeNode | Leaf]:
        for child in () if isinstance(node, Leaf) else node.children:
            if self.has_active(child):
                yield child
                yield from self._running_parts(child)

    def is_reachable(self, node: TreeNode | Leaf) -> bool:
        """True where pods that run or may be placed suffice for the minimum of ``node``."""
        if self.lone is not None:
            return len(self.state.active[0]) + len(self.state.pending[0]) >= self.lone.min_member
        if isinstance(node, Leaf):
            return len(self._active(node)) + len(self._pending(node)) >= node.min_member
        return sum(self.is_reachable(child) for child in node.children) >= node.needed

    def has_active(self, node: TreeNode | Leaf) -> bool:
        """True where a pod under ``node`` runs or will."""
        return bool(self._anchors(node))

    def _active(self, leaf: Leaf) -> list[int]:
        return self.state.active[self._position(leaf)]

    def _pending(self, leaf: Leaf) -> list[int]:
        return self.state.pending[self._position(leaf)]

    def _position(self, leaf: Leaf) -> int:
        return self.position[id(leaf)] if self.lone is None else 0

    def _anchors(self, node: TreeNode | Leaf) -> tuple[int, ...]:
        if isinstance(node, Leaf):
            return tuple(self._active(node))
        return tuple(pod for child in node.children for pod in self._anchors(child))

    def _part(self, node: TreeNode | Leaf, pods: tuple[int, ...], parts: tuple[Part, ...]) -> Part:
        return Part(node.name, node.topology, pods, parts, self._anchors(node))

    def _missing(self, node: TreeNode | Leaf) -> Part | None:
        """Pods that complete the minimum under ``node``; None where there are not enough."""
        if isinstance(node, Leaf):
            lacking = max(0, node.min_member - len(self._active(node)))
            pending = [] if node.name in self._avoided else self._pending(node)
            return None if lacking > len(pending) else self._part(node, tuple(pending[:lacking]), ())
        satisfied = sum(self.is_satisfied(child) for child in node.children)
        parts: list[Part] = []
        for child in sorted(node.children, key=self._rank):
            if satisfied >= node.needed:
                break
            if self.is_satisfied(child):
                continue
            part = self._missing(child)
            if part is not None:
                parts.append(part)
                satisfied += 1
        return None if satisfied < node.needed else self._part(node, (), tuple(parts))

    def _surplus(self, node: TreeNode | Leaf) -> Part | None:
        """One pod beyond the minimum, or the whole minimum of an optional subgroup."""
        if isinstance(node, Leaf):
            pending = [] if node.name in self._avoided else self._pending(node)
            return self._part(node, tuple(pending[:1]), ()) if pending else None
        for child in sorted(node.children, key=self._rank):
            part = self._surplus(child) if self.is_satisfied(child) else self._missing(child)
            if part is not None and any(True for _ in part.all_pods()):
                return self._part(node, (), (part,))
        return None

    def _rank(self, node: TreeNode | Leaf) -> tuple[int, int, float, str]:
        """The order in which subgroups and podsets are served."""
        return (*subgroup_rank(*self._progress(node)), node.name)

    def _progress(self, node: TreeNode | Leaf) -> tuple[int, int]:
        if isinstance(node, Leaf):
            return len(self._active(node)), node.min_member
        return sum(self.is_satisfied(child) and bool(self._anchors(child)) for child in node.children), node.needed


class GangUnits(Protocol):
    """What each gang asks for next."""

    def __getitem__(self, gang: int, /) -> AllocationUnits:
        """Of the gang of that index."""
        ...


class GangUnitsOf(dict[int, AllocationUnits]):
    """`GangUnits` of a working state. Each is made when it is first asked for: most gangs run, and ask for nothing."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state

    def __missing__(self, gang: int) -> AllocationUnits:
        problem = self._state.problem
        found = self[gang] = AllocationUnits(problem.gangs[gang], self._state.gangs[gang], problem.pod_shape)
        return found
