"""Once no gang waits, actions that disturb have nothing to do: it is found out once."""

from collections.abc import Sequence

import pytest

from kai_solver.actions import Actions
from kai_solver.actions.context import Context
from kai_solver.actions.disrupt import disrupt
from kai_solver.domain import Action
from kai_solver.problem import build_problem
from tests.support.builders import a_cluster, a_gang, a_node
from tests.support.oracles import Unasked

ACTIONS = (Action.ALLOCATE, Action.CONSOLIDATION, Action.RECLAIM, Action.PREEMPT)


@pytest.mark.parametrize(("gpus", "asked"), [(1, [[]]), (8, [[0], [0], [0]])], ids=["served", "too large"])
def test_actions_are_asked_while_gangs_wait(gpus: int, asked: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[int]] = []

    def note(context: Context, action: Action, candidates: Sequence[int]) -> list[int] | None:
        found.append(list(candidates))
        return disrupt(context, action, candidates)

    monkeypatch.setattr("kai_solver.actions.sequence.disrupt", note)
    Actions(build_problem(a_cluster([a_node("n", 4)], [a_gang("g", gpus=gpus)])), ACTIONS, Unasked()).run()
    assert found == asked
