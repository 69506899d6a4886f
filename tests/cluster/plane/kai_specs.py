"""KAI's own end-to-end specs against our controller: ``make kai-specs``.

They are built in the version that ``tests/kai/decides/go.mod`` pins, and nothing of them is here. The controller has
the chart's settings, and the cluster is that of our own specs (`specs`). A stand-in for KAI's operator keeps the pods
that they wait for. Where they switch the scheduler off, it disables all actions, since our controller serves admission,
too. Each spec is printed with its outcome; exits with 1 if one failed.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kai_solver.cluster.api import Object, meta
from kai_solver.cluster.resources import (
    DEVICE_CLASSES,
    KAI_CONFIGS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_SLICES,
    SCHEDULING_SHARDS,
)
from kai_solver.domain import Action
from tests.cluster.plane.agents import working
from tests.cluster.plane.cluster import Cluster, install
from tests.cluster.plane.kai import KAI
from tests.cluster.plane.kai_itself import make_namespaces
from tests.cluster.plane.plane import Plane, wait_for
from tests.cluster.plane.specs import (
    CPU_WORKER,
    DEPLOYMENTS,
    DRA_WORKERS,
    GPUS,
    WORKERS,
    device_class,
    reported_storage,
    slice_of,
    stocked,
)
from tests.support.gotools import KAI_SPECS, KUBERNETES, KWOK, go_module

CONFIG, SHARD = "kai-config", "default"
BINDER, SCHEDULER = "binder", "kai-scheduler-default"
"""KAI's Deployments; the specs wait for their pods."""

EXAMPLE_DRIVER = "gpu.example.com"
"""The devices that specs of claims ask for."""

WITH_CLAIMS = frozenset({"preempt", "resources"})

SKIPPED = {
    "Dynamic Resources Allocate simple request": "today's KAI, as we do, wants the queue's label on such a claim",
}
"""Specs that the pinned version has otherwise than today's KAI, as its runner names them (docs/kai-behaviour.md)."""

STORAGE_DRIVER, STORAGE_SPACE = "local.csi.openebs.io", "openebs"
"""What specs of volumes look for: a driver that reports storage, and where it does."""

