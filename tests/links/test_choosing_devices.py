"""What is chosen, and why: the rest of the node, rings, rows, shapes beyond counting, nodes compared."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kai_solver.errors import InputError
from kai_solver.links import (
    LinkGraph,
    LinkTable,
    LinkTables,
    RowWish,
    alternatives,
    choose,
    gpus_of,
    largest_free_row,
    mask_of,
    masks_of,
    row_masks,
    unknown_graph,
)
from kai_solver.links.classes import MOST_STATES
from tests.links.graphs import irregular, nested, product

CUBE = LinkTable.of(product("dgx1-v100-8"))
LOST = LinkTable.of(product("hgx-b200-8-gpu2-lost-nvlink"))
SOCKETS = LinkTable.of(product("pcie-two-socket-8"))


def chosen(table: LinkTable, free: list[int], count: int) -> tuple[int, ...]:
    found = choose(table, mask_of(free), count)
    assert found is not None
    return found.gpus


def test_two_pods_of_four_both_get_a_good_half_of_a_cube_mesh() -> None:
    for first in alternatives(CUBE, 255, 4, 99):
        if first.bottleneck_gb_s == 25 and first.leftover == alternatives(CUBE, 255, 4, 1)[0].leftover:
            second = choose(CUBE, 255 & ~mask_of(first.gpus), 4)
            assert second is not None
            assert second.bottleneck_gb_s == 25


def test_four_pods_of_two_all_get_a_double_link_of_a_cube_mesh() -> None:
    free, widths = 255, []
    for _ in range(4):
        pair = choose(CUBE, free, 2)
        assert pair is not None
        widths.append(pair.bottleneck_gb_s)
        free &= ~mask_of(pair.gpus)
    assert widths == [50, 50, 50, 50]


def test_the_rest_decides_between_equals() -> None:
    """Of GPUs 0 to 4 a single pod takes 4, so that the quad stays whole."""
    assert chosen(CUBE, [0, 1, 2, 3, 4], 1) == (4,)


def test_a_single_pod_takes_the_gpu_that_is_off_the_fabric() -> None:
    assert chosen(LOST, list(range(8)), 1) == (2,)
    assert 2 not in chosen(LOST, list(range(8)), 7)


def test_pcie_switches_and_sockets_count_where_bandwidths_are_equal() -> None:
    assert chosen(SOCKETS, [0, 2, 3, 4], 2) == (2, 3)
    assert chosen(SOCKETS, [0, 1, 2, 4, 5, 6, 7], 4) == (4, 5, 6, 7)
    assert chosen(SOCKETS, [0, 1, 2], 1) == (2,)


def test_the_ring_is_as_wide_as_it_says() -> None:
    for table in (CUBE, LOST, SOCKETS, LinkTable.of(irregular(12, seed=3))):
        for mask in range(1, 256, 7):
            for found in alternatives(table, mask, mask.bit_count(), 1):
                assert sorted(found.ring) == list(found.gpus)
                links = [int(table.graph.gb_s[turn]) for turn in pairwise((*found.ring, found.ring[0]))]
                assert found.bottleneck_gb_s == (min(links) if len(found.gpus) > 1 else 0)


def test_a_ring_of_a_cube_mesh() -> None:
    found = choose(CUBE, mask_of([0, 1, 2, 3]), 4)
    assert found is not None
    assert (found.bottleneck_gb_s, found.weakest, found.sum_gb_s) == (25, "NV1", 225)


def test_alternatives_are_the_best_first_and_no_two_alike() -> None:
    found = alternatives(CUBE, 255, 4, 1000)
    assert len({each.gpus for each in found}) == len(found) == 70
    widths = [each.bottleneck_gb_s for each in found]
    assert widths == sorted(widths, reverse=True)
    assert len(alternatives(LinkTable.of(product("hgx-h100-8")), 255, 4, 1000)) == 1


def test_links_that_are_not_known_make_no_difference() -> None:
    found = choose(LinkTable.of(unknown_graph(8)), 0b10110100, 3)
    assert found is not None
    assert (found.gpus, found.bottleneck_gb_s, found.weakest) == ((2, 4, 5), 0, "?")


@pytest.mark.parametrize(("free", "count"), [(0, 1), (0b1011, 4), (255, 9), (255, 0), (255, -1)])
def test_what_is_not_there_is_not_chosen(free: int, count: int) -> None:
    assert choose(CUBE, free, count) is None


def test_a_node_of_one_gpu() -> None:
    found = choose(LinkTable.of(unknown_graph(1)), 1, 1)
    assert found is not None
    assert found.gpus == found.ring == (0,)


# -- rows --------------------------------------------------------------------------------------------------------------

WIDE = LinkTable.of(nested(32, {16: "NODE"}, nvlink_block=8))
NO_ROW_OF_8 = mask_of(gpu for gpu in range(32) if gpu % 8 < 5)
"""32 GPUs with 20 free, no 8 of them in a row."""


@pytest.mark.parametrize("row", ["contiguous", "aligned"])
def test_32_gpus_with_20_free_and_no_8_in_a_row(row: str) -> None:
    assert NO_ROW_OF_8.bit_count() == 20
    assert choose(WIDE, NO_ROW_OF_8, 8, RowWish(row, is_required=True)) is None
    preferred = choose(WIDE, NO_ROW_OF_8, 8, RowWish(row, is_required=False))
    assert preferred == choose(WIDE, NO_ROW_OF_8, 8)
    assert preferred is not None
    assert largest_free_row(np.array([NO_ROW_OF_8], dtype=np.uint64)).tolist() == [5]


def test_a_row_is_contiguous_and_an_aligned_one_begins_at_a_multiple() -> None:
    free = mask_of([1, 2, 3, 4, 5, 6, 7, 9])
    rows = {row: choose(WIDE, free, 4, RowWish(row, is_required=True)) for row in ("contiguous", "aligned")}
    assert rows["aligned"] is not None
    assert rows["aligned"].gpus == (4, 5, 6, 7)
    assert rows["contiguous"] is not None
    assert rows["contiguous"].gpus in [(1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6), (4, 5, 6, 7)]


def test_the_best_row_is_taken_not_the_first() -> None:
    found = choose(CUBE, mask_of([2, 3, 4, 5]), 2, RowWish("contiguous", is_required=True))
    assert found is not None
    assert (found.gpus, found.bottleneck_gb_s) == ((2, 3), 50)
    over = choose(CUBE, mask_of([3, 4, 6, 7]), 2, RowWish("contiguous", is_required=True))
    assert over is not None
    assert over.gpus == (6, 7)


def test_rows_are_those_that_can_be_seen() -> None:
    assert [gpus_of(mask) for mask in row_masks(8, 3, "aligned")] == [(0, 1, 2), (3, 4, 5)]
    assert len(row_masks(8, 3, "contiguous")) == 6


def test_the_largest_row_of_every_mask() -> None:
    masks = np.arange(256, dtype=np.uint64)
    wanted = [max(map(len, f"{mask:08b}".split("0"))) for mask in range(256)]
    assert largest_free_row(masks).tolist() == wanted
    assert largest_free_row(np.array([2**64 - 1], dtype=np.uint64)).tolist() == [64]


def test_wishes_are_words() -> None:
    assert RowWish.parse(" Aligned-Required ") == RowWish("aligned", is_required=True)
    with pytest.raises(InputError, match="contiguous-required"):
        RowWish.parse("in a row", "kai-solver/gpu-row")


# -- shapes beyond counting --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_too_irregular_is_made_coarser_and_says_so() -> None:
    pairs = LinkTable.of(nested(32, {2: "PIX", 4: "PHB", 8: "NODE"}))
    assert pairs.graph.notices == (
        "links are too irregular for this many GPUs: paths nearer than PHB are taken as PHB",
    )
    assert pairs.classes.states <= MOST_STATES
    found = choose(pairs, mask_of(range(3, 32)), 8)
    assert found is not None
    assert found.gpus == tuple(range(8, 16))
    drawn = LinkTable.of(irregular(40, seed=1))
    assert "all pairs are taken as equal" in drawn.graph.notices[0]
    assert choose(drawn, (1 << 40) - 1, 5) is not None


# -- nodes compared ----------------------------------------------------------------------------------------------------


def test_nodes_of_several_kinds_are_compared() -> None:
    tables = LinkTables()
    cube, h100 = tables.add(product("dgx1-v100-8")), tables.add(product("hgx-h100-8"))
    assert tables.add(product("hgx-h200-8")) == h100
    kinds = np.array([cube, h100, cube, -1, cube])
    free = np.array([0b11, 0b1000_0001, 0b1001, 255, 0b1], dtype=np.uint64)
    survey = tables.survey(kinds, free, 2)
    assert survey.gb_s.tolist() == [25, 450, 50, -1, -1]
    assert tables.best(np.array([0, 1, 2, 3, 4]), survey) == 1
    assert tables.best(np.array([0, 2, 4]), survey) == 2
    assert tables.best(np.array([3, 4]), survey) is None


def test_kinds_that_two_threads_ask_for_at_a_time_have_tables_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table may take a second to make; meanwhile another thread asks for another graph, and for the same."""
    tables, cube, h100, make = LinkTables(), product("dgx1-v100-8"), product("hgx-h100-8"), LinkTable.of
    asked = [cube, h100]

    def slow(graph: LinkGraph, *more: Any) -> LinkTable:
        while asked:
            tables.add(asked.pop())
        return make(graph, *more)

    monkeypatch.setattr(LinkTable, "of", slow)
    kinds = [tables.add(cube), tables.add(h100)]
    assert sorted(kinds) == [0, 1]
    assert [tables.tables[kind].graph.key for kind in kinds] == [cube.key, h100.key]
    assert len(tables.tables) == 2


