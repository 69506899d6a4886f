"""What the cluster is told: what is written, what is not written again, in which order, and by whom."""

import threading
from typing import NoReturn

import pytest

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.binding import Placement
from kai_solver.cluster.events import GONE_S
from kai_solver.cluster.resources import EVENTS, JOBS, POD_GROUPS, PODS, QUEUES
from kai_solver.cluster.writer import Writer
from kai_solver.controller.reporting import status_reporter
from tests.conftest import Caught
from tests.controller.reporting_world import World


@pytest.fixture
def world() -> World:
    made = World()
    made.queue("q")
    return made


def test_a_pod_that_waits_says_why_and_says_it_once(world: World) -> None:
    world.node("a", gpus=4)
    world.pod("p")
    first = world.round()
    assert "patch pods/status p" in first
    condition = world.condition("p")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert "MaxNodePoolResources" in condition["message"]
    assert world.events("p")["Unschedulable"] == condition["message"]
    group = f"pg-p-{world.get(PODS, 'p')['metadata']['uid']}"
    assert world.get(PODS, "p")["metadata"]["annotations"]["pod-group-name"] == group
    assert all(group in note for note in world.round()), "only the PodGroup of its own is told, as it is there now"
    assert world.get(POD_GROUPS, group)["status"]["schedulingConditions"]
    assert [world.round() for _ in range(3)] == [[], [], []]


def test_the_time_of_a_condition_stays_when_only_its_words_change(world: World) -> None:
    world.node("a", gpus=4)
    world.pod("p")
    world.round()
    since = world.condition("p")["lastTransitionTime"]
    world.node("b", gpus=6)
    world.round()
    assert "topped at 4" in world.condition("p")["message"], "other words are written no more often"
    world.status_reporter.writer.monotonic = lambda: 1e12
    world.round()
    world.told()
    assert "topped at 6" in world.condition("p")["message"]
    assert world.condition("p")["lastTransitionTime"] == since


def test_events_about_pods_that_are_gone_are_forgotten(world: World) -> None:
    for name in ("goes", "stays"):
        world.pod(name)
    world.round()
    events = world.status_reporter.context.events
    assert {about.name for about, *_ in events._tallies} >= {"goes", "stays"}
    world.api.delete(PODS, "n", "goes", grace_s=0)
    world.see()
    world.now += GONE_S
    world.told()
    kept = {about.name for about, *_ in events._tallies}
    assert "stays" in kept
    assert "goes" not in kept


def test_where_others_write_sums_everything_else_is_still_reported() -> None:
    world = World(accounting="external")
    world.queue("q")
    world.node("a")
    world.gang("g", 1)
    world.gang("large", 2)
    told = world.round() + world.round()
    assert not world.get(QUEUES, "q").get("status")
    for name in ("g", "large"):
        assert "resourcesStatus" not in world.get(POD_GROUPS, name).get("status", {})
    assert world.get(POD_GROUPS, "large")["status"]["schedulingConditions"]
    assert "kai.scheduler/last-start-timestamp" in world.get(POD_GROUPS, "g")["metadata"]["annotations"]
    assert not [note for note in told if "queues" in note]


def test_a_bound_pod_without_a_pod_group_costs_its_binding_and_an_event() -> None:
    world = World(write_pod_groups=False)
    world.queue("q")
    world.node("a")
    world.pod("p")
    world.cycle()
    assert [note for note in world.api.notes if "binding" in note] == ["create pods/binding p"]
    told = world.told()
    assert [note for note in told if "events" not in note] == ["patch queues/status q"]
    assert world.events("p") == {"Scheduled": "Successfully assigned pod n/p to node a at node-pool default"}


def test_where_no_node_has_gpus_the_cure_is_named(world: World) -> None:
    world.node("a", gpus=0)
    world.pod("p", gpus=1)
    world.round()
    assert "install the device plugin, or the GPU operator" in world.condition("p")["message"]
    world.node("b", gpus=1)
    world.pod("r", gpus=2)
    world.round()
    assert "advertises" not in world.condition("r")["message"]


