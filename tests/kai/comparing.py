"""Random clusters that KAI and we decide, and in what the outcomes differ."""

import random
from dataclasses import dataclass, replace

from kai_solver.domain import Plan, Snapshot
from kai_solver.instances_io.moments import moved_to
from kai_solver.instances_io.native import load_native
from kai_solver.lab.conformance.states import PLACED, seat_devices, states_after, states_of
from tests.fuzz.clusters import cluster
from tests.fuzz.draws import Document, Sizes
from tests.kai.oracle import State

_UNLIMITED = (-1, -1, -1)

PLAIN = frozenset(
    (
        "ages",
        "affinity",
        "cordons",
        "elastic",
        "foreign",
        "fractions",
        "node-terms",
        "non-preemptible",
        "taints",
        "unequal",
    )
)
"""Features that KAI 0.12 decides by the rules of docs/kai-behaviour.md."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How many pods of a gang have a place before, after our cycle and after KAI's; and how many it has."""

    gang: str
    priority: int
    queue: str
    before: int
    ours: int
    kais: int
    pods: int

    @property
    def is_lost(self) -> bool:
        """KAI gives it more, and more than it had."""
        return self.kais > max(self.ours, self.before)

    @property
    def is_gained(self) -> bool:
        """We give it more, and more than it had."""
        return self.ours > max(self.kais, self.before)

    def __str__(self) -> str:
        had = f"of {self.pods} pods {self.before} before, ours {self.ours}, KAI {self.kais}"
        return f"{self.gang} (priority {self.priority}, queue {self.queue}): {had}"


def two_level_cluster(seed: int, features: frozenset[str] = PLAIN, sizes: Sizes = "small") -> Document:
    """A random cluster with its queues below departments: KAI 0.12 schedules jobs of no other queues.

    Pods do not share several devices: KAI 0.12 forgets such pods once they run.
    """
    document, chance = cluster(seed, sizes, features - {"queue-trees"}), random.Random(seed)
    for gang in document["gangs"]:
        for pod in gang["pods"]:
            if pod.pop("gpuDevices", 1) > 1:
                pod["devices"], pod["gpuGroups"] = pod.get("devices", [])[:1], pod.get("gpuGroups", [])[:1]
    gpus = max(sum(node["gpus"] for node in document["nodes"]), 4)
    departments = [
        {
            "name": f"d{index}",
            "quota": chance.choice((0, gpus // 4, gpus // 2, gpus, -1)),
            "weight": chance.choice((1, 2)),
        }
        for index in range(chance.choice((1, 1, 2)))
    ]
    for queue in document["queues"]:
        queue["parent"] = chance.choice(departments)["name"]
    parents = {queue["parent"] for queue in document["queues"]}
    document["queues"] = [queue for queue in departments if queue["name"] in parents] + document["queues"]
    return document


def snapshot_of(document: Document, now_s: float) -> Snapshot:
    """The cluster at ``now_s``, with a device for each share."""
    return moved_to(seat_devices(load_native(document).snapshot), now_s)


def differences(snapshot: Snapshot, plan: Plan, kais: dict[str, State]) -> list[Difference]:
    """Gangs of which KAI gives more or fewer pods a place than ``plan``."""
    after, before = states_after(snapshot, plan), states_of(snapshot)
    found = []
    for gang in snapshot.gangs:
        keys = [pod.key for pod in gang.pods]
        ours, had = (sum(states[key].served for key in keys) for states in (after, before))
        theirs = sum(key in kais and kais[key].status in PLACED for key in keys)
        if ours != theirs:
            found.append(Difference(gang.key, gang.priority, gang.queue, had, ours, theirs, len(keys)))
    return found


def is_worse(found: list[Difference]) -> bool:
    """Whether KAI serves a gang that waits here, and we serve none that waits there.

    Else the two took another turn: we admit a gang by an action for which KAI's search found no way, and what comes
    later finds other room.
    """
    return any(difference.is_lost for difference in found) and not any(difference.is_gained for difference in found)


def two_levels(snapshot: Snapshot) -> Snapshot:
    """The cluster with a department above queues that have none."""
    parents = {queue.parent for queue in snapshot.queues}
    lone = [queue for queue in snapshot.queues if not queue.parent and queue.name not in parents]
    if not lone:
        return snapshot
    top = replace(lone[0], name="all-of-them", uid="all-of-them", quota=_UNLIMITED, limit=_UNLIMITED)
    below = (replace(queue, parent=top.name) if queue in lone else queue for queue in snapshot.queues)
    return replace(snapshot, queues=(top, *below))
