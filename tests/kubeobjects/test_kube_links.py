"""How a node's GPUs are linked, and which of them pods were to have: annotations of ours."""

from pathlib import Path
from typing import Any

import pytest

from kai_solver.domain import Snapshot
from kai_solver.kubeobjects import RawObjects, objects_from_snapshot, snapshot_from_objects
from kai_solver.links import TOPOLOGY_ANNOTATION, graph_of

MATRIX = (Path(__file__).parents[2] / "instances" / "topologies" / "dgx1-v100-8.txt").read_text()
V100 = {"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}


def read(build: Any, text: str = "", gpus: int = 8, labels: dict[str, str] | None = None, **pods: Any) -> Snapshot:
    annotations = {TOPOLOGY_ANNOTATION: text} if text else {}
    node = build.node("n", {"metadata": {"annotations": annotations, "labels": labels or {}}}, gpus=gpus)
    return snapshot_from_objects(RawObjects(nodes=(node,), **pods), now_s=build.now_s)


def test_a_node_says_how_its_gpus_are_linked(build: Any) -> None:
    (node,) = read(build, MATRIX).nodes
    assert graph_of(node).kind(0, 3) == "NV2"
    assert graph_of(node).kind(0, 5) == "SYS"


def test_a_node_may_name_a_product(build: Any) -> None:
    (node,) = read(build, "dgx1-v100-8\n").nodes
    assert graph_of(node).kind(0, 3) == "NV2"


def test_a_label_tells_the_product_where_nothing_else_does(build: Any) -> None:
    (node,) = read(build, labels=V100).nodes
    assert graph_of(node).kind(0, 3) == "NV2"
    (other,) = read(build).nodes
    assert not graph_of(other).is_known


@pytest.mark.parametrize(
    ("text", "gpus", "said"),
    [
        (MATRIX.replace("GPU3\tNV2", "GPU9\tNV2"), 8, "GPU"),
        ("dgx9", 8, "has no matrix"),
        (MATRIX, 4, "is of 8 GPUs, and the node has 4"),
    ],
)
def test_a_text_that_cannot_be_used_is_left_out_and_told(build: Any, text: str, gpus: int, said: str) -> None:
    snapshot = read(build, text, gpus)
    assert not graph_of(snapshot.nodes[0]).is_known
    (notice,) = [notice for notice in snapshot.notices if notice.object == "Node n"]
    assert notice.kind == "warning"
    assert said in notice.text


def test_a_bad_text_leaves_what_the_label_tells(build: Any) -> None:
    (node,) = read(build, "GPU0 GPU1", labels=V100).nodes
    assert graph_of(node).kind(0, 3) == "NV2"


@pytest.mark.parametrize(
    ("text", "gpus", "phase", "wished"),
    [
        ("2,5", 2, "Running", (2, 5)),
        ("2,5", 3, "Running", ()),
        ("2;5", 2, "Running", ()),
        ("2,5", 2, "Succeeded", ()),
    ],
)
def test_a_pod_that_runs_tells_which_gpus_it_was_to_have(
    build: Any, text: str, gpus: int, phase: str, wished: tuple[int, ...]
) -> None:
    pod = build.pod("p", gpus=gpus, node="n", phase=phase, annotations={"kai-solver/gpus": text})
    (gang,) = read(build, pods=(pod,)).gangs
    assert gang.pods[0].wished == wished
    assert gang.pods[0].devices == (), "what it really has is not known"


def test_an_export_keeps_both(build: Any) -> None:
    pod = build.pod("p", gpus=2, node="n", phase="Running", annotations={"kai-solver/gpus": "2,5"})
    snapshot = read(build, MATRIX, pods=(pod,))
    again = snapshot_from_objects(objects_from_snapshot(snapshot), now_s=snapshot.now_s)
    assert again.nodes[0].gpu_topology == MATRIX
    assert again.gangs[0].pods[0].wished == (2, 5)


@pytest.mark.parametrize(
    ("text", "gpus", "row", "said"),
    [
        ("Aligned-Required", 4, "aligned-required", ""),
        ("contiguous-preferred", 4, "contiguous-preferred", ""),
        ("contiguous", 4, "", "is none of contiguous-required"),
        ("aligned-required", 0, "", "only whole GPUs"),
    ],
)
def test_a_pod_may_want_gpus_in_a_row(build: Any, text: str, gpus: int, row: str, said: str) -> None:
    pod = build.pod("p", gpus=gpus, annotations={"kai-solver/gpu-row": text})
    snapshot = read(build, pods=(pod,))
    assert snapshot.gangs[0].pods[0].gpu.row == row
    assert [said in notice.text for notice in snapshot.notices if notice.object.endswith("/p")] == [True] * bool(said)
    again = snapshot_from_objects(objects_from_snapshot(snapshot), now_s=snapshot.now_s)
    assert again.gangs[0].pods[0].gpu.row == row
