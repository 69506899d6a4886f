"""Seats and victims exchanged for better links, beside domains of one tenant and nodes that are kept free."""

from typing import Any

import pytest

from kai_solver.domain import Snapshot
from tests.search.test_link_stage import BAD, DGX1, EVERY, GOOD, cluster, gang, planned, stage

QUAD, SCATTERED = frozenset({0, 1, 2, 3}), frozenset({0, 3, 5, 6, 7})
FREE = frozenset({0, 1})


def racked(count: int, **rules: Any) -> dict[str, Any]:
    """Sections: DGX-1 nodes, each a rack of its own, with rules for racks."""
    nodes = [{"name": f"n{n}", "gpus": 8, "gpuTopology": DGX1, "labels": {"rack": f"r{n}"}} for n in range(count)]
    return {"nodes": nodes, "topologies": [{"name": "racks", "levels": ["rack"], **rules}]}


def test_seats_are_exchanged_on_nodes_in_use_where_others_are_kept_free() -> None:
    """A third node, idle and kept, would be better for both."""
    sections = racked(3, spares={"level": "rack", "nodes": 1})
    plan = planned(cluster([QUAD, SCATTERED, EVERY], gang("a", 2), gang("b", 4), **sections))
    assert {bind.gang: bind.node for bind in plan.binds} == {"default/a": "n1", "default/b": "n0"}
    found = stage(plan)
    assert found is not None
    assert found.value == 0


@pytest.mark.parametrize("is_ruled", [True, False])
def test_nothing_takes_a_better_seat_in_the_rack_of_another(is_ruled: bool) -> None:
    """What is free beside pods of ``x`` is no good set of four, beside those of ``y`` it is."""
    rules = {"oneTenant": {"level": "rack", "tenant": "namespace"}} if is_ruled else {}
    held = [
        {
            "name": "held",
            "namespace": space,
            "queue": "q",
            "preemptible": False,
            "pods": [{"gpus": 8 - len(free), "status": "Running", "node": f"n{n}", "devices": sorted(EVERY - free)}],
        }
        for n, (space, free) in enumerate((("x", SCATTERED), ("y", QUAD)))
    ]
    plan = planned(cluster([EVERY, EVERY], *held, gang("b", 4) | {"namespace": "x"}, **racked(2, **rules)))
    found = stage(plan)
    assert found is not None
    assert [bind.node for bind in plan.binds] == ["n0" if is_ruled else "n1"]
    assert (found.value > 0) is is_ruled


def two_victims(good: int, *, blocked: bool) -> Snapshot:
    """Two nodes, each a rack. A taker of four GPUs finds two and may take one pair of tenant ``x`` on either.

    The better set is on node ``good``; ``blocked``: there ``x`` has another pod, which stays.
    """
    pairs = [GOOD if n == good else BAD for n in range(2)]
    victims = [
        {
            "name": f"v{n}",
            "namespace": "x",
            "queue": "q",
            "priority": 50,
            "lastStart": "1h",
            "pods": [{"gpus": 2, "status": "Running", "node": f"n{n}", "devices": list(pair)}],
        }
        for n, pair in enumerate(pairs)
    ]
    free = [FREE | set(pair) for pair in pairs]
    stays = {"gpus": 1, "status": "Running", "node": f"n{good}", "devices": [5]}
    blocker = {"name": "stays", "namespace": "x", "queue": "q", "preemptible": False, "pods": [stays]}
    free[good] |= {5} if blocked else set()
    taker = gang("taker", 4, priority=100, preemptible=False)
    sections = racked(2, oneTenant={"level": "rack", "tenant": "namespace"})
    return cluster(free, *victims, *([blocker] if blocked else []), taker, **sections)


@pytest.mark.parametrize("good", [0, 1])
def test_the_better_victim_leaves_where_its_rack_is_then_the_takers(good: int) -> None:
    plan = planned(two_victims(good, blocked=False))
    assert [eviction.gang for eviction in plan.evictions] == [f"x/v{good}"]
    assert [bind.node for bind in plan.binds] == [f"n{good}"]


@pytest.mark.parametrize("good", [0, 1])
def test_the_other_leaves_where_the_tenant_stays_in_that_rack(good: int) -> None:
    plan = planned(two_victims(good, blocked=True))
    assert [eviction.gang for eviction in plan.evictions] == [f"x/v{1 - good}"]
    found = stage(plan)
    assert found is not None
    assert found.value > 0
