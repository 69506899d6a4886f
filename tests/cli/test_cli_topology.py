"""``kai-solver topology``: domain trees in words, JSON and pictures."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.cli.exits import Exit
from tests.support.engines import GREEDY

INSTANCE = """
format: kai-solver/v1
name: two-racks
nodes:
  - {name: "a-{i}", count: 2, gpus: 4, labels: {block: b0, clique: c0}}
  - {name: b-0, gpus: 4, labels: {block: b0, clique: c1}}
  - {name: b-1, gpus: 4, labels: {block: b0, clique: c1}, schedulable: false}
  - {name: pcie, gpus: 8}
topologies:
  - {name: nvlink, levels: [block, clique, kubernetes.io/hostname]}
  - {name: empty, levels: [zone]}
queues: [{name: q, quota: 100}]
gangs:
  - {name: runs, queue: q, pods: [{replicas: 2, gpus: 3, running: {a-0: 1, b-0: 1}}]}
  - {name: part, queue: q, pods: [{gpus: 0.5, running: {b-0: 1}}]}
  - {name: waits, queue: q, pods: [{replicas: 1, gpus: 4}]}
"""


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.yaml"
    labelled = INSTANCE.replace("gpus: 4, labels: {", "gpus: 4, labels: {kubernetes.io/hostname: h, ")
    file.write_text(labelled)
    return file


def run(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["topology", *map(str, arguments)], env={"COLUMNS": "200"})
    return done.exit_code, done.output


def test_every_domain_says_what_is_free_in_it(instance: Path) -> None:
    _, out = run(instance, "--json")
    found = {(line["topology"], line["domain"]): line for line in json.loads(out)["domains"]}
    assert list(found) == [
        ("empty", "empty"),
        ("nvlink", "nvlink"),
        ("nvlink", "b0"),
        ("nvlink", "b0/c0"),
        ("nvlink", "b0/c1"),
    ]
    figures = {
        key: (v["nodes"], v["idle_nodes"], v["gpus"], v["used_gpus"], v["free_gpus"]) for key, v in found.items()
    }
    assert figures["nvlink", "b0/c0"] == (2, 1, 8, 3, 5)
    assert figures["nvlink", "b0/c1"] == (2, 0, 8, 3.5, 0.5)  # a cordoned node's GPUs are neither used nor free
    assert figures["nvlink", "nvlink"] == (4, 1, 16, 6.5, 5.5)
    assert figures["empty", "empty"] == (0, 0, 0, 0, 0)
    assert found["nvlink", "b0/c1"]["gangs"] == [
        {"gang": "default/runs", "gpus": 3},
        {"gang": "default/part", "gpus": 0.5},
    ]


def test_the_table_is_a_tree(instance: Path) -> None:
    code, out = run(instance, "--topology", "nvlink")
    assert code == Exit.FINE
    lines = [line.split() for line in out.splitlines()]
    assert lines[3][:7] == ["c0", "clique", "2", "1", "8", "3", "5"]
    assert "    c0" in out
    assert "default/runs 3, default/part 0.5" in out
    assert "1 of 5 nodes are outside of nvlink." in out


@pytest.mark.parametrize("command", [["topology"], ["topology", "--node", "gpu-09"], ["validate"], ["fairshare"]])
def test_gangs_have_the_names_that_people_gave_them(command: list[str]) -> None:
    """Not those of KAI's pod grouper, as ``pg-sweep-0-d3466f6e-...``."""
    snapshot = Path(__file__).parents[2] / "instances" / "kai-snapshots" / "before-reclaim.zip"
    done = CliRunner().invoke(app, [command[0], str(snapshot), *command[1:]])
    assert "typo-queue" in done.output
    assert "/pg-" not in done.output


def test_a_plan_is_carried_out_first(instance: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    CliRunner().invoke(app, ["solve", str(instance), *GREEDY, "--output", str(plan)])
    [bind] = json.loads(plan.read_text())["binds"]
    before, after = (json.loads(run(instance, "--json", *more)[1])["domains"] for more in ((), ("--plan", plan)))
    free = [sum(line["free_gpus"] for line in lines if line["domain"] == "nvlink") for lines in (before, after)]
    assert free[0] - free[1] == (0 if bind["node"] == "pcie" else 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tree.svg", "tree.png"])
def test_it_draws_the_same_picture_twice(instance: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / name
    assert run(instance, "--plot", file)[0] == Exit.FINE
    first = file.read_bytes()
    assert run(instance, "--plot", file)[0] == Exit.FINE
    assert file.read_bytes() == first
    if name.endswith(".svg"):
        assert b"<svg" in first


def test_bad_usage_names_what_there_is(instance: Path, tmp_path: Path) -> None:
    assert run(instance, "--topology", "ib")[0] == Exit.INPUT
    assert "It has 'empty', 'nvlink'" in run(instance, "--topology", "ib")[1]
    assert "Write .svg or .png" in run(instance, "--plot", tmp_path / "tree.gif")[1]
    bare = tmp_path / "bare.yaml"
    bare.write_text("format: kai-solver/v1\nnodes: [{name: n, gpus: 8}]\n")
    assert "has no topologies" in run(bare)[1]
    assert run(bare, "--plot", tmp_path / "tree.svg")[0] == Exit.INPUT
