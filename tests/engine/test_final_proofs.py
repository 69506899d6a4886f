"""Proofs asked of the final state, beside all that the plan admits: against an exhaustive search there is no false one.

Every question is asked of the end, also those that an action answered in its turn, so that many are.
"""

from collections import Counter
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import given

from kai_solver.domain import Action, Gang, Snapshot
from kai_solver.engine import Engine
from kai_solver.engine.cycle import _Run
from kai_solver.planstate.outcome import Outcome
from kai_solver.reasons.refusals import BUDGET_ENDED
from kai_solver.search.child import SolverChild
from kai_solver.search.proving import FinalProofs
from tests.engine.conftest import Engines
from tests.engine.test_proofs import RUNGS, Rules, small_clusters
from tests.support.clusters import some


def outcomes(engine: Engine, cluster: Snapshot) -> Iterator[Outcome]:
    """What the engine decided for ``cluster``, before proofs are asked of it."""
    found: list[Outcome] = []

    def note(_: _Run, outcome: Outcome, __: SolverChild | None) -> None:
        found.append(outcome)

    with patch.object(_Run, "_prove", note):
        engine.cycle(cluster)
    yield from found[:1]


def refuted(outcome: Outcome) -> list[tuple[int, Action]]:
    """Gangs and actions that are proven to do nothing for them in the final state."""
    waiting = outcome.waiting
    outcome.refusals = {gang: dict.fromkeys(RUNGS, BUDGET_ENDED) for gang in waiting}
    FinalProofs(outcome, RUNGS).run(lambda: False)
    return [
        (gang, action)
        for gang in waiting
        for action, refusal in outcome.refusals[gang].items()
        if refusal.proof.state == "proven"
    ]


def rules_of(cluster: Snapshot, outcome: Outcome, gang: int) -> Rules:
    """The rules for one gang in the final state."""
    state, gangs, owner = outcome.state, outcome.state.problem.gangs, outcome.state.problem.pod_gang
    left: Counter[int] = Counter(owner[pod] for pod in state.gone if pod not in state.places)
    moved = {owner[pod] for pod in state.gone if pod in state.places}
    by_key: dict[str, Gang] = {g.key: g for g in cluster.gangs}

    def named(indices: set[int] | frozenset[int]) -> list[Gang]:
        return [by_key[gangs[index].gang.key] for index in sorted(indices)]

    return Rules(
        cluster,
        by_key[gangs[gang].gang.key],
        named(outcome.has_admitted()),
        named(set(left)),
        named(moved - set(left)),
    )


@pytest.mark.parametrize("model", ["default", "deterministic"])
@given(cluster=small_clusters(most_waiting=4))
@some(60, campaign=2000)
def test_no_false_proof_of_the_final_state(engines: Engines, model: str, cluster: Snapshot) -> None:
    for outcome in outcomes(engines[model], cluster):
        for gang, action in refuted(outcome):
            assert not rules_of(cluster, outcome, gang).can(action), (gang, action)
