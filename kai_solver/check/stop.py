"""Rule ``stop``: nothing starts in a queue on hold, and only what a drained queue may lose is evicted for that."""

from collections.abc import Iterator, Sequence

from kai_solver.check.accounts import grow_tree
from kai_solver.check.optional import Check
from kai_solver.check.scene import Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import Gang


class StopCheck(Check):
    """Running pods of a stopped queue may stay, move and be evicted as any others."""

    name = "stop"

    def concerns(self, scene: Scene, /) -> bool:
        """True where a queue says so, or the plan drains one."""
        return bool(_settings(scene)) or any(entry.reason == "drain" for entry in scene.plan.evictions)

    def judge(self, scene: Scene, /) -> Iterator[Violation]:
        """Binds in stopped queues; evictions that no drained queue asks for, or that leave a part of a gang."""
        said, paths = _settings(scene), grow_tree(scene.snapshot).paths
        gangs = {gang.key: gang for gang in scene.snapshot.gangs}
        for key in dict.fromkeys(bind.gang for bind in scene.plan.binds):
            stopping = [queue for queue in paths.get(gangs[key].queue, ()) if queue in said]
            if stopping:
                yield Violation(self.name, key, f"gang {key}: starts pods in queue {stopping[0]}, which is on hold")
        lost = {entry.pod for entry in scene.plan.evictions}
        for key in dict.fromkeys(entry.gang for entry in scene.plan.evictions if entry.reason == "drain"):
            gang = gangs[key]
            if not any(said.get(queue) == "drain" for queue in paths.get(gang.queue, ())):
                yield Violation(self.name, key, f"gang {key}: evicted to drain its queue, which is not drained")
            elif not gang.preemptible:
                yield Violation(self.name, key, f"gang {key}: evicted to drain its queue, and cannot be preempted")
            elif any(pod.status.is_active and pod.key not in lost for pod in gang.pods):
                yield Violation(self.name, key, f"gang {key}: evicted to drain its queue, but not whole")

    def may_need_gone(self, scene: Scene, gangs: Sequence[Gang], /) -> frozenset[str]:
        """None: what drains a queue helps no gang."""
        return frozenset()


def _settings(scene: Scene) -> dict[str, str]:
    """``hold`` or ``drain``, by the queue that says so."""
    texts = ((queue.name, dict(queue.rules).get("stop", "")) for queue in scene.snapshot.queues)
    return {name: text for name, text in texts if text}


CHECK = StopCheck()
