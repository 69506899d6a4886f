"""A cheaper snapshot for cycles in which all that waits simply fits: running gangs bundled by queue.

Free places, and what queues hold, are the same whether a hundred running gangs of a queue are a hundred or one. Which
gangs they are matters only if some have to leave. So the replay first asks with bundles and the action ``allocate``
alone; if no gang stays pending, that is the plan of the whole cycle, and else the whole cycle is asked. (``allocate``
is the first action, and the others do nothing if no gang waits and none is stale.)
"""

from collections import defaultdict

from kai_solver.domain import NO_PLACEMENT, Gang, Pod, PodStatus, Snapshot, flat_gang

_NAMESPACE = "kai-solver-bundle"


def bundled(snapshot: Snapshot) -> Snapshot | None:
    """The snapshot with its running gangs bundled; None if it matters which gangs they are.

    It does where rules or wishes between pods, or placement by workload, look at single gangs, and where a gang runs
    below its minimum.
    """
    if snapshot.claims is not None or any(queue.placement != NO_PLACEMENT for queue in snapshot.queues):
        return None
    bundles: dict[tuple[str, bool], list[Pod]] = defaultdict(list)
    single: list[Gang] = []
    for gang in snapshot.gangs:
        if gang.stale_since_s is not None or not _is_plain(gang):
            return None
        if all(pod.status is PodStatus.RUNNING for pod in gang.pods) and not gang.set_aside:
            bundles[gang.queue, gang.preemptible] += gang.pods
        else:
            single.append(gang)
    made = [_bundle(queue, preemptible, pods) for (queue, preemptible), pods in bundles.items()]
    return Snapshot(
        now_s=snapshot.now_s,
        schema=snapshot.schema,
        nodes=snapshot.nodes,
        queues=snapshot.queues,
        gangs=(*single, *made),
        topologies=snapshot.topologies,
        foreign=snapshot.foreign,
        policy=snapshot.policy,
        notices=snapshot.notices,
        name=snapshot.name,
    )


def _is_plain(gang: Gang) -> bool:
    if gang.placement != NO_PLACEMENT:
        return False
    return not any(pod.constraints.speaks_of_pods or pod.zones or pod.podset != "default" for pod in gang.pods)


def _bundle(queue: str, preemptible: bool, pods: list[Pod]) -> Gang:
    name = f"{queue}-{'preemptible' if preemptible else 'fixed'}"
    return Gang(_NAMESPACE, name, queue, flat_gang(0), tuple(pods), preemptible=preemptible)
