"""The published plan format (``kai-plan/v1``): other programs read it, so keys are added and never renamed."""

import math
from dataclasses import asdict
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from kai_solver.domain import (
    Action,
    Allotted,
    AtMost,
    Bind,
    Blocker,
    ClaimGrant,
    Device,
    Eviction,
    EvictionReason,
    FitError,
    GpuLink,
    Move,
    MoveCause,
    Pending,
    Plan,
    Proof,
    QueueDetails,
    Reason,
    Stage,
    Unmoved,
    ZoneShare,
)
from kai_solver.instances_io.fields import validate

PLAN_FORMAT = "kai-plan/v1"

ActionName = Literal["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)


class DeviceDoc(_Part):
    """A device of a node: index, share in thousandths, uuid where the cluster tells it."""

    index: int = Field(ge=0)
    milli: int = Field(ge=0, le=1000)
    uuid: str | None = None


class LinkDoc(_Part):
    """The weakest link of the best ring through a pod's GPUs: ``NV2``, ``SYS`` (empty for one GPU), and its GB/s.

    Plans of before have ``gbPerS`` for ``gb_s``; it is read all the same.
    """

    kind: str = ""
    gb_s: int = Field(default=0, ge=0, validation_alias=AliasChoices("gb_s", "gbPerS"))


class ZoneDoc(_Part):
    """What a pod gets of a NUMA zone: CPU and GPUs in thousandths, memory in bytes, all else as Kubernetes counts."""

    zone: str
    amounts: dict[str, int] = Field(default_factory=dict)


class AllottedDoc(_Part):
    """A device given to a request of a resource claim."""

    request: str
    driver: str
    pool: str
    device: str


class GrantDoc(_Part):
    """Devices that a resource claim (``namespace/name``) of the pod gets, or has."""

    claim: str
    devices: tuple[AllottedDoc, ...] = ()


class BindDoc(_Part):
    """A pod gets a node; ``nominated``: it waits there for capacity that is being released."""

    pod: str
    gang: str
    node: str
    devices: tuple[DeviceDoc, ...] = ()
    nominated: bool = False
    rung: ActionName = "allocate"
    zones: tuple[ZoneDoc, ...] = ()
    claims: tuple[GrantDoc, ...] = ()
    link: LinkDoc | None = None


class MoveDoc(_Part):
    """A running pod changes its node for the gangs in ``for``; or for none, because its node is to be drained."""

    pod: str
    gang: str
    source: str = Field(alias="from")
    target: str = Field(alias="to")
    devices: tuple[DeviceDoc, ...] = ()
    helps: tuple[str, ...] = Field(default=(), alias="for")
    rung: ActionName = "consolidation"
    zones: tuple[ZoneDoc, ...] = ()
    claims: tuple[GrantDoc, ...] = ()
    message: str = ""
    link: LinkDoc | None = None
    cause: MoveCause = "room"


class UnmovedDoc(_Part):
    """A running pod that stays on a node that is to be drained, and why."""

    pod: str
    gang: str
    node: str
    message: str = ""


class EvictionDoc(_Part):
    """A running pod loses its place for the gangs in ``for``."""

    pod: str
    gang: str
    node: str
    reason: EvictionReason
    helps: tuple[str, ...] = Field(default=(), alias="for")
    message: str = ""


class BlockerDoc(_Part):
    """One element of what blocks a gang.

    ``where``: a domain; ``resource``, ``short``: what lacks, and how much more would do (thousandths, bytes, or units).
    """

    kind: str
    name: str
    need: str
    have: str
    where: str = ""
    resource: str = ""
    short: int = 0


class AtMostDoc(_Part):
    """Of ``gangs`` that wait, at most ``most`` can run beside all that the plan admits; which of them is open."""

    gangs: int
    most: int


class ProofDoc(_Part):
    """Whether it is proven that no allowed plan runs the gang beside others that are admitted.

    ``minimal``: nothing of ``blocking`` can be left out; else it is the smallest set that was found. ``beside``: those
    admitted before it, or all that the plan admits. ``at_most``: of a gang without a proof of its own.
    """

    state: Literal["proven", "unknown", "unasked"]
    method: str = ""
    blocking: tuple[BlockerDoc, ...] = ()
    minimal: bool = False
    beside: Literal["earlier", "plan"] = "earlier"
    at_most: AtMostDoc | None = None


class QueueDetailsDoc(_Part):
    """A queue at the moment of a refusal: (cpu thousandths, memory bytes, GPU thousandths) each, -1 unlimited."""

    name: str
    requested: tuple[int, int, int]
    deserved: tuple[int, int, int]
    allocated: tuple[int, int, int]
    allocated_fixed: tuple[int, int, int]
    limits: tuple[int, int, int]
    gang_requested: tuple[int, int, int]
    gang_fixed: tuple[int, int, int]


class FitErrorDoc(_Part):
    """One of KAI's fit errors; ``detailed`` where it differs from ``messages``."""

    reason: str
    messages: tuple[str, ...]
    detailed: tuple[str, ...] = ()
    subgroup: str = ""
    domain: str = ""
    queue: QueueDetailsDoc | None = None


class PendingDoc(_Part):
    """A gang that gets nothing this cycle, and why; ``fit_errors``: KAI's own texts, for tools that match on them."""

    gang: str
    reason: Reason
    message: str
    proof: ProofDoc
    fit_errors: tuple[FitErrorDoc, ...] = ()


class StageDoc(_Part):
    """An objective stage; smaller values are better. A ``bound`` of null: nothing is known below the value.

    ``stake``: how large the value could be, for work and GPUs that may be evicted; 0 for other stages.
    """

    name: str
    value: float
    bound: float | None
    optimal: bool
    stake: float = 0.0


class AdmittedDoc(_Part):
    """A gang that was admitted, and the action that admitted it."""

    gang: str
    rung: ActionName


class PlanDoc(_Part):
    """A plan. ``timing`` is in seconds by phase; ``decide``: from the snapshot in memory to the checked plan."""

    format: Literal["kai-plan/v1"] = "kai-plan/v1"
    binds: tuple[BindDoc, ...] = ()
    moves: tuple[MoveDoc, ...] = ()
    evictions: tuple[EvictionDoc, ...] = ()
    pending: tuple[PendingDoc, ...] = ()
    admitted: tuple[AdmittedDoc, ...] = ()
    stages: tuple[StageDoc, ...] = ()
    source: Literal["bound", "greedy", "cp-sat"]
    timing: dict[str, float] = Field(default_factory=dict)
    model: str = ""
    model_hash: str = ""
    seed: int = 0
    versions: dict[str, str] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unclaimed: str = ""
    unmoved: tuple[UnmovedDoc, ...] = ()


def plan_schema() -> dict[str, Any]:
    """JSON Schema of the format, as published in ``instances/schema``."""
    schema = PlanDoc.model_json_schema(by_alias=True)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"Plan of format {PLAN_FORMAT}"}
    return head | {key: value for key, value in schema.items() if key != "title"}


