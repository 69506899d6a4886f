"""A snapshot at another moment: all its times move together, so that everything is as old as before."""

from dataclasses import replace

from kai_solver.domain import Constraints, Gang, Node, Pod, Snapshot


def moved_to(snapshot: Snapshot, now_s: float) -> Snapshot:
    """The snapshot as if it had been taken at ``now_s``, epoch seconds.

    KAI's snapshot tool counts minimum run times, delays and graces from the clock of the moment in which it runs.
    """
    by_s = now_s - snapshot.now_s
    made: dict[Constraints, Constraints] = {}

    def later(time_s: float | None) -> float | None:
        return None if time_s is None else time_s + by_s

    def constraints_of(constraints: Constraints) -> Constraints:
        if constraints.closed_until_s is None:
            return constraints
        if constraints not in made:
            made[constraints] = replace(constraints, closed_until_s=later(constraints.closed_until_s))
        return made[constraints]

    def pod_of(pod: Pod) -> Pod:
        priority, created_s, uid = pod.order
        order = (priority, created_s + by_s if created_s else created_s, uid)
        return replace(pod, order=order, started_s=later(pod.started_s), constraints=constraints_of(pod.constraints))

    def gang_of(gang: Gang) -> Gang:
        return replace(
            gang,
            created_s=gang.created_s + by_s,
            last_start_s=later(gang.last_start_s),
            last_eviction_s=later(gang.last_eviction_s),
            stale_since_s=later(gang.stale_since_s),
            pods=tuple(map(pod_of, gang.pods)),
        )

    def node_of(node: Node) -> Node:
        return node if node.drain_at_s is None else replace(node, drain_at_s=later(node.drain_at_s))

    return replace(
        snapshot,
        now_s=now_s,
        nodes=tuple(map(node_of, snapshot.nodes)),
        queues=tuple(replace(queue, created_s=queue.created_s + by_s) for queue in snapshot.queues),
        gangs=tuple(map(gang_of, snapshot.gangs)),
        foreign=tuple(map(pod_of, snapshot.foreign)),
    )
