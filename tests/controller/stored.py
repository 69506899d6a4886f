"""What a controller leaves in a cluster, as a file: for tests that a later version reads what an earlier one stored.

``python -m tests.controller.stored FILE`` writes the file. For an earlier version, run it with ``PYTHONPATH`` at a copy
of that version's ``kai_solver`` beside a copy of ``tests``.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from kai_solver.cluster.memory import BUILT_IN
from kai_solver.cluster.resources import JOBS, POD_GROUPS, PODS
from tests.controller.replicas import bound, cluster, pod, running, until
from tests.controller.test_trust import agents, shares

HALF = ("half-0", "half-1", "half-2", "half-3")
"""Pods of a gang whose binding was cut off: the first two have their node."""

SHARED = ("share-0", "share-1")
"""Each has half a GPU, of the same device or of two."""


def stored() -> list[dict[str, Any]]:
    """All objects of a cluster whose controller was killed while it bound the gang ``half``."""
    api = cluster()
    api.create(POD_GROUPS, "n", {"metadata": {"name": "half"}, "spec": {"queue": "q", "minMember": 4}})
    for name in HALF:
        pod(api, name)
        api.patch(PODS, "n", name, {"metadata": {"annotations": {"pod-group-name": "half"}}})
    for name in SHARED:
        shares(api, name, "0.5")
    job = api.create(JOBS, "n", {"metadata": {"name": "job"}, "spec": {"template": {}}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": job["metadata"]["uid"], "controller": True}
    pod(api, "owned")
    api.patch(PODS, "n", "owned", {"metadata": {"ownerReferences": [owner]}})
    pod(api, "waits", gpus=8)
    with agents(api), running(api, idle=0.1, status_rate=1000.0):
        until(lambda: bound(api) >= {*HALF, *SHARED, "owned"})
        time.sleep(2.0)  # until notes and statuses are written
    found = [item for kind in BUILT_IN if not kind.plural.endswith("reviews") for item in api.page(kind).items]
    for item in found:
        if item["kind"] == "Pod" and item["metadata"]["name"] in HALF[2:]:
            del item["spec"]["nodeName"]
            item["status"] = {"phase": "Pending"}
            item["metadata"]["annotations"] = {"pod-group-name": "half"}
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps({"items": stored()}, indent=1, sort_keys=True) + "\n")
