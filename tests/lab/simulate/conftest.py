"""Scenarios for tests: small documents, and what runs them."""

from collections.abc import Callable
from typing import Any

import pytest

from kai_solver.lab.simulate import KubeDefault, ModelPolicy, Result, Scenario, replay, scenario_of
from kai_solver.modelfiles import load_model

Make = Callable[..., Scenario]
Run = Callable[..., Result]


def document(**changes: Any) -> dict[str, Any]:
    """Two nodes of 8 GPUs, queues ``a`` and ``b`` with a quota of 8 each; nothing arrives."""
    base: dict[str, Any] = {
        "format": "kai-scenario/v1",
        "name": "test",
        "releasing": 5,
        "cluster": {
            "nodes": [{"name": "n-{i}", "count": 2, "gpus": 8, "cpu": 64}],
            "queues": [{"name": "a", "quota": 8, "weight": 1}, {"name": "b", "quota": 8, "weight": 1}],
        },
    }
    return base | changes


def batch(name: str = "w", at: float = 0, **changes: Any) -> dict[str, Any]:
    """A workload of one 8-GPU job of 100 s that arrives at a time."""
    base: dict[str, Any] = {
        "kind": "generate",
        "name": name,
        "queue": "a",
        "count": 1,
        "arrivals": {"process": "batch", "start": at},
        "runtime": {"distribution": "fixed", "typical": 100},
        "gpus": 8,
    }
    return base | changes


@pytest.fixture
def make() -> Make:
    """A scenario of :func:`document` with changes; workloads may be given as positional documents."""

    def made(*workloads: dict[str, Any], seed: int | None = None, **changes: Any) -> Scenario:
        return scenario_of(document(workloads=list(workloads), **changes), "scenario.yaml", seed=seed)

    return made


@pytest.fixture
def job() -> Callable[..., dict[str, Any]]:
    """A workload of one job."""
    return batch


@pytest.fixture
def run() -> Run:
    """Replay under the greedy, or under ``kube-default``."""

    def ran(scenario: Scenario, policy: str = "greedy-only", **options: Any) -> Result:
        if policy == KubeDefault.name:
            return replay(scenario, KubeDefault(), **options)
        with ModelPolicy(load_model(policy), bundles=options.pop("bundles", True)) as decider:
            return replay(scenario, decider, **options)

    return ran
