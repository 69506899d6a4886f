"""What all status reporting shares: where objects are looked up, and where wishes and events go."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from kai_solver.cluster.api import Object, meta
from kai_solver.cluster.events import About, Events
from kai_solver.cluster.resources import POD_GROUPS, PODS, Resource
from kai_solver.cluster.statuses import Statuses
from kai_solver.cluster.store import Store
from kai_solver.cluster.writer import Order
from kai_solver.reasons.events import Event


@dataclass(frozen=True, slots=True)
class ReportContext:
    """One cluster's; ``pool``: the name of the node pool in texts and conditions."""

    store: Store
    statuses: Statuses
    events: Events
    pool: str
    clock: Callable[[], float] = time.time

    def pod_group(self, gang: str) -> Object | None:
        """The PodGroup of a gang; None where there is none, as for plain pods."""
        return self.statuses.known(POD_GROUPS, gang)

    def goes_with(self, gang: str, uid: str) -> bool:
        """Whether the PodGroup of a gang belongs to this pod alone: Kubernetes deletes it after the pod."""
        group = self.pod_group(gang)
        owners = meta(group).get("ownerReferences") if group is not None else None
        found = owners if isinstance(owners, list) else ()
        return [owner.get("uid") for owner in found if isinstance(owner, dict)] == [uid]

    def about_pod(self, key: str) -> About:
        """The pod, as far as it is known."""
        return self.about(PODS, key)

    def about(self, resource: Resource, key: str) -> About:
        """An object, as far as it is known."""
        return _about(resource, key, self.store.get(resource, key))

    def event(
        self, event: Event, *, state: bool = False, order: Order = Order.LATER, also: Mapping[str, str] | None = None
    ) -> None:
        """Write an event of a plan; nothing for a PodGroup that does not exist."""
        annotations = event.annotations | dict(also or {})
        if event.kind == "Pod":
            about = self.about_pod(event.object)
        else:
            found = self.pod_group(event.object)
            if found is None:
                return
            about = _about(POD_GROUPS, event.object, found)
        self.events.report(about, event.type, event.reason, event.message, annotations, state=state, order=order)

    def report_gang(self, gang: str, severity: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Write an event of ours about a gang that has a PodGroup."""
        found = self.pod_group(gang)
        if found is not None:
            self.events.report(_about(POD_GROUPS, gang, found), severity, reason, message)


def _about(resource: Resource, key: str, value: Object | None) -> About:
    namespace, _, name = key.rpartition("/")
    return About(resource, namespace, name, str(meta(value).get("uid", "")) if value is not None else "")
