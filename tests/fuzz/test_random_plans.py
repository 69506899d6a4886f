"""Random clusters with all features: few of them here, with every model; campaigns draw more (`tests.fuzz.plans`)."""

from typing import Any

import pytest

from kai_solver.domain import PodStatus
from kai_solver.instances_io.native import load_native
from tests.fuzz.clusters import cluster
from tests.fuzz.draws import FEATURES
from tests.fuzz.plans import Planner, shrunk


def test_the_same_seed_is_the_same_cluster() -> None:
    assert cluster(7, "small") == cluster(7, "small") != cluster(8, "small")


@pytest.mark.slow
def test_clusters_have_up_to_300_nodes() -> None:
    sizes = [len(cluster(seed, "mixed")["nodes"]) for seed in range(200)]
    assert min(sizes) <= 2
    assert max(sizes) > 200


def test_features_show_in_clusters() -> None:
    """Each feature changes some cluster; so none of them is a name only."""
    every = frozenset(FEATURES)
    identical = {
        name
        for name in every
        if all(cluster(seed, "small", every) == cluster(seed, "small", every - {name}) for seed in range(40))
    }
    assert identical == set()


def test_pods_run_in_these_clusters() -> None:
    pods = [
        pod for seed in range(60) for gang in load_native(cluster(seed, "small")).snapshot.gangs for pod in gang.pods
    ]
    assert sum(pod.status is PodStatus.RUNNING for pod in pods) > len(pods) / 10


@pytest.fixture(scope="module")
def planner() -> Any:
    with Planner(("greedy-only", "deterministic")) as planner:
        yield planner


@pytest.mark.parametrize("seed", range(30))
def test_no_plan_is_refused_and_the_solver_admits_no_fewer(planner: Planner, seed: int) -> None:
    assert planner.offences(cluster(seed, "small")) == []


def test_an_offender_is_made_small() -> None:
    found = shrunk(cluster(3, "small"), lambda document: any(g["name"] == "g1" for g in document["gangs"]))
    assert [gang["name"] for gang in found["gangs"]] == ["g1"]
    assert found["nodes"] == []


def test_what_is_wrong_is_told(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("r must be non-negative")

    monkeypatch.setattr(planner.engines["greedy-only"], "cycle", broken)
    offences = planner.offences(cluster(0, "small"))
    assert [(o.model, o.kind) for o in offences] == [("greedy-only", "ValueError in test_random_plans.broken")]
