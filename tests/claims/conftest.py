"""A small cluster with two kinds of GPUs by claim, and plans for it."""

from collections.abc import Callable
from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model
from tests.support.engines import PATIENT_S

DRIVER = "gpu.example.com"
CLASS = {"name": DRIVER, "selectors": [f'device.driver == "{DRIVER}"']}
BIG = f'device.attributes["{DRIVER}"].model == "big"'

Cluster = Callable[..., Snapshot]
Planned = Callable[..., Plan]


def devices(big: int, small: int) -> list[dict[str, Any]]:
    return [
        {"name": "big-{i}", "count": big, "attributes": {"model": "big"}, "capacity": {"memory": "80Gi"}},
        {"name": "small-{i}", "count": small, "attributes": {"model": "small"}, "capacity": {"memory": "24Gi"}},
    ]


@pytest.fixture
def cluster() -> Cluster:
    """``cluster(gangs, nodes=1, big=1, small=1, node={}, **sections)``: so many GPUs on each node, which is as said."""

    def make(
        gangs: list[dict[str, Any]],
        nodes: int = 1,
        big: int = 1,
        small: int = 1,
        node: dict[str, Any] | None = None,
        **sections: Any,
    ) -> Snapshot:
        document = {
            "format": "kai-solver/v1",
            "nodes": [{"name": "n{i}", "count": nodes, **(node or {})}],
            "queues": [{"name": "q", "quota": 100}],
            "deviceClasses": [CLASS],
            "resourceSlices": [{"driver": DRIVER, "node": "n{i}", "count": nodes, "devices": devices(big, small)}],
            "resourceClaimTemplates": [
                {"name": "any", "requests": [DRIVER]},
                {"name": "big", "requests": [{"deviceClass": DRIVER, "selectors": [BIG]}]},
                {"name": "whole-node", "requests": [{"deviceClass": DRIVER, "all": True}]},
            ],
            "gangs": [{"queue": "q"} | gang for gang in gangs],
        }
        return snapshot_from_native(document | sections)

    return make


@pytest.fixture
def planned() -> Planned:
    """``planned(snapshot)``: a plan that the checker accepts."""

    def plan(snapshot: Snapshot, model: str = "greedy-only") -> Plan:
        found = cycle(snapshot, load_model(model), budget_s=PATIENT_S)
        assert check_plan(snapshot, found) == ()
        assert not [note for note in found.notes if "refused" in note]
        return found

    return plan
