"""The notebooks under docs/ run from the first cell to the last, and their answers follow from their numbers."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import kai_solver

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

Run = Callable[..., list[Any]]
Row = dict[str, Any]
PUBLIC = {"compare", "explain", "load", "simulate", "solve", "validate", "Simulation"}


def read(notebook: Path) -> nbformat.NotebookNode:
    found: nbformat.NotebookNode = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    return found


def cells(notebook: Path) -> list[Any]:
    return list(read(notebook).cells)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Execute a notebook; then evaluate expressions in it, whose values come back as plain Python."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")

    def executed(name: str, *expressions: str) -> list[Any]:
        notebook = read(FOLDER / name)
        asked = f"import json\nfor value in ({', '.join(expressions)},):\n    print(json.dumps(value))"
        notebook.cells.append(nbformat.v4.new_code_cell(asked))  # type: ignore[no-untyped-call]
        client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(FOLDER)}})
        asyncio.run(client.async_execute())  # execute() leaves its event loop open, which fails a later test
        outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
        assert 1 <= sum("image/png" in out.get("data", ()) for out in outputs) <= 2
        [said] = notebook.cells[-2].outputs
        assert said.data["text/markdown"].startswith("**")
        printed = "".join(out.text for out in notebook.cells[-1].outputs if out.name == "stdout")
        return [said.data["text/markdown"], *map(json.loads, printed.splitlines())]

    return executed


def number(text: str, pattern: str) -> float:
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in: {text}"
    return float(found[1].replace(",", ""))


def test_there_are_three() -> None:
    assert [path.name for path in NOTEBOOKS] == ["fair-share.ipynb", "more-nodes.ipynb", "which-model.ipynb"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_shape(notebook: Path) -> None:
    """Short, without outputs, titled, and only public names are used."""
    nbformat.validate(read(notebook))
    found = cells(notebook)
    assert 15 <= len(found) <= 25
    assert found[0].source.startswith("# ")
    code = [cell for cell in found if cell.cell_type == "code"]
    assert [cell.outputs for cell in code if cell.outputs or cell.execution_count] == []
    source = "\n".join(cell.source for cell in code)
    assert set(re.findall(r"kai_solver\.(\w+)", source)) <= PUBLIC
    assert "from kai_solver" not in source


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_links_and_files_are_there(notebook: Path) -> None:
    found = cells(notebook)
    text = "\n".join(cell.source for cell in found if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert [link for link in links if not (FOLDER / link).is_file()] == []
    files = [file for cell in found for file in re.findall(r'"(instances/[^"]+)"', cell.source)]
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []


def best_model(runs: Iterable[Row]) -> str:
    """The model with the fewest misses, then the least time, by the goals that the notebook states."""
    rows = list(runs)

    def worth(row: Row) -> tuple[float, ...]:
        return (row["pending"], round(row["evicted_gpu_hours"], 6), row["moved_pods"])

    fine = [row for row in rows if row["status"] == "ok"]
    instances = {row["instance"] for row in fine}
    best = {name: min(worth(row) for row in fine if row["instance"] == name) for name in instances}
    models: set[str] = {row["model"] for row in rows}
    misses = {
        model: sum(
            row["status"] != "ok" or worth(row) != best[row["instance"]] for row in rows if row["model"] == model
        )
        for model in models
    }
    return min(models, key=lambda model: (misses[model], mean(row["solve_s"] for row in fine if row["model"] == model)))


@pytest.mark.slow
def test_which_model(run: Run) -> None:
    """The answer is the best model of the runs; with the models' names swapped it is the other one."""
    swapped = 'runs.with_columns(pl.col("model").replace({"greedy-only": "default", "default": "greedy-only"}))'
    failed = (
        'runs.with_columns(status=pl.when(pl.col("model") != "greedy-only").then(pl.lit("failed")).otherwise("status"))'
    )
    said, rows, instead, said_failed = run(
        "which-model.ipynb",
        'runs.select("instance", "model", "status", "seed", "solve_s", *GOALS).to_dicts()',
        f"answer({swapped})",
        f"answer({failed})",
    )
    assert len(rows) == 4 * 3 * 2
    assert {row["status"] for row in rows} == {"ok"}
    waits = {row["model"]: row["pending"] for row in rows if row["instance"] == "monday-morning" and row["seed"] == 1}
    assert waits["greedy-only"] == 2
    assert waits["default"] == 1
    assert said.startswith(f"**Take `{best_model(rows)}`.**")
    assert "`greedy-only` misses the best known plan in" in said
    names = {"greedy-only": "default", "default": "greedy-only"}
    renamed = [row | {"model": names.get(row["model"], row["model"])} for row in rows]
    assert instead.startswith(f"**Take `{best_model(renamed)}`.**")
    assert "`default` misses the best known plan in" in instead
    assert said_failed.startswith("**Take `greedy-only`.**")
    assert "16 runs failed" in said_failed


