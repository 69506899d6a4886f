"""Contradictory snapshots: what cannot be meant is set aside with a reason, and the rest goes on."""

from dataclasses import replace

import pytest

from kai_solver.domain import (
    Gang,
    GpuRequest,
    Node,
    Pod,
    PodSet,
    PodStatus,
    Queue,
    Snapshot,
    SubGroup,
    Topology,
    flat_gang,
)
from kai_solver.errors import InputError
from kai_solver.instances_io import sanitize
from kai_solver.units import ResourceSchema

NODE = Node("n1", (8000, 2**30, 4000, 110), gpus=4)
POD = Pod("default", "p", (1000, 0, 0, 1), GpuRequest(1))
RUNNING = replace(POD, status=PodStatus.RUNNING, node="n1")
GANG = Gang("default", "g", "team", flat_gang(1), (POD,))
BASE = Snapshot(0.0, ResourceSchema(), (NODE,), (Queue("team"),), (GANG,))


def cleaned(**changes: object) -> Snapshot:
    return sanitize(replace(BASE, **changes))  # type: ignore[arg-type]


def gang_with(*pods: Pod, root: SubGroup | None = None) -> Gang:
    return sanitize(replace(BASE, gangs=(replace(GANG, pods=pods, root=root or GANG.root),))).gangs[0]


def notices(snapshot: Snapshot, kind: str) -> list[str]:
    return [f"{notice.object}: {notice.text}" for notice in snapshot.notices if notice.kind == kind]


def test_a_sound_snapshot_stays_as_it_is() -> None:
    assert sanitize(BASE) == BASE


def test_cleaning_twice_changes_nothing() -> None:
    once = cleaned(gangs=(GANG, GANG), nodes=(NODE, NODE), queues=(Queue("team", parent="lost"),))
    assert replace(sanitize(once), notices=()) == replace(once, notices=())


def test_the_first_of_two_nodes_of_one_name_is_used() -> None:
    snapshot = cleaned(nodes=(NODE, replace(NODE, gpus=8)))
    assert [node.gpus for node in snapshot.nodes] == [4]
    assert notices(snapshot, "set-aside") == ["node n1: the name occurs twice; the first is used"]


def test_the_first_of_two_queues_or_topologies_of_one_name_is_used() -> None:
    snapshot = cleaned(queues=(Queue("team", priority=1), Queue("team")), topologies=(Topology("t", ()),) * 2)
    assert [queue.priority for queue in snapshot.queues] == [1]
    assert len(snapshot.topologies) == 1
    assert len(notices(snapshot, "set-aside")) == 2


def test_a_second_gang_of_one_name_is_renamed_and_set_aside_with_its_pods_as_load() -> None:
    snapshot = cleaned(gangs=(GANG, replace(GANG, pods=(RUNNING,))))
    first, second = snapshot.gangs
    assert not first.set_aside
    assert "occurs twice" in second.set_aside
    assert second.key != first.key
    assert second.pods[0].node == "n1"
    assert second.pods[0].key != first.pods[0].key


def test_a_pod_in_two_gangs_sets_the_later_one_aside() -> None:
    snapshot = cleaned(gangs=(GANG, replace(GANG, name="h")))
    assert [bool(gang.set_aside) for gang in snapshot.gangs] == [False, True]


def test_a_queue_whose_parent_is_missing_goes_with_all_below_it() -> None:
    snapshot = cleaned(queues=(Queue("team"), Queue("a", parent="lost"), Queue("b", parent="a")))
    assert [queue.name for queue in snapshot.queues] == ["team", "a", "b"]
    assert notices(snapshot, "set-aside") == [
        "queue a: the parent 'lost' of queue 'a' does not exist",
        "queue b: the parent 'lost' of queue 'a' does not exist",
    ]


