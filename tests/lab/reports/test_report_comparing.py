"""What the figures of studies say, by examples that are worked out by hand."""

from kai_solver.lab.reports.comparing import (
    VIRTUAL_BEST,
    cactus,
    cumulative,
    in_common,
    paired,
    performance_profile,
)

COSTS: dict[str, dict[tuple[str, int], float | None]] = {
    "a": {("i", 1): 1.0, ("j", 1): 4.0, ("k", 1): None, ("l", 1): 0.0},
    "b": {("i", 1): 2.0, ("j", 1): 1.0, ("k", 1): 3.0, ("l", 1): 0.0, ("m", 1): 9.0},
}


def test_only_what_all_were_asked_counts() -> None:
    assert [instance for instance, _ in in_common(COSTS)] == ["i", "j", "k", "l"]


def test_profile() -> None:
    # Ratios of a: i 1, j 4, k none, l 1 (both below the floor). Of b: i 2, j 1, k 1, l 1.
    assert performance_profile(COSTS, 0.5) == {"a": ([1.0, 4.0], [0.5, 0.75]), "b": ([1.0, 2.0], [0.75, 1.0])}


def test_cumulative() -> None:
    assert cumulative(COSTS)["a"] == ([0.0, 1.0, 4.0], [0.25, 0.5, 0.75])


def test_cactus_has_the_virtual_best() -> None:
    lines = cactus(COSTS)
    assert lines["a"] == ([1.0, 2.0, 3.0], [0.0, 1.0, 4.0])
    assert lines[VIRTUAL_BEST] == ([1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 1.0, 3.0])


def test_one_model_has_no_virtual_best() -> None:
    assert list(cactus({"a": COSTS["a"]})) == ["a"]


def test_pairs_have_both_costs() -> None:
    assert paired(COSTS, "a", "b") == [(("i", 1), 1.0, 2.0), (("j", 1), 4.0, 1.0), (("l", 1), 0.0, 0.0)]
