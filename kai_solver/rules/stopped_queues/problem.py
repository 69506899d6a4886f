"""Which queues are stopped. The setting of a queue is ``hold`` or ``drain``; it counts for all queues below it, too.

It is what Kueue calls stopPolicy (Hold, HoldAndDrain). KAI has nothing like it; docs/operating.md#hold.
"""

from dataclasses import dataclass

import numpy as np

from kai_solver.problem import Problem

NAME = "stop"
"""The rule, its family of rows, and the kind of its element."""

HOLD, DRAIN = SETTINGS = ("hold", "drain")


@dataclass(frozen=True, slots=True, eq=False)
class StoppedQueues:
    """``by``: for each stopped leaf queue, the queue that says so, the nearest one; indices of the tree.

    ``drained``: gangs that leave: preemptible ones with running pods in a drained queue. ``of_pod``: pods that wait in
    a stopped queue, with its name.
    """

    by: dict[int, int]
    drained: frozenset[int]
    of_pod: dict[int, str]


def stopped_queues(problem: Problem) -> StoppedQueues:
    """What the queues of the cycle say."""
    tree = problem.queues
    said = {queue.name: dict(queue.rules).get(NAME, "") for queue in problem.snapshot.queues}
    by, draining = dict[int, int](), set[int]()
    for leaf in range(len(tree.names)) if any(said.values()) else ():
        stopping = [queue for queue in tree.path[leaf] if said.get(tree.names[queue])]
        if tree.is_leaf[leaf] and stopping:
            by[leaf] = stopping[0]
            if any(said[tree.names[queue]] == DRAIN for queue in stopping):
                draining.add(leaf)
    queues = problem.gang_columns.queue
    stopped = [problem.gangs[gang] for gang in np.flatnonzero(np.isin(queues, list(by))).tolist()] if by else []
    drained = frozenset(
        gang.index for gang in stopped if gang.queue in draining and gang.active and gang.gang.preemptible
    )
    of_pod = {pod: tree.names[gang.queue] for gang in stopped for leaf in gang.leaves for pod in leaf.pending}
    return StoppedQueues(by, drained, of_pod)
