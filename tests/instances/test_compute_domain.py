"""A Job over an NVLink domain: its clique by the topology, an IMEX channel by a claim for each pod, ranks in order."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Plan
from kai_solver.instances_io.importers import Loaded


@pytest.mark.parametrize("model", ["deterministic", "greedy-only"])
def test_its_pods_are_in_one_clique_in_order_with_a_channel_each(
    instances: Path, read: Callable[[Path], Loaded], plan_of: Callable[..., Plan], model: str
) -> None:
    folder = instances / "kubernetes" / "compute-domain"
    plan, snapshot = plan_of(folder, model), read(folder).snapshot
    assert [bind.node for bind in sorted(plan.binds, key=lambda bind: bind.pod)] == ["b-0", "b-1", "b-2", "b-3"]
    for bind in plan.binds:
        [[device]] = [grant.devices for grant in bind.claims]
        assert (device.driver, device.pool, device.device) == ("compute-domain.nvidia.com", bind.node, "channel-0")
    assert check_plan(snapshot, plan) == ()


def test_a_node_without_its_channel_takes_none_of_them(
    instances: Path, tmp_path: Path, plan_of: Callable[..., Plan]
) -> None:
    folder = shutil.copytree(instances / "kubernetes" / "compute-domain", tmp_path / "objects")
    cluster = folder / "cluster.yaml"
    documents = cluster.read_text().split("---\n")
    cluster.write_text("---\n".join(text for text in documents if "name: b-2-imex" not in text))
    plan = plan_of(folder, "deterministic")
    assert plan.binds == ()
    assert [(entry.gang, entry.proof.state) for entry in plan.pending] == [("team/pg-train-u-train", "proven")]
