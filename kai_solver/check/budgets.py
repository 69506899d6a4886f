"""Rule ``budgets``: evictions and moves stay within the disruption budgets, as the Eviction API requires."""

from collections import Counter
from collections.abc import Iterator, Sequence

from kai_solver.check.scene import Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import DisruptionBudget, Pod, PodStatus
from kai_solver.predicates import labels_match


def judge_budgets(scene: Scene) -> Iterator[Violation]:
    """No budget loses more pods than it allows; no pod leaves that several match, or whose eviction was refused."""
    snapshot = scene.snapshot
    if not snapshot.budgets and not snapshot.refused:
        return
    lost: Counter[str] = Counter()
    for key in sorted(scene.leaving):
        gang, pod = scene.owners[key].key, scene.pods[key]
        if pod.status is not PodStatus.RUNNING:
            continue
        if key in snapshot.refused:
            yield Violation("budgets", gang, f"pod {key}: leaves, though its eviction was refused lately")
        budgets = _matching(snapshot.budgets, pod)
        if len(budgets) > 1:
            names = ", ".join(budget.key for budget in budgets)
            yield Violation("budgets", gang, f"pod {key}: leaves, though several disruption budgets match it ({names})")
        elif budgets and (pod.ready or not budgets[0].spares_unready):
            budget = budgets[0]
            lost[budget.key] += 1
            if lost[budget.key] == max(0, budget.allowed) + 1:
                text = (
                    f"disruption budget {budget.key}: allows {budget.allowed} to leave, and more do, among them {key}"
                )
                yield Violation("budgets", gang, text)


def _matching(budgets: Sequence[DisruptionBudget], pod: Pod) -> list[DisruptionBudget]:
    return [b for b in budgets if b.namespace == pod.namespace and labels_match(b.selector, pod.labels)]
