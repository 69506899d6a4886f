"""From an earlier revision of the code to this one and back, on a real control plane, with gangs bound in half."""

import json
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from kai_solver.cluster.resources import LEASES
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.stored import FORMAT
from tests.cluster.plane.cluster import LEASE, Cluster, Replica
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import ROOT, Plane, wait_for
from tests.cluster.plane.release import Release, helm_or_skip
from tests.cluster.plane.test_faults import LONG_S

EARLIER = "5eaea9ce"
"""The last revision that wrote no version on the Lease."""

PARTS = ("kai_solver", "models", "instances/topologies")


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the code of that revision."""
    git = ["git", "-C", str(ROOT), "archive", EARLIER, *PARTS]
    found = subprocess.run(git, capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"NOT TESTED: revision {EARLIER} is not in this clone")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def of_earlier(cluster: Cluster, folder: Path) -> Replica:
    """A replica of that revision; not started yet."""
    replica = cluster.controller(start=False)
    replica.component.env = {**replica.component.env, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
    replica.component.warm = None
    return replica


def killed_in_half(cluster: Cluster, replica: Replica, prefix: str, size: int) -> None:
    """Start it, and kill it as soon as some pods of its gangs are bound."""
    replica.component.start()
    wait_for("it began to bind", lambda: len(cluster.bound(prefix)) > 0, LONG_S, look_s=0.002)
    replica.component.kill()
    assert len(cluster.bound(prefix)) <= size


def notes(cluster: Cluster) -> dict[str, str]:
    found: dict[str, str] = cluster.plane.api.get(LEASES, "kai-solver", LEASE)["metadata"].get("annotations") or {}
    return found


def test_up_and_back_with_gangs_bound_in_half(make_cluster: Make, earlier: Path) -> None:
    """No pod that has its node loses it, and what was bound in half becomes whole under the other version."""
    cluster = make_cluster(partly_s=LONG_S)
    cluster.nodes(8)
    cluster.queues(research=64)
    for index in range(4):
        cluster.job(f"up-{index}", "research", 6)
    wait_for("all pods are there", lambda: len(cluster.names("up")) == 24)
    old = of_earlier(cluster, earlier)
    killed_in_half(cluster, old, "up", 24)
    assert names.OWN_VERSION not in notes(cluster)
    had = uids(cluster)

    new = cluster.controller()
    cluster.wait_bound(24, "up", LONG_S)
    assert had.items() <= uids(cluster).items()
    assert notes(cluster)[names.OWN_STORED_FORMAT] == str(FORMAT)
    new.component.kill()

    for index in range(4):
        cluster.job(f"back-{index}", "research", 6)
    wait_for("all pods are there", lambda: len(cluster.names("back")) == 24)
    killed_in_half(cluster, new, "back", 24)
    had = uids(cluster)
    of_earlier(cluster, earlier).start()
    cluster.wait_bound(24, "back", LONG_S)
    assert had.items() <= uids(cluster).items()


def test_helm_puts_back_the_settings_of_a_revision(plane: Plane) -> None:
    """An older version reads its own settings, never those that a newer chart added."""
    release = Release(plane, helm_or_skip(), "upgraded")
    release.install(settings__dry_run=True, settings__idle=7)
    before = release.settings()
    try:
        release.install("upgrade", settings__dry_run=True, settings__idle=11)
        assert release.settings() != before
        assert [one["revision"] for one in json.loads(release.run("history", release.name, "-o", "json"))] == [1, 2]
        release.run("rollback", release.name, "1")
        assert release.settings() == before
    finally:
        release.uninstall()


def uids(cluster: Cluster) -> dict[str, str]:
    """Node by uid of the pods that have one."""
    return {str(one["metadata"]["uid"]): str(one["spec"]["nodeName"]) for one in cluster.bound()}
