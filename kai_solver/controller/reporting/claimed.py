"""GPUs by resource claim in the sums of statuses: by device class, beside those that pods ask for as a resource.

Source: docs/kai-behaviour.md#status-and-metrics.
"""

from collections import Counter
from collections.abc import Iterable

from kai_solver.domain import Claim, Claims, DeviceClass, Pod, QueueVector
from kai_solver.reasons.pending import resource_list
from kai_solver.units import MILLI


class ClaimedGpus:
    """GPUs that claims have, or ask for, by device class; an extended resource is no claim of its pod's author."""

    def __init__(self, claims: Claims | None) -> None:
        found = claims.claims if claims is not None else ()
        self._by_claim = {claim.key: _gpus(claim) for claim in found if not claim.extended}
        self._by_claim = {key: gpus for key, gpus in self._by_claim.items() if gpus}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by_claim)

    def of(self, pods: Iterable[Pod]) -> Counter[str]:
        """Number by class; a claim that several pods use counts once."""
        keys = {key for pod in pods for key in pod.claims} if self else set()
        return sum((self._by_claim.get(key, Counter()) for key in keys), Counter[str]())


def amounts_beside(amounts: QueueVector, gpu_resource: str, claimed: Counter[str]) -> dict[str, str]:
    """Kubernetes quantities in which the GPUs of claims stand under the names of their classes."""
    cpu, memory, gpu = amounts
    plain = max(0, gpu - MILLI * claimed.total())
    return resource_list((cpu, memory, plain), gpu_resource) | {name: str(claimed[name]) for name in sorted(claimed)}


def _gpus(claim: Claim) -> Counter[str]:
    found = Counter[str]()
    for request in claim.requests:
        if DeviceClass(request.device_class).is_gpu:
            given = sum(one.request == request.name for one in claim.allotted or ())
            found[request.device_class] += given or (0 if request.all_devices else request.count)
    return +found
