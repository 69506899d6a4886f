"""``kai-solver devices``: what is chosen, in words and in JSON; the library; errors in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kai_solver.cli.app import app
from kai_solver.links import products

ROOT = Path(__file__).parents[2]
CUBE = ROOT / "instances" / "topologies" / "dgx1-v100-8.txt"


def devices(*words: object, **given: Any) -> Result:
    return CliRunner().invoke(app, ["devices", *map(str, words)], env={"COLUMNS": "1000"}, **given)


def asked(*words: object) -> dict[str, Any]:
    done = devices(*words, "--json")
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_it_prints_the_set_its_bandwidth_and_alternatives_as_the_page_shows() -> None:
    done = devices("--matrix", CUBE, "--free", "0,1,2,5", "--count", "2")
    assert done.exit_code == 0
    page = (ROOT / "docs" / "devices.md").read_text()
    shown = page.split("```console\n")[1].split("```")[0].split("...\n")[1]
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    assert printed[-len(shown.splitlines()) :] == shown.splitlines()


def test_json_has_the_graph_the_choice_and_alternatives() -> None:
    document = asked("--matrix", CUBE, "--free", "0,1,2,5", "--count", "2")
    assert (document["gpus"], document["free"], document["largest_free_row"]) == (8, [0, 1, 2, 5], 3)
    assert document["links"][0][:4] == ["X", "NV1", "NV1", "NV2"]
    assert document["gb_s"][0] == [0, 25, 25, 50, 50, 10, 10, 10]
    [choice] = document["choices"]
    chosen = choice["chosen"]
    assert (choice["count"], chosen["gpus"], chosen["bottleneck_gb_s"], chosen["weakest"]) == (2, [1, 5], 50, "NV2")
    assert [other["bottleneck_gb_s"] for other in choice["alternatives"]] == [50, 25, 25, 10, 10]


def test_without_a_count_every_size_has_its_best_set() -> None:
    document = asked("--product", "dgx1-v100-8", "--free", "0-5")
    assert [choice["count"] for choice in document["choices"]] == [1, 2, 3, 4, 5, 6]
    assert document["choices"][0]["chosen"]["bottleneck_gb_s"] is None
    done = devices("--product", "dgx1-v100-8", "--free", "0-5")
    assert "Best set of each size" in done.stdout


def test_a_product_gives_its_figures_to_a_matrix(tmp_path: Path) -> None:
    path = tmp_path / "node.txt"
    path.write_text(CUBE.with_name("hgx-b200-8.txt").read_text())
    assert asked("--matrix", path, "--product", "hgx-b200-8")["gb_s"][0][1] == 900
    assert asked("--matrix", path)["notices"]


def test_a_matrix_from_a_pipe() -> None:
    done = devices("--matrix", "-", "--count", "8", "--json", input=CUBE.read_text())
    assert json.loads(done.stdout)["choices"][0]["chosen"]["bottleneck_gb_s"] == 50


def test_mig_mode_has_no_nvlink() -> None:
    document = asked("--product", "hgx-h100-8", "--mig", "--count", "2")
    assert {kind for row in document["links"] for kind in row} == {"X", "NODE", "SYS"}


def test_rows() -> None:
    wanted = ["--product", "dgx2-v100-16", "--free", "1-6,9-15", "--count", "4"]
    rows = {
        row: asked(*wanted, "--row", row)["choices"][0]["chosen"]["gpus"]
        for row in ("contiguous-required", "aligned-required")
    }
    assert rows["aligned-required"] == [12, 13, 14, 15]
    assert rows["contiguous-required"] == [1, 2, 3, 4]


@pytest.mark.parametrize("row", [[], ["--row", "contiguous-required"]])
def test_what_is_not_to_be_had_is_a_finding(row: list[str]) -> None:
    done = devices("--product", "dgx1-v100-8", "--free", "0,2,4" if row else "0,1", "--count", "3", *row)
    assert done.exit_code == 1
    assert "3 GPUs: not to be had" in done.stdout


def test_the_library_is_listed_with_its_sources() -> None:
    listed = devices("--list")
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == list(products())
    for known in json.loads(devices("--list", "--json").stdout)["products"]:
        assert known["sources"]["links"]


def test_the_page_has_every_product_with_its_fastest_pair() -> None:
    page = (ROOT / "docs" / "devices.md").read_text()
    for name, known in products().items():
        [line] = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert line.split("|")[3].split()[0] == str(known.graph.gb_s.max())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "which node is not said. Give --product NAME"),
        (["--product", "dgx9"], "product: unknown product 'dgx9'"),
        (["--matrix", "nowhere.txt"], "nowhere.txt: cannot be read: no such file or directory"),
        (["--matrix", "."], ".: cannot be read: is a directory"),
        (["--product", "gb200-4", "--free", "0,4"], "--free: '4' is not a GPU of this node"),
        (["--product", "gb200-4", "--free", "3-1"], "--free: '3-1' is not a GPU of this node"),
        (["--product", "gb200-4", "--free", "a"], "--free: 'a' is not a GPU of this node"),
        (["--product", "gb200-4", "--row", "near"], "--row: 'near' is not known"),
    ],
)
def test_bad_input_is_one_line_with_a_cure(words: list[str], problem: str) -> None:
    done = devices(*words)
    assert done.exit_code == 2
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_bad_matrix_names_file_row_and_cure(tmp_path: Path) -> None:
    path = tmp_path / "node.txt"
    path.write_text(CUBE.read_text().replace("NV2", "NV?", 1))
    done = devices("--matrix", path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{path}: row GPU0: says 'NV?' in the column of GPU3. Cells are X" in done.stderr


def test_binary_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.txt"
    path.write_bytes(bytes(range(256)) * 20)
    assert devices("--matrix", path).exit_code == 2


def test_nothing_free_is_no_crash() -> None:
    done = devices("--product", "gb200-4", "--free", "")
    assert done.exit_code == 0
    assert "free: none" in done.stdout
