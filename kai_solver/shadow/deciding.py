"""What a cycle would do, gang by gang, and which of that is new."""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field

from kai_solver.domain import Gang, Plan, Pod, PodStatus, Snapshot
from kai_solver.shadow.lines import Decision, Leaver, Mover, Place, Wait, Word
from kai_solver.units import MILLI


def decisions_of(
    snapshot: Snapshot, plan: Plan, cycle: int, at_s: float, busy: Collection[str] = ()
) -> dict[str, Decision]:
    """By gang: what the plan does with it; without gangs of which it says nothing, and ``busy`` ones."""
    binds: dict[str, list[Place]] = {}
    evictions: dict[str, list[Leaver]] = {}
    moves: dict[str, list[Mover]] = {}
    for bind in plan.binds:
        binds.setdefault(bind.gang, []).append(Place(pod=bind.pod, node=bind.node, promised=bind.nominated))
    for eviction in plan.evictions:
        leaver = Leaver(pod=eviction.pod, node=eviction.node, reason=eviction.reason, helps=eviction.helps)
        evictions.setdefault(eviction.gang, []).append(leaver)
    for move in plan.moves:
        mover = Mover(pod=move.pod, source=move.source, target=move.target, helps=move.helps)
        moves.setdefault(move.gang, []).append(mover)
    waits = {
        entry.gang: Wait(reason=entry.reason.value, message=entry.message, proof=entry.proof.state)
        for entry in plan.pending
    }
    named = binds.keys() | evictions.keys() | moves.keys() | waits.keys()
    found = {}
    for gang in snapshot.gangs:
        if gang.key not in named or gang.key in busy:
            continue
        placed, leaving, moving = binds.get(gang.key, []), evictions.get(gang.key, []), moves.get(gang.key, [])
        found[gang.key] = Decision(
            at=at_s,
            cycle=cycle,
            gang=gang.key,
            queue=gang.queue,
            priority=gang.priority,
            created=created_s(gang),
            gpus=gpus_of(pod for pod in gang.pods if pod.status is PodStatus.PENDING),
            runs=any(pod.status.is_active for pod in gang.pods),
            decision=_word(placed, bool(leaving), bool(moving)),
            binds=tuple(placed),
            evictions=tuple(leaving),
            moves=tuple(moving),
            pending=waits.get(gang.key),
        )
    return found


def _word(placed: list[Place], is_leaving: bool, is_moving: bool) -> Word:
    if any(not place.promised for place in placed):
        return "bind"
    return "promise" if placed else "evict" if is_leaving else "move" if is_moving else "pending"


def created_s(gang: Gang) -> float | None:
    """When the gang was created; None where that is not known."""
    return gang.created_s or None


def gpus_of(pods: Iterable[Pod]) -> float:
    """GPUs that pods ask for: shares as parts, slices as their queues pay, shares by memory as one for each device."""
    return sum((pod.gpu.devices * (pod.gpu.milli or MILLI) + pod.quota_gpu_milli) / MILLI for pod in pods)


@dataclass(slots=True)
class Changes:
    """Remembers the decisions of the newest cycle.

    The node of a place, and the words and the proof of a gang that waits, are no change: they follow every pod that
    starts elsewhere, and would fill the log.
    """

    _before: dict[str, Hashable] = field(default_factory=dict)

    def of(self, decisions: dict[str, Decision]) -> list[Decision]:
        """Those that differ from the cycle before."""
        now = {gang: _essence(decision) for gang, decision in decisions.items()}
        changed = [decision for gang, decision in decisions.items() if self._before.get(gang) != now[gang]]
        self._before = now
        return changed


def _essence(decision: Decision) -> Hashable:
    return (
        frozenset((place.pod, place.promised) for place in decision.binds),
        frozenset((leaver.pod, leaver.helps) for leaver in decision.evictions),
        frozenset((mover.pod, mover.helps) for mover in decision.moves),
        decision.pending.reason if decision.pending is not None else "",
    )
