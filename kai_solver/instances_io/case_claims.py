"""Resource claims of a behaviour case, as whole GPUs where that is the same thing.

A claim of a GPU device class that one pod uses is a request of as many whole GPUs. A claim that several pods share is
paid by one of them; the others are held to its node. Claims that cannot be met block their pods (reference 1.5).
"""

from dataclasses import dataclass, field

from kai_solver.domain import Notice, PodAffinityTerm, Requirement
from kai_solver.instances_io.case_schema import ClaimDoc, DraDoc, JobDoc, TaskDoc

MOST_CONSUMERS = 256
"""Kubernetes: at most so many pods may have a claim reserved (``ResourceClaimReservedForMaxSize``)."""

_HOST = "kai.scheduler/type"
"""Label of every node in a case with the node's own name."""


@dataclass(frozen=True, slots=True)
class ClaimedPod:
    """What a pod's claims ask of it: GPUs, the node they are on, and why they cannot be had."""

    gpus: int = 0
    devices: tuple[int, ...] = ()
    node: str = ""
    blocked: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    affinity: tuple[PodAffinityTerm, ...] = ()


_NOTHING = ClaimedPod()


class Claims:
    """The claims of one case.

    Parameters
    ----------
    dra
        The file's part; None where it has none.
    queue_label
        Label of a claim that names its queue.
    enabled
        Feature gate of the case; without it claims are not looked at, as in KAI.
    """

    def __init__(self, dra: DraDoc | None, queue_label: str, enabled: bool) -> None:
        self._dra = dra or DraDoc()
        self._claims = {claim.name: claim for claim in self._dra.resource_claims}
        self._queue_label = queue_label
        self._enabled = enabled
        self._paid: set[str] = set()
        self.notices: list[Notice] = []

    def devices_of(self, node: str) -> int:
        """GPUs that ``node`` publishes in resource slices."""
        if not self._enabled:
            return 0
        return sum(s.devices for s in self._dra.resource_slices if s.node == node and _is_gpu(s.device_class))

    def take(self, task: TaskDoc, job: JobDoc, namespace: str, *, holds: bool) -> ClaimedPod:
        """What the claims of ``task`` come to."""
        names = [*task.resource_claims, *task.resource_claim_templates.values()]
        if not names:
            return _NOTHING
        if not self._enabled:
            self._notice(task.id, "its resource claims are not considered: dynamic resources are off")
            return _NOTHING
        claims = [self._claims[name] for name in names if name in self._claims]
        blocked = [f'resourceclaim "{namespace}/{name}" not found' for name in names if name not in self._claims]
        blocked += [reason for claim in claims if (reason := self._refusal(claim, task, job))]
        parts = [self._part(claim, job, holds) for claim in claims if _is_gpu(claim.device_class)]
        for claim in claims:
            if not _is_gpu(claim.device_class):
                self._notice(task.id, f"the claim {claim.name} of class {claim.device_class!r} is not considered")
        return ClaimedPod(
            gpus=sum(part.gpus for part in parts),
            devices=tuple(index for part in parts for index in part.devices),
            node=next((part.node for part in parts if part.node), ""),
            blocked=tuple(blocked),
            labels={key: value for part in parts for key, value in part.labels.items()},
            affinity=tuple(term for part in parts for term in part.affinity),
        )

    def _part(self, claim: ClaimDoc, job: JobDoc, holds: bool) -> ClaimedPod:
        results = claim.status.allocation.devices.results if claim.status.allocation else []
        node = results[0].pool if results else ""
        names = [result.device for result in results]
        sharers = self._sharers(claim, job)
        pays = claim.name not in self._paid and (holds or not results)
        if pays:
            self._paid.add(claim.name)
        devices = tuple(int(name) for name in names if name.isdecimal() and len(name) < 10) if holds else ()
        if sharers <= 1 and not (results and not holds):
            return ClaimedPod(gpus=claim.count, devices=devices)
        self._notice(claim.name, "a shared claim: its GPUs are counted with the first pod that uses it")
        label = f"claim.kai-solver/{claim.name}"
        together = PodAffinityTerm((Requirement(label, "Exists"),), _HOST)
        return ClaimedPod(
            gpus=claim.count if pays else 0,
            devices=devices if pays else (),
            node=node,
            labels={label: ""},
            affinity=() if node or holds else (together,),
        )

    def _sharers(self, claim: ClaimDoc, job: JobDoc) -> int:
        here = sum(claim.name in task.resource_claims for task in job.tasks)
        return max(here, len(claim.status.reserved_for))

    def _refusal(self, claim: ClaimDoc, task: TaskDoc, job: JobDoc) -> str:
        queue = claim.labels.get(self._queue_label, "")
        if claim.name in task.resource_claims and _is_gpu(claim.device_class) and queue != job.queue:
            return f"the claim {claim.name} is labelled for queue {queue!r}, not {job.queue!r}"
        reserved = {consumer.name for consumer in claim.status.reserved_for}
        asking = sum(claim.name in t.resource_claims and t.id not in reserved for t in job.tasks)
        if len(reserved) + asking > MOST_CONSUMERS and task.id not in reserved:
            return f"the claim {claim.name} has {len(reserved)} of at most {MOST_CONSUMERS} consumers"
        return ""

    def _notice(self, name: str, text: str) -> None:
        notice = Notice("warning", name, text)
        if notice not in self.notices:
            self.notices.append(notice)


def _is_gpu(device_class: str) -> bool:
    return "gpu" in device_class.lower()
