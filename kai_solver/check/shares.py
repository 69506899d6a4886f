"""Fair shares for the checker: counted here, divided by the fairness room."""

import numpy as np

from kai_solver.check.accounts import ZERO, Amount, Ledger, book, minus, paid, smallest_devices
from kai_solver.check.scene import Scene
from kai_solver.domain import Action, counted_gpu_milli, parts_of_gpus
from kai_solver.fairness import QueueTree as Queues
from kai_solver.fairness import fair_share
from kai_solver.units import CPU, GPU, MEMORY


def fair_shares(scene: Scene, before: Ledger) -> dict[str, Amount]:
    """Fair share of every queue (docs/kai-behaviour.md#fair-share); empty where the plan reclaims nothing."""
    if not any(action is Action.RECLAIM for _, action in scene.plan.admitted):
        return {}
    queues = Queues.from_queues(scene.snapshot.queues, scene.snapshot.policy)
    wanted = _pending(scene, before)
    request = np.array([wanted.allocated.get(name, ZERO) for name in queues.names], dtype=np.int64).reshape(-1, 3)
    shares = fair_share(queues, _divided(scene), request, scene.snapshot.policy.k_value)
    return {name: (row[0], row[1], row[2]) for name, row in zip(queues.names, shares.tolist(), strict=True)}


def _divided(scene: Scene) -> Amount:
    """What is shared out: the schedulable nodes less what pods of other schedulers hold, leaving ones too."""
    schema, policy = scene.snapshot.schema, scene.snapshot.policy
    nodes = [node for node in scene.snapshot.nodes if node.schedulable]
    if policy.restrict_node_scheduling or len(parts_of_gpus(schema, policy)) > 1:
        milli = sum(counted_gpu_milli(node, schema, policy) for node in nodes)
    else:
        milli = sum([node.allocatable[GPU] for node in nodes])
    amount = sum([node.allocatable[CPU] for node in nodes]), sum([node.allocatable[MEMORY] for node in nodes]), milli
    for pod in scene.snapshot.foreign:
        if pod.status.holds_resources and (node_of := scene.nodes.get(pod.node)) is not None and node_of.schedulable:
            amount = minus(amount, paid(pod, node_of))
    return amount


def _pending(scene: Scene, before: Ledger) -> Ledger:
    """Allocated and pending amounts of every queue, of gangs set aside too: KAI counts all pods that wait.

    Requests by GPU memory count as on the smallest GPU.
    """
    ledger = before.copy()
    book(ledger, scene.census.waiting, scene.kinds, smallest_devices(scene))
    return ledger