@pytest.mark.slow
def test_more_nodes(run: Run) -> None:
    """The numbers of the answer are those of the replays, which are those of the shipped scenario."""
    said, table, jobs, hours, admitted, none_saved = run(
        "more-nodes.ipynb",
        "by_size(replays).to_dicts()",
        "jobs.to_dicts()",
        "hours",
        "admitted",
        'answer(by_size(replays), jobs.with_columns(saved_h=-pl.col("saved_h")), hours, admitted)',
    )
    assert [row["nodes"] for row in table] == [25 + ceil(25 * share / 100) for share in (0, 10, 20, 30)]
    today, larger = table[:2]
    shipped = kai_solver.simulate(ROOT / "instances" / "scenarios" / "own-week.yaml", ["greedy-only"])
    [summary] = shipped.frame().to_dicts()
    assert today["mean_wait_min"] == pytest.approx(summary["mean_wait_s"] / 60)
    assert hours == pytest.approx(summary["end_s"] / 3600)
    waits = [row["mean_wait_min"] for row in table]
    assert waits == sorted(waits, reverse=True)

    saved_h = sum(job["saved_h"] for job in jobs)
    assert saved_h == pytest.approx((today["mean_wait_min"] - larger["mean_wait_min"]) / 60 * len(jobs))
    assert said.startswith("**3 more nodes (12%) make the mean wait ")
    assert number(said, r"save ([\d.,]+) hours") == pytest.approx(saved_h, abs=0.05)
    assert number(said, r"add ([\d,]+) GPU-hours") == pytest.approx(3 * 4 * hours, abs=0.5)
    assert number(said, r"costs ([\d,]+) GPU-hours") == pytest.approx(3 * 4 * hours / saved_h, abs=0.5)
    assert number(said, r"(\d+) start earlier") == sum(job["saved_h"] > 0 for job in jobs)
    assert number(said, r"and (\d+) with more nodes") == admitted[1] > admitted[0]
    assert none_saved.startswith("**3 more nodes (12%) save no waiting time.**")


@pytest.mark.slow
def test_fair_share(run: Run) -> None:
    """The verdict follows from what queues got; shares that break a rule are found."""
    changed = [
        f'broken_rules(instance.frame("queues").with_columns(fair_share={share}), gpus)'
        for share in ('pl.col("quota") / 2', "pl.lit(500.0)", 'pl.col("quota")')
    ]
    said, rows, table, shares, less, more, left, fair, unfair = run(
        "fair-share.ipynb",
        'rows.filter(policy="greedy-only").to_dicts()',
        "ours.to_dicts()",
        "shares.to_dicts()",
        *changed,
        "answer([], shares, ours.with_columns(served=pl.lit(0.951)), theirs)",
        'answer(["a gets less than its quota."], shares, ours.with_columns(served=pl.lit(1.0)), theirs)',
    )
    for queue in table:
        due = lack = 0.0
        for row in rows:
            if row["queue"] == queue["queue"]:
                gpus = min(row["requested_gpus"], row["fair_share_gpus"])
                due += gpus * row["hours"]
                lack += max(0, gpus - row["allocated_gpus"]) * row["hours"]
        assert queue["served"] == pytest.approx(1 - lack / due)
        assert f"- {queue['queue']} was due {due:,.0f} GPU-hours, and got {1 - lack / due:.1%} of them." in said
    short = [queue["queue"] for queue in table if queue["served"] < 0.95]
    assert said.startswith(f"**Not fair: the shares keep the rules, but {', '.join(short)} got" if short else "**Fair")
    for share in shares:
        assert share["fair_share"] >= min(share["quota"], share["requested"])
    assert sum(share["fair_share"] for share in shares) == 100
    most = max(shares, key=lambda share: share["past_usage"])
    assert most["fair_share"] < most["without_past"]
    assert f"gives {most['queue']} less" in said

    assert [sentence.split()[-2:] for sentence in less[:3]] == [["its", "quota."]] * 3
    assert [sentence.split()[-2:] for sentence in more] == [["may", "use."]] * 3
    assert left == ["50 GPUs are left over while a queue asks for more."]
    assert fair.startswith("**Fair: ")
    assert unfair.startswith("**Not fair: the shares break a rule.** a gets less than its quota.")
