"""Random clusters over chains of cycles: few of them here; campaigns draw more (`tests.fuzz.chains`)."""

from collections.abc import Iterator

import pytest

from tests.fuzz.chains import chain, cluster_of, course_of
from tests.fuzz.plans import Planner


@pytest.fixture(scope="module")
def planner() -> Iterator[Planner]:
    with Planner(("greedy-only", "default", "deterministic"), budget_s=60.0) as planner:
        yield planner


SEEDS = [("greedy-only", seed) for seed in range(40)]
SEEDS += [(model, seed) for model in ("default", "deterministic") for seed in range(6)]


@pytest.mark.parametrize(("model", "seed"), SEEDS)
def test_a_cluster_without_news_settles(planner: Planner, model: str, seed: int) -> None:
    faults = chain(planner.decider(model), cluster_of(seed, "small"), course_of(seed))
    assert [str(fault) for fault in faults] == []
