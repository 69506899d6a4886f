"""``kai-solver topology --node``: links of a node, who holds which GPUs and how that is known, in all forms."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.cli.exits import Exit
from kai_solver.links import products
from tests.support.engines import GREEDY

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def here(node: str, gpus: float, **more: Any) -> dict[str, Any]:
    return {"gpus": gpus, "status": "Running", "node": node, **more}


def write(folder: Path, nodes: list[dict[str, Any]], pods: dict[str, dict[str, Any]], **more: Any) -> Path:
    gangs = [{"name": name, "queue": "q", "pods": [pod]} for name, pod in pods.items()]
    file = folder / "cluster.yaml"
    document = {"format": "kai-solver/v1", "nodes": nodes, "queues": [{"name": "q", "quota": 100}], "gangs": gangs}
    file.write_text(yaml.safe_dump(document | more))
    return file


def run(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["topology", *map(str, arguments)], env={"COLUMNS": "250"})
    return done.exit_code, done.output


def board(file: Path, node: str, *more: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(file, "--node", node, "--json", *more)[1])
    return found


def row(out: str, begin: str) -> list[str]:
    return next(line.split() for line in out.splitlines() if line.startswith(begin))


@pytest.fixture
def cube(tmp_path: Path) -> Path:
    """A cube mesh with a pod whose GPUs are known, one of wishes, and a half."""
    pods = {
        "fact": here("n0", 2, devices=[0, 1]),
        "wish": here("n0", 2, wishedDevices=[2, 3]),
        "half": here("n0", 0.5, devices=[6]),
        "waits": {"gpus": 2},
    }
    return write(tmp_path, [{"name": "n0", "gpus": 8, "gpuTopology": "dgx1-v100-8"}], pods)


def test_what_holds_which_and_what_limits_them(cube: Path) -> None:
    found = board(cube, "n0")
    assert found["free"] == [4, 5, 7]
    assert found["links"]["kinds"][0][:4] == ["X", "NV1", "NV1", "NV2"]
    assert found["links"]["gb_s"][0][:4] == [0, 25, 25, 50]
    pods = {entry["gang"].rpartition("/")[2]: entry for entry in found["pods"]}
    assert {name: (entry["gpus"], entry["known"]) for name, entry in pods.items()} == {
        "fact": ([0, 1], "fact"),
        "wish": ([2, 3], "wish"),
        "half": ([6], "fact"),
    }
    assert pods["fact"]["link"] == {"kind": "NV1", "gb_s": 25, "gpus": [0, 1]}
    assert pods["wish"]["link"] == {"kind": "NV2", "gb_s": 50, "gpus": [2, 3]}
    assert pods["half"]["link"] is None


def test_the_words_say_the_same(cube: Path) -> None:
    code, out = run(cube, "--node", "n0")
    assert code == Exit.FINE
    assert out.startswith("n0: 8 GPUs, free: 4, 5, 7; in a row at most 2\n")
    assert row(out, "GPU0")[1:6] == ["-", "NV1", "25", "NV1", "25"]
    assert row(out, "default/wish") == ["default/wish", "wish-0", "2", "2,", "3", "wish", "NV2", "50", "2,", "3"]
    assert "the device plugin may have given others" in out


def test_a_plan_shows_its_sets(cube: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    CliRunner().invoke(app, ["solve", str(cube), *GREEDY, "--output", str(plan)])
    [bind] = json.loads(plan.read_text())["binds"]
    given = [device["index"] for device in bind["devices"]]
    [entry] = [e for e in board(cube, "n0", "--plan", plan)["pods"] if e["gang"] == "default/waits"]
    assert (entry["gpus"], entry["known"]) == (given, "wish")
    assert (entry["link"]["kind"], entry["link"]["gb_s"]) == (bind["link"]["kind"], bind["link"]["gb_s"])


def test_what_leaves_by_a_plan_is_not_there_any_more(tmp_path: Path) -> None:
    pods = {"goes": here("n0", 8, devices=list(range(8))), "comes": {"gpus": 8}}
    queues = [{"name": "lent", "quota": 0}, {"name": "own", "quota": 8}]
    file = write(tmp_path, [{"name": "n0", "gpus": 8, "gpuTopology": "dgx1-v100-8"}], pods, queues=queues)
    text = file.read_text().replace("queue: q", "queue: lent", 1).replace("queue: q", "queue: own", 1)
    file.write_text(text)
    plan = tmp_path / "plan.json"
    CliRunner().invoke(app, ["solve", str(file), *GREEDY, "--output", str(plan)])
    assert json.loads(plan.read_text())["evictions"]
    assert [entry["gang"] for entry in board(file, "n0")["pods"]] == ["default/goes"]
    assert [entry["gang"] for entry in board(file, "n0", "--plan", plan)["pods"]] == ["default/comes"]


def test_unknown_links_say_why_and_the_cure(tmp_path: Path) -> None:
    file = write(tmp_path, [{"name": "n0", "gpus": 8}], {"nobody": here("n0", 2)})
    _, out = run(file, "--node", "n0")
    assert "unknown, all equal" in out
    assert "no label nvidia.com/gpu.product" in out
    assert "Give the node the annotation kai-solver/gpu-topology" in out
    assert "it is unknown which GPUs these pods have: default/nobody-0" in out
    found = board(file, "n0")
    assert (found["links"]["known"], found["links"]["gb_s"], found["free"]) == (False, None, None)
    assert found["pods"][0]["gpus"] is None
    assert found["pods"][0]["link"] is None


def test_where_all_pairs_are_alike_the_link_is_known_all_the_same(tmp_path: Path) -> None:
    file = write(tmp_path, [{"name": "n0", "gpus": 8, "labels": H100}], {"nobody": here("n0", 2)})
    [entry] = board(file, "n0")["pods"]
    assert (entry["known"], entry["link"]) == ("unknown", {"kind": "NV18", "gb_s": 450, "gpus": []})
    assert row(run(file, "--node", "n0")[1], "default/nobody")[-4:] == ["unknown", "NV18", "450", "any"]


def test_mig_mode_and_failed_links_are_told(tmp_path: Path) -> None:
    mig = {"name": "mig", "gpus": 8, "labels": H100 | {"nvidia.com/mig-1g.10gb.count": "7"}}
    lost = {"name": "lost", "gpus": 8, "gpuTopology": "hgx-b200-8-gpu2-lost-nvlink"}
    file = write(tmp_path, [mig, lost], {"off": here("lost", 2, devices=[1, 2])})
    out = run(file, "--node", "mig")[1]
    assert "MIG mode: no NVLink" in out
    assert row(out, "GPU0")[2:4] == ["NODE", "40"]
    [entry] = board(file, "lost")["pods"]
    assert entry["link"] == {"kind": "NODE", "gb_s": 40, "gpus": [1, 2]}


def quads(gpus: int) -> str:
    """A matrix of PCIe cards in quads below two sockets."""
    rows = [
        [
            "X" if a == b else "PXB" if a // 4 == b // 4 else "NODE" if 2 * a // gpus == 2 * b // gpus else "SYS"
            for b in range(gpus)
        ]
        for a in range(gpus)
    ]
    head = "\t".join(["", *(f"GPU{gpu}" for gpu in range(gpus))])
    return "\n".join([head, *("\t".join([f"GPU{at}", *cells]) for at, cells in enumerate(rows))])


def test_of_32_gpus_those_that_are_alike_are_one_row(tmp_path: Path) -> None:
    node = {"name": "n0", "gpus": 32, "gpuTopology": quads(32)}
    file = write(tmp_path, [node], {"eight": here("n0", 8, devices=list(range(8)))})
    out = run(file, "--node", "n0")[1]
    assert [line.split()[0] for line in out.splitlines() if line.startswith("GPU")] == [
        *(f"GPU{first}-{first + 3}" for first in range(0, 32, 4))
    ]
    assert row(out, "GPU0-3")[1:5] == ["PXB", "10", "NODE", "10"]
    *told, one, other = row(out, "default/eight")[2:]
    assert told == ["8", "0-7", "fact", "NODE", "10"]
    assert int(one.rstrip(",")) // 4 != int(other) // 4  # any pair of two quads is as weak
    assert max(map(len, out.splitlines())) < 120


def device(gpu: int) -> dict[str, Any]:
    """Named against the order of the driver, which is that of PCI addresses."""
    place = {"pcieBusID": f"0000:{gpu:02x}:00.0", "type": "gpu", "productName": "Tesla V100-SXM2-32GB"}
    return {"name": f"gpu-{7 - gpu}", "attributes": place}


def test_gpus_by_claim_bear_their_names_and_are_facts(tmp_path: Path) -> None:
    driver = "gpu.nvidia.com"
    more = {
        "deviceClasses": [{"name": driver, "selectors": [f'device.driver == "{driver}"']}],
        "resourceSlices": [{"driver": driver, "node": "n0", "devices": [device(gpu) for gpu in range(8)]}],
        "resourceClaimTemplates": [
            {"name": "two", "requests": [{"name": "r", "deviceClass": driver, "count": 2}]},
        ],
    }
    file = write(tmp_path, [{"name": "n0"}], {"pair": {"claimTemplates": ["two"]}}, **more)
    plan = tmp_path / "plan.json"
    CliRunner().invoke(app, ["solve", str(file), *GREEDY, "--output", str(plan)])
    [bind] = json.loads(plan.read_text())["binds"]
    found = board(file, "n0", "--plan", plan)
    [entry] = found["pods"]
    granted = {d["device"] for claim in bind["claims"] for d in claim["devices"]}
    assert {found["devices"][gpu] for gpu in entry["gpus"]} == granted
    assert (entry["known"], entry["link"]["kind"]) == ("fact", "NV2")
    assert "gpu-0" in row(run(file, "--node", "n0")[1], "GPU0")


@pytest.mark.parametrize("product", products())
def test_every_product_is_printed_and_drawn(product: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    gpus = products()[product].graph.gpus
    pods = {
        "pair": here("n0", 2, wishedDevices=[0, 1]),
        "one": here("n0", 1, devices=[2]),
        "half": here("n0", 0.5, devices=[gpus - 1]),
    }
    file = write(tmp_path, [{"name": "n0", "gpus": gpus, "gpuTopology": product}], pods)
    picture = tmp_path / "n0.svg"
    code, out = run(file, "--node", "n0", "--plot", picture)
    assert code == Exit.FINE
    assert len([line for line in out.splitlines() if line.startswith("GPU")]) == gpus
    drawn = picture.read_text()
    link = board(file, "n0")["pods"][0]["link"]
    assert f"default/pair: 0, 1, a wish; {link['kind']} {link['gb_s']} GB/s" in drawn


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [[{"name": "n0", "gpus": 32, "gpuTopology": quads(32)}], [{"name": "n0", "gpus": 8}]])
def test_large_and_unknown_ones_are_drawn_the_same_twice(nodes: list[dict[str, Any]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = write(tmp_path, nodes, {f"g{at}": here("n0", 1, devices=[at]) for at in range(8)})
    first, second = tmp_path / "1.png", tmp_path / "2.png"
    for picture in (first, second):
        assert run(file, "--node", "n0", "--plot", picture)[0] == Exit.FINE
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(b"\x89PNG")


def test_bad_usage_names_what_there_is(cube: Path, tmp_path: Path) -> None:
    code, out = run(cube, "--node", "n1")
    assert code == Exit.INPUT
    assert "no node 'n1'. It has 'n0'" in out
    assert run(cube, "--node", "n0", "--topology", "t")[0] == Exit.INPUT
    assert "Write .svg or .png" in run(cube, "--node", "n0", "--plot", tmp_path / "n0.pdf")[1]
