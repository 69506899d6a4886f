"""Graphs of labels, zones and ResourceSlices; the library of products."""

from collections.abc import Sequence
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import Node
from kai_solver.domain.claims import Attribute, ClaimDevice, Version
from kai_solver.errors import InputError
from kai_solver.links import (
    PATHS,
    LinkGraph,
    gpus_of,
    graph_of_devices,
    graph_of_node,
    known_tables,
    links_of_claims,
    product_named,
    products,
)
from tests.links.graphs import product

FOLDER = Path(__file__).parents[2] / "instances" / "topologies"
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def device(name: str, **attributes: Attribute) -> ClaimDevice:
    return ClaimDevice(
        "node", "gpu.nvidia.com", "node", name, {f"gpu.nvidia.com/{k}": v for k, v in attributes.items()}
    )


# -- the library -------------------------------------------------------------------------------------------------------


def test_every_figure_of_every_product_has_a_source() -> None:
    for name, known in products().items():
        assert known.sources["links"], name
        assert known.sources["pcie"], name
        assert known.sources["nvlink"] or not known.graph.links.any(), name


def test_every_matrix_is_in_the_library_and_in_its_readme() -> None:
    files = {file.stem for file in FOLDER.glob("*.txt")}
    assert files <= set(products())
    text = (FOLDER / "README.md").read_text()
    assert [file for file in files if f"`{file}.txt`" not in text] == []


def test_a_product_that_is_not_there() -> None:
    with pytest.raises(InputError, match="dgx1-v100-8"):
        product_named("dgx3")


@pytest.mark.parametrize("name", ["gb200-4", "gb300-4"])
def test_a_tray_is_part_of_a_domain_of_72_gpus(name: str) -> None:
    tray = product_named(name)
    assert tray.trays * tray.graph.gpus == 72


def test_a_graph_can_be_drawn() -> None:
    graph = product("dgx1-v100-8").as_graph()
    assert graph.edges[0, 3] == {"gb_s": 50, "links": 2, "kind": "NV2"}
    assert nx.density(graph) == 1


# -- labels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "gpus", "name"),
    [
        ("NVIDIA-H100-80GB-HBM3", 8, "hgx-h100-8"),
        ("NVIDIA-H100-80GB-HBM3-SHARED", 8, "hgx-h100-8"),
        ("NVIDIA-A100-SXM4-80GB", 8, "hgx-a100-8"),
        ("NVIDIA-A100-SXM4-80GB", 4, "hgx-a100-4"),
        ("Tesla-V100-SXM2-32GB", 8, "dgx1-v100-8"),
        ("Tesla-V100-SXM3-32GB", 16, "dgx2-v100-16"),
        ("NVIDIA-H200", 8, "hgx-h200-8"),
        ("NVIDIA-B200", 8, "hgx-b200-8"),
        ("NVIDIA-GB200", 4, "gb200-4"),
    ],
)
def test_labels_name_the_product(label: str, gpus: int, name: str) -> None:
    graph = graph_of_node({"nvidia.com/gpu.product": label}, gpus)
    assert (graph.name, graph.notices) == (name, ())


@pytest.mark.parametrize(("labels", "gpus"), [({}, 8), (H100, 6), ({"nvidia.com/gpu.product": "Some-GPU"}, 8)])
def test_what_no_product_is_known_of_is_unknown_and_all_equal(labels: dict[str, str], gpus: int) -> None:
    graph = graph_of_node(labels, gpus)
    assert (graph.is_known, graph.gpus) == (False, gpus)
    assert not graph.grade.any()
    assert graph.notices


