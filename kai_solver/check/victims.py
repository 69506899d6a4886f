"""Which entries of a plan disturb which gangs, for which gang, and by which right."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kai_solver.check.accounts import QueueTree
from kai_solver.check.gangs import by_podset, satisfied
from kai_solver.check.scene import Change, Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import FOR_NO_GANG, Action, Eviction, Gang, Move

EVICTING = (Action.RECLAIM, Action.PREEMPT)
DISRUPTIVE = (Action.CONSOLIDATION, Action.RECLAIM, Action.PREEMPT)
_BY_REASON = {"reclaim": Action.RECLAIM, "preempt": Action.PREEMPT}


@dataclass(slots=True)
class VictimGroup:
    """Pods of one gang that leave or move for one other gang: the entries that touch ``change.gang``."""

    change: Change
    evictions: list[Eviction] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)

    @property
    def pods(self) -> set[str]:
        """Keys of all pods touched."""
        return {eviction.pod for eviction in self.evictions} | {move.pod for move in self.moves}


class VictimBook:
    """Every eviction and move of a plan, by the gang it helps and the right it rests on."""

    def __init__(self, scene: Scene) -> None:
        self._actions = scene.actions
        self._now_s = scene.snapshot.now_s
        self._longest_s = _longest_s(scene)
        self._groups: dict[str, list[tuple[Action, dict[str, VictimGroup]]]] = {}
        for change in scene.changes.values():
            for eviction in change.evictions:
                if eviction.reason not in FOR_NO_GANG:
                    for group in self._groups_of(change, eviction):
                        group.evictions.append(eviction)
            for move in change.moves:
                for group in self._groups_of(change, move):
                    group.moves.append(move)

    def groups(self, helped: str, action: Action) -> list[VictimGroup]:
        """What is disturbed for the gang ``helped`` by the right of ``action``, one entry per disturbed gang."""
        return [group for own, groups in self._groups.get(helped, ()) if own is action for group in groups.values()]

    def may_protect(self, victim: Gang) -> bool:
        """False once the gang's run time exceeds every minimum run time."""
        return victim.last_start_s is not None and self._now_s - victim.last_start_s < self._longest_s

    def action_for(self, entry: Move | Eviction, helped: str) -> Action | None:
        """The action by whose right ``entry`` may help the gang ``helped``; None if there is none.

        The entry's own action if it admitted the gang; else, as one victim may serve several gangs, the first other
        action of the gang that allows as much.
        """
        own, allowed = own_action(entry), DISRUPTIVE if isinstance(entry, Move) else EVICTING
        actions = self._actions.get(helped, ())
        if own in actions and own in allowed:
            return own
        return next((action for action in allowed if action in actions), None)

    def _groups_of(self, change: Change, entry: Move | Eviction) -> list[VictimGroup]:
        found: list[VictimGroup] = []
        for helped in entry.helps:
            action = self.action_for(entry, helped)
            if action is not None:
                groups = self._groups_for(helped, action)
                if change.gang.key not in groups:
                    groups[change.gang.key] = VictimGroup(change)
                found.append(groups[change.gang.key])
        return found

    def _groups_for(self, helped: str, action: Action) -> dict[str, VictimGroup]:
        """By disturbed gang."""
        known = self._groups.setdefault(helped, [])
        for own, groups in known:
            if own is action:
                return groups
        groups = {}
        known.append((action, groups))
        return groups


def own_action(entry: Move | Eviction) -> Action:
    """The action that the entry itself names."""
    return entry.action if isinstance(entry, Move) else _BY_REASON[entry.reason]


def disturbances(scene: Scene) -> Iterator[Move | Eviction]:
    """Every entry that disturbs a running pod because of a gang."""
    yield from scene.plan.moves
    yield from (eviction for eviction in scene.plan.evictions if eviction.reason not in FOR_NO_GANG)


def _longest_s(scene: Scene) -> float:
    """Longest minimum run time that the policy or any queue grants, seconds."""
    policy = scene.snapshot.policy
    stated = [policy.reclaim_min_runtime_s, policy.preempt_min_runtime_s]
    for queue in scene.snapshot.queues:
        stated += [queue.reclaim_min_runtime_s or 0.0, queue.preempt_min_runtime_s or 0.0]
    return max(stated)


def min_runtime_s(scene: Scene, tree: QueueTree, action: Action, claimant: Gang, victim: Gang) -> float:
    """Protection of ``victim`` after its start, seconds.

    Source: docs/kai-behaviour.md#min-runtime; KAI: ``plugins/minruntime``.

    Preempt: the nearest queue from the victim's leaf up that states it. Reclaim: likewise from the leaf (``queue``)
    or from the victim's ancestor just below the lowest common ancestor (``lca``). Else the policy's.
    """
    policy = scene.snapshot.policy
    path = tree.paths[victim.queue]
    if action is Action.RECLAIM and policy.reclaim_resolve == "lca" and claimant.queue in tree.paths:
        path = path[path.index(tree.levelled(claimant.queue, victim.queue)[1]) :]
    default = policy.reclaim_min_runtime_s if action is Action.RECLAIM else policy.preempt_min_runtime_s
    for name in path:
        queue = tree.queues[name]
        stated = queue.reclaim_min_runtime_s if action is Action.RECLAIM else queue.preempt_min_runtime_s
        if stated is not None:
            return stated
    return default


def judge_runtime(
    scene: Scene, tree: QueueTree, action: Action, claimant: Gang, group: VictimGroup
) -> Iterator[Violation]:
    """While protected, a gang may lose its surplus only: without the pods touched it must keep its minimum."""
    victim = group.change.gang
    if victim.last_start_s is None or victim.queue not in tree.paths:
        return
    ran_s = scene.snapshot.now_s - victim.last_start_s
    least_s = min_runtime_s(scene, tree, action, claimant, victim)
    if ran_s >= least_s:
        return
    if not satisfied(victim.root, by_podset(scene, group.change.before.keys() - group.pods)):
        text = f"gang {victim.key}: runs for {ran_s:g} s, protected for {least_s:g} s, loses more than its surplus"
        yield Violation("runtime", victim.key, text)
