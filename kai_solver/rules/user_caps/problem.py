"""Caps per user within a queue: at most so many GPUs, or pods, for each user of the queue and of those below it.

The setting ``label=team.example/user gpus=8 pods=20`` of a queue names the label of pods that says whose they are. Pods
without it are not capped. GPUs count as they are asked for: a share as a part of one, a request by GPU
memory as whole ones, and MIG slices as their queue pays for them; where a pod runs makes no difference.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kai_solver.domain import Pod, pairs_of
from kai_solver.fairness import QueueTree
from kai_solver.problem import Problem
from kai_solver.units import MILLI, counted, format_amount

NAME = "usercaps"
"""The rule, its family of rows, and the kind of its element."""

_NUMBERS = ("gpus", "pods")
_MOST = 10_000_000
_DIGITS = len(str(_MOST))
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
    """All groups of the cycle; ``of``: by pod, the groups that it belongs to, its own queue's first.

    ``kept``: by group, what running pods hold that take no part in the cycle, as those of a gang that is set aside.
    """

    groups: tuple[Group, ...]
    of: dict[int, tuple[int, ...]]
    amounts: dict[int, Amount]
    kept: dict[int, Amount]

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
        stated = values.get(key)
        if stated is not None and not (stated.isdecimal() and len(stated) <= _DIGITS and int(stated) <= _MOST):
            raise ValueError(f"{key}={stated} is not a whole number up to {_MOST:,}. Write one")
    gpus, pods = (int(values[key]) if key in values else None for key in _NUMBERS)
    return Setting(values["label"], (None if gpus is None else gpus * MILLI, pods))


def caps_of(problem: Problem) -> UserCaps | None:
    """The groups of all queues with the setting; None where no queue has it."""
    tree = problem.queues
    settings = {q.name: setting_of(dict(q.rules)[NAME]) for q in problem.snapshot.queues if NAME in dict(q.rules)}
    if not settings:
        return None
    users = _Users(tree, settings)
    of: dict[int, tuple[int, ...]] = {}
    for gang in problem.gangs:
        for pod in (pod for leaf in gang.leaves for pod in (*leaf.active, *leaf.pending)):
            mine = users.groups_of(problem.pods[pod], gang.queue)
            if mine:
                of[pod] = mine
    kept: dict[int, Amount] = {}
    take_part = {problem.pods[pod].key for pod in of}
    for other in problem.snapshot.gangs:
        for one in (pod for pod in other.pods if pod.status.is_active and pod.key not in take_part):
            for group in users.groups_of(one, tree.index.get(other.queue, -1)):
                gpus, count = kept.get(group, (0, 0))
                kept[group] = gpus + amount_of(one)[0], count + amount_of(one)[1]
    return UserCaps(tuple(users.groups), of, {pod: amount_of(problem.pods[pod]) for pod in of}, kept)


class _Users:
    """Groups, numbered as their pods are met."""

    def __init__(self, tree: QueueTree, settings: Mapping[str, Setting]) -> None:
        self.groups: list[Group] = []
        self._tree = tree
        self._index: dict[tuple[int, str], int] = {}
        self._capped = [
            [(q, settings[tree.names[q]]) for q in path if tree.names[q] in settings] if is_leaf else []
            for path, is_leaf in zip(tree.path, tree.is_leaf, strict=True)
        ]

    def groups_of(self, pod: Pod, leaf: int) -> tuple[int, ...]:
        """Groups of a pod in that leaf queue; -1 or one that is no leaf: none."""
        found: list[int] = []
        for queue, setting in self._capped[leaf] if leaf >= 0 else ():
            user = pod.labels.get(setting.label, "")
            if user and (queue, user) not in self._index:
                self._index[queue, user] = len(self.groups)
                self.groups.append(Group(self._tree.title(queue), user, setting.most))
            if user:
                found.append(self._index[queue, user])
        return tuple(found)


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
    return counted(amount, "pod")
