"""What `nvidia-smi` prints: matrices as pasted, link states, errors that say where, and text of anybody."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.errors import InputError
from kai_solver.links import LinkGraph, graph_of_node, graph_of_text
from kai_solver.links.text import LARGEST_TEXT
from tests.links.graphs import product

FOLDER = Path(__file__).parents[2] / "instances" / "topologies"
CUBE = (FOLDER / "dgx1-v100-8.txt").read_text()
PAIRS = (FOLDER / "a100-pcie-nvlink-pairs-4.txt").read_text()


def bandwidth(graph: LinkGraph) -> list[list[int]]:
    found: list[list[int]] = graph.gb_s.tolist()
    return found


def status(speeds: list[list[float]], name: str = "Tesla V100-SXM2-16GB") -> str:
    """`nvidia-smi nvlink -s`, 0: inactive; no links at all: the sentence of NVML."""
    lines = []
    for gpu, own in enumerate(speeds):
        lines.append(f"GPU {gpu}: {name} (UUID: GPU-0000)")
        lines += [
            f"\t Link {at}: {speed} GB/s" if speed else f"\t Link {at}: <inactive>" for at, speed in enumerate(own)
        ]
        if not own:
            lines.append("\t NVML: Unable to retrieve NVLink information as all links are inActive")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.txt")), ids=lambda file: file.stem)
def test_every_matrix_is_read(file: Path) -> None:
    graph = graph_of_text(file.read_text(), file.name)
    assert graph.gpus == int(file.stem.split("-gpu2")[0].rpartition("-")[2])
    assert graph.is_known
    assert (graph.grade == graph.grade.T).all()


def test_double_and_single_links_of_a_cube_mesh() -> None:
    row = bandwidth(graph_of_text(CUBE, "dgx1-v100-8.txt"))[0]
    assert row == [0, 25, 25, 50, 50, 10, 10, 10]


@pytest.mark.parametrize(
    ("file", "gb_s"),
    [("hgx-a100-8", 300), ("hgx-h100-8", 450), ("hgx-b200-8", 900), ("gb200-4", 900), ("dgx2-v100-16", 150)],
)
def test_a_file_named_after_a_product_has_its_figures(file: str, gb_s: int) -> None:
    text = (FOLDER / f"{file}.txt").read_text()
    graph = graph_of_text(text, f"/somewhere/{file}.txt")
    assert (bandwidth(graph)[0][1], graph.notices) == (gb_s, ())


def test_a_file_of_no_known_name_is_taken_for_25_gb_s_a_link_and_says_so() -> None:
    text = (FOLDER / "hgx-b200-8.txt").read_text()
    graph = graph_of_text(text, "node-7.txt")
    assert bandwidth(graph)[0][1] == 450
    assert graph.notices == ("the generation of NVLink is unknown: 25 GB/s a link are assumed",)
    assert bandwidth(graph_of_text(text, "node-7.txt", product="hgx-b200-8"))[0][1] == 900


def test_network_cards_colours_and_spaces_are_no_obstacle() -> None:
    """As nvidia/nccl issue 1617 has it: cards beside the GPUs, blanks for tabs; some drivers underline the header."""
    text = """
        \x1b[4mGPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID\x1b[0m
GPU0     X      NV6     PIX     SYS     6,14,22,30      3               N/A
GPU1    NV6      X      SYS     PIX     4,12,20,28      1               N/A
NIC0    PIX     SYS      X      SYS
NIC1    SYS     PIX     SYS      X

Legend:
  X    = Self
NIC Legend:
  NIC0: mlx5_0
"""
    assert bandwidth(graph_of_text(text)) == [[0, 150], [150, 0]]


def test_older_drivers_have_other_words() -> None:
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPSB\tSOC\nGPU1\tPSB\t X \tSOC\nGPU2\tSOC\tSOC\t X \n"
    graph = graph_of_text(text)
    assert [graph.kind(0, 1), graph.kind(0, 2)] == ["PIX", "SYS"]


# -- the status of links -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "gb_s"), [(19.2, 19), (20.625, 20), (25.781, 25), (26.562, 25), (53.125, 50), (50, 50)]
)
def test_the_speed_of_a_link_is_what_it_carries(raw: float, gb_s: int) -> None:
    graph = graph_of_text(PAIRS + status([[raw] * 12] * 4, "some GPU"))
    assert bandwidth(graph)[0][1] == 12 * gb_s


def test_a_failed_link_of_a_switch_slows_its_gpu_to_all() -> None:
    text = status([[26.562] * 18] * 7 + [[26.562] * 17 + [0]], "NVIDIA H100 80GB HBM3")
    graph = graph_of_text(text)
    assert bandwidth(graph)[7] == [425] * 7 + [0]
    assert bandwidth(graph)[0] == [0] + [450] * 6 + [425]
    assert "NVLinks do not work: " in graph.notices[0]


def test_a_gpu_without_any_link_goes_by_pcie() -> None:
    text = status([[53.125] * 18] * 2 + [[]] + [[53.125] * 18] * 5, "NVIDIA B200")
    graph = graph_of_text(text)
    wanted = product("hgx-b200-8-gpu2-lost-nvlink")
    assert (graph.links == wanted.links).all()
    assert [graph.kind(2, other) for other in (0, 3, 4)] == ["NODE", "NODE", "SYS"]


def test_a_failed_link_of_a_cube_mesh_is_where_both_ends_miss_one() -> None:
    broken = [[25.781] * 6 for _ in range(8)]
    broken[0][5] = broken[3][2] = 0
    graph = graph_of_text(status(broken))
    lost = [
        (one, other)
        for one in range(8)
        for other in range(one)
        if graph.links[one, other] < product("dgx1-v100-8").links[one, other]
    ]
    assert lost == [(3, 0)]
    assert graph.kind(0, 3) == "NV1"


def test_a_status_of_other_gpus_is_left_out() -> None:
    graph = graph_of_text(CUBE + status([[25.781] * 6] * 4), "dgx1-v100-8.txt")
    assert (graph.links == product("dgx1-v100-8").links).all()
    assert graph.notices == ("the status of NVLinks is of 4 GPUs, not of 8: it is left out",)


def test_a_status_alone_of_unknown_gpus_does_not_say_where_links_lead() -> None:
    with pytest.raises(InputError, match="nvidia-smi topo -m"):
        graph_of_text(status([[25.781] * 6] * 3, "some GPU"), "node.txt")


# -- what is wrong -----------------------------------------------------------------------------------------------------


def without_row(row: str) -> str:
    return "\n".join(line for line in CUBE.splitlines() if not line.startswith(f"{row}\t"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "node.txt: header: has no matrix"),
        ("hello\n", "node.txt: header: has no matrix"),
        (without_row("GPU3"), "node.txt: row GPU3: is missing"),
        (CUBE.replace("GPU5\tSYS", "GPU5"), "node.txt: row GPU5: says 'X' in the column of GPU4"),
        (
            CUBE.replace("\tNV1\tNV1\tNV2", "\tNV1\tERR!\tNV2", 1),
            "node.txt: row GPU0: says 'ERR!' in the column of GPU2",
        ),
        (CUBE.replace("\tNV1\tNV1\tNV2", "\tNV1\tNV0\tNV2", 1), "node.txt: row GPU0: says 'NV0' in the column of GPU2"),
        (
            CUBE.replace("\tNV1\tNV1\tNV2", "\tNV1\tNV2\tNV2", 1),
            "node.txt: row GPU2: says NV1 to GPU0, whose row says NV2",
        ),
        (CUBE.replace("GPU0\t X ", "GPU0\tNV1", 1), "node.txt: row GPU0: says 'NV1' in the column of GPU0"),
        (CUBE.replace("\tGPU2", "", 1), "node.txt: header: GPU2 is missing or out of order"),
        (CUBE.replace("GPU7\tSYS", "GPU8\tSYS"), "node.txt: row GPU8: is not in the header, which has 8 GPUs"),
        (CUBE.replace("GPU7\tSYS", "GPU6\tSYS"), "node.txt: row GPU6: occurs twice"),
        ("\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV2\n", "node.txt: row GPU1: has 1 of 2 cells"),
        ("\t" + "\t".join(f"GPU{gpu}" for gpu in range(65)), "node.txt: header: has 65 GPUs, more than 64"),
        ("x" * (LARGEST_TEXT + 1), "node.txt: has 262,145 characters"),
    ],
)
def test_a_matrix_that_is_not_whole_is_named_with_file_row_and_cure(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        graph_of_text(text, "node.txt")
    assert problem in str(caught.value)
    assert caught.value.cure
    graph = graph_of_node({}, 8, text or " ")
    assert (graph.is_known, graph.gpus) == (False, 8)
    assert not text or any(problem.removeprefix("node.txt: ") in notice for notice in graph.notices)


WORDS = [
    "GPU0",
    "GPU1",
    "GPU2",
    "GPU99",
    "X",
    "NV1",
    "NV18",
    "NV999",
    "SYS",
    "PIX",
    "0-7",
    "Legend:",
    "NUMA",
    "\x1b[4m",
]
LINES = ["GPU 0: A", "GPU 1: B (UUID: x)", "Link 0: 25.781 GB/s", "Link 1: <inactive>", "CPU Affinity", "\n", "\t", " "]
PIECES = st.sampled_from([*WORDS, *LINES])


def may_be_refused(text: str) -> None:
    """It is a graph, or an error of ours; a node has a graph all the same."""
    with suppress(InputError):
        graph = graph_of_text(text, "node.txt")
        assert (graph.grade == graph.grade.T).all()
        assert (graph.grade >= 0).all()
    assert graph_of_node({"nvidia.com/gpu.product": text[:63]}, 4, text).gpus == 4


@given(st.lists(PIECES | st.text(max_size=4), max_size=60).map("".join))
def test_any_text(text: str) -> None:
    may_be_refused(text)


@given(st.integers(0, len(CUBE) - 1), st.integers(0, 40), st.text(max_size=6))
def test_a_matrix_with_a_part_replaced(at: int, length: int, instead: str) -> None:
    may_be_refused(CUBE[:at] + instead + CUBE[at + length :])
