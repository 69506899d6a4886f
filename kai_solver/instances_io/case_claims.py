"""Resource claims of a behaviour case: its device classes are drivers, and a pool is named like its node."""

from dataclasses import dataclass, field

from kai_solver.domain import Allotted, Claim, ClaimDevice, Claims, DeviceClass, DeviceRequest, Notice
from kai_solver.instances_io.case_schema import ClaimDoc, DraDoc, JobDoc, TaskDoc


@dataclass(slots=True)
class CaseClaims:
    """The claims of one case.

    Attributes
    ----------
    dra
        The file's part; None where it has none.
    queue_label
        Label of a claim that names its queue.
    enabled
        Feature gate of the case; without it claims are not looked at, as in KAI.
    namespaces
        Of the claims that name none: that of the first job that uses them.
    """

    dra: DraDoc | None
    queue_label: str
    enabled: bool
    namespaces: dict[str, str] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    notices: list[Notice] = field(default_factory=list)

    def keys(self, task: TaskDoc, job: JobDoc, namespace: str) -> tuple[str, ...]:
        """Keys of the claims of ``task``."""
        names = [*task.resource_claims, *task.resource_claim_templates.values()]
        if names and not self.enabled:
            text = "their resource claims are not considered: dynamic resources are off"
            self.notices.append(Notice("warning", f"pods of {job.name}", text))
            return ()
        stated = {claim.name: claim.namespace for claim in (self.dra or DraDoc()).resource_claims}
        self.own.update(task.resource_claim_templates.values())
        found = []
        for name in names:
            home = stated.get(name) or self.namespaces.setdefault(name, namespace)
            found.append(f"{home}/{name}")
        return tuple(dict.fromkeys(found))

    def read(self) -> Claims | None:
        """Classes, devices and claims; call it when all jobs have been read."""
        if self.dra is None or not self.enabled:
            return None
        names = dict.fromkeys((*self.dra.device_classes, *(s.device_class for s in self.dra.resource_slices)))
        return Claims(
            classes=tuple(DeviceClass(name, (f"device.driver == {_quoted(name)}",)) for name in names),
            devices=tuple(self._devices()),
            claims=tuple(self._claim(claim) for claim in self.dra.resource_claims),
            queue_label=self.queue_label,
        )

    def _devices(self) -> list[ClaimDevice]:
        """Devices 0, 1, ... of every slice; further slices of one node and class count on."""
        found: list[ClaimDevice] = []
        counts: dict[tuple[str, str], int] = {}
        for offer in (self.dra or DraDoc()).resource_slices:
            key = (offer.device_class, offer.node)
            first = counts.get(key, 0)
            counts[key] = first + offer.devices
            numbers = range(first, counts[key])
            found += [ClaimDevice(offer.node, offer.device_class, offer.node, str(number)) for number in numbers]
        return found

    def _claim(self, doc: ClaimDoc) -> Claim:
        allocation = doc.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        allotted = tuple(
            Allotted(r.request or doc.name, r.driver or doc.device_class, r.pool, r.device) for r in results
        )
        name = allotted[0].request if allotted else doc.name
        return Claim(
            namespace=doc.namespace or self.namespaces.get(doc.name, "default"),
            name=doc.name,
            requests=(DeviceRequest(name, doc.device_class, doc.count),),
            allotted=allotted or None,
            reserved=tuple(consumer.name for consumer in doc.status.reserved_for),
            labels=doc.labels,
            is_own=doc.name in self.own,
        )


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