def test_a_pod_group_says_why_it_waits_and_no_longer_once_it_is_placed(world: World) -> None:
    world.node("a")
    world.gang("g", 2)
    world.round()
    (condition,) = world.get(POD_GROUPS, "g")["status"]["schedulingConditions"]
    assert condition["type"] == "UnschedulableOnNodePool"
    assert condition["nodePool"] == "default"
    assert (condition["transitionID"], condition["status"]) == ("1", "True")
    assert condition["reasons"][0]["reason"] == "PodSchedulingErrors"
    assert [note for note in world.round() if "podgroups" in note] == []
    world.node("b")
    world.round()
    assert not world.get(POD_GROUPS, "g")["status"]["schedulingConditions"]


def test_a_pod_group_that_we_write_ourselves_says_why_it_waits_once_it_is_there(world: World) -> None:
    world.node("a", gpus=4)
    job = world.job("j", size=2, minimum=2)
    name = f"pg-j-{job['metadata']['uid']}"
    told = world.round()
    assert f"create podgroups {name}" in told
    assert "schedulingConditions" not in world.get(POD_GROUPS, name).get("status", {}), "who waits is told first"
    told = world.round()
    assert any("podgroups/status" in note for note in told)
    assert not any(" pods" in note for note in told), "they are told already"
    (condition,) = world.get(POD_GROUPS, name)["status"]["schedulingConditions"]
    assert condition["type"] == "UnschedulableOnNodePool"
    assert "Unschedulable" in world.events(name)
    assert [world.round() for _ in range(3)] == [[], [], []]


def test_a_pod_that_was_bound_since_is_not_told_that_it_waits(world: World) -> None:
    """The watch has not shown it, and the next cycle has nothing to say of it."""
    world.pod("p")
    world.cycle()
    target = {"metadata": {"name": "p"}, "target": {"name": "elsewhere"}}
    world.api.create(PODS, "n", target, subresource="binding")
    assert "patch pods/status p" in world.told()
    assert world.condition("p").get("status") != "False"


def test_conditions_of_other_node_pools_stay_and_numbers_grow(world: World) -> None:
    world.node("a")
    world.gang("g", 2)
    theirs = {"type": "UnschedulableOnNodePool", "nodePool": "other", "transitionID": "7"}
    world.api.patch(POD_GROUPS, "n", "g", {"status": {"schedulingConditions": [theirs]}}, subresource="status")
    world.round()
    before, own = world.get(POD_GROUPS, "g")["status"]["schedulingConditions"]
    assert before == theirs
    assert own["transitionID"] == "8"
    world.node("b")
    world.round()
    assert world.get(POD_GROUPS, "g")["status"]["schedulingConditions"] == [theirs]


def test_what_an_earlier_process_said_is_cleared(world: World) -> None:
    world.node("a")
    world.gang("g", 1)
    stands = {"type": "UnschedulableOnNodePool", "nodePool": "default", "transitionID": "1"}
    world.api.patch(POD_GROUPS, "n", "g", {"status": {"schedulingConditions": [stands]}}, subresource="status")
    world.round()
    assert not world.get(POD_GROUPS, "g")["status"]["schedulingConditions"]


def test_pods_are_not_marked_where_their_group_does_not_want_it(world: World) -> None:
    world.node("a")
    world.gang("g", 2, markUnschedulable=False)
    world.round()
    assert world.condition("g-0") == {}
    assert world.get(POD_GROUPS, "g")["status"]["schedulingConditions"]


def test_a_gang_that_is_not_ready_says_so_alone(world: World) -> None:
    world.node("a")
    world.gang("g", 1)
    world.api.patch(POD_GROUPS, "n", "g", {"spec": {"minMember": 2}})
    world.round()
    assert world.events("g")["NotReady"].startswith("Job is not ready for scheduling. Waiting for 2 pods")
    assert world.condition("g-0") == {}


def taken(world: World) -> None:
    """A rich queue holds the only node, to which a poor one has the right."""
    world.node("a")
    world.queue("rich", quota=0)
    world.queue("poor", quota=8)
    world.gang("taken", 1, queue="rich")
    world.round()
    world.run("taken-0")


def victims(world: World) -> None:
    """The poor queue reclaims the node."""
    taken(world)
    world.gang("entitled", 1, queue="poor")