@pytest.mark.parametrize("parents", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}])
def test_a_cycle_in_the_queue_tree_is_set_aside_and_the_rest_goes_on(parents: dict[str, str]) -> None:
    loop = tuple(Queue(name, parent=parent) for name, parent in parents.items())
    snapshot = cleaned(queues=(Queue("team"), *loop))
    assert len(notices(snapshot, "set-aside")) == len(loop)
    assert all("cycle" in text for text in notices(snapshot, "set-aside"))


def test_a_gang_of_an_unknown_queue_is_noted_and_keeps_its_own_reason() -> None:
    snapshot = cleaned(gangs=(replace(GANG, queue="typo"),))
    assert notices(snapshot, "set-aside") == ["gang default/g: queue 'typo' does not exist"]
    assert not snapshot.gangs[0].set_aside
    near = cleaned(queues=(Queue("team"), Queue("teem", parent="team")), gangs=(replace(GANG, queue="teams"),))
    assert notices(near, "set-aside") == ["gang default/g: queue 'teams' does not exist. Did you mean teem?"]


def test_a_gang_of_an_orphan_queue_is_told_why_and_the_note_is_made_once() -> None:
    orphan = Queue("orphan", parent="lost")
    snapshot = cleaned(queues=(Queue("team"), orphan), gangs=(replace(GANG, queue="orphan"),))
    assert notices(snapshot, "set-aside") == [
        "queue orphan: the parent 'lost' of queue 'orphan' does not exist",
        "gang default/g: queue 'orphan' takes no part: the parent 'lost' of queue 'orphan' does not exist",
    ]
    assert sanitize(snapshot) == snapshot


def test_a_gang_of_a_queue_with_children_is_noted() -> None:
    snapshot = cleaned(queues=(Queue("team"), Queue("below", parent="team")))
    assert notices(snapshot, "set-aside") == ["gang default/g: queue 'team' is not a leaf"]


@pytest.mark.parametrize("node", ["gone", ""])
def test_a_running_pod_on_an_unknown_node_sets_its_gang_aside(node: str) -> None:
    gang = gang_with(replace(RUNNING, node=node), replace(RUNNING, name="q"))
    assert "default/p is Running and is on" in gang.set_aside
    assert [pod.name for pod in gang.pods] == ["q"]


def test_a_foreign_pod_on_an_unknown_node_is_set_aside() -> None:
    snapshot = cleaned(foreign=(replace(RUNNING, name="f", node="gone"), replace(RUNNING, name="h")))
    assert [pod.name for pod in snapshot.foreign] == ["h"]
    assert "gone" in notices(snapshot, "set-aside")[0]


def test_a_pending_pod_keeps_no_node() -> None:
    assert gang_with(replace(POD, node="n1", devices=(0,))).pods[0].node == ""


@pytest.mark.parametrize(("status", "told"), [(PodStatus.PENDING, 1), (PodStatus.GATED, 1), (PodStatus.SUCCEEDED, 0)])
def test_a_node_that_says_nothing_of_a_waiting_pod_is_told(status: PodStatus, told: int) -> None:
    snapshot = cleaned(gangs=(replace(GANG, pods=(replace(POD, node="n1", status=status),)),))
    assert [f"it is {status.value}, so its node 'n1' is not used" in text for text in notices(snapshot, "warning")] == (
        [True] * told
    )


def test_a_nomination_to_an_unknown_node_is_forgotten() -> None:
    assert gang_with(replace(POD, nominated_node="gone")).pods[0].nominated_node == ""
    assert gang_with(replace(POD, nominated_node="n1")).pods[0].nominated_node == "n1"


@pytest.mark.parametrize("devices", [(4,), (0, 1), (-1,)])
def test_devices_that_do_not_exist_or_fit_are_forgotten(devices: tuple[int, ...]) -> None:
    snapshot = cleaned(gangs=(replace(GANG, pods=(replace(RUNNING, devices=devices),)),))
    assert snapshot.gangs[0].pods[0].devices == ()
    assert "do not fit" in notices(snapshot, "warning")[0]


