"""The work of days and soaks comes to its end whatever the server does."""

import random
from contextlib import suppress

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import POD_GROUPS, PODS, Resource
from tests.cluster.plane.cluster import SPACE
from tests.cluster.workload import Workload


class AwayOnce(MemoryApi):
    """Deletes the first PodGroup, and goes away before it says so."""

    has_been_away = False

    def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None
    ) -> None:
        super().delete(resource, namespace, name, uid=uid, grace_s=grace_s)
        if resource == POD_GROUPS and not self.has_been_away:
            self.has_been_away = True
            raise ApiError(0, "Cut", "the connection was cut")


def test_a_gang_that_was_removed_while_the_server_went_away_gets_no_new_pods() -> None:
    api = AwayOnce()
    work = Workload(api, random.Random(1), ("q",), (1.0, 1.0))
    work.arrive()
    work.tend(())
    for pod in api.page(PODS).items:
        api.patch(PODS, SPACE, pod["metadata"]["name"], {"status": {"phase": "Succeeded"}}, subresource="status")
    for _ in range(3):
        with suppress(ApiError):
            work.tend(api.page(PODS).items)
    assert (work.done, work.gangs, api.page(PODS).items) == (1, {}, [])
