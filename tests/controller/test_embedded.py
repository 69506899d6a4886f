"""The controller at work on a cluster in memory: pods run, finish, are evicted, come again; nothing is given twice."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.cli.embedded import Watcher, _totals
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import JOBS, POD_GROUPS, PODS
from kai_solver.controller.app import Controller
from kai_solver.controller.embedded import Demo, JobController, start
from kai_solver.controller.settings import ControllerSettings


class Auditor:
    """Watches the API server alone: what every node holds, and who was bound, at any moment."""

    def __init__(self, api: MemoryApi) -> None:
        self.api = api
        self.pods: dict[str, dict[str, Any]] = {}
        self.bound: Counter[str] = Counter()
        self.phases: Counter[str] = Counter()
        self.evicted = 0
        self.complaints: list[str] = []

    def run(self, stop: threading.Event) -> None:
        version = "0"
        while not stop.is_set():
            for event in self.api.watch(PODS, version, 0.1):
                version = event.object["metadata"]["resourceVersion"]
                self.see(event.kind, event.object)

    def see(self, kind: str, pod: dict[str, Any]) -> None:
        uid, before = pod["metadata"]["uid"], self.pods.pop(pod["metadata"]["uid"], None)
        if kind == "DELETED":
            return
        self.pods[uid] = pod
        node, was = pod["spec"].get("nodeName"), (before or {"spec": {}})["spec"].get("nodeName")
        if node and node != was:
            self.bound[uid] += 1
            if was:
                self.complaints.append(f"{uid} went from {was} to {node}")
            self.weigh(node)
        self.phases[pod["status"]["phase"]] += before is None or before["status"] != pod["status"]
        self.evicted += bool(pod["metadata"].get("deletionTimestamp")) and not (before or pod)["metadata"].get(
            "deletionTimestamp"
        )

    def weigh(self, node: str) -> None:
        held = sum(
            int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
            for pod in self.pods.values()
            if pod["spec"].get("nodeName") == node and pod["status"]["phase"] != "Succeeded"
        )
        if held > 8:
            self.complaints.append(f"{node} holds {held} GPUs")


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "never came true"
        time.sleep(0.05)


def test_a_finished_job_takes_its_pods_and_pod_group_with_it() -> None:
    api = MemoryApi()
    jobs = [api.create(JOBS, "n", {"metadata": {"name": name}, "spec": {"parallelism": 1}}) for name in ("j", "other")]
    for job in jobs:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        owned = {"name": name, "ownerReferences": [{"kind": "Job", "name": name, "uid": uid}]}
        api.create(POD_GROUPS, "n", {"metadata": owned})
        phase = "Succeeded" if name == "j" else "Running"
        api.create(PODS, "n", {"metadata": owned, "spec": {}, "status": {"phase": phase}})
        JobController(api)._complete(job)
    assert [[item["metadata"]["name"] for item in api.page(kind).items] for kind in (JOBS, PODS, POD_GROUPS)] == [
        ["other"]
    ] * 3


@pytest.mark.slow
def test_work_comes_and_goes_and_nothing_is_promised_twice() -> None:
    api = MemoryApi()
    stated: dict[str, Any] = {
        "metrics_bind_address": "",
        "health_bind_address": "",
        "answers_bind_address": "",
        "leadership": {"enabled": False},
    }
    settings = ControllerSettings(model="greedy-only", period=0.1, log_level="error", **stated)
    replica, auditor = Controller(api, settings), Auditor(api)
    threads = start(api, replica.stop, Demo(nodes=3, every_s=0.2, teams=(("a", 8), ("b", 8), ("c", 8))))
    threads += [threading.Thread(target=replica.run), threading.Thread(target=lambda: auditor.run(replica.stop))]
    for thread in threads[-2:]:
        thread.start()
    ends_s = time.monotonic() + 120
    while (auditor.bound.total() < 20 or auditor.evicted < 2) and time.monotonic() < ends_s:
        time.sleep(0.1)
    replica.stop.set()
    for thread in threads:
        thread.join(20)
    assert not auditor.complaints
    assert auditor.bound.total() >= 20
    assert max(auditor.bound.values()) == 1
    assert auditor.phases["Running"] > 0
    assert auditor.evicted >= 2, "three teams want more than their parts, and far more than there is"


def test_an_evicted_pod_of_a_job_comes_again_and_a_finished_job_goes() -> None:
    api, stop = MemoryApi(), threading.Event()
    threads = start(api, stop, None)
    spec = {"containers": [{"name": "c"}]}
    metadata = {"annotations": {"kai-solver.dev/run-seconds": "0.2"}}
    job = {"metadata": {"name": "j"}, "spec": {"parallelism": 2, "template": {"metadata": metadata, "spec": spec}}}
    api.create(JOBS, "n", job)

    def names() -> set[str]:
        return {item["metadata"]["name"] for item in api.page(PODS).items}

    until(lambda: len(names()) == 2)
    first = names()
    api.delete(PODS, "n", min(first))
    until(lambda: len(names()) == 2 and names() != first)
    for name in names():
        api.create(PODS, "n", {"metadata": {"name": name}, "target": {"name": "node"}}, subresource="binding")
    until(lambda: not api.page(JOBS).items)
    stop.set()
    for thread in threads:
        thread.join(10)


def test_totals_of_one_are_in_the_singular() -> None:
    said = _totals(Watcher(sums=Counter(cycles=1, bound=1)))
    assert said == "1 cycle, 1 pod bound, 0 evicted, 0 moved; 0 of 0 GPUs in use, 0 gangs wait"


@pytest.mark.slow
def test_the_command_shows_a_cluster_at_work() -> None:
    outcome = CliRunner().invoke(app, ["controller", "--embedded", "--for", "10", "--model", "greedy-only"])
    assert outcome.exit_code == 0, outcome.output
    first, *told, last = outcome.output.splitlines()
    assert first.startswith("A cluster in memory: 8 nodes of 8 GPUs, teams research (quota 40)")
    assert any(re.match(r"cycle \d+, \d+ ms: \d+ gangs? admitted", line) for line in told)
    assert any(re.match(r"  (research|product|students)-\d+ gets node-\d", line) for line in told)
    assert "pods bound" in last
    assert "of 64 GPUs in use" in last


@pytest.mark.slow
def test_a_dry_run_tells_and_binds_nothing_and_an_interrupt_ends_it_well() -> None:
    words = ["controller", "--embedded", "--dry-run", "--model", "greedy-only"]
    with subprocess.Popen([sys.executable, "-m", "kai_solver", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        head: list[str] = []
        while not (line := process.stdout.readline()).startswith("cycle "):
            head.append(line)
        assert "Dry run" in " ".join(" ".join(head).split())
        process.send_signal(signal.SIGINT)
        *_, last = process.stdout.read().splitlines()
        assert process.wait(60) == 0
    assert ", 0 pods bound, 0 evicted, 0 moved; 0 of 64 GPUs in use" in last
