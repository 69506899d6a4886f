"""What the figures and verdicts of studies say, by examples that are worked out by hand."""

import pytest

from kai_solver.lab.reports.comparing import (
    VIRTUAL_BEST,
    cactus,
    compare_with_first,
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


def _shifted(by: list[float]) -> dict[str, dict[tuple[str, int], float | None]]:
    base: dict[tuple[str, int], float | None] = {(f"i{n}", 1): float(n) for n in range(len(by))}
    return {"a": base, "b": {(f"i{n}", 1): n + shift for n, shift in enumerate(by)}}


def test_eight_wins_of_eight_are_a_difference() -> None:
    [verdict] = compare_with_first(_shifted([1, 2, 3, 4, 5, 6, 7, 8]))
    # All eight differences have one sign: two-sided exact p = 2 / 2^8.
    assert verdict.p == pytest.approx(2 / 256)
    assert (verdict.better, verdict.first_wins, verdict.second_wins) == ("a", 8, 0)


def test_wins_on_both_sides_are_no_difference() -> None:
    [verdict] = compare_with_first(_shifted([1, -2, 3, -4, 5, -6, 7, -8]))
    assert verdict.p is not None
    assert verdict.p > 0.5
    assert verdict.better is None


def test_too_few_instances_give_no_test() -> None:
    [verdict] = compare_with_first(_shifted([1, 2, 3, 4, 5, 0, 0]))
    assert (verdict.p, verdict.instances, verdict.better) == (None, 7, None)


def test_seeds_are_no_more_instances() -> None:
    costs: dict[str, dict[tuple[str, int], float | None]] = {
        "a": {("i", seed): 1.0 for seed in range(20)},
        "b": {("i", seed): 2.0 for seed in range(20)},
    }
    [verdict] = compare_with_first(costs)
    assert (verdict.instances, verdict.p, verdict.second_mean) == (1, None, 2.0)


def test_several_verdicts_are_corrected() -> None:
    two = _shifted([1, 2, 3, 4, 5, 6, 7, 8])
    three = two | {"c": two["b"]}
    assert [verdict.p for verdict in compare_with_first(three)] == [pytest.approx(4 / 256), pytest.approx(4 / 256)]
