"""Questions asked with alike nodes folded first: a "no" of theirs is a proof, tested against a search of everything."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from kai_solver.domain import Action, Snapshot
from kai_solver.engine import Engine
from kai_solver.model.spec import ModelSpec, SpecAnswer
from kai_solver.modelfiles import load_model
from kai_solver.search import oracle
from kai_solver.search.parameters import SolverParameters
from tests.engine.test_proofs import check_beside_admitted, check_lone_gang, small_clusters
from tests.search.test_oracle_and_refine import INFEASIBLE, TIGHT, Scripted, proof, run_actions
from tests.support.clusters import some


@pytest.fixture(scope="module")
def every_question() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle, "FOLDED_FROM", 0)
        yield patch


@pytest.fixture(scope="module")
def folding(every_question: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine that folds every question, however small."""
    with Engine(load_model("deterministic")) as engine:
        yield engine


@pytest.fixture(scope="module")
def gentle(every_question: pytest.MonkeyPatch) -> Iterator[Engine]:
    """As ``folding``, and nobody may be evicted."""
    model = replace(load_model("deterministic"), actions=(Action.ALLOCATE, Action.CONSOLIDATION))
    with Engine(model) as engine:
        yield engine


@pytest.mark.slow
@given(cluster=small_clusters())
@some(40)
def test_no_lone_gang_is_refuted_that_could_run(folding: Engine, cluster: Snapshot) -> None:
    check_lone_gang(folding, cluster)


@pytest.mark.slow
@given(cluster=small_clusters(most_waiting=4))
@some(30)
def test_no_gang_is_refuted_that_could_run_beside_those_admitted(gentle: Engine, cluster: Snapshot) -> None:
    check_beside_admitted(gentle, cluster)


class Sized(Scripted):
    """Notes how large the models are that it is asked about."""

    def __init__(self, answer: SpecAnswer) -> None:
        super().__init__(answer)
        self.sizes: list[int] = []

    def solve(self, spec: ModelSpec, parameters: SolverParameters, deadline_s: float, **heard: Any) -> SpecAnswer:
        self.sizes.append(spec.size[0])
        return super().solve(spec, parameters, deadline_s, **heard)


SILENT = SpecAnswer("unknown")


@pytest.mark.parametrize(
    ("folded", "answer", "sizes", "state"),
    [
        ((0, 2_000), INFEASIBLE, [4], "proven"),
        ((0, 2_000), SILENT, [4, 10], "unknown"),
        ((11, 2_000), INFEASIBLE, [10], "proven"),
        ((0, 10), INFEASIBLE, [10], "proven"),
    ],
    ids=["refuted", "no answer", "too small", "too large"],
)
def test_the_whole_is_asked_only_where_the_folded_question_was_not_refuted(
    monkeypatch: pytest.MonkeyPatch, folded: tuple[int, int], answer: SpecAnswer, sizes: list[int], state: str
) -> None:
    """Pods of three sizes on three nodes that are alike."""
    monkeypatch.setattr(oracle, "FOLDED_FROM", folded[0])
    monkeypatch.setattr(oracle, "FOLD_FROM", folded[1])
    solver = Sized(answer)
    outcome, _ = run_actions(TIGHT, solver)
    assert (solver.sizes, proof(outcome)[0]) == (sizes, state)
