"""What is free on the nodes of a random cluster while its running pods are seated."""

from dataclasses import dataclass, field

from tests.fuzz.draws import Document

MILLI = 1000
NONE = -1
GPU_CLAIMS = {"one": (1, ""), "two": (2, ""), "big": (1, "big")}
"""Devices of a claim template, and the model that it asks for."""


@dataclass
class Room:
    """Free amounts of one node.

    Attributes
    ----------
    devices
        Of each GPU, free parts of ``MILLI * max(memory, 1)``: shares by fraction and by memory are exact in them.
    zones
        Free GPUs and cores (None: not counted) by zone.
    offered
        Names of the devices of its ResourceSlice, and of those the holders.
    """

    name: str
    cpu: int
    memory_gib: int
    pods: int
    gpus: int
    gpu_memory: int
    devices: list[int]
    resources: dict[str, int]
    policy: str
    zones: list[tuple[str, int, int | None]]
    ports: set[str] = field(default_factory=set)
    offered: dict[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> int:
        """Parts of a whole GPU."""
        return MILLI * max(self.gpu_memory, 1)

    def takes(self, pod: Document) -> bool:
        """Whether the pod fits beside those that were seated."""
        if self.cpu < pod.get("cpu", 0) or self.memory_gib < _gib(pod) or self.pods < 2:
            return False
        if any(self.resources.get(name, 0) < amount for name, amount in pod.get("resources", {}).items()):
            return False
        if not self.ports.isdisjoint(pod.get("hostPorts", ())) or pod.get("claims"):
            return False
        asked = [GPU_CLAIMS[template] for template in pod.get("claimTemplates", ())]
        if any(len(self._fitting_devices(model)) < count for count, model in asked):
            return False
        count, part = self._share(pod)
        return count == 0 or (part > 0 and len(self._seats(count, part)) == count and self._zone(pod, count) != NONE)

    def take(self, pod: Document) -> Document:
        """Seat the pod; where it sits, in the words of the native format."""
        self.cpu -= pod.get("cpu", 0)
        self.memory_gib -= _gib(pod)
        self.pods -= 1
        self.ports |= set(pod.get("hostPorts", ()))
        for name, amount in pod.get("resources", {}).items():
            self.resources[name] -= amount
        for template in pod.get("claimTemplates", ()):
            count, model = GPU_CLAIMS[template]
            for device in self._fitting_devices(model)[:count]:
                self.offered[device] = pod["name"]
        count, part = self._share(pod)
        if not count:
            return {}
        seats = self._seats(count, part)
        for seat in seats:
            if part < self.whole and self.devices[seat] == self.whole:
                self.pods -= 1  # the reservation pod of a GPU that is shared from now on
            self.devices[seat] -= part
        found: Document = {"devices": seats}
        if part < self.whole:
            found["gpuGroups"] = [f"{self.name}-gpu-{seat}" for seat in seats]
        zone = self._zone(pod, count)
        if zone is not None:
            name, gpus, cores = self.zones[zone]
            taken = pod.get("cpu", 0) if pod.get("guaranteed") else 0
            self.zones[zone] = (name, gpus - count, None if cores is None else cores - taken)
            found["zones"] = [{"zone": name, "gpus": count} | ({"cpu": taken} if taken and cores is not None else {})]
        return found

    def held_devices(self, pod: str) -> list[str]:
        """Devices of its ResourceSlice that the pod's claim holds."""
        return [device for device, holder in self.offered.items() if holder == pod]

    def device_slice(self, driver: str) -> Document:
        """Its ResourceSlice."""
        devices = [{"name": name, "attributes": {"model": name.split("-")[0]}} for name in self.offered]
        return {"driver": driver, "node": self.name, "devices": devices}

    def _fitting_devices(self, model: str) -> list[str]:
        return [name for name, holder in self.offered.items() if not holder and name.startswith(model)]

    def _share(self, pod: Document) -> tuple[int, int]:
        """How many GPUs, and parts of each; 0 parts where it cannot have any here."""
        if asked := pod.get("gpuMemory", 0):
            return pod.get("gpuDevices", 1), asked * MILLI if 0 < asked < self.gpu_memory else 0
        gpus = pod.get("gpus", 0)
        if gpus >= 1:
            return int(gpus), self.whole
        return (pod.get("gpuDevices", 1), round(gpus * MILLI) * max(self.gpu_memory, 1)) if gpus else (0, 0)

    def _seats(self, count: int, part: int) -> list[int]:
        fitting = [index for index, free in enumerate(self.devices) if free >= part]
        return sorted(sorted(fitting, key=lambda index: self.devices[index])[:count])

    def _zone(self, pod: Document, count: int) -> int | None:
        """The zone that takes a pod of whole GPUs; None: it is aligned with none, `NONE`: it may not run here."""
        if not self.zones or pod.get("gpus", 0) < 1:
            return None
        cores = pod.get("cpu", 0) if pod.get("guaranteed") else 0
        for index, (_, gpus, free) in enumerate(self.zones):
            if gpus >= count and (free is None or free >= cores):
                return index
        return None if self.policy in ("none", "best-effort") else NONE


def room_of(node: Document) -> Room:
    """The empty node."""
    usable: int = node["allocatableGpus"] if "allocatableGpus" in node else node["gpus"]
    numa = node.get("numa", {"policy": "none", "zones": []})
    memory: int = node.get("gpuMemory", 0)
    return Room(
        name=node["name"],
        cpu=node["cpu"],
        memory_gib=int(node["memory"].removesuffix("Gi")),
        pods=node["pods"],
        gpus=usable,
        gpu_memory=memory,
        devices=[MILLI * max(memory, 1)] * usable,
        resources=dict(node.get("resources", {})),
        policy=numa["policy"],
        zones=[(zone["name"], zone["gpus"], zone.get("cpu")) for zone in numa["zones"]],
    )


def _gib(pod: Document) -> int:
    return int(pod.get("memory", "0Gi").removesuffix("Gi"))
