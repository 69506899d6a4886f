"""The slowest link of a gang that runs or is placed, and what a better place would give."""

from typing import Any

import pytest

from kai_solver.domain import Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.explaining import explain_gang
from kai_solver.explaining.explanation import BetterLink, LinkFit
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model

DGX1 = "dgx1-v100-8"
CLIQUE = "nvidia.com/gpu.clique"


def node(name: str, topology: str = DGX1, gpus: int = 8, **labels: str) -> dict[str, Any]:
    return {"name": name, "gpus": gpus, "gpuTopology": topology, "labels": labels}


def held(on: str, *devices: int, gpus: int = 0, **more: Any) -> dict[str, Any]:
    return {"gpus": gpus or len(devices), "status": "Running", "node": on, "devices": list(devices), **more}


def cluster(nodes: list[dict[str, Any]], gangs: dict[str, list[dict[str, Any]]], **more: Any) -> Snapshot:
    """``gangs``: pods of each; ``more``: other parts of the document, and ``asks`` of every gang."""
    asks = more.pop("asks", {})
    listed = [{"name": name, "queue": "q", "pods": pods, **asks} for name, pods in gangs.items()]
    document = {"format": "kai-solver/v1", "nodes": nodes, "queues": [{"name": "q", "quota": 100}], "gangs": listed}
    return snapshot_from_native(document | more)


def link_of(snapshot: Snapshot, gang: str = "g", plan: Plan | None = None) -> LinkFit:
    explanation = explain_gang(snapshot, plan or Plan(), f"default/{gang}")
    assert explanation.link is not None
    assert explanation.document()["link"]["text"] == explanation.link.text
    return explanation.link


def test_the_slowest_link_and_a_better_set_of_the_same_node() -> None:
    found = link_of(cluster([node("n0")], {"g": [held("n0", 0, 1)]}))
    assert (found.node, found.gpus, found.kind, found.gb_s) == ("n0", (0, 1), "NV1", 25)
    [better] = found.better
    assert (better.node, better.kind, better.gb_s, better.when) == ("n0", "NV2", 50, "now")
    assert found.text.startswith(
        "25 GB/s over NV1 between GPUs 0 and 1 of n0 (pod g-0); 50 GB/s over NV2 on n0 now (GPUs"
    )


def test_a_better_node_now() -> None:
    others = {"o": [held("n0", 2, 3, 4, 5, 6, 7)]}
    found = link_of(cluster([node("n0"), node("n1")], {"g": [held("n0", 0, 1)], **others}))
    assert found.better == (BetterLink("n1", (0, 3), "NV2", 50, "now"),)


def test_nothing_better_now_but_on_an_empty_node() -> None:
    found = link_of(cluster([node("n0")], {"g": [held("n0", 0, 1)], "o": [held("n0", 2, 3, 4, 5, 6, 7)]}))
    [better] = found.better
    assert (better.node, better.gb_s, better.when) == ("n0", 50, "empty")
    assert found.text.endswith("nothing better now, 50 GB/s over NV2 on n0 if it were empty.")


def test_better_now_and_better_still_when_empty() -> None:
    nodes = [node("n0"), node("n1", "hgx-h100-8")]
    others = {"o": [held("n1", *range(8))]}
    found = link_of(cluster(nodes, {"g": [held("n0", 0, 1)], **others}))
    assert [(each.node, each.gb_s, each.when) for each in found.better] == [("n0", 50, "now"), ("n1", 450, "empty")]


def test_the_best_there_is_says_so() -> None:
    found = link_of(cluster([node("n0")], {"g": [held("n0", 0, 3)]}))
    assert found.better == ()
    assert found.text.endswith("no other place that it may have would give more.")


def test_nodes_that_do_not_take_the_pod_are_no_better_place() -> None:
    cordoned = node("n1", "hgx-h100-8") | {"schedulable": False}
    others = {"o": [held("n0", 2, 3, 4, 5, 6, 7)]}
    found = link_of(cluster([node("n0"), cordoned], {"g": [held("n0", 0, 1)], **others}))
    assert {each.node for each in found.better} == {"n0"}


