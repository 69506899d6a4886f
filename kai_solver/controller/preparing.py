"""How pods get their nodes, and what must be so before, as the settings have it."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kai_solver.cluster.api import Api, Object
from kai_solver.cluster.binding import Preparation, Way
from kai_solver.cluster.bindrequests import BindRequests, Reckoned
from kai_solver.cluster.devices import Devices
from kai_solver.cluster.extended import Extended
from kai_solver.cluster.patience import Patience
from kai_solver.cluster.sharing import ReservationPod, Sharing, node_pool
from kai_solver.cluster.store import Store
from kai_solver.cluster.unused import UnusedClaims
from kai_solver.cluster.view import Overlay
from kai_solver.cluster.volumes import Volumes
from kai_solver.controller.settings import ControllerSettings
from kai_solver.units import GPU_RESOURCES, shared_gpu_resource

NO_SHARES = "no GPU is shared here: set sharing.image to KAI's image of reservation pods"


@dataclass(frozen=True, slots=True)
class Preparing:
    """What a binder is made of.

    Attributes
    ----------
    steps
        In KAI's order, but reservations last: what they hold is lost to all other pods.
    way
        None: pods are bound here.
    claims
        Resource claims as they will be when what was begun is done.
    pods
        Pods likewise; asked first.
    clean
        Each takes away what no pod uses any more, until asked to stop; by what it takes away.
    """

    steps: tuple[Preparation, ...]
    way: Way | None
    claims: Overlay
    pods: tuple[Overlay, ...]
    clean: Mapping[str, Callable[[threading.Event], None]]

    def clear(self) -> None:
        """Forget what was assumed: the cluster is read again."""
        for part in (*self.steps, *([self.way] if self.way else ())):
            part.clear()


def preparing(
    api: Api,
    store: Store,
    settings: ControllerSettings,
    fence: Callable[[], bool],
    rest: Callable[[float], None] = time.sleep,
    expected: Callable[[Object], Object] = lambda pod: pod,
) -> Preparing:
    """Put them together; before ``store`` hears of anything. ``rest`` waits, no longer than ``fence`` holds.

    ``expected``: a pod as it will be; the very same where nothing is under way.
    """
    devices = Devices(api, store)
    if settings.binding == "bindrequest":
        pool = settings.node_pool_key, settings.node_pool
        patience = Patience(settings.binder_wait, fence, rest)
        requests = BindRequests(api, store, patience, devices, pool, settings.scheduler_name)
        return Preparing((Reckoned(devices),), requests, requests.overlay, (), {"bind requests": requests.run})
    stated = settings.sharing
    held_by = shared_gpu_resource(settings.policy.gpu_resources or GPU_RESOURCES)
    made_by = settings.lease_name[:63].rstrip("-._")  # as values of labels may end
    kind = ReservationPod(made_by, stated.image, stated.service_account, stated.runtime_class, held_by)
    is_ours = node_pool(store, settings.node_pool_key, settings.node_pool)
    volumes = Volumes(api, store, Patience(settings.volume_wait, fence, rest))
    sharing = Sharing(api, store, Patience(stated.wait, fence, rest), kind, is_ours)
    extended = Extended(api, store)

    def claims(found: tuple[Object, ...], now_s: float) -> tuple[Object, ...]:
        return extended.claims(devices.overlay(found, now_s), now_s)

    unused = UnusedClaims(api, store, devices, fence, settings.scheduler_name, is_ours, expected)
    clean = {"reservations": sharing.run, "claims": unused.run}
    return Preparing((volumes, devices, extended, sharing), None, claims, (extended.pods,), clean)