MORE_WORKERS = tuple(f"worker-{index}" for index in range(len(WORKERS), 2 * len(WORKERS)))
ROLES = "node-role.kubernetes.io/gpu-worker", "node-role.kubernetes.io/cpu-worker"
SUITE_S = 1800.0
FAILED = frozenset({"failed", "panicked", "timedout", "interrupted", "aborted"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a spec.

    Attributes
    ----------
    state
        In the words of its runner: ``passed``, ``failed``, ``skipped`` and more.
    message
        Why it failed, or was skipped; one line.
    """

    title: str
    state: str
    seconds: float
    message: str = ""

    def __str__(self) -> str:
        return f"{self.state:8} {self.seconds:6.1f} s  {self.title}{f': {self.message}' if self.message else ''}"


@dataclass(slots=True)
class Operator:
    """A stand-in for KAI's operator: its objects and Deployments, and no actions where the Config says so."""

    cluster: Cluster
    is_on: bool = True

    def install(self) -> None:
        """Write what KAI's operator writes, and wait until its pods run."""
        api = self.cluster.plane.api
        make_namespaces(self.cluster.plane)
        service = {"scheduler": {"service": {"enabled": True}}}
        strategy = {"placementStrategy": {"gpu": "binpack", "cpu": "binpack"}}
        api.create(KAI_CONFIGS, "", {"metadata": {"name": CONFIG}, "spec": service})
        api.create(SCHEDULING_SHARDS, "", {"metadata": {"name": SHARD}, "spec": strategy})
        for name in (BINDER, SCHEDULER):
            api.create(DEPLOYMENTS, KAI, _deployment(name))
        wait_for("KAI's pods run", lambda: [_phase(pod) for pod in self._pods()] == ["Running"] * 2)

    def look(self) -> None:
        """Do what the Config says."""
        api = self.cluster.plane.api
        stated = api.get(KAI_CONFIGS, "", CONFIG)["spec"]["scheduler"]["service"].get("enabled")
        is_on = stated is not False
        if is_on == self.is_on:
            return
        self.is_on = is_on
        actions = {action.value: {"enabled": is_on} for action in Action}
        api.patch(SCHEDULING_SHARDS, "", SHARD, {"spec": {"actions": actions}})
        api.patch(DEPLOYMENTS, KAI, SCHEDULER, {"spec": {"replicas": int(is_on)}})

    def remove(self) -> None:
        """Take its Deployments away."""
        for name in (BINDER, SCHEDULER):
            self.cluster.plane.api.delete(DEPLOYMENTS, KAI, name)
        wait_for("KAI's pods are gone", lambda: not self._pods())

    def _pods(self) -> list[Object]:
        return self.cluster.plane.api.page(PODS, namespace=KAI).items


def _deployment(name: str) -> Object:
    labels = {"app": name}
    spec = {"nodeName": CPU_WORKER, "containers": [{"name": "scheduler", "image": "none"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def _phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def run_suite(program: Path, plane: Plane, log: Path) -> list[Outcome]:
    """Run one suite to its end.

    Raises
    ------
    RuntimeError
        It left no report.
    """
    report = log.with_suffix(".json")
    words = [f"-ginkgo.json-report={report}", "-ginkgo.no-color", f"-test.timeout={SUITE_S:.0f}s"]
    words += [f"-ginkgo.skip={re.escape(title)}" for title in SKIPPED]
    with log.open("w") as file:
        env = os.environ | {"KUBECONFIG": str(plane.kubeconfig)}
        subprocess.run(
            [str(program), *words], env=env, stdout=file, stderr=subprocess.STDOUT, check=False, timeout=2 * SUITE_S
        )
    if not report.is_file():
        raise RuntimeError(f"{program.name} left no report: {log.read_text()[-2000:]}")
    found = [spec for suite in json.loads(report.read_text()) for spec in suite["SpecReports"] or ()]
    return [_outcome(spec) for spec in found if spec["LeafNodeType"] == "It" or spec["State"] in FAILED]


def _outcome(spec: Object) -> Outcome:
    title = " / ".join([*(spec.get("ContainerHierarchyTexts") or ()), spec["LeafNodeText"]])
    message = " ".join((spec.get("Failure") or {}).get("Message", "").split())
    return Outcome(title, spec["State"], spec["RunTime"] / 1e9, message)


@contextmanager
def prepared(folder: Path) -> Iterator[Cluster]:
    """The cluster of our specs as KAI's want it: nodes without roles, storage that is reported, the operator."""
    plane = Plane((go_module(KUBERNETES), go_module(KWOK)), folder)
    try:
        plane.start()
        install(plane)
        with stocked(plane, folder) as cluster:
            cluster.wanted = "."  # the specs delete pods, queues and PodGroups of their own
            for name in MORE_WORKERS:  # for the spec that wants eight, and for one that asks for a disk
                cluster.node(name, GPUS, {"ephemeral-storage": "100Gi"})
            for name in DRA_WORKERS:
                cluster.node(name, 0)
            for name in (*WORKERS, CPU_WORKER):
                plane.api.patch(NODES, "", name, {"metadata": {"labels": dict.fromkeys(ROLES)}})
            cluster.wait_nodes(len(WORKERS) + len(DRA_WORKERS) + len(MORE_WORKERS) + 1)
            plane.api.create(NAMESPACES, "", {"metadata": {"name": STORAGE_SPACE}})
            reported_storage(plane, STORAGE_DRIVER, STORAGE_SPACE, "some-class", worker_0="100Gi")
            operator = Operator(cluster)
            operator.install()
            try:
                with working(operator.look):
                    yield cluster
            finally:
                operator.remove()
    finally:
        plane.stop()


@contextmanager
def devices(plane: Plane, suite: str) -> Iterator[None]:
    """Devices of the example driver, for suites that ask for them: fair shares count them, in KAI 0.12 they do not."""
    names = DRA_WORKERS if suite in WITH_CLAIMS else ()
    plane.api.create(DEVICE_CLASSES, "", device_class(EXAMPLE_DRIVER))
    made = [plane.api.create(RESOURCE_SLICES, "", slice_of(name, EXAMPLE_DRIVER, GPUS)) for name in names]
    yield
    for one in made:
        plane.api.delete(RESOURCE_SLICES, "", str(meta(one)["name"]))
    plane.api.delete(DEVICE_CLASSES, "", EXAMPLE_DRIVER)


def main(words: Sequence[str] | None = None) -> int:
    """Run the suites; 1 if a spec failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.plane.kai_specs", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(KAI_SPECS.programs)}; default: all")
    asked = parser.parse_args(words)
    if unknown := set(asked.suites) - set(KAI_SPECS.programs):
        parser.error(f"no suite is named {', '.join(sorted(unknown))}. Write one of {', '.join(KAI_SPECS.programs)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and not leave a control plane behind
    programs, counts, start_s = go_module(KAI_SPECS), Counter[str](), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="kai-specs-"))
    print(f"logs: {folder}", flush=True)
    with prepared(folder) as cluster:
        for suite in asked.suites or KAI_SPECS.programs:
            with devices(cluster.plane, suite):
                outcomes = run_suite(programs / suite, cluster.plane, folder / f"{suite}.log")
            counts.update(outcome.state for outcome in outcomes)
            print(*outcomes, sep="\n", flush=True)
    for title, why in SKIPPED.items():
        print(f"not run: {title}: {why}")
    summed = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    print(f"{summed} in {time.monotonic() - start_s:.0f} s")
    return 1 if FAILED & set(counts) else 0


if __name__ == "__main__":
    sys.exit(main())
