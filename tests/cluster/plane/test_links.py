"""GPUs by claim on a real API server: of every product of the library the best set is written into the allocation.

Nodes of all products are one fleet; pods come in waves, one pod a wave for each node.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import DEVICE_CLASSES, JOBS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, TOPOLOGIES
from kai_solver.links import products
from tests.cluster.plane.agents import INDEX, RESERVED, DeviceAgent, reservations, working
from tests.cluster.plane.checker import GANG, LEAST
from tests.cluster.plane.cluster import CLAIM_TEMPLATES, SPACE, Cluster, checker_of, pod
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import ROOT, Plane
from tests.links.brute import Brute
from tests.links.graphs import nested

DRIVER = "gpu.nvidia.com"
WITHOUT_NAME = ("hgx-b200-8-gpu2-lost-nvlink", "a100-pcie-nvlink-pairs-4", "pcie-two-socket-8")
"""Names of their cards leave the links open: the node says them in an annotation."""
PLACES = "by-places"
"""A node of unknown cards whose attributes tell PCIe roots and NUMA nodes."""
FLEET = (*products(), PLACES)
FOLDER = ROOT / "instances" / "topologies"
CLIQUE = "nvidia.com/gpu.clique"


def size(kind: str) -> int:
    return 8 if kind == PLACES else products()[kind].graph.gpus


def waves(kind: str) -> tuple[int, ...]:
    """GPUs of the pods of a node, in the order in which they come."""
    return (2, 1) if size(kind) == 4 else (2, size(kind) // 2, 1)


def device(kind: str, gpu: int) -> dict[str, Any]:
    """Named against the order of the driver, which is that of PCI addresses."""
    known = products().get(kind)
    called = known.gpu_names[0].replace("-", " ") if known and known.gpu_names else "NVIDIA Unheard-of"
    attributes: dict[str, Any] = {
        "productName": {"string": called},
        "type": {"string": "gpu"},
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{gpu:02x}:00.0"},
    }
    if kind == PLACES:
        attributes["resource.kubernetes.io/pcieRoot"] = {"string": f"pci0000:{gpu // 2:02x}"}
        attributes["numaNode"] = {"int": gpu // 4}
    return {"name": f"gpu-{size(kind) - 1 - gpu}", "attributes": attributes}


def offer(cluster: Cluster, kind: str, name: str, **labels: str) -> None:
    """A node whose GPUs are published by their driver."""
    cluster.node(name, 0, **labels)
    devices = [device(kind, gpu) for gpu in range(size(kind))]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    cluster.plane.api.create(RESOURCE_SLICES, "", {"metadata": {"name": name}, "spec": spec})
    if kind in WITHOUT_NAME:
        said = {"kai-solver/gpu-topology": (FOLDER / f"{kind}.txt").read_text()}
        cluster.plane.api.patch(NODES, "", name, {"metadata": {"annotations": said}})


def offer_class(cluster: Cluster, counts: set[int]) -> None:
    """The class of all GPUs, and templates of claims for so many."""
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    cluster.plane.api.create(DEVICE_CLASSES, "", {"metadata": {"name": DRIVER}, "spec": {"selectors": [selector]}})
    for count in counts:
        request = {"name": "gpus", "exactly": {"deviceClassName": DRIVER, "count": count}}
        spec = {"spec": {"devices": {"requests": [request]}}}
        cluster.plane.api.create(CLAIM_TEMPLATES, SPACE, {"metadata": {"name": f"of-{count}"}, "spec": spec})


def claiming(count: int) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": f"of-{count}"}]}


def granted(cluster: Cluster) -> dict[str, list[str]]:
    """Devices of each pod, as the allocations of its claims say."""
    found: dict[str, list[str]] = {}
    for claim in cluster.plane.api.page(RESOURCE_CLAIMS, namespace=SPACE, limit=1000).items:
        status = claim.get("status") or {}
        devices = (status.get("allocation") or {}).get("devices") or {"results": []}
        for user in status.get("reservedFor") or ():
            found.setdefault(user["name"], []).extend(each["device"] for each in devices["results"])
    return found


@dataclass(slots=True)
class Fleet:
    """What became of all waves: devices and pods by name."""

    devices: dict[str, list[str]]
    pods: dict[str, Object]
    gpus: dict[str, frozenset[int]] = field(init=False)

    def __post_init__(self) -> None:
        """Devices as the driver counts them."""
        kinds = {name: name.rpartition("-")[0] for name in self.devices}
        self.gpus = {
            name: frozenset(size(kinds[name]) - 1 - int(device.rpartition("-")[2]) for device in devices)
            for name, devices in self.devices.items()
        }


@pytest.fixture(scope="module")
def fleet(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """All that is asked about is kept; the cluster is gone before the first test looks at it."""
    cluster = Cluster(plane, tmp_path_factory.mktemp("links"), checker_of(plane, lambda found: False, 15.0))
    cluster.checker.start()
    try:
        found = serve(cluster)
    finally:
        cluster.end()
    assert cluster.complaints() == [], "the checker objects"
    return found


def serve(cluster: Cluster) -> Fleet:
    """A node of each kind, and its pods wave after wave."""
    cluster.queues(research=200)
    offer_class(cluster, {count for kind in FLEET for count in waves(kind)})
    for kind in FLEET:
        offer(cluster, kind, kind)
    cluster.wait_nodes(len(FLEET))
    cluster.controller()
    for wave in range(3):
        for kind in (kind for kind in FLEET if len(waves(kind)) > wave):
            on = {"nodeSelector": {"kubernetes.io/hostname": kind}}
            cluster.pod(f"{kind}-{wave}", "research", 0, **claiming(waves(kind)[wave]), **on)
        cluster.wait_bound(sum(len(waves(kind)[: wave + 1]) for kind in FLEET))
    pods = {str(found["metadata"]["name"]): found for found in cluster.bound()}
    return Fleet(granted(cluster), pods)


def grades(kind: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.int32]]":
    """What the slices and annotations of a node come to, by the library's matrices or written anew."""
    return nested(8, {4: "NODE", 2: "PXB"}).grade if kind == PLACES else products()[kind].graph.grade


