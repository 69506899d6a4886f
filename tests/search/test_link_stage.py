"""The stage ``links``: seats and victims exchanged so that gangs lose less bandwidth, on cube meshes."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product as every
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Plan, Snapshot, Stage
from kai_solver.engine import cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.links import LinkTables, mask_of, product_named
from kai_solver.modelfiles import load_model

DGX1 = "dgx1-v100-8"
TABLES = LinkTables()
KIND = TABLES.add(product_named(DGX1).graph)
TABLE = TABLES.tables[KIND]
EVERY = frozenset(range(8))
MODEL = load_model("greedy-only")


def cluster(free: Sequence[frozenset[int]], *gangs: dict[str, Any], **more: Any) -> Snapshot:
    """Nodes with these GPUs free, the others held by work that stays."""
    held = [sorted(EVERY - own) for own in free]
    running = [
        {
            "name": f"r{n}",
            "queue": "q",
            "preemptible": False,
            "pods": [{"gpus": len(own), "status": "Running", "node": f"n{n}", "devices": own}],
        }
        for n, own in enumerate(held)
        if own
    ]
    document = {
        "format": "kai-solver/v1",
        "nodes": [{"name": f"n{n}", "gpus": 8, "gpuTopology": DGX1} for n in range(len(free))],
        "queues": [{"name": "q", "quota": 8 * len(free)}],
        "gangs": [*running, *gangs],
    }
    return snapshot_from_native(document | more)


def gang(name: str, *sizes: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "queue": "q", "minMember": len(sizes), "pods": [{"gpus": size} for size in sizes]} | more


def planned(snapshot: Snapshot) -> Plan:
    plan = cycle(snapshot, MODEL, budget_s=5.0)
    assert check_plan(snapshot, plan) == ()
    assert not any("checker" in note for note in plan.notes)
    return plan


def stage(plan: Plan) -> Stage | None:
    return next((stage for stage in plan.stages if stage.name == "link-loss"), None)


def loss(mask: int) -> int:
    best = TABLE.best_grade(mask.bit_count())
    return 1000 - int(TABLE.grade[TABLE.classes.state_of_one(mask)]) * 1000 // best if best else 0


def lost(plan: Plan) -> int:
    """What gangs lose by the GPUs that the plan names."""
    worst: dict[str, int] = defaultdict(int)
    gpus: dict[str, int] = defaultdict(int)
    for bind in plan.binds:
        if len(bind.devices) > 1:
            gpus[bind.gang] += len(bind.devices)
            worst[bind.gang] = max(worst[bind.gang], loss(mask_of(device.index for device in bind.devices)))
    return sum(gpus[name] * worst[name] for name in worst)


def test_a_pair_makes_way_for_a_quad_that_would_get_a_bad_half() -> None:
    """The pair came first and took the fuller node, whose four GPUs are the only good half."""
    quad, scattered = frozenset({0, 1, 2, 3}), frozenset({0, 3, 5, 6, 7})
    plan = planned(cluster([quad, scattered], gang("a", 2), gang("b", 4)))
    assert {bind.gang: bind.node for bind in plan.binds} == {"default/a": "n1", "default/b": "n0"}
    assert stage(plan) == Stage("link-loss", 0, 0, optimal=True)


def test_what_cannot_be_had_is_told_with_its_proof() -> None:
    far = frozenset({0, 5})
    found = stage(planned(cluster([far], gang("a", 2))))
    assert found is not None
    assert found.value == 2 * loss(mask_of(far)) > 0
    assert found.optimal


def test_nothing_is_proven_of_what_stays_by_wishes_beyond_links() -> None:
    """It prefers the node with the poor pair; on the other one it would lose nothing."""
    wish = {"preferred": [{"weight": 10, "term": [{"key": "metadata.name", "values": ["n0"]}]}]}
    plan = planned(cluster([frozenset({0, 5}), frozenset({1, 5})], gang("a") | {"pods": [{"gpus": 2} | wish]}))
    assert [bind.node for bind in plan.binds] == ["n0"]
    found = stage(plan)
    assert found is not None
    assert (found.value > 0, found.bound, found.optimal) == (True, 0, False)


def test_what_a_large_plan_loses_is_counted_and_nothing_changes_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gangs that are on nodes without links alone are left out; of one that is on both kinds all its GPUs count."""
    monkeypatch.setattr("kai_solver.search.gpu_assignment.MOST_RIDERS", 1)
    quad, scattered = frozenset({0, 1, 2, 3}), frozenset({0, 3, 5, 6, 7})
    linked = [{"name": f"n{n}", "gpus": 8, "gpuTopology": DGX1} for n in range(2)]
    gangs = [gang("a", 2), gang("b", 4, 4), gang("c", 8), gang("d", 1)]
    nodes = [*linked, *({"name": f"p{n}", "gpus": gpus} for n, gpus in enumerate((4, 8)))]
    plan = planned(cluster([quad, scattered], *gangs, nodes=nodes, queues=[{"name": "q", "quota": 40}]))
    of = {name: [bind.node for bind in plan.binds if bind.gang == f"default/{name}"] for name in "abc"}
    assert of["a"] == ["n0"]
    assert sorted(node[0] for node in of["b"]) == ["n", "p"]
    assert of["c"] == ["p1"]
    [bind] = [bind for bind in plan.binds if bind.gang == "default/b" and bind.node == "n1"]
    worst = loss(mask_of(device.index for device in bind.devices))
    assert worst > 0
    assert stage(plan) == Stage("link-loss", 8 * worst, 0, optimal=False)


