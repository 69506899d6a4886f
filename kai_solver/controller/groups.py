"""Which group a shared device of a plan is: a plan has indices, the cluster has names."""

import uuid
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property

from kai_solver.domain import Bind, Node, Pod, Snapshot
from kai_solver.problem.devices import assign_running


def _new() -> str:
    return str(uuid.uuid4())


class Groups:
    """Names of the devices that the pods of one plan share.

    Parameters
    ----------
    snapshot
        What the plan was made from.
    new
        Makes the name of a device that no pod shares yet.
    """

    def __init__(self, snapshot: Snapshot, new: Callable[[], str] = _new) -> None:
        self._snapshot = snapshot
        self._new = new
        self._known: dict[str, dict[int, str]] = {}

    @property
    def gpu_resources(self) -> tuple[str, ...]:
        """What whole devices are called in the cluster."""
        return self._snapshot.policy.gpu_resources

    def of(self, bind: Bind, pod: Pod) -> tuple[str, ...]:
        """One name for each device of ``bind``; empty where the pod has its devices for itself."""
        if not pod.gpu.is_shared:
            return ()
        known = self._known.setdefault(bind.node, {})
        if not known:
            known.update(self._taken(bind.node))
        return tuple(known.setdefault(device.index, self._new()) for device in bind.devices)

    def _taken(self, name: str) -> dict[int, str]:
        """Groups of the node by device index: as the devices were given out for the plan."""
        pods = self._by_node[name]
        given, _ = assign_running(self._nodes[name], list(enumerate(pods)))
        found: dict[int, str] = {}
        for at, pod in enumerate(pods):
            devices = given.get(at, ())
            if len(devices) == len(pod.gpu_groups):
                found |= dict(zip(devices, pod.gpu_groups, strict=True))
        return found

    @cached_property
    def made(self) -> dict[str, str]:
        """Device class by claim that the engine thought of, for an extended resource; no object has its name."""
        claims = self._snapshot.claims
        if claims is None or claims.lowered is None:
            return {}
        known = {claim.key for claim in claims.lowered.claims}
        thought = (claim for claim in claims.claims if claim.extended and claim.key not in known)
        return {claim.key: claim.requests[0].device_class for claim in thought}

    def gives_by_claim(self, node: str) -> bool:
        """Whether GPUs of the node are given by resource claim: then an allocation says which, and not a wish."""
        claims = self._snapshot.claims
        return claims is not None and claims.lowered is not None and node in claims.lowered.gpus

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self._snapshot.nodes}

    @cached_property
    def _by_node(self) -> dict[str, list[Pod]]:
        found: dict[str, list[Pod]] = defaultdict(list)
        for pods in (*(gang.pods for gang in self._snapshot.gangs), self._snapshot.foreign):
            for pod in pods:
                if pod.gpu.devices and pod.status.holds_resources:
                    found[pod.node].append(pod)
        return found
