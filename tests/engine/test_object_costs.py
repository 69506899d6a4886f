"""What one object costs grows with its size, no faster; what says too much waits, and the others are scheduled.

The two sizes of a generator are read and decided in one run, and compared with each other: no absolute time is asked.
"""

import time
from collections.abc import Callable

import pytest

from kai_solver.claims import lower
from kai_solver.domain import Snapshot
from kai_solver.domain.object_limits import (
    MOST_EXPRESSIONS,
    MOST_LEVELS,
    MOST_NODE_TERMS,
    MOST_POD_TERMS,
    MOST_PORTS,
    MOST_QUEUE_LEVELS,
    MOST_SPREAD,
    MOST_SUBGROUP_LEVELS,
    MOST_SUBGROUPS,
    MOST_TOLERATIONS,
    MOST_UNOFFERED,
    MOST_VALUES,
)
from kai_solver.engine import cycle
from kai_solver.kubeobjects import snapshot_from_objects
from kai_solver.kubeobjects.objects import objects_from_documents
from kai_solver.modelfiles import load_model
from tests.support import large_objects as large

SMALL, TIMES = 60, 16
"""Sizes that are compared: 60 and 960; what grows with the square takes 256 times as long."""
MOST_RATIO = 5 * TIMES
LEAST_S = 0.02
"""Below this the smaller size says nothing."""


def read(generator: large.Generator, size: int) -> Snapshot:
    documents = [("", value) for value in generator(size)]
    return lower(snapshot_from_objects(objects_from_documents(documents), now_s=0.0))


def spent_s(generator: large.Generator, size: int) -> float:
    began_s = time.process_time()
    plan = cycle(read(generator, size), load_model("greedy-only"), budget_s=3600.0)
    spent = time.process_time() - began_s
    assert "other/" in " ".join(bind.pod for bind in plan.binds)
    return spent


@pytest.mark.parametrize("generator", [g for g in large.GENERATORS if g is not large.spread_of_pods])
def test_a_large_object_costs_by_its_size(generator: large.Generator) -> None:
    spent_s(generator, 4)
    small = max(min(spent_s(generator, SMALL) for _ in range(2)), LEAST_S)
    assert spent_s(generator, SMALL * TIMES) < MOST_RATIO * small


def test_a_gang_with_rules_costs_by_its_pods() -> None:
    spent_s(large.spread_of_pods, 4)
    small = max(spent_s(large.spread_of_pods, 20), LEAST_S)
    assert spent_s(large.spread_of_pods, 160) < 4 * 8 * small


LIMITS = [
    (large.spread_of_keys, MOST_SPREAD),
    (large.spread_soft, MOST_SPREAD),
    (large.apart, MOST_POD_TERMS),
    (large.attracted, MOST_POD_TERMS),
    (large.values, MOST_VALUES),
    (large.node_terms, MOST_NODE_TERMS),
    (large.node_expressions, MOST_EXPRESSIONS),
    (large.tolerations, MOST_TOLERATIONS),
    (large.ports, MOST_PORTS),
    (large.subgroups, MOST_SUBGROUPS),
    (large.nested_subgroups, MOST_SUBGROUP_LEVELS),
    (large.levels, MOST_LEVELS),
    (large.resources, MOST_UNOFFERED),
]


@pytest.mark.parametrize(("generator", "most"), LIMITS)
def test_what_says_too_much_waits_with_a_reason(generator: Callable[[int], list[large.Object]], most: int) -> None:
    assert not reasons(read(generator, most))
    (reason, *_) = reasons(read(generator, most + 1))
    assert any(word in reason for word in ("at most", "Use at most", "more than"))


def reasons(snapshot: Snapshot) -> list[str]:
    """Why pods, gangs and topologies are not read in full, beyond what the small object has."""
    waiting = [text for gang in snapshot.gangs for pod in gang.pods for text in pod.constraints.blocked]
    aside = [gang.set_aside for gang in snapshot.gangs if gang.set_aside]
    return waiting + aside + [n.text for n in snapshot.notices if n.kind == "set-aside"]


def test_a_node_of_too_many_gpus_is_set_aside() -> None:
    """An array with a column for each of them would not fit into memory."""
    objects = large.around()
    objects[0]["status"]["allocatable"]["nvidia.com/gpu"] = "100000000"
    snapshot = snapshot_from_objects(objects_from_documents(("", value) for value in objects), now_s=0.0)
    assert "n0" not in {node.name for node in snapshot.nodes}
    assert any("at most 1,000" in notice.text for notice in snapshot.notices)


def test_queues_too_deep_take_no_part_and_the_others_do() -> None:
    snapshot = read(large.nested_queues, MOST_QUEUE_LEVELS + 10)
    assert any("deeper than" in notice.text for notice in snapshot.notices)
    assert {"user", "other", "d0"} <= {queue.name for queue in snapshot.queues}
