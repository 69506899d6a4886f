"""A replica of our controller inside the test's process, over the real API server: for guards that a test breaks."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kai_solver.cluster.rest import connect
from kai_solver.controller.app import Controller
from kai_solver.controller.settings import ControllerSettings
from tests.cluster.plane.cluster import Cluster
from tests.cluster.plane.plane import OURS, wait_for

NOWHERE = dict.fromkeys(("metrics_bind_address", "health_bind_address", "answers_bind_address"), "")
QUIET: dict[str, Any] = {**NOWHERE, "log_level": "error"}


@contextmanager
def inside(cluster: Cluster, skew_s: float = 0.0, **settings: Any) -> Iterator[Controller]:
    """A replica that leads, with the rights of the chart, until the block ends.

    ``skew_s``: by how much its wall clock is ahead of the API server's.
    """
    api = connect(str(cluster.plane.write_kubeconfig("inside", OURS)), connections=64)
    stated = {"model": "greedy-only", "idle": 2.0, **QUIET, **settings}
    replica = Controller(api, ControllerSettings(**stated), clock=lambda: time.time() + skew_s)
    thread = threading.Thread(target=replica.run, daemon=True)
    thread.start()
    try:
        wait_for("the replica knows its cluster", lambda: not replica.not_ready())
        yield replica
    finally:
        replica.stop.set()
        thread.join(60)
        assert not thread.is_alive(), "a replica did not end"
