"""The aggregated master alone, on clusters small enough for an exhaustive search: what it refutes is impossible.

Every question goes to the master and none to the model with nodes: a "no" that is no bound's is the master's.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given

from kai_solver.domain import Action, Snapshot
from kai_solver.engine import Engine
from kai_solver.modelfiles import load_model
from kai_solver.search import oracle
from tests.engine.test_proofs import check_beside_admitted, check_lone_gang, small_clusters
from tests.support.clusters import some

CORES = (1, 4, 4, 8)


def _master_alone() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle, "FOLD_FROM", -1)
        yield patch


@pytest.fixture(scope="module", params=[0, 400], ids=["merged", "exact"])
def master(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine that asks only the master; sites of nodes alike, or of nodes that differ in what is free."""
    model = load_model("deterministic")
    model = replace(model, search=replace(model.search, max_variables=-1))
    for patch in _master_alone():
        patch.setattr(oracle, "MOST_PLACES", request.param)
        with Engine(model) as engine:
            yield engine


@pytest.fixture(scope="module")
def gentle() -> Iterator[Engine]:
    """As ``master``, and nobody may be evicted."""
    model = load_model("deterministic")
    search = replace(model.search, max_variables=-1)
    for _ in _master_alone():
        with Engine(replace(model, search=search, actions=(Action.ALLOCATE, Action.CONSOLIDATION))) as engine:
            yield engine


@given(cluster=small_clusters(cores=CORES))
@some(60, campaign=1500)
def test_the_master_refutes_no_lone_gang_that_could_run(master: Engine, cluster: Snapshot) -> None:
    check_lone_gang(master, cluster)


@given(cluster=small_clusters(most_waiting=4, cores=CORES))
@some(40, campaign=500)
def test_the_master_refutes_no_gang_that_could_run_beside_those_admitted(gentle: Engine, cluster: Snapshot) -> None:
    check_beside_admitted(gentle, cluster)
