"""Disruption budgets hold evictions as far as the administrator says, and none for ever."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kai_solver.cluster.api import Object
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS, QUEUES
from kai_solver.cluster.store import Store
from kai_solver.controller.loop import Cycle
from kai_solver.controller.settings import ControllerSettings, Evictions
from kai_solver.controller.shields import LAPSE_S, LEAST_OPEN_S, Shields
from kai_solver.domain import Blocker, Pending, Plan, Proof, Reason
from tests.controller.replicas import running, until

FIND = Path(__file__).parents[1] / "kubeobjects" / "data" / "finds" / "16-pdb-shields-over-quota-work.json"
KINDS = {"Node": NODES, "Queue": QUEUES, "Pod": PODS, "PodDisruptionBudget": DISRUPTION_BUDGETS}


def over_quota() -> MemoryApi:
    """Eight pods of one queue hold both nodes, four above its quota, under a budget that allows no disruption."""
    api = MemoryApi()
    for item in json.loads(FIND.read_text())["items"]:
        item["metadata"].pop("uid", None)
        api.create(KINDS[item["kind"]], item["metadata"].get("namespace", ""), item)
    api.create(NAMESPACES, "", {"metadata": {"name": "user"}})
    return api


def leaving(api: MemoryApi) -> int:
    return sum("deletionTimestamp" in pod["metadata"] for pod in api.page(PODS).items)


@pytest.mark.parametrize(
    "stated",
    [
        {"budget_grace": 0.0},
        {"budget_grace": 0.3},
        {"budgets": "none", "budget_grace": None},
        {"budgets": "labelled", "budget_grace": None},
    ],
)
def test_a_budget_of_ones_own_does_not_shield_work_over_quota(stated: dict[str, Any]) -> None:
    api = over_quota()
    with running(api, evictions=stated, idle=0.1):
        until(lambda: leaving(api) == 4)


@pytest.mark.parametrize("stated", [{"budget_grace": None}, {}, {"budgets": "labelled", "budget_grace": None}])
def test_budgets_that_count_hold(stated: dict[str, Any]) -> None:
    api = over_quota()
    api.patch(NAMESPACES, "", "user", {"metadata": {"labels": {"kai-solver/budgets": "enabled"}}})
    with running(api, evictions=stated, idle=0.1) as replica:
        until(lambda: (replica.metrics.registry.get_sample_value("kai_e2e_scheduling_latency_milliseconds") or 0) > 0)
        until(lambda: replica.scheduler._number > 4)
    assert leaving(api) == 0


class Bench:
    def __init__(self, **settings: Any) -> None:
        self.now_s = 1000.0
        self.shields = Shields(Store(), Evictions(**settings), lambda: self.now_s)

    def after(self, seconds: float, *names: str) -> set[str]:
        """Namespaces whose budgets do not count after a cycle in which the budgets of these names held a gang."""
        self.now_s += seconds
        blocking = tuple(Blocker("disruption-budget", name, "n", "h") for name in names)
        pending = Pending("n/g", Reason.NOT_ENOUGH_RESOURCES, "", Proof("proven", "count", blocking))
        self.shields.cycle(cast("Cycle", SimpleNamespace(plan=Plan(pending=(pending,)))))
        return {name for name in ("user", "other", "third") if not self.shields.count(name)}


def test_budgets_that_hold_a_gang_for_too_long_cease_to_count_and_others_do_not() -> None:
    bench = Bench(budget_grace=300.0)
    assert bench.after(0, "user/x") == set()
    for _ in range(9):
        assert bench.after(30, "user/x", "other/y") == set()
    assert bench.after(30, "user/renamed, third/z and 2 more") == {"user"}
    budgets: list[Object] = [{"metadata": {"namespace": name, "name": "b"}} for name in ("user", "other")]
    assert [budget["metadata"]["namespace"] for budget in bench.shields.counted(budgets)] == ["other"]
    assert bench.after(200) == {"user"}
    assert bench.after(101) == set(), "they count again, with the same grace"


def test_a_gang_that_waits_no_longer_is_not_remembered() -> None:
    bench = Bench(budget_grace=300.0)
    bench.after(0, "user/x")
    bench.after(200)
    assert bench.after(LAPSE_S, "user/x") == set()
    bench = Bench(budget_grace=0.0)
    assert bench.after(0, "user/x") == {"user"}
    assert bench.after(LEAST_OPEN_S + 1) == set()


def test_without_a_grace_budgets_hold_for_ever() -> None:
    bench = Bench(budget_grace=None)
    assert not any(bench.after(100, "user/x") for _ in range(1000))


def test_an_eviction_refused_lately_names_no_budget() -> None:
    bench = Bench(budget_grace=0.0)
    assert bench.after(0, "an eviction that was refused lately") == set()


def test_the_settings_say_what_is_the_default() -> None:
    assert (ControllerSettings().evictions.budgets, ControllerSettings().evictions.budget_grace) == ("all", 300.0)
