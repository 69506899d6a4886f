"""A register changes nothing: whatever becomes of a cluster, the checker sees with it what it sees without."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check.register import Register
from kai_solver.check.scene import Scene, set_scene
from kai_solver.domain import Bind, Eviction, Gang, Move, Plan, Pod, PodStatus, Queue, Snapshot, flat_gang
from kai_solver.units import ResourceSchema
from tests.problem.test_memo import STEPS, a_cluster


def a_plan(snapshot: Snapshot, draw: Random) -> Plan:
    """Some entries about pods and nodes of ``snapshot``, sound or not."""
    pods, nodes = [(g, p) for g in snapshot.gangs for p in g.pods], [node.name for node in snapshot.nodes]
    binds, evictions, moves = [], [], []
    for gang, pod in draw.sample(pods, min(len(pods), 6)) if nodes else ():
        node = draw.choice(nodes)
        if pod.status is PodStatus.PENDING:
            binds.append(Bind(pod.key, gang.key, node))
        elif draw.random() < 0.5:
            evictions.append(Eviction(pod.key, gang.key, pod.node, "reclaim"))
        else:
            moves.append(Move(pod.key, gang.key, pod.node, node))
    return Plan(binds=tuple(binds), evictions=tuple(evictions), moves=tuple(moves))


def seen(scene: Scene) -> dict[str, Any]:
    """What a scene says, with kinds in full: their numbers may be others."""
    kinds, census = scene.kinds.pods, scene.census

    def named(kind: int) -> tuple[object, ...]:
        return kinds[kind].request, kinds[kind].gpu, kinds[kind].quota_gpu_milli

    def counted(table: dict[tuple[str, bool, int], int]) -> dict[tuple[object, ...], int]:
        found: dict[tuple[object, ...], int] = {}
        for (queue, preemptible, kind), count in table.items():
            key = queue, preemptible, *named(kind)
            found[key] = found.get(key, 0) + count
        return found

    def column(pods: list[Pod], rows: Any, kind: Any, now: Any, end: Any) -> list[tuple[object, ...]]:
        parts = (pods, rows.tolist(), map(named, kind.tolist()), now.tolist(), end.tolist())
        return list(zip(*parts, strict=True))

    columns = [column(c.pods, c.rows, c.kinds, c.now, c.end) for c in (scene.held, scene.got)]
    return {
        "snapshot": scene.snapshot,
        "gangs": scene.gangs,
        "running": counted(census.running),
        "waiting": counted(census.waiting),
        "by-memory": sorted((gang.key, pod.key) for gang, pod in census.by_memory),
        "constraints": {id(said): said for said in census.constraints.values()},
        "columns": columns,
        "changes": scene.changes,
    }


@given(seed=st.integers(0, 2**32), steps=st.lists(st.sampled_from(range(len(STEPS))), min_size=1, max_size=12))
@settings(max_examples=60)
def test_a_scene_with_a_register_is_the_scene_without(seed: int, steps: list[int]) -> None:
    draw, register = Random(seed), Register()
    snapshot = a_cluster(draw)
    for step in (None, *steps):
        snapshot = snapshot if step is None else STEPS[step](snapshot, draw)
        plan = a_plan(snapshot, draw)
        assert seen(set_scene(snapshot, plan, register)) == seen(set_scene(snapshot, plan))


def gangs_of(pods: Iterator[Pod]) -> tuple[Gang, ...]:
    """A gang for each pod."""
    return tuple(Gang("ns", pod.name, "a", flat_gang(1), (pod,)) for pod in pods)


def a_snapshot(*pods: Pod) -> Snapshot:
    """Of gangs of one pod."""
    return Snapshot(0.0, ResourceSchema(), a_cluster(Random(0)).nodes, (Queue("a"),), gangs_of(iter(pods)))


def test_a_pod_that_begins_to_move_is_at_its_new_place_too() -> None:
    register, node = Register(), "n0"
    still = Pod("ns", "p", (1000, 1, 0, 1), status=PodStatus.RUNNING, node=node)
    moving = replace(still, status=PodStatus.RELEASING, nominated_node="n1")
    counts = []
    for pods in ((still,), (moving,), (moving,), (still,)):
        scene = set_scene(a_snapshot(*pods), Plan(), register)
        counts.append(sum(len(gang.pods) for gang in scene.gangs.values()))
    assert counts == [1, 2, 2, 1]


def test_two_gangs_of_one_key_are_told_as_without() -> None:
    register = Register()
    one, other = Pod("ns", "p", (1000, 1, 0, 1)), Pod("ns", "p", (2000, 1, 0, 1))
    for pods in ((one,), (one, other), (other, one), (other,), (one,)):
        snapshot = a_snapshot(*pods)
        assert set_scene(snapshot, Plan(), register).gangs == set_scene(snapshot, Plan()).gangs


def test_an_error_while_reading_leaves_nothing_half_read() -> None:
    register, draw = Register(), Random(1)
    before = a_cluster(draw)
    set_scene(before, Plan(), register)
    after = replace(before, gangs=(*before.gangs[1:], *gangs_of(iter([Pod("ns", "new", (1000, 1, 0, 1))]))))
    with patch("kai_solver.check.register.read_gang", side_effect=MemoryError), pytest.raises(MemoryError):
        set_scene(after, Plan(), register)
    assert seen(set_scene(after, Plan(), register)) == seen(set_scene(after, Plan()))


def test_gangs_that_left_and_their_kinds_are_forgotten() -> None:
    register = Register()
    for turn in range(4):
        pods = [Pod("ns", f"{turn}-{i}", (turn * 2000 + i, 1, 0, 1)) for i in range(1500)]
        set_scene(a_snapshot(*pods), Plan(), register)
    del pods
    gc.collect()
    left = {thing.name.partition("-")[0] for thing in gc.get_objects() if isinstance(thing, Gang) and "-" in thing.name}
    assert "3" in left
    assert not left & {"0", "1"}
    assert len(register.kinds.pods) <= 1500 * 3 + 1000
