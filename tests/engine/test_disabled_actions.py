"""Actions that the policy disables never run, whatever the model names, and the checker refuses plans with them."""

from dataclasses import replace

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Action, Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

NODE = [a_node("n", 2)]
TWO = [a_node("n", 2), a_node("m", 2)]
OWED = [a_queue("a", quota=2), a_queue("b", quota=0)]

SERVED_BY: dict[Action, Snapshot] = {
    Action.ALLOCATE: a_cluster(NODE, [a_gang("g", gpus=2)]),
    Action.CONSOLIDATION: a_cluster(TWO, [a_gang("r", on=["n"]), a_gang("s", on=["m"]), a_gang("g", gpus=2)]),
    Action.RECLAIM: a_cluster(
        NODE, [a_gang("r", pods=2, on=["n", "n"], queue="b", need=1), a_gang("g", queue="a")], queues=OWED
    ),
    Action.PREEMPT: a_cluster(NODE, [a_gang("r", gpus=2, on=["n"]), a_gang("g", gpus=2, priority=75)]),
    Action.STALE: a_cluster([a_node("n", 1)], [replace(a_gang("r", pods=2, on=["n"]), stale_since_s=0.0)]),
}
"""What one action changes, and no other."""


def done(plan: Plan) -> set[str]:
    binds, evictions, moves = ({entry.gang for entry in part} for part in (plan.binds, plan.evictions, plan.moves))
    return binds | evictions | moves


def without(snapshot: Snapshot, *actions: Action) -> Snapshot:
    return replace(snapshot, policy=replace(snapshot.policy, disabled_actions=frozenset(actions)))


@pytest.mark.parametrize("model", ["greedy-only", "deterministic"])
@pytest.mark.parametrize("action", Action)
def test_a_disabled_action_does_not_run(action: Action, model: str) -> None:
    snapshot, solver = SERVED_BY[action], load_model(model)
    plan = cycle(snapshot, solver)
    assert done(plan)
    rest = [other for other in Action if other is not action]
    assert cycle(without(snapshot, *rest), solver).admitted == plan.admitted, "no other action is needed"
    left = without(snapshot, action)
    still = cycle(left, solver)
    assert action not in {by for _, by in still.admitted}
    assert action is Action.ALLOCATE or not done(still), "free room serves gangs of later actions, too, as in KAI"
    assert check_plan(left, still) == ()
    assert check_plan(left, plan), "the checker refuses what the action did"


def test_with_all_actions_disabled_nothing_is_decided() -> None:
    snapshot = without(SERVED_BY[Action.PREEMPT], *Action)
    plan = cycle(snapshot, load_model("default"))
    assert not done(plan)
    assert [entry.gang for entry in plan.pending] == ["ns/g"]