def test_devices_that_fit_are_kept() -> None:
    assert gang_with(replace(RUNNING, devices=(3,))).pods[0].devices == (3,)


def test_an_over_committed_node_is_a_warning_and_everything_stays() -> None:
    heavy = tuple(replace(RUNNING, name=f"p{i}", gpu=GpuRequest(1, 600)) for i in range(9))
    snapshot = cleaned(gangs=(replace(GANG, pods=heavy),))
    assert notices(snapshot, "warning") == ["node n1: its pods hold more cpu, gpu than it has; nothing is added there"]
    assert not snapshot.gangs[0].set_aside
    assert len(snapshot.gangs[0].pods) == 9


def test_a_full_node_is_not_over_committed() -> None:
    full = tuple(replace(RUNNING, name=f"p{i}", gpu=GpuRequest(1)) for i in range(4))
    assert cleaned(gangs=(replace(GANG, pods=full),)).notices == ()


@pytest.mark.parametrize(
    ("root", "reason"),
    [
        (SubGroup(children=(PodSet("default", 1), PodSet("default", 1))), "occurs twice"),
        (SubGroup(children=(PodSet("default", 1), SubGroup("default", (PodSet("x", 1),)))), "occurs twice"),
        (SubGroup(children=(PodSet("workers", 1),)), "'default' of its pods does not exist"),
        (SubGroup(children=()), "no subgroup"),
        (SubGroup(children=(SubGroup("empty"),)), "no subgroup"),
    ],
)
def test_a_broken_tree_sets_its_gang_aside(root: SubGroup, reason: str) -> None:
    assert reason in gang_with(POD, root=root).set_aside


def test_a_subgroup_tree_with_a_loop_is_set_aside() -> None:
    loop = SubGroup("a", (PodSet("default", 1),))
    object.__setattr__(loop, "children", (PodSet("default", 1), loop))
    assert "loop" in gang_with(POD, root=loop).set_aside


def test_negative_minimums_are_read_as_zero_with_a_warning() -> None:
    root = SubGroup(children=(PodSet("default", -3),), min_subgroups=-1)
    snapshot = cleaned(gangs=(replace(GANG, root=root),))
    assert snapshot.gangs[0].root == SubGroup(children=(PodSet("default", 0),), min_subgroups=0)
    assert "negative minimum" in notices(snapshot, "warning")[0]


@pytest.mark.parametrize("gpu", [GpuRequest(-1), GpuRequest(1, 1500), GpuRequest(1, 0), GpuRequest(1, -5)])
def test_an_impossible_gpu_request_sets_its_gang_aside(gpu: GpuRequest) -> None:
    assert "asks for" in gang_with(replace(POD, gpu=gpu)).set_aside


def test_a_reason_that_was_there_stays_first() -> None:
    gang = sanitize(replace(BASE, gangs=(replace(GANG, set_aside="two sizes", root=SubGroup()),))).gangs[0]
    assert gang.set_aside.startswith("two sizes; ")


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": (replace(NODE, allocatable=(-1, 0, 0, 0)),)},
        {"nodes": (replace(NODE, allocatable=(1, 0, 0)),)},
        {"gangs": (replace(GANG, pods=(replace(POD, request=(0, -1, 0, 1)),)),)},
        {"foreign": (replace(RUNNING, name="f", request=(0, 0, 0, -1)),)},
        {"queues": (Queue("team", quota=(-2, 0, 0)),)},
        {"queues": (Queue("team", weight=(0.0, 0.0, -1.0)),)},
    ],
)
def test_negative_amounts_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InputError, match="zero or more"):
        cleaned(**changes)


def test_a_reason_is_given_once_however_often_a_snapshot_is_cleaned() -> None:
    once = cleaned(gangs=(replace(GANG, root=SubGroup()),))
    assert sanitize(once) == once
