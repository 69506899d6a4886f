"""How a pod gets its GPUs in the fleet: the node by bin-pack and the GPUs by a rule, or both at once.

Bin-pack: the node with the fewest free GPUs that has enough, the first of these. Rules about GPUs are remembered by the
mask of the free ones, so a node has no more GPUs here than there are masks to remember.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise, permutations

import numpy as np
from numpy.typing import NDArray

from kai_solver.errors import InputError
from kai_solver.links import LinkGraph, LinkTable, LinkTables, Survey, choose, gpus_of, mask_of
from kai_solver.planstate.linking import STEPS

MOST_GPUS = 8

Masks = NDArray[np.uint64]
Rule = Callable[["Picker", int, int], int]
"""Which GPUs of a mask, by their number."""
NodeRule = Callable[["Picker", Masks, int], int | None]
"""Which node for so many GPUs; None: nowhere is room."""


@dataclass(slots=True)
class Picker:
    """One policy on nodes of one product."""

    graph: LinkGraph
    rule: Rule
    node_rule: NodeRule
    tables: LinkTables = field(default_factory=LinkTables)
    _sets: dict[tuple[int, int], int] = field(default_factory=dict)
    _possible: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def table(self) -> LinkTable:
        """Worth of the product's sets."""
        return self.tables.tables[self.tables.add(self.graph)]

    def pick(self, free: Masks, size: int) -> tuple[int, int] | None:
        """Node and GPUs for a pod; ``free``: masks of the nodes' free GPUs. None: nowhere is room."""
        node = self.node_rule(self, free, size)
        if node is None:
            return None
        mask = int(free[node])
        if (mask, size) not in self._sets:
            self._sets[mask, size] = self.rule(self, mask, size)
        return node, self._sets[mask, size]

    def bandwidth(self, mask: int) -> int:
        """GB/s of the weakest link in the best ring of a set, or of its pair."""
        return self.possible(mask, mask.bit_count())

    def possible(self, free: int, size: int) -> int:
        """The best of it among the sets of ``size`` free GPUs."""
        if (free, size) not in self._possible:
            found = choose(self.table, free, size)
            self._possible[free, size] = found.bottleneck_gb_s if found else 0
        return self._possible[free, size]

    def best_of(self, size: int) -> int:
        """The best of it on an empty node."""
        return self.possible((1 << self.graph.gpus) - 1, size)

    def survey(self, free: Masks, size: int) -> Survey:
        """What so many GPUs would be on every node."""
        return self.tables.survey(np.full(len(free), self.tables.add(self.graph)), free, size)


def picker_of(graph: LinkGraph, policy: str) -> Picker:
    """The policy of that name."""
    return Picker(graph, *POLICIES[policy])


def check_policies(graph: LinkGraph, policies: Sequence[str]) -> None:
    """See that these policies can be run on nodes with this graph.

    Raises
    ------
    InputError
        One does not exist, or the nodes have too many GPUs.
    """
    for name in policies:
        if name not in POLICIES:
            raise InputError(f"{name!r} is not a policy", field="--policies", cure=f"Choose from {', '.join(POLICIES)}")
    if graph.gpus > MOST_GPUS:
        problem = f"{graph.name} has {graph.gpus} GPUs, more than {MOST_GPUS}"
        raise InputError(problem, field="--product", cure="Choose a product with fewer")


# -- nodes -------------------------------------------------------------------------------------------------------------


def _fullest(_picker: Picker, free: Masks, size: int) -> int | None:
    count = np.bitwise_count(free).astype(np.int64)
    node = int(np.where(count >= size, count, _TOO_FEW).argmin())
    return node if count[node] >= size else None


def _best_node(picker: Picker, free: Masks, size: int) -> int | None:
    return picker.tables.best(np.argsort(np.bitwise_count(free), kind="stable"), picker.survey(free, size))


def _as_in_a_cycle(picker: Picker, free: Masks, size: int) -> int | None:
    """The order of a cycle's greedy (`placement.fit`): in use, least bandwidth lost, fullest, most useful rest."""
    if size == 1:
        return _fullest(picker, free, size)
    found, count = picker.survey(free, size), np.bitwise_count(free).astype(np.int64)
    rest = np.maximum(found.loss, 0) * (STEPS - 1) // picker.table.most_leftover
    order = np.lexsort((rest, count, -found.share, count == picker.graph.gpus, found.grade < 0))
    return int(order[0]) if found.grade[order[0]] >= 0 else None


_TOO_FEW = 1 << 10

# -- rules -------------------------------------------------------------------------------------------------------------


def _lowest(_picker: Picker, free: int, size: int) -> int:
    return mask_of(gpus_of(free)[:size])


def _best_now(picker: Picker, free: int, size: int) -> int:
    """The fastest weakest link, then the largest sum over pairs; what is left does not count."""

    def worth(mask: int) -> tuple[int, int]:
        return picker.bandwidth(mask), _sum(picker.graph, mask)

    return max(_sets(free, size), key=worth)


def _mapa(picker: Picker, free: int, size: int) -> int:
    """After the Preserve policy of MAPA (Ranganath et al., SC'21), their fitted bandwidth left out.

    A pod of several GPUs takes the ring with the largest sum over its links, a pod of one GPU the one that leaves the
    largest sum over pairs. Each breaks the other's ties.
    """

    def worth(mask: int) -> tuple[int, int]:
        scores = _ring_sum(picker.graph, mask), _sum(picker.graph, free & ~mask)
        return scores if size > 1 else scores[::-1]

    return max(_sets(free, size), key=worth)


def _ours(picker: Picker, free: int, size: int) -> int:
    found = choose(picker.table, free, size)
    return mask_of(found.gpus) if found else 0


POLICIES: dict[str, tuple[Rule, NodeRule]] = {
    "lowest": (_lowest, _fullest),
    "best-now": (_best_now, _fullest),
    "mapa": (_mapa, _fullest),
    "devices": (_ours, _fullest),
    "joint": (_ours, _best_node),
    "cycle": (_ours, _as_in_a_cycle),
}
"""Rules about GPUs and about nodes."""


def _sets(free: int, size: int) -> list[int]:
    """All sets, the lowest GPUs first."""
    return [mask_of(gpus) for gpus in combinations(gpus_of(free), size)]


def _sum(graph: LinkGraph, mask: int) -> int:
    return sum(int(graph.gb_s[pair]) for pair in combinations(gpus_of(mask), 2))


def _ring_sum(graph: LinkGraph, mask: int) -> int:
    first, *rest = gpus_of(mask)
    if len(rest) < 2:
        return _sum(graph, mask)
    rings = ((first, *order, first) for order in permutations(rest))
    return max(sum(int(graph.gb_s[turn]) for turn in pairwise(ring)) for ring in rings)
