"""Documents of ``--json``: one style in all commands."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kai_solver.cli.app import app

OF_OTHERS = ("condition",)
"""Members whose keys are Kubernetes' own."""


def instance(folder: Path) -> Path:
    path = folder / "small.yaml"
    path.write_text(
        """
format: kai-solver/v1
nodes: [{name: n0, gpus: 8, cpu: 64, memory: 512Gi, labels: {rack: r0}}]
queues: [{name: q, quota: {gpu: 8}, limit: {gpu: 4}}]
topologies: [{name: racks, levels: [rack]}]
gangs:
- {name: a, queue: q, pods: [{name: a-0, gpus: 2}]}
- {name: b, queue: q, pods: [{name: b-0, gpus: 8}]}
"""
    )
    return path


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key not in OF_OTHERS:
                yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


COMMANDS: dict[str, tuple[str, str]] = {
    "solve": ("kai-plan/v1", "solve INSTANCE --model greedy-only"),
    "validate": ("kai-validation/v1", "validate INSTANCE"),
    "validate a plan": ("kai-validation/v1", "validate INSTANCE --plan PLAN"),
    "explain": ("kai-explanation/v1", "explain INSTANCE --model greedy-only"),
    "explain a gang": ("kai-explanation/v1", "explain INSTANCE b --plan PLAN --model greedy-only"),
    "fairshare": ("kai-fairshare/v1", "fairshare INSTANCE"),
    "topology": ("kai-topology/v1", "topology INSTANCE --plan PLAN"),
    "topology of a node": ("kai-node-gpus/v1", "topology INSTANCE --node n0 --plan PLAN"),
    "convert": ("kai-conversion/v1", "convert INSTANCE OUT.json"),
    "models list": ("kai-models/v1", "models list"),
    "models show": ("kai-model/v1", "models show default"),
    "devices": ("kai-devices/v1", "devices --product dgx1-v100-8 --count 2"),
    "devices list": ("kai-devices-products/v1", "devices --list"),
    "compile": ("kai-compilation/v1", "compile --check"),
    "controller": ("kai-settings/v1", "controller --show-settings"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_document_says_its_format_and_has_keys_in_one_style(name: str, tmp_path: Path) -> None:
    small, plan = instance(tmp_path), tmp_path / "plan.json"
    CliRunner().invoke(app, ["solve", str(small), "--model", "greedy-only", "-q", "-o", str(plan)])
    kind, words = COMMANDS[name]
    named = {"INSTANCE": str(small), "PLAN": str(plan), "OUT.json": str(tmp_path / "out.json")}
    done = CliRunner().invoke(app, [*(named.get(word, word) for word in words.split()), "--json"])
    document = json.loads(done.stdout)
    assert document["format"] == kind == next(iter(document.values()))
    assert [key for key in keys(document) if re.search("[A-Z]", key)] == []


def test_a_result_is_written_into_a_file_as_well(tmp_path: Path) -> None:
    small = instance(tmp_path)
    for command in ("fairshare", "topology", "validate"):
        output = tmp_path / f"{command}.json"
        said = CliRunner().invoke(app, [command, str(small), "-o", str(output)])
        printed = CliRunner().invoke(app, [command, str(small), "--json"])
        assert json.loads(output.read_text()) == json.loads(printed.stdout)
        assert said.stdout
        assert not said.stdout.startswith("{")


def test_a_place_where_nothing_can_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["fairshare", str(tmp_path / "missing.yaml"), "-o", "/nowhere/x.json"])
    assert (done.exit_code, done.stderr) == (
        2,
        "kai-solver: /nowhere/x.json: is in no folder that exists. Name a writable place\n",
    )


def test_a_plan_is_named_in_one_way_in_all_commands(tmp_path: Path) -> None:
    small, plan = instance(tmp_path), tmp_path / "plan.json"
    CliRunner().invoke(app, ["solve", str(small), "--model", "greedy-only", "-q", "-o", str(plan)])
    for command in ("validate", "explain", "topology"):
        assert CliRunner().invoke(app, [command, str(small), "--plan", str(plan)]).exit_code == 0, command
    assert CliRunner().invoke(app, ["validate", str(small), str(plan)]).exit_code == 0
    both = CliRunner().invoke(app, ["validate", str(small), str(plan), "--plan", str(plan)])
    assert (both.exit_code, "two plans are given" in both.stderr) == (2, True)
