"""Claims after a plan has been carried out."""

from dataclasses import replace

from kai_solver.claims.lower import lower, raised
from kai_solver.domain import Claim, Plan, Snapshot


def carried(after: Snapshot, plan: Plan) -> Snapshot:
    """``after`` (its pods are where ``plan`` has put them) with the claims as they then are.

    A claim has the devices that the plan gave it; one that the last pod holding it has left has none any more.
    """
    claims = after.claims
    if claims is None:
        return after
    snapshot = raised(after)
    granted = {g.claim: g.devices for bind in plan.binds if not bind.nominated for g in bind.claims}
    pods = [pod for gang in snapshot.gangs for pod in gang.pods] + list(snapshot.foreign)
    holding: dict[str, list[str]] = {}
    for pod in pods:
        if pod.status.holds_resources:
            for key in pod.claims:
                holding.setdefault(key, []).append(pod.name)
    gone = {eviction.pod for eviction in plan.evictions} | {move.pod for move in plan.moves}
    left = {key for pod in pods if pod.key in gone for key in pod.claims}
    known = snapshot.claims
    if known is None:
        return snapshot

    def claim_of(claim: Claim) -> Claim:
        names = holding.get(claim.key, [])
        if claim.key in granted:
            return replace(claim, allotted=granted[claim.key], reserved=tuple(dict.fromkeys((*claim.reserved, *names))))
        if claim.key in left and not names:
            return replace(claim, allotted=None, reserved=())
        return claim

    return lower(replace(snapshot, claims=replace(known, claims=tuple(claim_of(claim) for claim in known.claims))))