def plan_to_document(plan: Plan) -> dict[str, Any]:
    """Plain JSON types of ``plan``, in the published order of keys."""
    return {
        "format": PLAN_FORMAT,
        "binds": [_bind(bind) for bind in plan.binds],
        "moves": [_move(move) for move in plan.moves],
        "evictions": [_eviction(eviction) for eviction in plan.evictions],
        "pending": [_pending(pending) for pending in plan.pending],
        "admitted": [{"gang": gang, "rung": action.value} for gang, action in plan.admitted],
        "stages": [_stage(stage) for stage in plan.stages],
        "source": plan.source,
        "timing": dict(plan.timing_s),
        "model": plan.model,
        "model_hash": plan.model_hash,
        "seed": plan.seed,
        "versions": dict(plan.versions),
        "notes": list(plan.notes),
    } | _only_where_any(plan)


def _only_where_any(plan: Plan) -> dict[str, Any]:
    unmoved = [asdict(entry) for entry in plan.unmoved]
    return ({"unclaimed": plan.unclaimed} if plan.unclaimed else {}) | ({"unmoved": unmoved} if unmoved else {})


def plan_from_document(document: Any, file: str = "") -> Plan:
    """Plan of a published document.

    Raises
    ------
    InputError
        Not a plan: names the field.
    """
    doc = validate(PlanDoc, document, file)
    return Plan(
        binds=tuple(map(_read_bind, doc.binds)),
        moves=tuple(map(_read_move, doc.moves)),
        evictions=tuple(Eviction(e.pod, e.gang, e.node, e.reason, e.helps, e.message) for e in doc.evictions),
        pending=tuple(
            Pending(p.gang, p.reason, p.message, _proof(p.proof), tuple(map(_fit_error, p.fit_errors)))
            for p in doc.pending
        ),
        admitted=tuple((a.gang, Action(a.rung)) for a in doc.admitted),
        stages=tuple(map(_read_stage, doc.stages)),
        source=doc.source,
        timing_s=doc.timing,
        model=doc.model,
        model_hash=doc.model_hash,
        seed=doc.seed,
        versions=doc.versions,
        notes=doc.notes,
        unclaimed=doc.unclaimed,
        unmoved=tuple(Unmoved(u.pod, u.gang, u.node, u.message) for u in doc.unmoved),
    )


def _read_bind(doc: BindDoc) -> Bind:
    return Bind(
        pod=doc.pod,
        gang=doc.gang,
        node=doc.node,
        devices=_devices(doc.devices),
        nominated=doc.nominated,
        action=Action(doc.rung),
        zones=_zones(doc.zones),
        claims=_grants(doc.claims),
        link=_link(doc.link),
    )


def _read_move(doc: MoveDoc) -> Move:
    return Move(
        pod=doc.pod,
        gang=doc.gang,
        source=doc.source,
        target=doc.target,
        devices=_devices(doc.devices),
        helps=doc.helps,
        action=Action(doc.rung),
        zones=_zones(doc.zones),
        claims=_grants(doc.claims),
        message=doc.message,
        link=_link(doc.link),
        cause=doc.cause,
    )


def _link(doc: LinkDoc | None) -> GpuLink | None:
    return None if doc is None else GpuLink(doc.kind, doc.gb_s)