@pytest.mark.parametrize("kind", FLEET)
def test_each_pod_has_as_many_devices_as_it_asked_for_and_nothing_shares_one(fleet: Fleet, kind: str) -> None:
    sets = [fleet.gpus[f"{kind}-{wave}"] for wave in range(len(waves(kind)))]
    assert [len(found) for found in sets] == list(waves(kind))
    assert len(frozenset.union(*sets)) == sum(waves(kind))
    assert {fleet.pods[f"{kind}-{wave}"]["spec"]["nodeName"] for wave in range(len(sets))} == {kind}


@pytest.mark.parametrize("kind", [kind for kind in FLEET if size(kind) <= 8])
def test_the_allocation_is_the_best_set_there_was(fleet: Fleet, kind: str) -> None:
    """By a search through all sets, wave after wave."""
    brute, free = Brute(grades(kind)), frozenset(range(size(kind)))
    for wave, count in enumerate(waves(kind)):
        chosen = fleet.gpus[f"{kind}-{wave}"]
        assert brute.worth(free, chosen) == brute.best(free, count)
        free -= chosen


def test_the_graphs_differ(fleet: Fleet) -> None:
    """What the first and last sets say where a wrong graph would give another."""
    assert fleet.gpus["hgx-b200-8-gpu2-lost-nvlink-2"] == {2}, "who needs one GPU takes the one off the fabric"
    assert fleet.gpus["a100-pcie-nvlink-pairs-4-0"] in ({0, 1}, {2, 3}), "two cards below one bridge"
    assert {gpu // 2 for gpu in fleet.gpus[f"{PLACES}-0"]} in ({0}, {1}, {2}, {3}), "two cards below one root"
    assert {gpu // 4 for gpu in fleet.gpus["pcie-two-socket-8-1"]} in ({0}, {1}), "four cards of one socket"
    pair = fleet.gpus["dgx1-v100-8-0"]
    assert products()["dgx1-v100-8"].graph.kind(*pair) == "NV2"


def test_what_a_claim_gives_is_no_wish(fleet: Fleet) -> None:
    wishes = [name for name, found in fleet.pods.items() if "kai-solver/gpus" in found["metadata"]["annotations"]]
    assert (len(fleet.pods) > len(FLEET), wishes) == (True, [])


# -- racks -------------------------------------------------------------------------------------------------------------


def gang(cluster: Cluster, name: str, pods: int, **template: str) -> None:
    """An Indexed Job of trays; ``template``: annotations of its pods."""
    made = pod("", "research", 0, labels={GANG: name, LEAST: str(pods)}, annotations=template, **claiming(4))
    stated = {"kai.scheduler/batch-min-member": str(pods)}
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": made}
    metadata = {"name": name, "labels": {"kai.scheduler/queue": "research"}, "annotations": stated}
    cluster.plane.api.create(JOBS, SPACE, {"metadata": metadata, "spec": spec})


def cliques(cluster: Cluster, name: str) -> list[str]:
    """Of the pods of a gang, by index."""
    label = "batch.kubernetes.io/job-completion-index"
    found = sorted(cluster.bound(f"{name}-"), key=lambda each: int(each["metadata"]["labels"][label]))
    return [str(each["spec"]["nodeName"])[0] for each in found]


def test_segments_of_a_gang_lie_in_one_rack_of_18_trays_each(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.queues(research=200)
    levels = {"levels": [{"nodeLabel": CLIQUE}, {"nodeLabel": "kubernetes.io/hostname"}]}
    body = {"apiVersion": TOPOLOGIES.api_version, "kind": "Topology", "metadata": {"name": "nvlink"}, "spec": levels}
    cluster.plane.api.create(TOPOLOGIES, "", body)
    offer_class(cluster, {4})
    trays = [f"a-{at}" for at in range(18)] + [f"b-{at}" for at in range(6)]
    for name in trays:
        offer(cluster, "gb200-4", name, **{CLIQUE: f"cluster.{name[0]}"})
    cluster.wait_nodes(24)
    cluster.controller()
    asks = {"kai.scheduler/topology": "nvlink"}
    gang(cluster, "whole", 12, **asks, **{"kai.scheduler/topology-required-placement": CLIQUE})
    cluster.wait_bound(12, "whole")
    assert cliques(cluster, "whole") == ["a"] * 12
    size_and_level = {"segment-size": "6", "segment-topology-required-placement": CLIQUE}
    gang(cluster, "parts", 12, **asks, **{f"kai.scheduler/{key}": value for key, value in size_and_level.items()})
    cluster.wait_bound(12, "parts")
    lie = cliques(cluster, "parts")
    assert sorted([lie[:6], lie[6:]]) == [["a"] * 6, ["b"] * 6]
    devices = granted(cluster)
    assert len(devices) == 24
    assert all(len(set(found)) == 4 for found in devices.values())
    assert len({found["spec"]["nodeName"] for found in cluster.plane.api.page(PODS, namespace=SPACE).items}) == 24


# -- shared GPUs -------------------------------------------------------------------------------------------------------


class Elsewhere(DeviceAgent):
    """A device plugin gave the reservation pod GPU 5, whatever was wished for."""

    def look(self) -> None:
        for found in reservations(self.plane):
            if INDEX not in found["metadata"]["annotations"]:
                body = {"metadata": {"annotations": {INDEX: "5"}}}
                self.plane.api.patch(PODS, RESERVED, found["metadata"]["name"], body)


def test_what_a_reservation_pod_was_given_counts_and_not_what_it_was_to_have(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.queues(research=8)
    cluster.node("cube", 8)
    said = {"metadata": {"annotations": {"kai-solver/gpu-topology": "dgx1-v100-8"}}}
    cluster.plane.api.patch(NODES, "", "cube", said)
    cluster.wait_nodes(1)
    with working(Elsewhere(cluster.plane).look):
        cluster.controller()
        cluster.pod("half-0", "research", 0, annotations={"gpu-fraction": "0.5"})
        cluster.wait_bound(1, "half")
        (reservation,) = reservations(cluster.plane)
        assert reservation["metadata"]["annotations"]["kai-solver/gpus"] in "01234567"
        cluster.pod("half-1", "research", 0, annotations={"gpu-fraction": "0.5"})
        cluster.wait_bound(2, "half")
        assert len(reservations(cluster.plane)) == 1, "the second half shares the device"
        for index in range(3):
            cluster.pod(f"pair-{index}", "research", 2)
            cluster.wait_bound(index + 1, "pair")
    notes = {str(found["metadata"]["name"]): found["metadata"]["annotations"] for found in cluster.bound("pair")}
    pairs = [tuple(map(int, notes[f"pair-{index}"]["kai-solver/gpus"].split(","))) for index in range(3)]
    assert len({gpu for pair in pairs for gpu in pair} | {5}) == 7, "nobody else is to have GPU 5"
    assert products()["dgx1-v100-8"].graph.kind(*pairs[0]) == "NV2"