def test_of_equal_bandwidth_the_node_that_loses_least_comes_first() -> None:
    """A pair of NVLinks from a broken mesh costs less than one that breaks a quad; then the given order decides."""
    tables = LinkTables()
    kind = tables.add(product("dgx1-v100-8"))
    quad, broken = mask_of([0, 1, 2, 3]), mask_of([0, 3, 5, 6])
    free = np.array([quad, broken, broken], dtype=np.uint64)
    survey = tables.survey(np.full(3, kind), free, 2)
    assert survey.gb_s.tolist() == [50, 50, 50]
    assert survey.loss[0] > survey.loss[1] == survey.loss[2]
    assert tables.best(np.array([0, 2, 1]), survey) == 2


def test_one_node_alone_is_told_what_a_survey_says() -> None:
    tables, masks = LinkTables(), np.arange(256, dtype=np.uint64)
    kind = tables.add(CUBE.graph)
    for count in range(1, 9):
        survey = tables.survey(np.full(256, kind), masks, count)
        told = [tables.prospect(kind, mask, count) for mask in range(256)]
        assert told == list(zip(survey.share.tolist(), survey.loss.tolist(), strict=True))
        assert told == [tables.prospect(kind, mask, count) for mask in range(256)]


def test_weights_of_sizes_can_be_given() -> None:
    """Who expects no pairs breaks one."""
    graph = product("a100-pcie-nvlink-pairs-4")
    assert chosen(LinkTable.of(graph), [0, 1, 2], 1) == (2,)
    assert chosen(LinkTable.of(graph, {2: 1}), [0, 1, 2], 1) == (2,)
    assert chosen(LinkTable.of(graph, {}), [0, 1, 2], 1) == (0,)


@pytest.mark.parametrize("row", ["contiguous", "aligned"])
@pytest.mark.parametrize("is_required", [True, False])
def test_a_survey_of_rows_says_what_is_picked_and_chosen(row: str, is_required: bool) -> None:
    tables, wish, masks = LinkTables(), RowWish(row, is_required), np.arange(256, dtype=np.uint64)
    kind = tables.add(CUBE.graph)
    for count in (1, 2, 3, 4):
        survey = tables.survey(np.full(256, kind), masks, count, wish)
        for free in range(256):
            found, picked = tables.choose(kind, free, count, wish), tables.pick(kind, free, count, wish)
            assert (found is None) == (picked is None) == (survey.grade[free] < 0)
            if found is not None:
                assert mask_of(found.gpus) == picked
                assert survey.gb_s[free] == found.bottleneck_gb_s
                assert survey.leftover[free] / CUBE.most_leftover == found.leftover


def test_masks_of_free_gpus() -> None:
    free = np.array([[True, False, True], [False, False, False]])
    assert masks_of(free).tolist() == [0b101, 0]
    assert masks_of(np.ones((1, 64), dtype=np.bool_)).tolist() == [2**64 - 1]
