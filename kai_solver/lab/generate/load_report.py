"""What a loaded cluster is, counted from the snapshot: its use, its mix, and how much of the demand is contested."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from kai_solver.domain import Gang, PodStatus, Snapshot
from kai_solver.fairness import QueueTree, allocatable_share, fair_share, roll_up
from kai_solver.units import CPU, GPU, MEMORY, MILLI


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Shares are 0 to 1.

    Attributes
    ----------
    used
        Of the GPUs.
    over_quota
        Of the leaf queues: they hold more GPUs than their quota.
    mix_running, mix_pending
        Pods that hold GPUs, by GPUs of each.
    bound_running, bound_pending
        Of the gangs with GPUs: they must be in one rack.
    entitled
        Of the pending GPUs: asked for by gangs that, in order of priority and age, stay within what their queue may
        hold (the larger of quota and fair share, at most its limit).
    reclaiming
        Of the pending GPUs: entitled, and beyond what is idle, so that other work has to give way.
    preempting
        Of the pending GPUs: not entitled, but of a higher priority than preemptible work of the same queue, as far as
        that work goes.
    contested
        ``reclaiming`` and ``preempting`` together.
    """

    nodes: int
    queues: int
    running_gangs: int
    running_pods: int
    pending_gangs: int
    pending_gpus: int
    used: float
    over_quota: float
    mix_running: Mapping[int, float]
    mix_pending: Mapping[int, float]
    bound_running: float
    bound_pending: float
    largest_gang: int
    entitled: float
    reclaiming: float
    preempting: float

    @property
    def contested(self) -> float:
        """Demand that can be met only by taking from others."""
        return self.reclaiming + self.preempting


def report_on(snapshot: Snapshot) -> LoadReport:
    """Count a snapshot of whole GPUs whose gangs either run or wait."""
    running = [gang for gang in snapshot.gangs if gang.pods[0].status is PodStatus.RUNNING]
    waiting = [gang for gang in snapshot.gangs if gang.pods[0].status is PodStatus.PENDING]
    with_gpus = [gang for gang in running if gpus_of(gang)]
    tree = QueueTree.from_queues(snapshot.queues, snapshot.policy)
    held = roll_up(tree, _amounts(tree, running))
    demand = held + roll_up(tree, _amounts(tree, waiting))
    total = [sum(node.allocatable[r] for node in snapshot.nodes) for r in (CPU, MEMORY, GPU)]
    allowed = allocatable_share(tree, fair_share(tree, total, demand, snapshot.policy.k_value))[:, GPU]
    asked = sum(map(gpus_of, waiting))
    entitled, preempting = _claims(tree, running, waiting, allowed - held[:, GPU])
    gpus = total[GPU] // MILLI
    idle = gpus - sum(map(gpus_of, running))
    leaves = [q for q in range(tree.size) if tree.is_leaf[q]]
    return LoadReport(
        nodes=len(snapshot.nodes),
        queues=len(snapshot.queues),
        running_gangs=len(running),
        running_pods=sum(len(gang.pods) for gang in running),
        pending_gangs=len(waiting),
        pending_gpus=asked,
        used=1 - idle / gpus,
        over_quota=sum(held[q, GPU] > tree.quota[q, GPU] for q in leaves) / max(1, len(leaves)),
        mix_running=_mix(with_gpus),
        mix_pending=_mix(waiting),
        bound_running=_bound(with_gpus),
        bound_pending=_bound(waiting),
        largest_gang=max((len(gang.pods) for gang in snapshot.gangs), default=0),
        entitled=entitled / max(1, asked),
        reclaiming=max(0, entitled - idle) / max(1, asked),
        preempting=preempting / max(1, asked),
    )


def gpus_of(gang: Gang) -> int:
    """GPUs of all its pods."""
    return sum(pod.gpu.devices for pod in gang.pods)


def _amounts(tree: QueueTree, gangs: Iterable[Gang]) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """(Q, 3) what gangs of each leaf hold or ask for."""
    amounts = np.zeros((tree.size, 3), dtype=np.int64)
    for gang in gangs:
        row = amounts[tree.index[gang.queue]]
        for pod in gang.pods:
            row += (pod.request[CPU], pod.request[MEMORY], pod.gpu.devices * MILLI)
    return amounts


def _claims(
    tree: QueueTree,
    running: Iterable[Gang],
    waiting: Iterable[Gang],
    owed: "np.ndarray[tuple[int], np.dtype[np.int64]]",
) -> tuple[int, int]:
    """(entitled, preempting) GPUs; ``owed`` is (Q,) thousandths that a queue may still take."""
    left = owed.copy()
    entitled = preempting = 0
    weaker: Counter[tuple[str, int]] = Counter()
    for gang in running:
        weaker[gang.queue, gang.priority] += gpus_of(gang) * gang.preemptible
    for gang in sorted(waiting, key=lambda g: (-g.priority, g.created_s)):
        size, leaf = gpus_of(gang), tree.index[gang.queue]
        if size * MILLI <= left[leaf]:
            left[leaf] -= size * MILLI
            entitled += size
        else:
            preempting += _taken(weaker, gang, size)
    return entitled, preempting


def _taken(weaker: Counter[tuple[str, int]], gang: Gang, size: int) -> int:
    """GPUs that ``gang`` may take from work of a lower priority in its queue; all of them or none."""
    of = [key for key in weaker if key[0] == gang.queue and key[1] < gang.priority]
    if sum(weaker[key] for key in of) < size:
        return 0
    missing = size
    for key in sorted(of, key=lambda k: k[1]):
        taken = min(missing, weaker[key])
        weaker[key] -= taken
        missing -= taken
    return size


def _mix(gangs: Iterable[Gang]) -> dict[int, float]:
    pods = Counter(pod.gpu.devices for gang in gangs for pod in gang.pods)
    return {size: pods[size] / pods.total() for size in sorted(pods)}


def _bound(gangs: list[Gang]) -> float:
    return sum(gang.root.topology is not None for gang in gangs) / max(1, len(gangs))