def test_victim_and_preemptor_are_told_of_each_other_why_and_by_which_rule(world: World) -> None:
    victims(world)
    world.round()
    assert world.events("taken-0")["Evict"].startswith("Pod n/taken-0 was preempted by workload n/entitled.")
    assert world.events("taken")["Evict"] == world.events("taken-0")["Evict"]
    (event,) = [
        e for e in world.api.page(EVENTS).items if e["involvedObject"]["name"] == "taken" and e["reason"] == "Evict"
    ]
    assert event["metadata"]["annotations"] == {
        "num-evicted-pods": "1",
        "evictor-action-type": "reclaim",
        "evictor-pod-group-name": "entitled",
        "evictor-pod-group-namespace": "n",
    }
    assert world.events("entitled")["Preempting"] == "reclaim: makes room by evicting n/taken-0"
    assert "kai.scheduler/last-eviction-timestamp" in world.get(POD_GROUPS, "taken")["metadata"]["annotations"]


def test_the_condition_of_a_victim_is_written_once_before_its_eviction(world: World) -> None:
    victims(world)
    world.api.notes.clear()
    world.cycle()
    acted = [note for note in world.api.notes if "taken-0" in note]
    assert acted == ["patch pods/status taken-0", "create pods/eviction taken-0"]
    told = world.told() + world.round()
    assert not [note for note in told if note.startswith("patch pods/status taken-0")]
    assert world.condition("taken-0", "DisruptionTarget")["reason"] == "EvictionByEvictionAPI", "by the API server"


def test_sums_of_a_pod_group_that_goes_with_its_pod_are_not_written(world: World) -> None:
    world.node("a")
    world.queue("rich", quota=0)
    world.queue("poor", quota=8)
    for name in ("plain-0", "plain-1"):
        world.pod(name, gpus=4, queue="rich")
    world.gang("entitled", 1, queue="poor")
    world.api.delete(PODS, "n", "entitled-0", grace_s=0)
    told = [*world.round(), *world.round()]
    assert sum(note.startswith("patch podgroups/status pg-plain") for note in told) == 2
    for name in ("plain-0", "plain-1"):
        world.run(name)
    world.pod("entitled-1", gpus=8, queue="poor", group="entitled")
    told = world.round()
    assert world.events("plain-0")["Evict"]
    for name in ("plain-0", "plain-1"):
        world.api.patch(PODS, "n", name, {"status": {"phase": "Failed"}}, subresource="status")
    world.now += 100.0
    told += world.round()
    assert not [note for note in told if note.startswith("patch podgroups/status pg-plain")]


def test_sums_of_a_plain_pod_that_ended_and_stays_are_written(world: World) -> None:
    world.node("a")
    world.pod("plain")
    world.round()
    world.round()
    (group,) = world.api.page(POD_GROUPS).items
    assert group["status"]["resourcesStatus"]["allocated"]
    world.api.patch(PODS, "n", "plain", {"status": {"phase": "Succeeded"}}, subresource="status")
    world.now += 100.0
    world.round()
    (group,) = world.api.page(POD_GROUPS).items
    assert not group["status"]["resourcesStatus"]["allocated"]


def test_a_plain_pod_hears_for_its_own_part_what_makes_room(world: World) -> None:
    taken(world)
    world.pod("lone", queue="poor")
    world.round()
    assert world.events("lone")["Preempting"] == "reclaim: makes room by evicting n/taken-0"


def test_a_promised_place_stands_on_the_pod_until_it_is_void(world: World) -> None:
    victims(world)
    world.round()
    assert world.get(PODS, "entitled-0")["status"]["nominatedNodeName"] == "a"
    assert world.condition("entitled-0")["reason"] == "Pipelined"
    assert world.events("entitled-0")["Pipelined"] == "Pod n/entitled-0 was pipelined to node a"
    assert [note for note in world.round() if "entitled" in note] == []
    world.api.patch(QUEUES, "", "poor", {"spec": {"resources": {"gpu": {"limit": 0}}}})
    world.round()
    assert "nominatedNodeName" not in world.get(PODS, "entitled-0")["status"]
    assert world.condition("entitled-0")["reason"] == "Unschedulable"


