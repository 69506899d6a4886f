"""The GPUs of racks: what holds each, what is free in pieces, and the drawing of it."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from kai_solver.domain import GpuRequest, Topology, TopologyLevel
from kai_solver.errors import InputError
from kai_solver.explaining.rack_boards import FOREIGN, rack_boards
from kai_solver.explaining.rack_plot import plot_racks
from tests.support.builders import a_cluster, a_gang, a_node, a_pod

HALF = GpuRequest(1, 500)
CLUSTER = a_cluster(
    [
        a_node("a0", rack="a"),
        a_node("a1", rack="a", schedulable=False),
        a_node("b0", rack="b"),
        a_node("elsewhere", 8),
    ],
    [
        a_gang("wide", gpus=3, on="a0", queue="red"),
        a_gang("shared", a_pod("shared-0", HALF, "b0", devices=(0,)), queue="red"),
        a_gang("other", a_pod("other-0", GpuRequest(1, 250), "b0", devices=(0,)), queue="blue"),
    ],
    foreign=(a_pod("alien", 1, "b0", devices=(3,)),),
)


def test_every_gpu_has_its_queues() -> None:
    boards = rack_boards(CLUSTER)["dc"]
    a0, a1 = boards[0].nodes
    [b0] = boards[1].nodes
    assert [board.name for board in boards] == ["a", "b"]
    assert sorted(a0.held, key=len) == [{}, {"red": 1.0}, {"red": 1.0}, {"red": 1.0}]
    assert b0.held == ({"red": 0.5, "blue": 0.25}, {}, {}, {FOREIGN: 1.0})
    assert b0.gangs == ("ns/shared", "ns/other")
    assert (a0.free, a1.free, b0.free) == (1, 0, 2.25)
    assert [node.is_idle for node in (a0, a1, b0)] == [False, False, False]
    assert (boards[0].free, boards[0].gpus) == (1, 8)


def test_a_free_node_is_idle_and_levels_of_nodes_are_left_out() -> None:
    levels = (TopologyLevel("rack"), TopologyLevel("kubernetes.io/hostname"))
    node = a_node("a0", rack="a", labels={"kubernetes.io/hostname": "a0"})
    cluster = replace(a_cluster([node]), topologies=(Topology("dc", levels),))
    [board] = rack_boards(cluster)["dc"]
    assert board.name == "a"
    assert board.nodes[0].is_idle


def test_the_drawing_says_what_is_free_and_has_a_row_for_each_gpu(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "racks.svg"
    plot_racks(rack_boards(CLUSTER), ["red", "blue"], "a cluster", file)
    drawn = file.read_text()
    texts = ("3.25 of 12 GPUs are free, no node is wholly free", "a: 1 of 8 free", "red 3.5", "takes no pods", ">a0<")
    assert [text for text in texts if text not in drawn] == []
    with file.with_suffix(".csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 12
    assert rows[8] == {
        "topology": "dc",
        "domain": "b",
        "node": "b0",
        "gpu": "0",
        "held": "0.75",
        "queues": "blue red",
        "takes_pods": "yes",
    }


def test_many_queues_and_nodes_are_drawn_too(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    nodes = [a_node(f"n{i}", 2, rack=f"r{i % 9}") for i in range(200)]
    gangs = [a_gang(f"g{i}", gpus=1, on=f"n{i}", queue=f"q{i % 30:02}") for i in range(200)]
    file = tmp_path / "racks.svg"
    plot_racks(rack_boards(a_cluster(nodes, gangs)), [f"q{i:02}" for i in range(30)], "many", file)
    assert "16 other queues" in file.read_text()


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no topology has nodes with GPUs"):
        plot_racks({}, [], "none", tmp_path / "racks.svg")
