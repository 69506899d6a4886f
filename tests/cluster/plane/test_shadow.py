"""A dry run beside a stand-in for KAI: what it records, and what the report says of both."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import EVENTS, POD_GROUPS
from tests.cluster.plane.cluster import ALL, SPACE, Cluster
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.kai import Kai
from tests.cluster.plane.plane import ADMIN, OURS_RUN, ROOT, wait_for

LATE_S = 5.0


@pytest.fixture
def cluster(make_cluster: Make) -> Cluster:
    found = make_cluster()
    found.nodes(2)
    found.queues(lender=16, borrower=0)
    return found


@pytest.fixture
def kai(cluster: Cluster) -> Iterator[Kai]:
    found = Kai(cluster)
    yield found
    found.end()


def report(*words: str) -> dict[str, Any]:
    """What ``kai-solver shadow`` says, by gang without the uids of pods and owners."""
    command = [*OURS_RUN, "shadow", "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    found["by_gang"] = {one["gang"].removeprefix(f"{SPACE}/pg-").rsplit("-", 5)[0]: one for one in found["by_gang"]}
    return found


def decides(path: Path, word: str, gang: str) -> bool:
    """Whether the recording says so of a gang."""
    files = path.glob("decisions.jsonl")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return any(line.get("decision") == word and f"pg-{gang}-" in line["gang"] for line in lines)


def test_the_report_says_what_this_side_would_have_done(cluster: Cluster, kai: Kai) -> None:
    """The stand-in never reclaims, and both pods of the lender start when there is another node, and late."""
    folder = cluster.folder / "recording"
    kai.start("pod grouper", "scheduler", "binder")
    cluster.job("borrows", "borrower", 16, least=1)
    cluster.wait_bound(16, "borrows")
    replica = cluster.controller(dry_run=True, grouping="external", recording={"folder": str(folder)})
    cluster.pod("entitled", "lender")
    wait_for("it would take a place", lambda: decides(folder, "promise", "entitled"))
    wait_for("it is served", lambda: "pg-entitled" in replica.said_by("/plan"))
    served = json.loads(replica.said_by("/plan"))
    (victim,) = [one for one in served["gangs"] if one["decision"] == "evict"]
    assert "pg-borrows-" in victim["gang"]
    assert len(victim["evictions"]) == 1
    kai.stop("scheduler")
    cluster.node("node-2")
    cluster.wait_nodes(3)
    cluster.pod("late", "lender", 7)
    wait_for("it would be bound", lambda: decides(folder, "bind", "late"))
    time.sleep(LATE_S)
    kai.start("scheduler")
    cluster.wait_bound(1, "late")
    token = cluster.folder / "token"
    token.write_text(ADMIN)
    asked = "--server", f"http://{replica.answers_at}", "--token-file", str(token)
    wait_for("both are seen", lambda: replica.said_by("/recording").count('"kind":"bound"') >= 2)
    found = report(*asked)
    gangs = found["by_gang"]
    assert {name: one["verdict"] for name, one in gangs.items()} == {
        "entitled": "same",
        "late": "better",
        "borrows": "worse",
    }
    assert gangs["late"]["waits"][0]["saved_s"] >= LATE_S - 1
    assert (found["evicted_here"], found["evicted_there"]) == (1, 0)
    assert report("--recording", str(folder))["gangs"] == found["gangs"]
    named = [line["gang"] for line in replica.said() if line["event"] == "decision"]
    assert sum("pg-late-" in gang for gang in named) == 1, "one line for each new decision"


def test_looking_on_from_a_desk_needs_no_installation_and_changes_nothing(cluster: Cluster, kai: Kai) -> None:
    kai.start("pod grouper", "scheduler", "binder")
    cluster.pods(4, "lender", "here", gpus=1)
    cluster.wait_bound(4, "here")
    groups = len(cluster.plane.api.page(POD_GROUPS, namespace=SPACE).items)
    before = {str(one["metadata"]["uid"]) for one in events_of_kai(cluster)}
    kubeconfig = cluster.plane.write_kubeconfig("desk", ADMIN)
    cluster.pod("too-large", "lender", 9)
    found = report("--live", "--for", "12s", "--kubeconfig", str(kubeconfig), "--quiet")
    assert found["by_gang"]["too-large"]["why"].startswith("waits with both")
    assert found["cycles"] >= 1
    assert len(cluster.plane.api.page(POD_GROUPS, namespace=SPACE).items) == groups + 1, "KAI's own"
    assert [one for one in events_of_kai(cluster) if one["metadata"]["uid"] not in before] == []


def events_of_kai(cluster: Cluster) -> list[Object]:
    """Those of earlier tests, too: they stay for a while."""
    found = cluster.plane.api.page(EVENTS, namespace=SPACE, limit=ALL).items
    return [one for one in found if "kai" in str(one.get("source"))]