def test_a_promise_is_not_taken_back_while_the_pod_is_bound_there(world: World) -> None:
    victims(world)
    world.round()
    world.api.delete(PODS, "n", "taken-0", grace_s=0)
    world.see()
    world.round()
    pod = world.get(PODS, "entitled-0")
    assert (pod["spec"]["nodeName"], pod["status"]["nominatedNodeName"]) == ("a", "a")


def test_what_may_not_be_evicted_is_not_told_that_it_is(world: World) -> None:
    victims(world)
    world.api.refuse = lambda note: ApiError(429, "TooManyRequests", "budget") if "eviction" in note else None
    world.round()
    told = world.condition("taken-0", "DisruptionTarget")
    assert (told["status"], told["reason"]) == ("False", "EvictionRefused")
    assert "Evict" not in world.events("taken")


def test_start_and_staleness_stand_on_the_pod_group(world: World) -> None:
    for name in "ab":
        world.node(name)
    world.gang("g", 2)
    world.round()
    annotations = world.get(POD_GROUPS, "g")["metadata"]["annotations"]
    assert annotations == {"kai.scheduler/last-start-timestamp": "1970-01-12T13:46:40Z"}
    for name in ("g-0", "g-1"):
        world.run(name)
    world.api.delete(PODS, "n", "g-1", grace_s=0)
    world.round()
    stale = world.get(POD_GROUPS, "g")["metadata"]["annotations"]["kai.scheduler/stale-podgroup-timestamp"]
    assert world.events("g")["StaleJob"] == "Job is stale. 1 pods are active, minMember is 2"
    world.pod("g-2", group="g")
    world.round()
    assert world.get(POD_GROUPS, "g")["metadata"]["annotations"]["kai.scheduler/stale-podgroup-timestamp"] == stale
    world.round()
    assert "kai.scheduler/stale-podgroup-timestamp" not in world.get(POD_GROUPS, "g")["metadata"]["annotations"]


