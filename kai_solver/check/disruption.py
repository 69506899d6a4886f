"""Rules ``order``, ``moves`` and ``delay``: which gangs may disturb which at all, whatever the fair shares are."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kai_solver.check.scene import Scene
from kai_solver.check.victims import VictimBook, disturbances, own_action
from kai_solver.check.violation import Violation
from kai_solver.domain import Action, Eviction, Gang, Move


def judge_order(scene: Scene, actions: Sequence[Action]) -> Iterator[Violation]:
    """``Plan.admitted`` lists every gang that gets pods, with the actions of its binds, and no other."""
    for key, admitting in scene.actions.items():
        change = scene.changes.get(key)
        if change is None or not change.binds:
            yield Violation("order", key, f"gang {key}: admitted, but gets no pods")
        for action in admitting:
            if action not in actions or action is Action.STALE:
                yield Violation(
                    "order", key, f"gang {key}: admitted by {action.value}, which this model does not climb"
                )
    admitted = scene.actions
    missing = {(bind.gang, bind.action) for bind in scene.plan.binds if bind.action not in admitted.get(bind.gang, ())}
    for key in scene.changes if missing else ():
        for action in sorted((action for gang, action in missing if gang == key), key=lambda action: action.value):
            yield Violation("order", key, f"gang {key}: gets pods by {action.value}, but is not admitted by it")


def judge_moves(scene: Scene, book: VictimBook) -> Iterator[Violation]:
    """An entry helps a gang by a right of it; moves of preemptible gangs only; not too many for one gang."""
    verdicts: dict[tuple[bool, str, tuple[str, ...]], str | None] = {}
    for entry in disturbances(scene):
        if isinstance(entry, Move):
            if entry.cause == "drain":
                continue  # Judged by `drains`.
            text, key = _immovable(scene, entry), (True, entry.action.value, entry.helps)
        else:
            text, key = None, (False, entry.reason, entry.helps)
        if text is None:
            # Entries that help the same gangs by the same right are all right, or none is.
            if key not in verdicts:
                verdicts[key] = _fault(scene, book, entry)
            text = verdicts[key]
        if text is not None:
            yield Violation("moves", entry.pod, f"pod {entry.pod}: {text}")
    yield from _too_many(scene, book)


def _immovable(scene: Scene, move: Move) -> str | None:
    if not scene.gangs[move.gang].preemptible:
        return f"moved, but its gang {move.gang} is not preemptible"
    if not scene.pods[move.pod].is_replaced:
        return "moved, but no controller would make it again"
    return None


def _fault(scene: Scene, book: VictimBook, entry: Move | Eviction) -> str | None:
    verb = "moved" if isinstance(entry, Move) else "evicted"
    if not entry.helps:
        return f"{verb}, but helps no gang"
    for helped in entry.helps:
        if helped not in scene.actions:
            return f"{verb} for gang {helped}, which is not admitted"
        action = book.action_for(entry, helped)
        if action is None:
            ways = " and ".join(action.value for action in scene.actions[helped])
            return f"{verb} for gang {helped}, which was admitted by {ways}"
        if action is Action.CONSOLIDATION and not scene.gangs[helped].preemptible:
            return f"moved for gang {helped}, which is not preemptible"
    own = own_action(entry)
    if not any(own in scene.actions[helped] for helped in entry.helps):
        return f"{verb} by {own.value}, but helps no gang admitted by it"
    return None


def _too_many(scene: Scene, book: VictimBook) -> Iterator[Violation]:
    most = scene.snapshot.policy.max_consolidation_gangs
    if most < 0:
        return
    moved: dict[str, set[str]] = defaultdict(set)
    for move in scene.plan.moves:
        for helped in move.helps:
            if book.action_for(move, helped) is Action.CONSOLIDATION:
                moved[helped].add(move.gang)
    for helped, gangs in moved.items():
        if len(gangs) > most:
            yield Violation("moves", helped, f"gang {helped}: {len(gangs)} gangs are moved for it, at most {most} may")


def judge_delay(scene: Scene) -> Iterator[Violation]:
    """No victims and no moves for a gang before its ``preemption_delay_s`` is over."""
    helped = dict.fromkeys(key for entry in disturbances(scene) for key in entry.helps)
    for key in helped:
        gang = scene.gangs.get(key)
        if gang is not None and (left := wait_s(gang, scene.snapshot.now_s)) > 0:
            yield Violation("delay", key, f"gang {key}: may disturb others in {left:g} s only")


def wait_s(gang: Gang, now_s: float) -> float:
    """Seconds until the gang may cause victims or moves; none left where not positive.

    Source: docs/kai-behaviour.md#preemption-delay.
    """
    since = gang.created_s if gang.last_eviction_s is None else max(gang.created_s, gang.last_eviction_s)
    return since + gang.preemption_delay_s - now_s if gang.preemption_delay_s > 0 else 0.0
