"""Wrong input, as new users give it: ten cases and more for every command.

``bad_inputs.txt`` is the table: the exit code, the command, and what it prints first (``...``: any words). The files
that the commands name are made by ``folder``; DATA is the folder of the openb trace.
"""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kai_solver.cli.app import app

ROOT = Path(__file__).parents[2]
INSTANCES = ROOT / "instances"
TABLE = Path(__file__).with_name("bad_inputs.txt")
ROWS = [line.split(" | ", 2) for line in TABLE.read_text().splitlines() if " | " in line]
LEAST = 10
"""Cases of each command."""

GOOD = """format: kai-solver/v1
nodes: [{name: n0, gpus: 4, cpu: 32, memory: 128Gi, labels: {rack: r0}}, {name: n1, gpus: 4, cpu: 32, memory: 128Gi, labels: {rack: r1}}]
queues: [{name: q, quota: {gpu: 8}, limit: {gpu: 8}}]
topologies: [{name: racks, levels: [rack]}]
gangs:
- {name: train, namespace: team, queue: q, pods: [{name: train-0, gpus: 2}]}
- {name: test, namespace: team, queue: q, pods: [{name: test-0, gpus: 1}]}
- {name: big, namespace: team, queue: q, pods: [{name: big-0, gpus: 8}]}
"""  # noqa: E501 - lines of a file
MISINDENTED = """apiVersion: v1
kind: Node
metadata: {name: n0}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: team}
spec:
template: {spec: {containers: [{name: a, image: b}]}}
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: mine, namespace: team, labels: {kai.scheduler/queue: q}}
spec: {template: {spec: {schedulerName: kai-scheduler, containers: [{name: a, image: b}]}}}
"""
SPACE = """format: kai-tune/v1
name: mine
model: default
parameters:
  search.presolve: {choices: [none, light]}
instances:
- {name: good, file: good.yaml, family: one}
- {name: nodes-only, file: nodes-only.yaml, family: two}
split: {families: [two]}
"""
LAUGHS = "a: &a [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in pairwise("abcdefghij")
)
PLAN = {"format": "kai-plan/v1", "source": "greedy"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    head, nodes, queues = GOOD.splitlines()[:3]
    scenario = (INSTANCES / "scenarios" / "training-and-inference.yaml").read_text()
    files = {
        "good.yaml": GOOD,
        "typo.yaml": GOOD.replace("gpus: 2", "gpu: 2"),
        "twice.yaml": GOOD.replace("name: n1", "name: n0"),
        "nodes-only.yaml": GOOD.partition("gangs:")[0],
        "no-nodes.yaml": GOOD.replace(nodes, "nodes: []"),
        "gpus-as-text.yaml": GOOD.replace("gpus: 2", "gpus: two"),
        "cycle.yaml": GOOD.replace("{name: q,", "{name: q, parent: q,"),
        "no-queues.yaml": f"{head}\n{nodes}\n",
        "set-aside.yaml": GOOD.replace(
            "name: train, namespace: team, queue: q", "name: train, namespace: team, queue: p"
        ),
        "lone-set-aside.yaml": MISINDENTED,
        "job.yaml": JOB,
        "job-of-no-pods.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n",
        "text.txt": "hello\n",
        "jobs.csv": "start,end,gpus\n5,1,2\n",
        "history.yaml": "format: kai-history/v1\ncolumns: {strat: begun}\n",
        "cut.zip": "PK\x03\x04 cut",
        "bad.toml": 'extends = "default"\nbugdet = 5\n',
        "two-faults.toml": 'extends = "default"\nbugdet = 5\nworkerz = 3\n',
        "settings-typo.yaml": "schedulr_name: x\n",
        "settings-value.yaml": "dry_run: perhaps\n",
        "plan.json": json.dumps(PLAN),
        "other-plan.json": json.dumps(PLAN | {"binds": [{"pod": "x/y", "gang": "x/y", "node": "n0"}]}),
        "bad-plan.json": json.dumps(PLAN | {"binds": [{"pod": "x/y"}]}),
        "scenario.yaml": scenario,
        "bad-scenario.yaml": f"{scenario}\njobz: []\n",
        "kind-scenario.yaml": scenario.replace("kind: generate", "kind: generator"),
        "no-kind-scenario.yaml": scenario.replace("- kind: generate\n    name", "- name"),
        "key-scenario.yaml": scenario.replace("perHour", "perhour"),
        "a-study.yaml": "format: kai-study/v1\n",
        "date.yaml": GOOD.replace("train, namespace", "train, created: 2026-11-01, namespace"),
        "case.json": (
            INSTANCES / "cases" / "action_allocate" / "000_allocate_elastic_job_full_allocate.json"
        ).read_text(),
        "cut-case.json": '{"schema": "kai-case/1",',
        "space.yaml": SPACE,
        "bad-space.yaml": SPACE.replace("search.presolve", "search.presolv"),
        "one-sided-space.yaml": SPACE.replace("family: two", "family: one"),
        "no-model-space.yaml": SPACE.replace("model: default", "model: defualt"),
        "lost-space.yaml": SPACE.replace("file: good.yaml", "file: lost.yaml"),
        "choice-space.yaml": SPACE.replace("[none, light]", "[none, lite]"),
        "twice-space.yaml": SPACE.replace("name: nodes-only", "name: good"),
        "tabs.yaml": GOOD.replace("gangs:\n-", "gangs:\n\t-"),
        "norway.yaml": GOOD.replace("name: q,", "name: no,"),
        "negative.yaml": GOOD.replace("gpus: 2", "gpus: -2"),
        "negative.toml": 'extends = "default"\nbudget_s = -1\n',
        "stages.toml": 'extends = "default"\n[stages]\nfoo = 1\n',
        "laughs.yaml": LAUGHS,
        "settings-twice.yaml": "dry_run: true\ndry_run: false\n",
        "instances/one.yaml": GOOD,
        "instances/two.yaml": GOOD,
        "plans/plan.json": json.dumps(PLAN),
        "set.yaml": (INSTANCES / "bench" / "sets" / "scale.yaml").read_text(),
    }
    assert queues.startswith("queues")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "latin1.yaml").write_bytes(GOOD.replace("train", "tr\xe4in").encode("latin1"))
    (tmp_path / "huge.json.zst").write_bytes(b"\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\1\0\0\1\0\0")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100000")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    return tmp_path


@pytest.mark.parametrize(("code", "command", "words"), ROWS, ids=[row[1] for row in ROWS])
@pytest.mark.usefixtures("folder")
def test_wrong_input_is_refused_in_clear_lines(code: str, command: str, words: str) -> None:
    arguments = [word.replace("DATA", str(INSTANCES / "openb")) for word in shlex.split(command)]
    done = CliRunner().invoke(app, arguments, prog_name="kai-solver")
    assert "Traceback" not in done.output
    said = (done.stderr or done.stdout).splitlines()[0].replace(str(INSTANCES / "openb"), "DATA")
    assert re.fullmatch(re.escape(words).replace(re.escape("..."), ".*"), said), said
    assert done.exit_code == int(code)
    assert all(line.startswith("kai-solver: ") for line in done.stderr.splitlines())


def test_every_command_has_ten() -> None:
    group = typer.main.get_command(app)
    names = []
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {})
        names += [f"{name} {inner}" for inner in below] if name == "experiment" else [name]
    counts = {name: sum(row[1].split()[: len(name.split())] == name.split() for row in ROWS) for name in names}
    assert {name: count for name, count in counts.items() if count < LEAST} == {}