class Slow:
    """A preparation that takes until it is told to end."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def concerns(self, placement: Placement) -> bool:
        return True

    def assume(self, placement: Placement) -> None:
        """Nothing."""

    def prepare(self, placement: Placement) -> None:
        assert self.go_on.wait(20)

    def undo(self, placement: Placement) -> None:
        """Nothing."""

    def clear(self) -> None:
        """Nothing."""


@pytest.mark.parametrize("told_between", [True, False])
def test_the_start_of_a_gang_is_told_however_many_cycles_its_binding_takes(world: World, told_between: bool) -> None:
    world.node("a")
    world.gang("g", 1)
    step = Slow()
    world.scheduler.binder.steps = (step,)
    world.see()
    for _ in range(2):
        world.scheduler.step()
        if told_between:
            world.told()
    step.go_on.set()
    world.cycle()
    world.told()
    assert "kai.scheduler/last-start-timestamp" in world.get(POD_GROUPS, "g")["metadata"].get("annotations", {})


def test_a_gang_that_grows_began_when_it_began(world: World) -> None:
    world.node("a", gpus=16)
    world.gang("g", 1)
    world.round()
    started = world.get(POD_GROUPS, "g")["metadata"]["annotations"]
    world.pod("g-1", group="g")
    assert "create pods/binding g-1" not in world.round()
    assert world.get(PODS, "g-1")["spec"]["nodeName"] == "a"
    assert world.get(POD_GROUPS, "g")["metadata"]["annotations"] == started


def test_sums_of_a_pod_group_follow_its_pods(world: World) -> None:
    world.node("a")
    world.gang("g", 1)
    world.round()
    world.round()
    found = world.get(POD_GROUPS, "g")["status"]["resourcesStatus"]
    assert found["requested"]["nvidia.com/gpu"] == "8"
    world.status_reporter.writer.monotonic = lambda: 1e12
    world.run("g-0")
    world.round()
    assert world.get(POD_GROUPS, "g")["status"]["resourcesStatus"]["allocated"]["nvidia.com/gpu"] == "8"


def test_sums_of_a_bound_pod_follow_its_new_pod_group_without_another_cycle(world: World) -> None:
    world.node("a")
    world.pod("p", gpus=2)
    world.cycle()
    world.cycle()  # sees that it is bound, and nothing was written so far
    told = world.told()
    (name,) = [note.split()[-1] for note in told if note.startswith("create podgroups ")]
    assert told.index(f"patch podgroups/status {name}") > told.index(f"create podgroups {name}")
    found = world.get(POD_GROUPS, name)["status"]["resourcesStatus"]
    assert found["allocated"]["nvidia.com/gpu"] == "2"


def test_a_pod_group_of_a_gang_that_waits_is_reported_on_by_a_cycle_that_is_asked_for(world: World) -> None:
    asked: list[bool] = []
    world.status_reporter.groups.wake = lambda: asked.append(True)
    world.pod("p")
    world.round()
    assert asked == [True]
    world.round()
    (group,) = world.api.page(POD_GROUPS).items
    assert group["status"]["schedulingConditions"]


def test_a_queue_says_what_it_holds_every_few_seconds(world: World) -> None:
    world.node("a")
    world.pod("p", gpus=2)
    world.round()
    status = world.get(QUEUES, "q")["status"]
    assert status["childQueues"] == []
    assert (status["allocated"]["nvidia.com/gpu"], status["requested"]["nvidia.com/gpu"]) == ("0", "2")
    assert [note for note in world.round() if "queues" in note] == [], "not at once again"
    world.status_reporter.writer.monotonic = lambda: 1e12
    world.round()
    assert world.get(QUEUES, "q")["status"]["allocated"]["nvidia.com/gpu"] == "2"


def test_a_binding_that_fails_is_told_on_pod_and_pod_group(world: World) -> None:
    world.node("a")
    world.gang("g", 1)
    world.api.refuse = lambda note: ApiError(422, "Invalid", "no") if "binding" in note else None
    world.round()
    assert world.events("g-0")["BindingError"] == "Failed to bind pod n/g-0 to node a: 422 Invalid: no"
    assert world.events("g")["FailedBinding"].startswith("1 of 1 pods could not be bound")
    assert bound_condition(world) == ("False", "BindingError", "Failed to bind pod n/g-0 to node a: 422 Invalid: no")
    world.scheduler.binder.resting.succeeded("n/g")
    assert [note for note in world.round() if "pods/status" in note] == [], "it stands there already"
    world.api.refuse = lambda _: None
    world.scheduler.binder.resting.succeeded("n/g")
    world.round()
    assert bound_condition(world) == ("True", "Bound", "Pod bound successfully to node a")


def bound_condition(world: World) -> tuple[str, str, str]:
    conditions = {found["type"]: found for found in world.get(PODS, "g-0")["status"]["conditions"]}
    found = conditions["PodBound"]
    return found["status"], found["reason"], found["message"]


def test_what_was_bound_at_once_gets_no_condition_for_that(world: World) -> None:
    world.node("a")
    world.gang("g", 1)
    assert [note for note in world.round() if "pods/status" in note] == []


def test_a_replica_that_does_not_lead_tells_nothing(world: World) -> None:
    world.node("a", gpus=4)
    world.pod("p")
    world.cycle()
    world.leads = False
    assert world.told() == []
    world.leads = True
    assert "patch pods/status p" in world.told()


def test_a_server_that_fails_for_a_while_is_told_in_the_end(world: World) -> None:
    world.node("a", gpus=4)
    world.pod("p")
    world.api.refuse = lambda _: ApiError(503, "Unavailable")
    world.round()
    assert world.condition("p") == {}
    world.api.refuse = lambda _: None
    while world.status_reporter.writer.step() is not None:
        pass
    assert world.condition("p")["reason"] == "Unschedulable"


def test_threads_that_help_to_write_end_with_the_part_that_began_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part is begun again after an error, and begins threads of its own."""

    def fails(_: object) -> NoReturn:
        raise RuntimeError("while it is worked out")

    monkeypatch.setattr(status_reporter.StatusReporter, "work_out", fails)
    before = threading.active_count()
    for _ in range(3):
        with pytest.raises(RuntimeError):
            world.status_reporter.run(threading.Event())
    assert threading.active_count() == before


