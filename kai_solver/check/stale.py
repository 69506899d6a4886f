"""Rule ``stale``: which gangs may be evicted for running below their minimum (docs/kai-behaviour.md#stale-gangs)."""

from collections.abc import Iterator, Sequence

from kai_solver.check.gangs import count, satisfied
from kai_solver.check.scene import Change, Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import Action, Gang, PodStatus, Policy


def is_stale(gang: Gang) -> bool:
    """True where pods hold resources, none has succeeded, and the tree lacks its minimum.

    KAI ignores ``minSubGroup`` here, and so calls a gang stale that validly runs K of N subgroups; we do not.
    """
    if any(pod.status is PodStatus.SUCCEEDED for pod in gang.pods):
        return False
    used = count(pod for pod in gang.pods if pod.status.holds_resources)
    return bool(used) and not satisfied(gang.root, used)


def grace_s(gang: Gang, policy: Policy) -> float:
    """How long the gang may stay stale; negative: for ever."""
    return policy.staleness_grace_s if gang.staleness_grace_s is None else gang.staleness_grace_s


def judge_stale(scene: Scene, actions: Sequence[Action]) -> Iterator[Violation]:
    """Only gangs stale beyond their grace are evicted as stale, whole, and for no other gang."""
    for change in scene.changes.values():
        if change.evictions and any(eviction.reason == "stale" for eviction in change.evictions):
            text = _fault(scene, change, actions)
            if text:
                yield Violation("stale", change.gang.key, f"gang {change.gang.key}: evicted as stale {text}")


def _fault(scene: Scene, change: Change, actions: Sequence[Action]) -> str:
    gang, now_s = change.gang, scene.snapshot.now_s
    grace = grace_s(gang, scene.snapshot.policy)
    since = now_s if gang.stale_since_s is None else gang.stale_since_s
    if Action.STALE not in actions:
        return "though this model does not evict stale gangs"
    if not is_stale(gang):
        return "though it has its minimum"
    if grace < 0 or now_s - since < grace:
        return "before its grace is over"
    if any(eviction.helps for eviction in change.evictions if eviction.reason == "stale"):
        return "to help another gang"
    if change.before.keys() - change.lost or change.binds:
        return "but not whole"
    return ""
