"""What would make a gang fit: every element eased as it says, the changed cluster planned, the outcome told."""

from dataclasses import replace

import pytest

from kai_solver.domain import (
    Blocker,
    Gang,
    Node,
    Placement,
    Plan,
    Queue,
    Snapshot,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
)
from kai_solver.engine import cycle
from kai_solver.explaining import Cure, cures, eased
from kai_solver.modelfiles import load_model
from kai_solver.units import UNLIMITED, ResourceSchema
from tests.support.builders import a_gang

GIB = 2**30
ENDLESS = (UNLIMITED, UNLIMITED, UNLIMITED)
RACKS = Topology("dc", (TopologyLevel("zone"), TopologyLevel("rack")))


def a_node(name: str, gpus: int, rack: str = "r0") -> Node:
    labels = {"zone": "z", "rack": rack, "kubernetes.io/hostname": name}
    return Node(name, (64_000, 512 * GIB, gpus * 1000, 110), gpus=gpus, gpu_memory_mib=100, labels=labels)


def a_snapshot(nodes: list[Node], *gangs: Gang, limit: int = UNLIMITED, quota: int = UNLIMITED) -> Snapshot:
    queue = Queue("q", quota=(UNLIMITED, UNLIMITED, quota), limit=(UNLIMITED, UNLIMITED, limit), weight=(1.0, 1.0, 1.0))
    other = Queue("other", quota=ENDLESS, weight=(1.0, 1.0, 1.0))
    return Snapshot(100.0, ResourceSchema(), tuple(nodes), (queue, other), gangs, (RACKS,))


def planned(snapshot: Snapshot) -> Plan:
    return cycle(snapshot, load_model("greedy-only"))


def tried(snapshot: Snapshot, gang: str = "ns/w") -> dict[str, Cure]:
    entry = next(entry for entry in planned(snapshot).pending if entry.gang == gang)
    assert entry.proof.state == "proven"
    assert entry.proof.minimal
    return {cure.text: cure for cure in cures(snapshot, gang, entry.proof.blocking, planned)}


def test_a_limit_that_is_raised_lets_it_run() -> None:
    found = tried(a_snapshot([a_node("a", 8)], a_gang("w", pods=4, gpus=1), limit=1000))
    assert {text: cure.runs for text, cure in found.items()} == {"the limit of queue q raised by 3 GPUs": True}


def test_nodes_that_are_missing_are_counted() -> None:
    found = tried(a_snapshot([a_node("a", 8), a_node("b", 4)], a_gang("w", pods=3, gpus=8)))
    assert {text: cure.runs for text, cure in found.items()} == {"2 more nodes like a": True}


def test_what_blocks_next_is_told() -> None:
    found = tried(a_snapshot([a_node("a", 8)], a_gang("w", pods=2, gpus=8), limit=8000))
    (cure,) = found.values()
    assert not cure.runs
    assert [blocker.kind for blocker in cure.then] in (["resource"], ["queue-limit"])


def test_a_rack_and_its_level_are_two_ways() -> None:
    nodes = [a_node(name, 8, rack) for name, rack in (("a", "r0"), ("b", "r0"), ("c", "r1"))]
    waiting = a_gang("w", pods=3, gpus=8, root=flat_gang(3, TopologyConstraint("dc", "rack")))
    found = tried(a_snapshot(nodes, waiting))
    assert {text: cure.runs for text, cure in found.items()} == {
        "no required rack": True,
        "1 more node like b in z/r0": True,
    }


def test_a_node_added_has_a_name_and_a_host_of_its_own() -> None:
    seen: list[Snapshot] = []

    def kept(snapshot: Snapshot) -> Plan:
        seen.append(snapshot)
        return Plan()

    snapshot = a_snapshot([a_node("a", 8)], a_gang("w", pods=2, gpus=8))
    cures(snapshot, "ns/w", [Blocker("resource", "gpu", "", "", "", "gpu", 8000)], kept)
    names = [node.name for node in seen[0].nodes]
    assert len(names) == len(set(names)) == 2
    assert [node.labels["kubernetes.io/hostname"] for node in seen[0].nodes] == names


@pytest.mark.parametrize(
    "blocker",
    [
        Blocker("rule", "priority", "", ""),
        Blocker("rule", "preemptibility", "", ""),
        Blocker("rule", "consolidation", "", ""),
        Blocker("rule", "minruntime", "", ""),
        Blocker("rule", "node-rules", "", ""),
        Blocker("rule", "max-consolidation-gangs", "", ""),
        Blocker("domain", "rack", "", ""),
        Blocker("placement", "at most 1", "", ""),
        Blocker("surplus", "other queues", "", ""),
        Blocker("fair-share", "q", "", "", "", "gpu", 1000),
        Blocker("queue-quota", "q", "", "", "", "gpu", 1000),
        Blocker("queue-limit", "q", "", "", "", "gpu", 1000),
        Blocker("resource", "gpu", "", "", "z/r0", "gpu", 1000),
    ],
    ids=lambda blocker: f"{blocker.kind} {blocker.name}",
)
def test_every_kind_can_be_eased(blocker: Blocker) -> None:
    waiting = a_gang(
        "w",
        pods=2,
        gpus=1,
        preemptible=False,
        placement=Placement(max_pods_per_node=1),
        root=flat_gang(2, TopologyConstraint("dc", "rack")),
    )
    snapshot = a_snapshot(
        [a_node("a", 8)], a_gang("r", pods=1, gpus=1, on="a", preemptible=False), waiting, limit=4000, quota=2000
    )
    snapshot = replace(snapshot, policy=replace(snapshot.policy, max_consolidation_gangs=0, reclaim_min_runtime_s=9.0))
    changed = eased(snapshot, "ns/w", blocker)
    assert changed is not None
    assert changed != snapshot


def test_what_nothing_can_ease_is_left_out() -> None:
    snapshot = a_snapshot([a_node("a", 8)], a_gang("w", pods=1, gpus=1))
    assert eased(snapshot, "ns/w", Blocker("pods", "default", "2", "1")) is None
    assert cures(snapshot, "ns/w", [Blocker("pods", "default", "2", "1")], planned) == ()