def test_an_unexpected_error_ends_no_thread_that_writes(
    world: World, monkeypatch: pytest.MonkeyPatch, faults: list[Caught]
) -> None:
    monkeypatch.setattr(status_reporter, "_FAULT_S", 0.0)
    stop, steps = threading.Event(), iter(range(3))

    def fails_twice(_: Writer) -> float | None:
        if next(steps) < 2:
            raise RuntimeError("of no wish")
        stop.set()
        return 0.0

    monkeypatch.setattr(Writer, "step", fails_twice)
    world.status_reporter._help.set()
    world.status_reporter._write_along(stop)
    assert [fault.what for fault in faults] == ["writes", "writes"]


# -- PodGroups of our own making ---------------------------------------------------------------------------------------


def test_a_job_gets_a_pod_group_once_and_its_pods_know_its_name(world: World) -> None:
    world.node("a")
    world.node("b")
    job = world.job("j", size=2, minimum=2)
    told = world.round()
    name = f"pg-j-{job['metadata']['uid']}"
    assert [note for note in told if note.startswith("create podgroups")] == [f"create podgroups {name}"]
    made = world.get(POD_GROUPS, name)
    assert made["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job["metadata"]["uid"]}
    ]
    assert (made["spec"]["minMember"], made["spec"]["queue"]) == (2, "q")
    assert "kai.scheduler/last-start-timestamp" in made["metadata"]["annotations"]
    assert world.get(PODS, "j-0")["metadata"]["annotations"]["pod-group-name"] == name
    cycle = world.cycle()
    assert [(gang.key, len(gang.pods)) for gang in cycle.snapshot.gangs] == [(f"n/{name}", 2)]
    assert [note for note in world.told() if "create" in note or "patch podgroups " in note] == []


def test_a_pod_group_that_was_refused_or_deleted_is_written_again_and_ever_more_rarely(world: World) -> None:
    world.status_reporter.groups.monotonic = lambda: world.now
    world.status_reporter.context.statuses._monotonic = lambda: world.now
    world.api.refuse = lambda note: ApiError(403, "Forbidden", "quota") if note.startswith("create podg") else None
    name = f"pg-j-{world.job('j')['metadata']['uid']}"
    told = [any(note.startswith("create podgroups") for note in world.round()) for _ in range(20)]
    assert [second for second, tried in enumerate(told) if tried] == [0, 1, 3, 7, 15]
    world.api.refuse = lambda _: None
    assert sum(f"create podgroups {name}" in world.round() for _ in range(60)) == 1
    world.api.delete(POD_GROUPS, "n", name)
    assert sum(f"create podgroups {name}" in world.round() for _ in range(10)) == 1


def test_pods_that_wait_have_the_name_of_their_pod_group_at_once(world: World) -> None:
    world.node("a")
    job = world.job("j", size=2, minimum=2)
    told = world.round()
    name = f"pg-j-{job['metadata']['uid']}"
    assert told[0] == f"create podgroups {name}"
    for pod in ("j-0", "j-1"):
        assert world.get(PODS, pod)["metadata"]["annotations"]["pod-group-name"] == name
    cycle = world.cycle()
    assert [(gang.key, len(gang.pods)) for gang in cycle.snapshot.gangs] == [(f"n/{name}", 2)], "it is the same gang"
    world.told()
    assert [note for note in world.round() if "pods/status" in note] == []
    world.node("b")
    world.round()
    assert world.get(PODS, "j-0")["spec"]["nodeName"]


