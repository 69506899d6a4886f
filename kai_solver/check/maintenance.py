"""Rule ``maintenance``: nothing starts on a node that would not end before the node is drained."""

from collections.abc import Iterator, Sequence

from kai_solver.check.drains import lead_s
from kai_solver.check.optional import Check
from kai_solver.check.scene import Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import Gang


class MaintenanceCheck(Check):
    """Running pods may stay where they are. What gets a place later counts as if it started now."""

    name = "maintenance"

    def concerns(self, scene: Scene, /) -> bool:
        """True where a node that the plan names is to be drained."""
        return any(arrival.node.drain_at_s is not None for arrival in scene.come)

    def judge(self, scene: Scene, /) -> Iterator[Violation]:
        """Places of pods that would run past the time, that cannot leave then, or for which it is past already."""
        now_s = scene.snapshot.now_s
        for arrival in scene.come:
            at_s, pod = arrival.node.drain_at_s, arrival.pod
            gang = scene.owners.get(pod.key)
            if at_s is None or gang is None:
                continue
            if at_s <= now_s:
                why = f"which was drained {now_s - at_s:.0f} s ago"
            elif pod.run_time_s is not None and now_s + pod.run_time_s > at_s:
                why = f"which is drained in {at_s - now_s:.0f} s; it runs up to {pod.run_time_s:.0f} s"
            elif pod.run_time_s is None and gang.preemptible and at_s - now_s < lead_s(scene, pod):
                leave = f"pods like it leave {lead_s(scene, pod):.0f} s before"
                why = f"which is drained in {at_s - now_s:.0f} s; {leave}"
            elif pod.run_time_s is None and not gang.preemptible:
                why = f"which is drained in {at_s - now_s:.0f} s; its run time is not known, and it is not preemptible"
            else:
                continue
            yield Violation(self.name, pod.key, f"pod {pod.key}: gets a place on node {arrival.node.name}, {why}")

    def may_need_gone(self, scene: Scene, gangs: Sequence[Gang], /) -> frozenset[str]:
        """None: what runs may stay."""
        return frozenset()


CHECK = MaintenanceCheck()
