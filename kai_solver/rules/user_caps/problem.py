"""Caps per user within a queue: at most so many GPUs, or pods, for each user of the queue and of those below it.

The setting ``label=team.example/user gpus=8 pods=20`` of a queue names the label of pods that says whose they are. Pods
without it are not capped. GPUs count as they are asked for: a share as a part of one, a request by GPU
memory as whole ones, and MIG slices as their queue pays for them; where a pod runs makes no difference.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kai_solver.domain import Pod, pairs_of
from kai_solver.problem import Problem
from kai_solver.units import MILLI, format_amount

NAME = "usercaps"
"""The rule, its family of rows, and the kind of its element."""

_NUMBERS = ("gpus", "pods")
_MOST = 10_000_000
Amount = tuple[int, int]
"""Thousandths of GPUs, and pods."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a queue says; ``most``: by `Amount`, None where it is not capped."""

    label: str
    most: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Group:
    """The pods of one user in one queue and below: ``title`` of the queue, and what they may hold together."""

    title: str
    user: str
    most: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, eq=False)
class UserCaps:
    """All groups of the cycle; ``of``: by pod, the groups that it belongs to, its own queue's first."""

    groups: tuple[Group, ...]
    of: dict[int, tuple[int, ...]]
    amounts: dict[int, Amount]

    def needed(self, pods: Iterable[int]) -> dict[int, Amount]:
        """What ``pods`` hold together, by group."""
        found: dict[int, Amount] = {}
        for pod in pods:
            for group in self.of.get(pod, ()):
                gpus, count = found.get(group, (0, 0))
                found[group] = gpus + self.amounts[pod][0], count + self.amounts[pod][1]
        return found


def setting_of(text: str) -> Setting:
    """Read a setting; raises ``ValueError`` with what is wrong and the cure."""
    values = dict(pairs_of(text))
    for key in values:
        if key not in ("label", *_NUMBERS):
            raise ValueError(f"{key!r} is not known. Write label=<label> gpus=<number> pods=<number>")
    if not values.get("label"):
        raise ValueError("no label is named. Write label=<label of pods that names their user>")
    if not any(key in values for key in _NUMBERS):
        raise ValueError("nothing is capped. Write gpus=<number> or pods=<number>")
    for key in _NUMBERS:
        if key in values and not (values[key].isdecimal() and int(values[key]) <= _MOST):
            raise ValueError(f"{key}={values[key]} is no whole number up to {_MOST:,}. Write one")
    gpus, pods = (int(values[key]) if key in values else None for key in _NUMBERS)
    return Setting(values["label"], (None if gpus is None else gpus * MILLI, pods))


def caps_of(problem: Problem) -> UserCaps | None:
    """The groups of all queues with the setting; None where no queue has it."""
    settings = {q.name: setting_of(dict(q.rules)[NAME]) for q in problem.snapshot.queues if NAME in dict(q.rules)}
    if not settings:
        return None
    tree = problem.queues
    index: dict[tuple[int, str], int] = {}
    groups: list[Group] = []
    found = UserCaps((), {}, {})
    for gang in problem.gangs:
        capped = [(q, settings[tree.names[q]]) for q in tree.path[gang.queue] if tree.names[q] in settings]
        for pod in (pod for leaf in gang.leaves for pod in (*leaf.active, *leaf.pending)) if capped else ():
            mine: list[int] = []
            for queue, setting in capped:
                user = problem.pods[pod].labels.get(setting.label, "")
                if user and (queue, user) not in index:
                    index[queue, user] = len(groups)
                    groups.append(Group(tree.title(queue), user, setting.most))
                if user:
                    mine.append(index[queue, user])
            if mine:
                found.of[pod] = tuple(mine)
                found.amounts[pod] = amount_of(problem.pods[pod])
    return UserCaps(tuple(groups), found.of, found.amounts)


def amount_of(pod: Pod) -> Amount:
    """What a pod counts, wherever it runs."""
    each = MILLI if pod.gpu.memory_mib else pod.gpu.milli
    return pod.gpu.devices * each + pod.quota_gpu_milli, 1


def passed(group: Group, held: Amount, more: Amount) -> int | None:
    """Place in `Amount` of the cap that ``more`` beside ``held`` passes; None where there is none."""
    for place, most in enumerate(group.most):
        if most is not None and more[place] > 0 and held[place] + more[place] > most:
            return place
    return None


def say(place: int, amount: int) -> str:
    """An amount for people."""
    if place == 0:
        return format_amount("gpu", amount)
    return "1 pod" if amount == 1 else f"{amount} pods"
