"""The examples of ``docs/instances.md`` are what the format reads."""

import re
from pathlib import Path
from typing import Any

import yaml

from kai_solver.instances_io import load_native
from kai_solver.instances_io.lints import lints

PAGE = (Path(__file__).parents[2] / "docs" / "instances.md").read_text()
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
WHOLE, TREE = BLOCKS[:2]
(PAST,) = (block for block in BLOCKS if "usageHistory" in block)
(CLAIMS,) = (block for block in BLOCKS if "deviceClasses" in block)


def with_tree() -> dict[str, Any]:
    document: dict[str, Any] = WHOLE | {"gangs": WHOLE["gangs"] + TREE["gangs"]}
    return document


def test_the_examples_load_without_notice_or_lint() -> None:
    snapshot = load_native(with_tree()).snapshot
    assert len(snapshot.gangs) == 22
    assert snapshot.notices == ()
    assert [found.text for found in lints(snapshot) if found.severity != "info"] == []


def test_the_example_of_claims_loads_without_notice() -> None:
    nodes = [node | {"gpus": 0} for node in WHOLE["nodes"]]
    snapshot = load_native(WHOLE | CLAIMS | {"nodes": nodes}).snapshot
    assert snapshot.notices == ()
    assert [pod.gpu.devices for pod in snapshot.gangs[0].pods] == [2, 2, 2, 2]
    assert not any(pod.constraints.blocked for pod in snapshot.gangs[0].pods)


def test_the_example_of_past_usage_loads_without_notice() -> None:
    snapshot = load_native(WHOLE | PAST).snapshot
    assert snapshot.notices == ()
    assert [0.1 < queue.usage[2] < 0.9 for queue in snapshot.queues] == [True, True]


def test_the_documented_defaults_hold() -> None:
    snapshot = load_native(WHOLE).snapshot
    research = snapshot.queues[0]
    assert (research.quota, research.limit) == ((-1, -1, 60_000), (-1, -1, -1))
    assert next(snapshot.gangs[-1].root.podsets()).min_member == 4
    assert snapshot.nodes[7].labels["rack"] == "r1"