@pytest.mark.parametrize("nodes", [1, 4])
def test_pods_of_subgroups_have_the_names_of_group_and_subgroup_waiting_or_bound(world: World, nodes: int) -> None:
    for index in range(nodes):
        world.node(f"node-{index}")
    job = world.job("j", size=4, minimum=4)
    template = {"metadata": {"annotations": {"kai.scheduler/segment-size": "2"}}}
    spec = {"completionMode": "Indexed", "completions": 4, "template": template}
    world.api.patch(JOBS, "n", "j", {"spec": spec})
    index_label = "batch.kubernetes.io/job-completion-index"
    for index in range(4):
        world.api.patch(PODS, "n", f"j-{index}", {"metadata": {"labels": {index_label: str(index)}}})
    world.round()
    for _ in range(2):
        world.round()  # bound pods are seen
    group, found = f"pg-j-{job['metadata']['uid']}", [world.get(PODS, f"j-{index}") for index in range(4)]
    assert [bool(one["spec"].get("nodeName")) for one in found] == [nodes == 4] * 4
    assert [one["metadata"]["annotations"]["pod-group-name"] for one in found] == [group] * 4
    labels = [one["metadata"]["labels"]["kai.scheduler/subgroup-name"] for one in found]
    leaves = [one["name"] for one in world.get(POD_GROUPS, group)["spec"]["subGroups"] if "minMember" in one]
    assert labels == [leaves[0], leaves[0], leaves[1], leaves[1]]
    (gang,) = world.cycle().snapshot.gangs
    assert [pod.podset for pod in sorted(gang.pods, key=lambda pod: pod.name)] == labels, "it is the same gang"
    world.told()
    assert [note for note in world.round() if "patch pods" in note] == []


def test_pods_whose_group_is_not_written_yet_are_no_strangers(world: World) -> None:
    world.node("a")
    world.job("j")
    world.cycle()
    cycle = world.cycle()  # bound, with the annotation; nothing was told
    assert world.api.page(POD_GROUPS).items == []
    assert [len(gang.pods) for gang in cycle.snapshot.gangs] == [1]
    assert not cycle.snapshot.foreign


def test_a_pod_group_of_ours_follows_its_workload_but_not_what_others_set(world: World) -> None:
    world.node("a")
    job = world.job("j", size=2, minimum=2)
    name = f"pg-j-{job['metadata']['uid']}"
    world.round()
    theirs = {"queue": "other", "schedulingBackoff": 1, "markUnschedulable": False}
    world.api.patch(POD_GROUPS, "n", name, {"spec": theirs})
    body = {"metadata": {"annotations": {"kai.scheduler/batch-min-member": "1"}}}
    world.api.patch(JOBS, "n", "j", body)
    cycle = world.cycle()
    (gang,) = cycle.snapshot.gangs
    assert next(gang.root.podsets()).min_member == 1, "it counts at once"
    world.told()
    spec = world.get(POD_GROUPS, name)["spec"]
    assert spec["minMember"] == 1
    assert {key: spec[key] for key in theirs} == theirs


def test_pod_groups_of_others_are_not_changed(world: World) -> None:
    world.node("a")
    world.gang("g", 2)
    before = world.get(POD_GROUPS, "g")["spec"]
    world.round()
    assert world.get(POD_GROUPS, "g")["spec"] == before


def test_a_plain_pod_gets_a_group_only_where_that_is_wanted() -> None:
    for wanted in (False, True):
        world = World(write_pod_groups=wanted)
        world.queue("q")
        world.node("a")
        world.pod("p")
        world.round()
        assert bool(world.api.page(POD_GROUPS).items) is wanted
        assert ("pod-group-name" in world.get(PODS, "p")["metadata"].get("annotations", {})) is wanted


def test_none_is_written_where_kais_grouper_does() -> None:
    world = World(grouping="external")
    world.queue("q")
    world.node("a")
    world.job("j")
    world.round()
    assert world.api.page(POD_GROUPS).items == []


def test_the_pod_group_of_a_plain_pod_goes_with_it_and_does_not_come_again(world: World) -> None:
    """It belongs to the pod, so the garbage collector takes it while the pod still ends."""
    world.node("a")
    world.queue("poor", quota=8)
    world.queue("rich", quota=0)
    world.pod("lone", queue="rich")
    for _ in range(2):
        world.round()
    world.run("lone")
    (group,) = (item["metadata"]["name"] for item in world.api.page(POD_GROUPS).items)
    world.pod("entitled", queue="poor")
    told = world.round()
    assert "Evict" in world.events("lone")
    assert not [note for note in told if note == f"patch podgroups {group}"], "nothing is kept of a group that goes"
    world.api.delete(POD_GROUPS, "n", group)
    told = world.round()
    assert world.get(PODS, "lone")["metadata"]["deletionTimestamp"]
    world.api.patch(PODS, "n", "lone", {"status": {"phase": "Succeeded"}}, subresource="status")
    told += world.round()
    assert not [note for note in told if note.startswith("create podgroups") and group in note]
