"""What must be so before a pod is bound, as the settings have it."""

from collections.abc import Callable
from dataclasses import dataclass

from kai_solver.cluster.api import Api
from kai_solver.cluster.binding import Preparation
from kai_solver.cluster.devices import Devices
from kai_solver.cluster.patience import Patience
from kai_solver.cluster.sharing import ReservationPod, Sharing, node_pool
from kai_solver.cluster.store import Store
from kai_solver.cluster.volumes import Volumes
from kai_solver.controller.settings import ControllerSettings


@dataclass(frozen=True, slots=True)
class Preparing:
    """Volumes, claims of devices, shared devices."""

    volumes: Volumes
    devices: Devices
    sharing: Sharing

    @property
    def steps(self) -> tuple[Preparation, ...]:
        """In KAI's order, but reservations last: what they hold is lost to everybody else."""
        return self.volumes, self.devices, self.sharing


def preparing(api: Api, store: Store, settings: ControllerSettings, fence: Callable[[], bool]) -> Preparing:
    """Put them together; before ``store`` hears of anything."""
    stated = settings.sharing
    kind = ReservationPod(settings.lease_name[:63], stated.image, stated.service_account, stated.runtime_class)
    is_ours = node_pool(store, settings.node_pool_key, settings.node_pool)
    return Preparing(
        volumes=Volumes(api, store, Patience(settings.volume_wait, fence)),
        devices=Devices(api, store),
        sharing=Sharing(api, store, Patience(stated.wait, fence), kind, is_ours),
    )