def _linked(link: GpuLink | None) -> dict[str, Any]:
    """Only where GPUs were chosen by their links."""
    return {} if link is None else {"link": {"kind": link.kind, "gb_s": link.gb_s}}


def _device(device: Device) -> dict[str, Any]:
    named = {"index": device.index, "milli": device.milli}
    return named | {"uuid": device.uuid} if device.uuid else named


def _devices(docs: tuple[DeviceDoc, ...]) -> tuple[Device, ...]:
    return tuple(Device(doc.index, doc.milli, doc.uuid or "") for doc in docs)


def _zones(docs: tuple[ZoneDoc, ...]) -> tuple[ZoneShare, ...]:
    return tuple(ZoneShare(doc.zone, tuple(doc.amounts.items())) for doc in docs)


def _in_zones(entry: Bind | Move) -> dict[str, Any]:
    """Only where zones count: most clusters have none."""
    zones = [{"zone": share.zone, "amounts": dict(share.amounts)} for share in entry.zones]
    return {"zones": zones} if zones else {}


def _grants(docs: tuple[GrantDoc, ...]) -> tuple[ClaimGrant, ...]:
    return tuple(
        ClaimGrant(doc.claim, tuple(Allotted(d.request, d.driver, d.pool, d.device) for d in doc.devices))
        for doc in docs
    )


def _claims(grants: tuple[ClaimGrant, ...]) -> dict[str, Any]:
    """The member ``claims``, where there are any."""
    written = [
        {
            "claim": grant.claim,
            "devices": [
                {"request": d.request, "driver": d.driver, "pool": d.pool, "device": d.device} for d in grant.devices
            ],
        }
        for grant in grants
    ]
    return {"claims": written} if written else {}


def _bind(bind: Bind) -> dict[str, Any]:
    return (
        {
            "pod": bind.pod,
            "gang": bind.gang,
            "node": bind.node,
            "devices": [_device(device) for device in bind.devices],
            "nominated": bind.nominated,
            "rung": bind.action.value,
        }
        | _in_zones(bind)
        | _claims(bind.claims)
        | _linked(bind.link)
    )


def _move(move: Move) -> dict[str, Any]:
    return (
        {
            "pod": move.pod,
            "gang": move.gang,
            "from": move.source,
            "to": move.target,
            "devices": [_device(device) for device in move.devices],
            "for": list(move.helps),
            "rung": move.action.value,
            "message": move.message,
        }
        | _in_zones(move)
        | _claims(move.claims)
        | _linked(move.link)
        | ({} if move.cause == "room" else {"cause": move.cause})
    )


def _eviction(eviction: Eviction) -> dict[str, Any]:
    return {
        "pod": eviction.pod,
        "gang": eviction.gang,
        "node": eviction.node,
        "reason": eviction.reason,
        "for": list(eviction.helps),
        "message": eviction.message,
    }


def _stage(stage: Stage) -> dict[str, Any]:
    bound = stage.bound if math.isfinite(stage.bound) else None
    said = {"name": stage.name, "value": stage.value, "bound": bound, "optimal": stage.optimal}
    return said | ({"stake": stage.stake} if stage.stake else {})


def _read_stage(doc: StageDoc) -> Stage:
    return Stage(doc.name, doc.value, -math.inf if doc.bound is None else doc.bound, doc.optimal, doc.stake)


def _pending(pending: Pending) -> dict[str, Any]:
    return {
        "gang": pending.gang,
        "reason": pending.reason.value,
        "message": pending.message,
        "proof": _proof_entry(pending.proof),
        "fit_errors": [_without_empty(asdict(error)) for error in pending.fit_errors],
    }


def _proof_entry(proof: Proof) -> dict[str, Any]:
    """``beside`` and ``at_most`` only where they say something."""
    entry: dict[str, Any] = {
        "state": proof.state,
        "method": proof.method,
        "blocking": [_blocker(blocker) for blocker in proof.blocking],
        "minimal": proof.minimal,
    }
    if proof.beside != "earlier":
        entry["beside"] = proof.beside
    return entry if proof.at_most is None else entry | {"at_most": asdict(proof.at_most)}


def _blocker(blocker: Blocker) -> dict[str, Any]:
    """``where``, ``resource`` and ``short`` only where they say something."""
    words = {"kind": blocker.kind, "name": blocker.name, "need": blocker.need, "have": blocker.have}
    return words | _without_empty({"where": blocker.where, "resource": blocker.resource, "short": blocker.short})


def _without_empty(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value}


def _fit_error(doc: FitErrorDoc) -> FitError:
    queue = QueueDetails(**doc.queue.model_dump()) if doc.queue else None
    return FitError(doc.reason, doc.messages, doc.detailed, doc.subgroup, doc.domain, queue)


def _proof(doc: ProofDoc) -> Proof:
    blocking = tuple(Blocker(b.kind, b.name, b.need, b.have, b.where, b.resource, b.short) for b in doc.blocking)
    at_most = AtMost(doc.at_most.gangs, doc.at_most.most) if doc.at_most is not None else None
    return Proof(doc.state, doc.method, blocking, doc.minimal, doc.beside, at_most)
