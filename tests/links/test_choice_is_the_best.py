"""Chosen sets against all sets: every product and free mask of up to 8 GPUs, and random masks of 16 and 32."""

from itertools import combinations
from itertools import product as every

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.links import LinkGraph, LinkTable, LinkTables, choose, gpus_of, mask_of, products
from tests.links.brute import Brute, Worth, weakest_of_all_sets, weights
from tests.links.graphs import irregular, nested, nvlinks, off_the_fabric, product, without_link

SMALL = [name for name, known in products().items() if known.graph.gpus <= 8]
CUBE = product("dgx1-v100-8")


def assert_best_for_every_mask(graph: LinkGraph) -> None:
    """Of every free mask and every count, with what `LinkTables.survey` says of it."""
    table, brute, tables = LinkTable.of(graph), Brute(graph.grade), LinkTables()
    kind = tables.add(graph)
    masks = np.arange(1 << graph.gpus, dtype=np.uint64)
    for count in range(1, graph.gpus + 1):
        survey = tables.survey(np.full(len(masks), kind), masks, count)
        for mask in range(1 << graph.gpus):
            free = frozenset(gpus_of(mask))
            wanted, chosen = brute.best(free, count), choose(table, mask, count)
            if wanted is None:
                assert chosen is None
                assert survey.grade[mask] == -1
                continue
            assert chosen is not None
            assert set(chosen.gpus) <= free
            assert len(chosen.gpus) == count
            assert brute.worth(free, frozenset(chosen.gpus)) == wanted
            assert (survey.grade[mask], survey.leftover[mask]) == wanted[:2]
            assert survey.loss[mask] == brute.left[free] - wanted[1]


@pytest.mark.parametrize("name", SMALL)
def test_every_product_every_mask_every_count(name: str) -> None:
    assert_best_for_every_mask(product(name))


@pytest.mark.slow
@pytest.mark.parametrize("pair", nvlinks(CUBE), ids=str)
def test_a_cube_mesh_with_a_failed_link(pair: tuple[int, int]) -> None:
    assert_best_for_every_mask(without_link(CUBE, *pair))


@pytest.mark.parametrize(
    "name", ["hgx-h100-8", "hgx-a100-4", "a100-pcie-nvlink-pairs-4", "hgx-b200-8-gpu2-lost-nvlink"]
)
def test_a_failed_link_elsewhere(name: str) -> None:
    assert_best_for_every_mask(without_link(product(name), 0, 1))


def test_a_gpu_off_the_fabric() -> None:
    assert_best_for_every_mask(off_the_fabric(CUBE, 5))


@pytest.mark.slow
@given(st.integers(2, 6).flatmap(lambda gpus: st.tuples(st.just(gpus), st.lists(st.integers(0, 9), min_size=15))))
def test_any_graph(drawn: tuple[int, list[int]]) -> None:
    """Grades that nobody has seen: 0 to 2 NVLinks or one of five paths for every pair."""
    gpus, values = drawn
    links, path = np.zeros((2, gpus, gpus), dtype=np.int32)
    for (one, other), value in zip(combinations(range(gpus), 2), values, strict=False):
        links[one, other] = links[other, one] = max(value - 4, 0) % 3
        path[one, other] = path[other, one] = min(value, 4)
    assert_best_for_every_mask(LinkGraph("drawn", links, path))


# -- 16 GPUs -----------------------------------------------------------------------------------------------------------


