"""The cluster when a plan has been carried out in full, nominations included."""

from dataclasses import replace

from kai_solver.domain import Device, Gang, Plan, Pod, PodStatus, Snapshot, ZoneShare


def carried_out(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """``snapshot`` with everything that ``plan`` places in its place and everything that it evicts gone.

    This is the state in which a pending gang found no room.
    """
    placed = {bind.pod: (bind.node, bind.devices, bind.zones) for bind in plan.binds}
    placed |= {move.pod: (move.target, move.devices, move.zones) for move in plan.moves}
    gone = {eviction.pod for eviction in plan.evictions}

    def after(pod: Pod) -> Pod:
        if pod.key in placed:
            return _running(pod, *placed[pod.key])
        return _waiting(pod) if pod.key in gone else pod

    def gang_after(gang: Gang) -> Gang:
        return replace(gang, pods=tuple(after(pod) for pod in gang.pods))

    return replace(snapshot, gangs=tuple(gang_after(gang) for gang in snapshot.gangs))


def _running(pod: Pod, node: str, devices: tuple[Device, ...], zones: tuple[ZoneShare, ...]) -> Pod:
    indices = tuple(device.index for device in devices)
    return replace(pod, status=PodStatus.RUNNING, node=node, devices=indices, gpu_groups=(), zones=zones)


def _waiting(pod: Pod) -> Pod:
    return replace(pod, status=PodStatus.PENDING, node="", devices=(), gpu_groups=(), zones=())
