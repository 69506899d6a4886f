"""Create many pods as fast as the API server takes them, in a process of its own: the measuring must not slow it down.

The first line of standard input has the API server's address, authority, token, namespace, how many connections to use,
and whether the pods run at once; each further line is the body of a pod. Prints the seconds of the system's monotonic
clock at the last creation.
"""

import http.client
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.plane.plane import ADMIN, ROOT, Plane

CONNECTIONS = 16


def create(
    plane: Plane,
    namespace: str,
    bodies: Iterable[dict[str, Any]],
    connections: int = CONNECTIONS,
    *,
    running: bool = False,
) -> float:
    """Create these pods; when the last one was there, by ``time.monotonic``.

    ``running``: each is said to run before the next one is made, for kwok does that for some fifty a second only.
    """
    stated = {
        "url": plane.url,
        "authority": str(plane.authority),
        "token": ADMIN,
        "namespace": namespace,
        "connections": connections,
        "running": running,
    }
    words = [sys.executable, "-m", "tests.cluster.plane.creator"]
    lines = "\n".join(json.dumps(one) for one in (stated, *bodies))
    done = subprocess.run(words, input=lines, capture_output=True, text=True, check=True, cwd=ROOT)
    return float(done.stdout)


def _send(stated: dict[str, Any], bodies: list[str]) -> None:
    """Create these, one after the other, over one connection."""
    address = urlsplit(stated["url"])
    trusted = ssl.create_default_context(cafile=stated["authority"])
    connection = http.client.HTTPSConnection(str(address.hostname), address.port, context=trusted)
    path = f"/api/v1/namespaces/{stated['namespace']}/pods"
    status = json.dumps({"status": {"phase": "Running", "startTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}})

    def ask(method: str, path: str, body: str, kind: str) -> None:
        headers = {"Authorization": f"Bearer {stated['token']}", "Content-Type": f"application/{kind}"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        found = answer.read()
        if answer.status >= 300:
            raise RuntimeError(found.decode())

    for body in bodies:
        ask("POST", path, body, "json")
        if stated["running"]:
            name = json.loads(body)["metadata"]["name"]
            ask("PATCH", f"{path}/{name}/status", status, "merge-patch+json")


def main() -> int:
    """Read what to create, create it, print when it was done."""
    first, *bodies = sys.stdin.read().splitlines()
    stated = json.loads(first)
    count = int(stated["connections"])
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(lambda index: _send(stated, bodies[index::count]), range(count)))
    print(time.monotonic())
    return 0


if __name__ == "__main__":
    sys.exit(main())