class AllSets:
    """Worth of all sets of 16 GPUs, by mask: rings by thresholds, leftovers by going through subsets."""

    def __init__(self, graph: LinkGraph) -> None:
        gpus = graph.gpus
        self.masks = np.arange(1 << gpus)
        self.size = np.bitwise_count(self.masks)
        self.weakest = weakest_of_all_sets(graph.grade)
        has = (self.masks[:, None] >> np.arange(gpus) & 1).astype(np.int64)
        self.sums = np.einsum("mi,ij,mj->m", has, graph.grade.astype(np.int64), has, optimize=True) // 2
        self.left = np.zeros(1 << gpus, dtype=np.int64)
        for size, weight in weights(gpus).items():
            best = np.where(self.size == size, self.weakest, -1)
            for gpu in range(gpus):
                with_it = self.masks[self.masks >> gpu & 1 == 1]
                best[with_it] = np.maximum(best[with_it], best[with_it ^ 1 << gpu])
            self.left += weight * np.where(best < 0, 0, 1000 * best // best[-1])

    def worth(self, free: int, chosen: int) -> Worth:
        return int(self.weakest[chosen]), int(self.left[free & ~chosen]), int(self.sums[chosen])

    def best(self, free: int, count: int) -> Worth:
        sets = self.masks[(self.masks & ~free == 0) & (self.size == count)]
        order = np.lexsort((self.sums[sets], self.left[free & ~sets], self.weakest[sets]))
        return self.worth(free, int(sets[order[-1]]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "graph",
    [
        product("dgx2-v100-16"),
        without_link(product("dgx2-v100-16"), 3, 9),
        off_the_fabric(product("dgx2-v100-16"), 4),
        nested(16, {2: "PIX", 4: "PHB", 8: "NODE"}),
        nested(16, {8: "NODE"}, nvlink_block=2),
        irregular(16, seed=7),
    ],
    ids=["switch", "a-failed-link", "off-the-fabric", "pcie", "pairs", "irregular"],
)
def test_1000_random_masks_of_16_gpus(graph: LinkGraph) -> None:
    table, sets = LinkTable.of(graph), AllSets(graph)
    random = np.random.default_rng(16)
    for free in random.integers(1, 1 << 16, 1000).tolist():
        count = int(random.integers(1, free.bit_count() + 1))
        chosen = choose(table, free, count)
        assert chosen is not None
        taken = mask_of(chosen.gpus)
        assert (taken & ~free, taken.bit_count()) == (0, count)
        assert sets.worth(free, taken) == sets.best(free, count)


# -- 32 GPUs -----------------------------------------------------------------------------------------------------------


class Blocks:
    """Worth of sets of 32 GPUs in blocks within blocks, by the GPUs that they have of each smallest block.

    GPUs of one smallest block are interchangeable: exchanging two of them leaves every grade as it is. So of all sets
    with the same counts one need be looked at. Where grades only depend on the smallest block that holds both, and grow
    with smaller blocks, the weakest link of the best ring is the lowest grade of the set: every ring leaves each part
    of the block that just holds the set, by links of that grade; one through the blocks in order has no lower.
    """

    def __init__(self, graph: LinkGraph, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes  # of blocks, ascending; the last is the node
        self.grades = [int(graph.grade[0, size // 2]) for size in sizes]
        self.smallest = sizes[0]
        self._left: dict[tuple[int, ...], int] = {}

    def counts(self, mask: int) -> tuple[int, ...]:
        wide = (1 << self.smallest) - 1
        return tuple((mask >> at & wide).bit_count() for at in range(0, self.sizes[-1], self.smallest))

    def best(self, counts: tuple[int, ...], count: int) -> int:
        """Best weakest link of ``count`` of these; -1 where they are fewer."""
        for size, grade in zip(self.sizes, self.grades, strict=True):
            wide = size // self.smallest
            if max(sum(counts[at : at + wide]) for at in range(0, len(counts), wide)) >= count:
                return grade if count > 1 else 0
        return -1

    def left(self, counts: tuple[int, ...]) -> int:
        if counts not in self._left:
            self._left[counts] = self._leftover(counts)
        return self._left[counts]

    def _leftover(self, counts: tuple[int, ...]) -> int:
        total = 0
        for size, weight in weights(self.sizes[-1]).items():
            best, most = self.best(counts, size), self.best(self.counts((1 << self.sizes[-1]) - 1), size)
            total += weight * (1000 * best // most) if best >= 0 else 0
        return total

    def sum(self, counts: tuple[int, ...]) -> int:
        total, pairs_within = 0, 0
        for size, grade in zip(self.sizes, self.grades, strict=True):
            wide = size // self.smallest
            inside = [sum(counts[at : at + wide]) for at in range(0, len(counts), wide)]
            pairs = sum(n * (n - 1) // 2 for n in inside)
            total, pairs_within = total + grade * (pairs - pairs_within), pairs
        return total

    def worth(self, free: tuple[int, ...], chosen: tuple[int, ...]) -> Worth:
        rest = tuple(a - b for a, b in zip(free, chosen, strict=True))
        return self.best(chosen, sum(chosen)), self.left(rest), self.sum(chosen)

    def all_best(self, free: tuple[int, ...], count: int) -> Worth:
        vectors = [found for found in every(*(range(n + 1) for n in free)) if sum(found) == count]
        grade = max(self.best(found, count) for found in vectors)
        return max(self.worth(free, found) for found in vectors if self.best(found, count) == grade)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "sizes"),
    [
        (nested(32, {}, nvlink_block=32), (32,)),
        (nested(32, {16: "NODE"}, nvlink_block=8), (8, 16, 32)),
        (nested(32, {8: "PIX", 16: "NODE"}), (8, 16, 32)),
    ],
    ids=["one-switch", "four-switches", "pcie"],
)
def test_1000_random_masks_of_32_gpus(graph: LinkGraph, sizes: tuple[int, ...]) -> None:
    table, blocks = LinkTable.of(graph), Blocks(graph, sizes)
    assert not table.graph.notices
    random = np.random.default_rng(32)
    for free in random.integers(1, 1 << 32, 1000).tolist():
        count = int(random.choice([1, 2, 3, 4, 8, 12]))
        chosen = choose(table, free, count)
        if free.bit_count() < count:
            assert chosen is None
            continue
        assert chosen is not None
        taken = mask_of(chosen.gpus)
        assert (taken & ~free, taken.bit_count()) == (0, count)
        counts = blocks.counts(free)
        assert blocks.worth(counts, blocks.counts(taken)) == blocks.all_best(counts, count)


@pytest.mark.parametrize(("gpus", "sizes", "link"), [(8, (4, 8), 4), (6, (2, 6), 2)])
def test_the_argument_for_blocks_holds_where_all_sets_can_be_looked_at(
    gpus: int, sizes: tuple[int, ...], link: int
) -> None:
    graph = nested(gpus, {}, nvlink_block=link)
    brute, blocks = Brute(graph.grade), Blocks(graph, sizes)
    for mask in range(1, 1 << gpus):
        found = frozenset(gpus_of(mask))
        counts = blocks.counts(mask)
        assert (blocks.best(counts, len(found)), blocks.sum(counts)) == (brute.weakest[found], brute.sums[found])
        assert blocks.left(counts) == brute.left[found]
