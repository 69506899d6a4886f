"""Folders that reports are made of."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kai_solver import simulate

Simulated = Callable[..., Path]

SCENARIO: dict[str, Any] = {
    "format": "kai-scenario/v1",
    "name": "contended",
    "releasing": 5,
    "duration": "20m",
    "cluster": {
        "nodes": [{"name": "n-{i}", "count": 2, "gpus": 8, "cpu": 64}],
        "queues": [{"name": "a", "quota": 8, "weight": 1}, {"name": "b", "quota": 8, "weight": 1}],
    },
    "workloads": [
        {
            "kind": "generate",
            "name": f"w-{queue}",
            "queue": queue,
            "count": 12,
            "arrivals": {"process": "batch", "start": start},
            "runtime": {"distribution": "fixed", "typical": 200},
            "gpus": gpus,
        }
        for queue, start, gpus in (("a", 0, 4), ("b", 60, 8))
    ],
}


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of two policies on two nodes that two queues contend for: queue a takes both nodes, b reclaims one."""
    folder = tmp_path_factory.mktemp("simulated") / "tables"
    simulate(SCENARIO, ("greedy-only", "kube-default")).save(folder)
    for path in folder.glob("*.parquet"):
        path.unlink()  # so that all of the folder is text, which tests change
    return folder


def changed(folder: Path, name: str, old: str, new: str) -> None:
    """Replace a text in one of the folder's files."""
    path = folder / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


def copied(folder: Path, to: Path, names: Sequence[str] = ()) -> Path:
    """A copy of a folder, or of some of its files."""
    to.mkdir(parents=True)
    for path in folder.iterdir():
        if not names or path.name in names:
            (to / path.name).write_bytes(path.read_bytes())
    return to
