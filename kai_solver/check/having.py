"""Which pods have GPUs of any kind."""

from dataclasses import dataclass

from kai_solver.check.scene import Arrival
from kai_solver.domain import Claim, DeviceId, Pod, Snapshot, is_of_gpus, names_gpus


@dataclass(frozen=True, slots=True)
class Having:
    """Which pods have GPUs of any kind, by requested resources and devices of claims, whichever pod pays.

    Attributes
    ----------
    parts
        Resources that are of GPUs, by their places in the schema.
    claims, gpus
        Claims that ask for GPUs by name, or have some; and devices that are GPUs or slices of them.
    """

    parts: tuple[int, ...]
    claims: frozenset[str] = frozenset()
    gpus: frozenset[DeviceId] = frozenset()

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Having":
        """Of all pods of ``snapshot``."""
        policy, known = snapshot.policy, snapshot.claims
        parts = tuple(place for place, name in enumerate(snapshot.schema.names) if is_of_gpus(name, policy))
        if known is None:
            return cls(parts)
        gpus = frozenset(device.id for device in known.devices if device.is_gpu)

        def has_gpus(claim: Claim) -> bool:
            asked = any(names_gpus(request.device_class) for request in claim.requests)
            return asked or is_of_gpus(claim.extended, policy) or any(a.id in gpus for a in claim.allotted or ())

        claims = frozenset(claim.key for claim in known.claims if has_gpus(claim))
        return cls(parts, claims, gpus)

    def holds(self, pod: Pod) -> bool:
        """Whether the pod has some, as far as the snapshot says."""
        has = pod.gpu.devices or any(pod.request[part] for part in self.parts)
        return bool(has or any(key in self.claims for key in pod.claims))

    def gets(self, arrival: Arrival) -> bool:
        """Whether the pod has some, or the plan gives some to its claims."""
        given = (allotted.id in self.gpus for grant in arrival.entry.claims for allotted in grant.devices)
        return self.holds(arrival.pod) or any(given)
