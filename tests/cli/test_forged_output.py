"""Names of objects forge no line, colour or order of our output."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.controller.logs import _one_line
from kai_solver.errors import InputError, printable

EVIL = "evil\n[bold red]Forged  1 pod\x1b[31m\r\u202egnp\u2028other/innocent\x00"
ESCAPED = r"evil\n[bold red]Forged  1 pod\x1b[31m\r\u202egnp\u2028other/innocent\x00"


def kubernetes() -> dict[str, object]:
    noted = {
        "labels": {"kai.scheduler/queue": EVIL, EVIL: EVIL},
        "annotations": {EVIL: EVIL, "kai-solver/workload": EVIL},
    }
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10", EVIL: "1"}
    node = {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": EVIL, **noted},
        "status": {"allocatable": allocatable},
    }
    queue = {
        "kind": "Queue",
        "apiVersion": "scheduling.run.ai/v2",
        "metadata": {"name": EVIL},
        "spec": {"displayName": EVIL, "parentQueue": EVIL},
    }
    group = {
        "kind": "PodGroup",
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "metadata": {"name": EVIL, "namespace": EVIL, **noted},
        "spec": {"queue": EVIL, "subGroups": [{"name": EVIL, "minMember": 1}]},
    }
    pods = [
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": f"{EVIL}{number}", "namespace": EVIL, "uid": EVIL, **noted},
            "spec": {
                "schedulerName": "kai-scheduler",
                "nodeSelector": {EVIL: EVIL},
                "containers": [{"name": EVIL, "resources": {"requests": {"cpu": amount, EVIL: "1"}}}],
            },
        }
        for number, amount in enumerate(["1", "100", EVIL])
    ]
    return {
        "kind": "List",
        "apiVersion": "v1",
        "items": [node, queue, group, *pods, {"kind": EVIL, "apiVersion": EVIL}],
    }


def native() -> dict[str, object]:
    return {
        "format": "kai-solver/v1",
        "name": EVIL,
        "nodes": [{"name": EVIL, "cpu": "4", "memory": "8Gi", "labels": {EVIL: EVIL}}],
        "queues": [{"name": EVIL, "displayName": EVIL}],
        "gangs": [
            {"name": f"{EVIL}{cpu}", "namespace": EVIL, "queue": EVIL, "pods": [{"name": f"{EVIL}{cpu}", "cpu": cpu}]}
            for cpu in (1, 99)
        ],
        "notices": [{"kind": "warning", "object": EVIL, "text": EVIL}],
    }


COMMANDS = (
    ["solve", "--model", "greedy-only", "--full"],
    ["validate"],
    ["explain"],
    ["fairshare"],
    ["topology"],
    ["convert"],
)


@pytest.mark.parametrize(
    ("form", "command"), [(form, command) for form in (kubernetes, native) for command in COMMANDS]
)
def test_no_command_prints_a_line_of_a_name(form: Callable[[], object], command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(form()))
    result = CliRunner().invoke(app, [command[0], str(path), *command[1:]], env={"COLUMNS": "200"})
    assert "internal error" not in result.output
    for line in result.output.split("\n"):
        assert not re.match(r"\s*(\[bold red\]|Forged  1 pod|other/innocent)", line)
        assert line.isprintable()


def test_a_name_is_shown_whole(tmp_path: Path) -> None:
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(native()))
    assert ESCAPED in CliRunner().invoke(app, ["solve", str(path), "--model", "greedy-only"]).output


def test_errors_and_logs_are_one_line() -> None:
    error = InputError(EVIL, file=EVIL, field=EVIL, cure=EVIL)
    assert str(error).isprintable()
    event = {"event": EVIL, "gang": EVIL, "count": 1, "trace": "a\nb"}
    assert _one_line(None, "info", event) == {"event": ESCAPED, "gang": ESCAPED, "count": 1, "trace": "a\nb"}


def test_a_plain_name_stays_as_it_is() -> None:
    assert printable("team-a/größe 名") == "team-a/größe 名"
