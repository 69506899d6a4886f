"""Rule ``priority``: which gangs preempt may take from (docs/kai-behaviour.md#preempt)."""

from collections.abc import Iterator

from kai_solver.check.accounts import QueueTree
from kai_solver.check.scene import Scene
from kai_solver.check.victims import VictimBook, judge_runtime
from kai_solver.check.violation import Violation
from kai_solver.domain import Action, Gang


def judge_priority(scene: Scene, tree: QueueTree, book: VictimBook) -> Iterator[Violation]:
    """Victims of preempt are preemptible gangs of the same leaf queue and of strictly lower priority."""
    for key, actions in scene.actions.items():
        if Action.PREEMPT not in actions:
            continue
        gang = scene.gangs[key]
        found = book.groups(key, Action.PREEMPT)
        if found and gang.never_preempts:
            yield Violation("priority", key, f"gang {key}: never preempts, but has victims")
        for group in found:
            victim = group.change.gang
            if text := _fault(gang, victim):
                yield Violation("priority", victim.key, f"gang {victim.key}: preempted for {key}, but {text}")
            if book.may_protect(victim):
                yield from judge_runtime(scene, tree, Action.PREEMPT, gang, group)


def _fault(gang: Gang, victim: Gang) -> str:
    if victim.queue != gang.queue:
        return f"it is in queue {victim.queue}, not in {gang.queue}"
    if not victim.preemptible:
        return "it is not preemptible"
    if victim.priority >= gang.priority:
        return f"its priority {victim.priority} is not below {gang.priority}"
    return ""
