"""Which entries of a plan disturb whom, for whom, and by which right."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kai_solver.check.accounts import QueueTree
from kai_solver.check.gangs import by_podset, satisfied
from kai_solver.check.scene import Change, Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import Eviction, Gang, Move, Rung

EVICTING = (Rung.RECLAIM, Rung.PREEMPT)
DISRUPTIVE = (Rung.CONSOLIDATION, Rung.RECLAIM, Rung.PREEMPT)
_BY_REASON = {"reclaim": Rung.RECLAIM, "preempt": Rung.PREEMPT}


def ground(scene: Scene, entry: Move | Eviction, helped: str) -> Rung | None:
    """The rung by whose right ``entry`` may help the gang ``helped``; None where there is none.

    The entry's own rung where the gang was admitted by it; else, as one victim may serve several gangs, the first
    other rung of the gang that allows as much.
    """
    own = entry.rung if isinstance(entry, Move) else _BY_REASON[entry.reason]
    allowed = DISRUPTIVE if isinstance(entry, Move) else EVICTING
    rungs = scene.rungs.get(helped, [])
    candidates = [rung for rung in (own, *allowed) if rung in allowed and rung in rungs]
    return candidates[0] if candidates else None


@dataclass(slots=True)
class Toll:
    """What one gang's pods pay for one gang: the entries that touch ``change.gang``."""

    change: Change
    evictions: list[Eviction] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)

    @property
    def pods(self) -> set[str]:
        """Keys of all pods touched."""
        return {eviction.pod for eviction in self.evictions} | {move.pod for move in self.moves}


def tolls(scene: Scene, helped: str, rung: Rung) -> list[Toll]:
    """Who is disturbed for the gang ``helped`` by the right of ``rung``, one toll per disturbed gang."""
    found: list[Toll] = []
    for change in scene.changes.values():
        toll = Toll(change)
        for eviction in change.evictions:
            if eviction.reason != "stale" and helped in eviction.helps and ground(scene, eviction, helped) is rung:
                toll.evictions.append(eviction)
        for move in change.moves:
            if helped in move.helps and ground(scene, move, helped) is rung:
                toll.moves.append(move)
        if toll.evictions or toll.moves:
            found.append(toll)
    return found


def disturbances(scene: Scene) -> Iterator[Move | Eviction]:
    """Every entry that disturbs a running pod for the sake of a gang."""
    yield from scene.plan.moves
    yield from (eviction for eviction in scene.plan.evictions if eviction.reason != "stale")


def min_runtime_s(scene: Scene, tree: QueueTree, rung: Rung, claimant: Gang, victim: Gang) -> float:
    """Protection of ``victim`` after its start, seconds (reference 1.2; KAI: ``plugins/minruntime``).

    Preempt: the nearest queue from the victim's leaf up that states it. Reclaim: likewise from the leaf (``queue``)
    or from the victim's ancestor just below the lowest common ancestor (``lca``). Else the policy's.
    """
    policy = scene.snapshot.policy
    path = tree.paths[victim.queue]
    if rung is Rung.RECLAIM and policy.reclaim_resolve == "lca" and claimant.queue in tree.paths:
        path = path[path.index(tree.levelled(claimant.queue, victim.queue)[1]) :]
    default = policy.reclaim_min_runtime_s if rung is Rung.RECLAIM else policy.preempt_min_runtime_s
    for name in path:
        queue = tree.queues[name]
        stated = queue.reclaim_min_runtime_s if rung is Rung.RECLAIM else queue.preempt_min_runtime_s
        if stated is not None:
            return stated
    return default


def judge_runtime(scene: Scene, tree: QueueTree, rung: Rung, claimant: Gang, toll: Toll) -> Iterator[Violation]:
    """While protected, a gang may lose its surplus only: without the pods touched it must keep its minimum."""
    victim = toll.change.gang
    if victim.last_start_s is None or victim.queue not in tree.paths:
        return
    ran_s = scene.snapshot.now_s - victim.last_start_s
    least_s = min_runtime_s(scene, tree, rung, claimant, victim)
    if ran_s >= least_s:
        return
    if not satisfied(victim.root, by_podset(scene, toll.change.before.keys() - toll.pods)):
        text = f"gang {victim.key}: runs for {ran_s:g} s, protected for {least_s:g} s, loses more than its surplus"
        yield Violation("runtime", victim.key, text)
