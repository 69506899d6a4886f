"""Attacks end to end: a controller over an API server in memory, and users who write false values."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import NODES, POD_GROUPS, PODS, QUEUES, SECRETS
from tests.controller.replicas import bound, cluster_of, pod, running, until

FINDS = Path(__file__).parents[1] / "kubeobjects" / "data" / "finds"
KINDS = {"Node": NODES, "Queue": QUEUES, "Pod": PODS, "PodGroup": POD_GROUPS}
RESERVED = "kai-resource-reservation"


def load(name: str) -> MemoryApi:
    """The objects of a find that a controller looks at; they keep their uids and times."""
    api = MemoryApi()
    (path,) = FINDS.glob(f"{name}-*.json")
    for item in json.loads(path.read_text())["items"]:
        if item["kind"] in KINDS:
            api.create(KINDS[item["kind"]], item["metadata"].get("namespace", ""), item)
    return api


def placed(api: MemoryApi, namespace: str) -> set[str]:
    items = api.page(PODS, namespace=namespace).items
    return {item["metadata"]["name"] for item in items if item["spec"].get("nodeName")}


@pytest.mark.slow
def test_forged_devices_on_running_pods_keep_nothing_from_a_gpu() -> None:
    api = load("12")
    with running(api, idle=0.1):
        until(lambda: len(placed(api, "other")) == 15)


def test_a_pod_group_of_another_namespace_captures_nothing() -> None:
    api = load("15")
    with running(api, idle=0.1):
        until(lambda: placed(api, "other") == {"victim-0"})


@contextmanager
def agents(api: MemoryApi) -> Iterator[None]:
    """Each reservation pod learns its device; those that leave are gone at once."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.02):
            for number, item in enumerate(api.page(PODS, namespace=RESERVED).items):
                name, metadata = item["metadata"]["name"], item["metadata"]
                if metadata.get("deletionTimestamp"):
                    api.delete(PODS, RESERVED, name, grace_s=0)
                elif "run.ai/reserve_for_gpu_index" not in metadata["annotations"]:
                    body = {"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": str(number)}}}
                    api.patch(PODS, RESERVED, name, body)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)


def shares(api: MemoryApi, name: str, fraction: str) -> None:
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "c"}]}
    metadata = {"name": name, "labels": {"kai.scheduler/queue": "q"}, "annotations": {"gpu-fraction": fraction}}
    api.create(PODS, "n", {"metadata": metadata, "spec": spec})


FORGERIES: list[dict[str, Any]] = [
    {"annotations": {"kai-solver/devices": "7"}},
    {"annotations": {"gpu-fraction": None}, "labels": {"runai-gpu-group": None}},
    {"annotations": {"gpu-fraction": "0.01"}},
    {"annotations": {"gpu-fraction": "?"}, "labels": {"runai-gpu-group": "elsewhere"}},
    {"annotations": {"kai-solver/gpu-share": "1m of elsewhere", "kai-solver/signed-gpu-share": "00.00"}},
]


@pytest.mark.parametrize(("forged", "loses_keys"), [(forged, at % 2 == 1) for at, forged in enumerate(FORGERIES)])
def test_a_device_is_never_promised_twice_whatever_its_user_writes(forged: dict[str, Any], loses_keys: bool) -> None:
    """Of eight GPUs one is shared; seven are left, before and after a restart, with and without the keys."""
    api = cluster_of(MemoryApi())
    with agents(api):
        with running(api, idle=0.1):
            shares(api, "liar", "0.6")
            until(lambda: "liar" in bound(api))
            if loses_keys:
                until(lambda: bool(api.page(SECRETS, namespace="kai-solver").items))
        if loses_keys:
            api.delete(SECRETS, "kai-solver", "kai-solver-signing")
        api.patch(PODS, "n", "liar", {"metadata": forged})
        with running(api, idle=0.1) as replica:
            for number in range(8):
                pod(api, f"whole-{number}")
            until(lambda: sum(name.startswith("whole") for name in bound(api)) >= 7)
            seen = replica.scheduler._number
            until(lambda: replica.scheduler._number > seen + 3)
            assert sum(name.startswith("whole") for name in bound(api)) == 7
            (reservation,) = api.page(PODS, namespace=RESERVED).items
            assert "deletionTimestamp" not in reservation["metadata"]