def test_a_required_domain_is_not_left_for_a_better_link() -> None:
    nodes = [node("n0", rack="a"), node("n1", "hgx-h100-8", rack="b")]
    topologies = [{"name": "t", "levels": ["rack"]}]
    gangs = {"g": [held("n0", 0, 1)], "o": [held("n0", 2, 3, 4, 5, 6, 7)]}
    free = link_of(cluster(nodes, gangs, topologies=topologies))
    held_there = link_of(
        cluster(nodes, gangs, topologies=topologies, asks={"topology": {"topology": "t", "required": "rack"}})
    )
    assert {each.node for each in free.better} == {"n1"}
    assert {each.node for each in held_there.better} == {"n0"}


def test_the_slowest_of_several_pods_is_told() -> None:
    found = link_of(cluster([node("n0"), node("n1")], {"g": [held("n0", 0, 3), held("n1", 0, 5)]}))
    assert (found.node, found.kind, found.gb_s, found.pods) == ("n1", "SYS", 10, 2)
    assert "the slowest of 2 pods" in found.text
    identical = link_of(cluster([node("n0"), node("n1")], {"g": [held("n0", 0, 3), held("n1", 0, 3)]}))
    assert "as for all 2 pods" in identical.text


def test_a_ring_of_four_is_as_fast_as_its_weakest_link() -> None:
    found = link_of(cluster([node("n0")], {"g": [held("n0", 0, 1, 2, 3)]}))
    assert (found.kind, found.gb_s, found.better) == ("NV1", 25, ())


def test_what_a_plan_chose_is_a_wish() -> None:
    snapshot = cluster([node("n0")], {"g": [{"gpus": 2}]})
    plan = cycle(snapshot, load_model("greedy-only"), budget_s=5.0)
    found = link_of(snapshot, plan=plan)
    assert (found.known, found.kind) == ("wish", "NV2")
    assert "if it has the GPUs that were chosen" in found.text


def test_unknown_links_and_unknown_gpus_say_why() -> None:
    links = link_of(cluster([node("n0", "")], {"g": [held("n0", 0, 1)]}))
    assert (links.untold, links.gb_s, links.node) == (1, 0, "")
    assert links.text == "The links of n0 are unknown: it has no label nvidia.com/gpu.product."
    gpus = link_of(cluster([node("n0")], {"g": [held("n0", gpus=2)]}))
    assert gpus.text == "which link limits it is not known: it is unknown which GPUs of n0 pod g-0 has."


def test_what_is_known_is_told_beside_those_that_are_not() -> None:
    found = link_of(cluster([node("n0"), node("n1")], {"g": [held("n0", 0, 1), held("n1", gpus=2)]}))
    assert (found.pods, found.untold, found.gb_s) == (2, 1, 25)
    assert "Of 1 of 2 pods it is not known: it is unknown which GPUs of n1" in found.text


def test_on_a_switch_the_link_is_known_whichever_gpus_it_has() -> None:
    found = link_of(cluster([node("n0", "hgx-h100-8")], {"g": [held("n0", gpus=2)]}))
    assert (found.kind, found.gb_s, found.gpus, found.untold) == ("NV18", 450, (), 0)
    assert "between any two GPUs of n0" in found.text


@pytest.mark.parametrize(
    ("cliques", "between"), [(("c0", "c0"), "c0"), (("c0", "c1"), "network"), (("", ""), "network")]
)
def test_what_joins_the_nodes_is_told(cliques: tuple[str, str], between: str) -> None:
    nodes = [
        node(f"n{at}", "gb200-4", gpus=4, **({CLIQUE: clique} if clique else {})) for at, clique in enumerate(cliques)
    ]
    found = link_of(cluster(nodes, {"g": [held("n0", 0, 1, 2, 3), held("n1", 0, 1, 2, 3)]}))
    assert found.between == between
    assert ("one NVLink domain (c0)" in found.text) == (between == "c0")
    assert ("the network between them" in found.text) == (between == "network")


@pytest.mark.parametrize(
    "pod", [held("n0", 1), held("n0", 1, gpus=0) | {"gpus": 0.5}, {"gpus": 2, "nodeSelector": {"a": "b"}}]
)
def test_what_has_no_links_is_told_nothing_of_them(pod: dict[str, Any]) -> None:
    """One GPU, a part of one, and a gang that waits."""
    snapshot = cluster([node("n0")], {"g": [pod]})
    plan = cycle(snapshot, load_model("greedy-only"), budget_s=5.0)
    assert explain_gang(snapshot, plan, "default/g").link is None
