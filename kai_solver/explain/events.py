"""What a plan does to the pods of a gang, as its events say it (reference 1.13, 3.14)."""

from collections.abc import Iterator

from kai_solver.domain import Eviction, Move, Plan, ZoneShare


def events_of(plan: Plan, gang: str) -> Iterator[str]:
    """One text a pod of ``gang`` that the plan binds, moves or evicts."""
    for bind in plan.binds:
        if bind.gang == gang:
            when = "once capacity there is released" if bind.nominated else "now"
            yield f"Pod {bind.pod} gets node {bind.node}{zone_words(bind.zones)} {when} ({bind.rung.value})"
    for move in plan.moves:
        if move.gang == gang:
            yield move_text(move)
    for eviction in plan.evictions:
        if eviction.gang == gang:
            yield eviction.message or eviction_text(eviction)


def move_text(move: Move) -> str:
    """KAI's message for a pod that is moved, and where it goes."""
    return (
        f"Pod {move.pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure; "
        f"it goes from {move.source} to {move.target}{zone_words(move.zones)} for {', '.join(move.helps) or 'nobody'}"
    )


def zone_words(zones: tuple[ZoneShare, ...]) -> str:
    """``, NUMA zone node-0,`` where zones count."""
    if not zones:
        return ""
    return f", NUMA zone{'s' if len(zones) > 1 else ''} {' and '.join(share.zone for share in zones)},"


def eviction_text(eviction: Eviction) -> str:
    """Text for an eviction whose plan gives no message."""
    taker = f" for {', '.join(eviction.helps)}" if eviction.helps else ""
    return f"Pod {eviction.pod} is evicted from {eviction.node} by {eviction.reason}{taker}"
