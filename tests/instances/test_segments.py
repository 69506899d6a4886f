"""Segments of a PyTorchJob, from its annotations to the racks."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Plan
from kai_solver.instances_io.importers import Loaded


@pytest.mark.parametrize("model", ["deterministic", "greedy-only"])
def test_every_segment_has_a_rack_of_its_own(
    instances: Path, read: Callable[[Path], Loaded], plan_of: Callable[..., Plan], model: str
) -> None:
    folder = instances / "kubernetes" / "segments"
    plan, snapshot = plan_of(folder, model), read(folder).snapshot
    rack = {node.name: node.labels["rack"] for node in snapshot.nodes}
    places = {bind.pod.removeprefix("team/pretrain-"): rack[bind.node] for bind in plan.binds}
    assert len(places) == 5
    assert places["worker-0"] == places["worker-1"] != places["worker-2"] == places["worker-3"]
    assert {places["worker-0"], places["worker-2"]} == {"r1", "r2"}
    assert check_plan(snapshot, plan) == ()