def test_mig_devices_have_no_nvlink() -> None:
    for labels in (
        {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"},
        H100 | {"nvidia.com/mig-1g.10gb.count": "7"},
    ):
        graph = graph_of_node(labels, 8)
        assert not graph.links.any()
        assert [graph.kind(0, 1), graph.kind(0, 7)] == ["NODE", "SYS"]
        assert graph.notices == ("MIG mode: no NVLink",)
    assert graph_of_node(H100 | {"nvidia.com/mig-1g.10gb.count": "0"}, 8).links.any()


def test_the_annotation_comes_before_the_label() -> None:
    text = (FOLDER / "hgx-b200-8-gpu2-lost-nvlink.txt").read_text()
    graph = graph_of_node({"nvidia.com/gpu.product": "NVIDIA-B200"}, 8, text)
    assert graph.kind(2, 3) == "NODE"
    assert graph.gb_s[0, 1] == 900


def test_an_annotation_that_cannot_be_used_leaves_the_label() -> None:
    for text in ("nonsense", (FOLDER / "gb200-4.txt").read_text()):
        graph = graph_of_node(H100, 8, text)
        assert (graph.name, graph.gpus) == ("hgx-h100-8", 8)
        assert "annotation kai-solver/gpu-topology" in graph.notices[0]


def test_the_label_counts_where_nothing_else_does() -> None:
    assert graph_of_node(H100 | {"nvidia.com/gpu.count": "8"}).name == "hgx-h100-8"
    assert [graph_of_node({"nvidia.com/gpu.count": text}).gpus for text in ("3", "", "-2", "many", "9" * 20)] == [
        3,
        1,
        1,
        1,
        1,
    ]


def test_numa_zones_tell_sockets() -> None:
    graph = graph_of_node({}, 6, zones=[2, 4])
    assert [graph.kind(0, 1), graph.kind(1, 2), graph.kind(2, 5)] == ["NODE", "SYS", "NODE"]
    assert not graph_of_node({}, 6, zones=[2, 2]).is_known
    assert not graph_of_node({}, 6, zones=[7, -1]).is_known


# -- resource slices ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, known in products().items() if known.gpu_names])
def test_slices_name_the_product(name: str) -> None:
    """Names come with blanks, and devices in any order: the driver numbers them by PCI address."""
    known = product_named(name)
    words, gpus = known.gpu_names[0].replace("-", " "), known.graph.gpus
    devices = [
        device(f"gpu-{9 - at}", productName=words, type="gpu", pcieBusID=f"0000:{at:02x}:00.0") for at in range(gpus)
    ]
    found = graph_of_devices(devices[::-1])
    assert found.graph.name == name
    assert found.devices == tuple(f"gpu-{9 - at}" for at in range(gpus))


def test_devices_without_addresses_are_in_the_order_of_their_numbers() -> None:
    by_name = graph_of_devices([device(f"gpu-{at}") for at in (10, 9, 2)])
    assert by_name.devices == ("gpu-2", "gpu-9", "gpu-10")
    by_index = graph_of_devices([device("b", index=0), device("a", index=1)])
    assert by_index.devices == ("b", "a")
    assert not by_index.graph.is_known


def test_places_alone_tell_pcie_paths() -> None:
    devices = [
        device(f"gpu-{at}", productName="Some GPU", pcieRoot=f"pci0000:{at // 2}", numaNode=at // 4) for at in range(8)
    ]
    graph = graph_of_devices(devices).graph
    assert [graph.kind(0, other) for other in (1, 2, 4)] == ["PXB", "NODE", "SYS"]


def test_mig_devices_are_left_out_and_take_nvlink_from_the_rest() -> None:
    gpus = [device(f"gpu-{at}", productName="NVIDIA H100 80GB HBM3", type="gpu") for at in range(8)]
    found = graph_of_devices([*gpus, device("gpu-0-mig-1g10gb-0", type="mig")])
    assert len(found.devices) == 8
    assert not found.graph.links.any()
    assert not graph_of_devices([device("gpu-0-mig-1g10gb-0", type="mig")]).graph.is_known


VALUES = st.one_of(st.booleans(), st.integers(), st.text(max_size=5), st.builds(Version, st.text(max_size=3)))
NAMES = st.sampled_from(["productName", "type", "pcieBusID", "pcieRoot", "numaNode", "index", "uuid"])


@pytest.mark.slow
@given(st.lists(st.dictionaries(NAMES, VALUES), max_size=70))
def test_devices_of_any_text(devices: list[dict[str, Attribute]]) -> None:
    found = graph_of_devices([device(f"gpu-{at}", **attributes) for at, attributes in enumerate(devices)])
    assert len(found.devices) in (0, found.graph.gpus)
    assert (found.graph.grade == found.graph.grade.T).all()


def test_a_cycle_waits_for_no_large_table() -> None:
    """32 PCIe GPUs in quads on two sockets: all of it takes 390,625 states, a cycle sees the sockets."""
    gpu = np.arange(32)
    quad, socket = (gpu[:, None] // size == gpu // size for size in (4, 16))
    path = np.where(quad, PATHS.index("PIX"), np.where(socket, PATHS.index("NODE"), PATHS.index("SYS")))
    graph = LinkGraph("quads", np.zeros((32, 32), dtype=np.int32), path.astype(np.int32))
    known = known_tables()
    kind = known.add(graph)
    assert known.tables[kind].classes.states <= 1 << 16
    assert "too irregular" in known.tables[kind].graph.notices[-1]
    chosen = known.pick(kind, (1 << 20) - 1, 8)
    assert chosen is not None
    assert len({index // 16 for index in gpus_of(chosen)}) == 1


@pytest.mark.parametrize("missing", [0, 5])
def test_claims_without_a_failed_gpu_keep_the_links_of_the_text(missing: int) -> None:
    here = [at for at in range(8) if at != missing]
    node = Node("n", (0, 0, 0, 0), gpu_topology="dgx1-v100-8")
    found = links_of_claims(node, [device(f"gpu-{at}", index=at) for at in here])
    whole = products()["dgx1-v100-8"].graph
    assert found.devices == tuple(f"gpu-{at}" for at in here)
    assert (found.graph.links == whole.links[np.ix_(here, here)]).all()


@pytest.mark.parametrize("here", [range(7), [0, 0, 7], [1, 9], [-1, 7]], ids=["last", "double", "beyond", "below"])
def test_claims_whose_indices_do_not_tell_which_gpu_failed_have_no_links(here: Sequence[int]) -> None:
    node = Node("n", (0, 0, 0, 0), gpu_topology="dgx1-v100-8")
    found = links_of_claims(node, [device(f"d{at}", index=index) for at, index in enumerate(here)])
    assert not found.graph.is_known
    assert "unknown which" in found.graph.notices[-1]
