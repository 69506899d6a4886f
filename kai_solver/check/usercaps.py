"""Rule ``usercaps``: where a queue says so, each of its users holds at most so many GPUs and pods."""

from collections.abc import Iterator, Sequence

from kai_solver.check.accounts import grow_tree
from kai_solver.check.optional import Check
from kai_solver.check.scene import Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import Gang, Pod
from kai_solver.units import MILLI

User = tuple[str, str]
"""Queue and user."""


class UserCapsCheck(Check):
    """A cap is passed by what comes; what a user holds above it without that is no fault of the plan's."""

    name = "usercaps"

    def concerns(self, scene: Scene, /) -> bool:
        """True where any queue says so."""
        return bool(_settings(scene))

    def judge(self, scene: Scene, /) -> Iterator[Violation]:
        """Users that hold more than their queue allows, and got some of it from the plan."""
        said = _settings(scene)
        held, come = _amounts(scene, said)
        for (queue, name), added in come.items():
            for place, unit in enumerate(("gpus", "pods")):
                most = said[queue].get(unit)
                scale = MILLI if unit == "gpus" else 1
                if most is not None and added[place] and held[queue, name][place] > int(most) * scale:
                    would = f"{held[queue, name][place] / scale:g} {unit}"
                    text = f"user {name} would hold {would}, at most {most} are allowed"
                    yield Violation(self.name, queue, text)

    def may_need_gone(self, scene: Scene, gangs: Sequence[Gang], /) -> frozenset[str]:
        """Those with pods that a cap is about."""
        said, paths = _settings(scene), grow_tree(scene.snapshot).paths
        capped = {leaf: [queue for queue in path if queue in said] for leaf, path in paths.items()}
        return frozenset(
            gang.key
            for gang in gangs
            if any(next(_users(pod, capped.get(gang.queue, []), said), None) for pod in gang.pods)
        )


def _amounts(scene: Scene, said: dict[str, dict[str, str]]) -> tuple[dict[User, list[int]], dict[User, list[int]]]:
    """Thousandths of GPUs and pods of each user after the plan, and those of them that the plan adds."""
    held: dict[User, list[int]] = {}
    come: dict[User, list[int]] = {}
    paths = grow_tree(scene.snapshot).paths
    lost = {eviction.pod for eviction in scene.plan.evictions}
    new = {bind.pod for bind in scene.plan.binds}
    for gang in scene.snapshot.gangs:
        queues = [queue for queue in paths.get(gang.queue, ()) if queue in said]
        for pod in gang.pods if queues else ():
            if pod.key in new or (pod.status.is_active and pod.key not in lost):
                for user in _users(pod, queues, said):
                    _add(held, user, pod)
                    if pod.key in new:
                        _add(come, user, pod)
    return held, come


def _settings(scene: Scene) -> dict[str, dict[str, str]]:
    """What queues say, by name."""
    texts = ((queue.name, dict(queue.rules).get("usercaps")) for queue in scene.snapshot.queues)
    return {name: dict(part.split("=", 1) for part in text.split()) for name, text in texts if text}


def _users(pod: Pod, queues: list[str], said: dict[str, dict[str, str]]) -> Iterator[User]:
    for queue in queues:
        name = pod.labels.get(said[queue]["label"], "")
        if name:
            yield queue, name


def _add(amounts: dict[User, list[int]], user: User, pod: Pod) -> None:
    """A request by GPU memory counts as whole GPUs, a MIG slice as its queue pays for it."""
    row = amounts.setdefault(user, [0, 0])
    row[0] += pod.gpu.devices * (MILLI if pod.gpu.memory_mib else pod.gpu.milli) + pod.quota_gpu_milli
    row[1] += 1


CHECK = UserCapsCheck()
