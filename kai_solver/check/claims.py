"""Rule ``claims``: the devices that a plan gives to resource claims exist there, match, and are given once."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kai_solver.check.columns import stays
from kai_solver.check.scene import Scene, destination, is_immediate
from kai_solver.check.violation import Violation
from kai_solver.claims import SelectorError, selects
from kai_solver.domain import (
    Allotted,
    Bind,
    Claim,
    ClaimDevice,
    ClaimGrant,
    DeviceClass,
    DeviceId,
    DeviceRequest,
    Move,
)


@dataclass(slots=True)
class _Register:
    """Claims, devices and classes by name, and which pods use which claim."""

    scene: Scene
    claims: dict[str, Claim]
    devices: dict[DeviceId, ClaimDevice]
    classes: dict[str, DeviceClass]
    names: frozenset[str]
    holders: dict[str, list[str]] = field(default_factory=dict)
    stayers: dict[str, list[str]] = field(default_factory=dict)

    def keeps(self, claim: Claim) -> bool:
        """True where the claim has its devices also when the plan is done.

        It loses them when the last pod that holds them leaves; where none did, others have it reserved.
        """
        if claim.allotted is None:
            return False
        others = set(claim.reserved) - self.names
        return bool(self.stayers.get(claim.key) or others or not self.holders.get(claim.key))


def judge_claims(scene: Scene) -> Iterator[Violation]:
    """Every claim of every pod with a new place."""
    known = scene.snapshot.claims
    if known is None:
        return
    register = _Register(
        scene,
        {claim.key: claim for claim in known.claims},
        {device.id: device for device in reversed(known.devices)},
        {c.name: c for c in known.classes},
        frozenset(pod.name for gang in scene.snapshot.gangs for pod in gang.pods),
    )
    leaving = scene.leaving
    for holder in scene.everywhere():
        for key in holder.pod.claims:
            register.holders.setdefault(key, []).append(holder.key)
            if stays(holder.pod, leaving):
                register.stayers.setdefault(key, []).append(holder.key)
    for entry in scene.arrivals():
        for text in _faults(register, entry):
            yield Violation("claims", entry.pod, f"pod {entry.pod}: {text}")
    yield from _incoherent(register)
    yield from _given_twice(register)


def _faults(register: _Register, entry: Bind | Move) -> Iterator[str]:
    """What is wrong with the claims of one pod by themselves."""
    pod = register.scene.pods[entry.pod]
    grants = {grant.claim: grant for grant in entry.claims}
    for key in grants.keys() - set(pod.claims):
        yield f"is given devices of {key}, which it does not use"
    for key in pod.claims:
        claim, grant = register.claims.get(key), grants.get(key)
        if claim is None:
            yield f"its resource claim {key} does not exist"
        elif register.keeps(claim):
            if grant is None or set(grant.devices) != set(claim.allotted or ()):
                yield f"its resource claim {key} has devices, and the plan names others"
            elif text := _elsewhere(register, grant, destination(entry)):
                yield text
        elif not (claim.extended and grant is None):
            yield from _unfit(register, claim, grant or ClaimGrant(key), destination(entry))


def _unfit(register: _Register, claim: Claim, grant: ClaimGrant, node: str) -> Iterator[str]:
    """A claim that gets its devices by the plan: as many as asked for, on this node, each a match."""
    if text := _elsewhere(register, grant, node):
        yield text
        return
    by_request: dict[str, list[Allotted]] = {}
    for allotted in grant.devices:
        by_request.setdefault(allotted.request, []).append(allotted)
    for name in by_request.keys() - {request.name for request in claim.requests}:
        yield f"is given devices for {name}, which {claim.key} does not ask for"
    for request in claim.requests:
        given = [register.devices[allotted.id] for allotted in by_request.get(request.name, ())]
        need = request.count if not request.all_devices else _all_on(register, request, node)
        if len(given) != need:
            yield f"is given {len(given)} devices for {request.name} of {claim.key}, which asks for {need}"
        for device in given:
            if not _matches(register, request, device):
                yield f"is given device {device.name} for {request.name} of {claim.key}, which does not match"


def _elsewhere(register: _Register, grant: ClaimGrant, node: str) -> str:
    for allotted in grant.devices:
        device = register.devices.get(allotted.id)
        if device is None or device.node != node:
            return f"goes to {node}, which has no device {'/'.join(allotted.id)} of {grant.claim}"
    return ""


def _matches(register: _Register, request: DeviceRequest, device: ClaimDevice) -> bool:
    known = register.classes.get(request.device_class)
    if known is None or known.problem or request.problem:
        return False
    try:
        return all(selects(expression, device) for expression in (*known.selectors, *request.selectors))
    except SelectorError:
        return False


def _all_on(register: _Register, request: DeviceRequest, node: str) -> int:
    here = (device for device in register.devices.values() if device.node == node)
    return sum(_matches(register, request, device) for device in here)


def _incoherent(register: _Register) -> Iterator[Violation]:
    """Pods that share a claim are given the same devices; at least one of them must be there."""
    first: dict[str, tuple[str, frozenset[Allotted]]] = {}
    for entry in register.scene.arrivals():
        for grant in entry.claims:
            devices = frozenset(grant.devices)
            other, seen = first.setdefault(grant.claim, (entry.pod, devices))
            if seen != devices:
                text = f"pod {entry.pod}: is given other devices of {grant.claim} than {other}"
                yield Violation("claims", entry.pod, text)


def _given_twice(register: _Register) -> Iterator[Violation]:
    """No device has two claims: finally, and for pods that start now also with all pods that still hold theirs."""
    granted: dict[str, tuple[Bind | Move, tuple[Allotted, ...]]] = {}
    for entry in register.scene.arrivals():
        for grant in entry.claims:
            if grant.claim not in granted or is_immediate(entry):
                granted[grant.claim] = entry, grant.devices
    fresh = {key: value for key, value in granted.items() if not _had(register, key)}
    held = {claim.key: claim.allotted or () for claim in register.claims.values()}
    kept = {key: devices for key, devices in held.items() if register.keeps(register.claims[key])}
    later = Counter(a.id for devices in kept.values() for a in devices)
    later.update(a.id for _, devices in fresh.values() for a in devices)
    now = {a.id for devices in held.values() for a in devices}
    for key, (entry, devices) in fresh.items():
        for allotted in devices:
            if later[allotted.id] > 1 or (is_immediate(entry) and allotted.id in now):
                text = f"pod {entry.pod}: device {'/'.join(allotted.id)} of {key} has another claim"
                yield Violation("claims", entry.pod, text)


def _had(register: _Register, key: str) -> bool:
    claim = register.claims.get(key)
    return claim is not None and register.keeps(claim)
