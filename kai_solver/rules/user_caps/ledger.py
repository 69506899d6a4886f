"""What users hold while a plan is made."""

from collections import Counter
from collections.abc import Sequence

from kai_solver.domain import Reason
from kai_solver.problem import Problem
from kai_solver.problem.rules import Ledger, Refused
from kai_solver.rules.user_caps.problem import NAME, UserCaps, passed
from kai_solver.rules.user_caps.words import blocker, message

Held = dict[int, Counter[tuple[int, int]]]
"""By gang, what its pods hold by group and place in `Amount`."""


class UserLedger(Ledger):
    """Amounts by group, in all and of pods that come; nodes make no difference, so every shape is plain."""

    kind = NAME

    def __init__(self, problem: Problem, caps: UserCaps) -> None:
        self._caps = caps
        self._runs = [node >= 0 for node in problem.pod_node]
        self._held = [[*caps.kept.get(group, (0, 0))] for group in range(len(caps.groups))]
        self._come = [[0, 0] for _ in caps.groups]
        self._by_gang: Held = {}
        self._over: set[int] = set()
        for gang in problem.gangs:
            self._count(gang.index, gang.active, +1)

    def is_plain(self, shape: int, /) -> bool:
        return True

    def may_return(self, pod: int, /) -> bool:
        return pod not in self._caps.of

    def _count(self, gang: int, pods: Sequence[int], sign: int) -> list[int]:
        """Groups whose amounts changed."""
        changed = []
        for pod in pods:
            for group in self._caps.of.get(pod, ()):
                changed.append(group)
                for place, amount in enumerate(self._caps.amounts[pod]):
                    self._held[group][place] += sign * amount
                    self._by_gang.setdefault(gang, Counter())[group, place] += sign * amount
        return changed

    def join(self, gang: int, pods: Sequence[int], sign: int, /) -> None:
        changed = self._count(gang, pods, sign)
        for pod in pods:
            for group in () if self._runs[pod] else self._caps.of.get(pod, ()):
                for place, amount in enumerate(self._caps.amounts[pod]):
                    self._come[group][place] += sign * amount
        for group in changed:
            most, held, come = self._caps.groups[group].most, self._held[group], self._come[group]
            is_over = any(m is not None and h > m and c > 0 for m, h, c in zip(most, held, come, strict=True))
            (self._over.add if is_over else self._over.discard)(group)

    def refuses(self, gang: int, pods: Sequence[int], /) -> Refused | None:
        for index, more in self._caps.needed(pods).items():
            group, (gpus, count) = self._caps.groups[index], self._held[index]
            place = passed(group, (gpus, count), more)
            if place is not None:
                held = (gpus, count)[place]
                text = message(group, place, more[place], held)
                return Refused(Reason.OVER_LIMIT, text, blocker(group, place, more[place], held))
        return None

    def keeps_caps(self) -> bool:
        return not self._over

    def holds(self) -> bool:
        return not self._over

    def so_far(self) -> Held:
        return {gang: amounts.copy() for gang, amounts in self._by_gang.items()}