def test_where_links_say_nothing_there_is_no_such_stage() -> None:
    nodes = [{"name": "n0", "gpus": 8, "gpuTopology": "hgx-h100-8"}]
    assert stage(planned(cluster([EVERY], gang("a", 2), nodes=nodes))) is None
    assert stage(planned(cluster([EVERY]))) is None


def test_no_idle_node_is_opened_for_it() -> None:
    plan = planned(cluster([frozenset({0, 5}), EVERY], gang("a", 2)))
    assert [bind.node for bind in plan.binds] == ["n0"]


def with_victims(free: frozenset[int], *pairs: tuple[int, int], **more: Any) -> Snapshot:
    """One node; a taker of four GPUs finds two, and may take one of ``pairs``."""
    victims = [
        {
            "name": f"v{n}",
            "queue": "q",
            "priority": 50,
            "lastStart": "1h",
            "pods": [{"gpus": 2, "status": "Running", "node": "n0", "devices": list(pair)}],
        }
        | more.get(f"v{n}", {})
        for n, pair in enumerate(pairs)
    ]
    here = free | {gpu for pair in pairs for gpu in pair}
    return cluster([here], *victims, gang("taker", 4, priority=100, preemptible=False))


GOOD, BAD = (2, 3), (4, 7)
"""What a taker who has GPUs 0 and 1 may get beside them: a good half, and one without NVLink."""


@pytest.mark.parametrize("pairs", [(GOOD, BAD), (BAD, GOOD)])
def test_of_equal_victims_those_leave_whose_gpus_make_the_better_set(pairs: tuple[tuple[int, int], ...]) -> None:
    plan = planned(with_victims(frozenset({0, 1}), *pairs))
    assert [eviction.gang for eviction in plan.evictions] == [f"default/v{pairs.index(GOOD)}"]
    assert [[device.index for device in bind.devices] for bind in plan.binds] == [[0, 1, 2, 3]]
    assert [move.pod for move in plan.moves] == []


def test_no_victim_that_costs_more_leaves_for_a_better_set() -> None:
    for dearer in ({"priority": 60}, {"lastStart": "2h"}):
        plan = planned(with_victims(frozenset({0, 1}), GOOD, BAD, v0=dearer, v1={"lastStart": "1h"}))
        assert [eviction.gang for eviction in plan.evictions] == ["default/v1"]
        found = stage(plan)
        assert found is not None
        assert found.value > 0


def seats(free: Sequence[frozenset[int]], asked: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """What gangs lose and how many idle nodes are opened, for all seats; GPUs get names as in every plan."""
    pods = [(owner, size) for owner, sizes in enumerate(asked) for size in sizes]
    pods.sort(key=lambda pod: -pod[1])
    for nodes in every(range(len(free)), repeat=len(pods)):
        left = [mask_of(own) for own in free]
        worst: dict[int, int] = defaultdict(int)
        for (owner, size), node in zip(pods, nodes, strict=True):
            mask = TABLES.pick(KIND, left[node], size)
            if mask is None:
                break
            left[node] &= ~mask
            worst[owner] = max(worst[owner], loss(mask))
        else:
            opened = {node for node in nodes if free[node] == EVERY}
            yield sum(sum(asked[owner]) * most for owner, most in worst.items()), len(opened)


FREE = st.lists(st.frozensets(st.integers(0, 7), min_size=2), min_size=1, max_size=3)
ASKED = st.lists(st.lists(st.integers(2, 4), min_size=1, max_size=2), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(FREE, ASKED)
def test_no_seats_lose_less_on_small_clusters(free: list[frozenset[int]], asked: list[list[int]]) -> None:
    plan = planned(cluster(free, *(gang(f"g{i}", *sizes) for i, sizes in enumerate(asked))))
    served = {bind.gang for bind in plan.binds}
    taking = [sizes for i, sizes in enumerate(asked) if f"default/g{i}" in served]
    found = stage(plan)
    if found is None:
        assert not taking
        return
    assert found.value == lost(plan)
    opened = len({bind.node for bind in plan.binds if free[int(bind.node[1:])] == EVERY})
    least = min(cost for cost, opens in seats(free, taking) if opens <= opened)
    assert found.value == least
    assert found.bound <= least
    assert found.optimal
