"""Behaviour cases: defaults of KAI's tables, statuses, requests, claims; and every case that ships."""

from pathlib import Path
from typing import Any

import pytest

from kai_solver.domain import Action, Gang, GpuRequest, Node, PodStatus, Requirement
from kai_solver.errors import InputError
from kai_solver.instances_io import CASE_NOW_S, CaseFile, load_case, load_instance, native_from_snapshot
from kai_solver.instances_io import snapshot_from_native as again
from kai_solver.units import CPU, GPU, MEMORY, PODS

INSTANCES = Path(__file__).parents[2] / "instances"
GPU_CLASS = "nvidia.com/gpu"


def case(job: dict[str, Any] | None = None, **instance: Any) -> CaseFile:
    jobs = [{"name": "job", "queue": "q", "tasks": [{"id": "job-0"}]} | job] if job is not None else []
    document = {"nodes": [{"name": "n1", "gpus": 4}], "queues": [{"name": "q"}], "jobs": jobs} | instance
    return load_case({"schema": "kai-case/1", "name": "c", "instance": document}, "c.json")


def gang(**job: Any) -> Gang:
    return case(job).snapshot.gangs[0]


def node(**fields: Any) -> Node:
    return case(nodes=[{"name": "n1"} | fields]).snapshot.nodes[0]


def test_nodes_have_the_tables_defaults() -> None:
    found = node(gpus=2)
    assert found.allocatable[CPU] == 20_000_000
    assert found.allocatable[MEMORY] == 20_000_000_000
    assert found.allocatable[PODS] == 110
    assert found.gpu_memory_mib == 100
    assert found.labels == {"kai.scheduler/type": "n1"}


def test_a_mixed_mig_node_has_slices_and_no_whole_gpus() -> None:
    snapshot = case(
        nodes=[{"name": "n1", "gpus": 1, "mig_strategy": "mixed", "mig_instances": {"nvidia.com/mig-2g.10gb": 3}}]
    )
    found = snapshot.snapshot.nodes[0]
    assert (found.gpus, found.allocatable[GPU]) == (0, 0)
    assert snapshot.snapshot.schema.mapping(found.allocatable)["nvidia.com/mig-2g.10gb"] == 3


def test_tasks_ask_for_one_core_and_one_gigabyte_by_default() -> None:
    assert gang().pods[0].request == (1000, 1_000_000_000, 0, 1)


def test_a_best_effort_job_asks_for_nothing() -> None:
    assert gang(best_effort=True).pods[0].request == (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("asked", "task", "expected"),
    [
        ({"gpus": 2}, {}, GpuRequest(2)),
        ({"gpus": 0}, {}, GpuRequest()),
        ({"gpus": 0.7}, {}, GpuRequest(1, 700)),
        ({"gpus": 0.5, "gpu_devices": 2}, {}, GpuRequest(2, 500)),
        ({"gpu_memory_mib": 50}, {}, GpuRequest(1, 0, 50)),
        ({"gpus": 1}, {"gpus": 3}, GpuRequest(3)),
        ({"gpus": 0}, {"mig": {"nvidia.com/mig-2g.10gb": 2}}, GpuRequest()),
    ],
)
def test_requests_of_gpus(asked: dict[str, Any], task: dict[str, Any], expected: GpuRequest) -> None:
    assert gang(task_request=asked, tasks=[{"id": "job-0"} | task]).pods[0].gpu == expected


def test_a_mig_slice_is_paid_by_its_size() -> None:
    pod = gang(tasks=[{"id": "job-0", "mig": {"nvidia.com/mig-2g.10gb": 2}}]).pods[0]
    assert pod.quota_gpu_milli == 4000
    assert pod.request[-1] == 2


def test_a_job_is_a_gang_of_all_its_tasks_unless_it_says_less() -> None:
    tasks = [{"id": "job-0"}, {"id": "job-1"}]
    assert next(gang(tasks=tasks).root.podsets()).min_member == 2
    assert next(gang(tasks=tasks, min_available=1).root.podsets()).min_member == 1


def test_a_subgroup_tree_is_read_with_its_constraints() -> None:
    leaf = {"name": "sub", "min_available": 1, "topology_constraint": {"topology": "t", "required_level": "rack"}}
    tree = {"name": "", "min_subgroups": 1, "subgroups": [{"name": "a", "pod_sets": [leaf]}]}
    found = gang(subgroup_tree=tree, tasks=[{"id": "job-0", "subgroup": "sub"}])
    [podset] = found.root.podsets()
    assert podset.topology is not None
    assert (found.root.min_subgroups, podset.name, podset.topology.required) == (1, "sub", "rack")


@pytest.mark.parametrize(
    ("job", "preemptible"),
    [
        ({"priority": 99}, True),
        ({"priority": 100}, False),
        ({"priority": 100, "preemptibility": "preemptible"}, True),
        ({"priority": 50, "preemptibility": "non-preemptible"}, False),
    ],
)
def test_preemptibility_is_stated_or_follows_priority(job: dict[str, Any], preemptible: bool) -> None:
    assert gang(**job).preemptible is preemptible


def test_ages_are_counted_back_from_the_cases_moment() -> None:
    found = gang(age_minutes=5, last_start_minutes_ago=2, stale_for_s=61)
    assert found.created_s == CASE_NOW_S - 300
    assert found.last_start_s == CASE_NOW_S - 120
    assert found.stale_since_s == CASE_NOW_S - 61


@pytest.mark.parametrize("state", ["Running", "Releasing", "StuckInReleasing", "Binding", "Bound"])
def test_states_that_hold_resources_keep_their_node(state: str) -> None:
    pod = gang(tasks=[{"id": "job-0", "state": state, "node": "n1", "gpu_groups": ["0"]}]).pods[0]
    assert (pod.status, pod.node, pod.gpu_groups) == (PodStatus(state), "n1", ("0",))


def test_a_pipelined_task_waits_with_a_nomination() -> None:
    pod = gang(tasks=[{"id": "job-0", "state": "Pipelined", "node": "n1"}]).pods[0]
    assert (pod.status, pod.node, pod.nominated_node) == (PodStatus.PENDING, "", "n1")


def test_an_unknown_state_takes_no_part_and_says_so() -> None:
    loaded = case({"tasks": [{"id": "job-0", "state": "Dancing"}]})
    assert loaded.snapshot.gangs[0].pods[0].status is PodStatus.FAILED
    assert any("Dancing" in notice.text for notice in loaded.snapshot.notices)


def test_tasks_are_ordered_by_priority_then_name() -> None:
    tasks = [{"id": "job-0", "priority": 1}, {"id": "job-1", "priority": 2}]
    ordered = sorted(gang(tasks=tasks).pods, key=lambda pod: pod.order)
    assert [pod.name for pod in ordered] == ["job-1", "job-0"]


def test_allowed_nodes_are_a_term_on_the_type_label() -> None:
    pod = gang(tasks=[{"id": "job-0", "allowed_nodes": ["n1", "n2"]}]).pods[0]
    assert pod.constraints.node_terms == (((Requirement("kai.scheduler/type", "In", ("n1", "n2")),),),)


@pytest.mark.parametrize(("plugin", "enforced"), [("predicates", True), ("podaffinity", True), ("priority", False)])
def test_pod_affinity_is_enforced_only_where_its_plugin_is_on(plugin: str, enforced: bool) -> None:
    task = {"id": "job-0", "pod_labels": {"app": "db"}, "pod_anti_affinity_topology_key": "zone"}
    loaded = case({"tasks": [task]}, scheduler={"plugins": [{"name": plugin}]})
    assert bool(loaded.snapshot.gangs[0].pods[0].constraints.anti_affinity) is enforced


def test_a_missing_volume_claim_blocks_its_pod() -> None:
    pod = gang(tasks=[{"id": "job-0", "persistent_volume_claims": ["data"]}]).pods[0]
    assert pod.constraints.blocked == ('VolumeBinding: persistentvolumeclaim "data" not found',)


def test_legacy_mig_tasks_are_blocked_and_keep_mig_pods_off_their_node() -> None:
    legacy = {"id": "old-0", "state": "Running", "node": "n1", "legacy_mig": True}
    new = {"id": "new-0", "mig": {"nvidia.com/mig-1g.5gb": 1}}
    pods = gang(tasks=[legacy, new, {"id": "wait-0", "legacy_mig": True}]).pods
    assert pods[1].constraints.node_terms == (((Requirement("metadata.name", "NotIn", ("n1",)),),),)
    assert pods[2].constraints.blocked


def test_queues_are_in_gpus_millicores_and_megabytes() -> None:
    entry = {
        "name": "q",
        "gpu": {"quota": 2.5, "limit": 4, "over_quota_weight": 3},
        "cpu_milli": {"quota": 1500, "limit": -1, "over_quota_weight": 1},
        "memory_mb": {"quota": 2000, "limit": -1, "over_quota_weight": 1},
        "priority": 7,
        "reclaim_min_runtime_s": 60,
    }
    [queue] = case(queues=[entry]).snapshot.queues
    assert queue.quota == (1500, 2_000_000_000, 2500)
    assert queue.limit == (-1, -1, 4000)
    assert queue.weight == (1.0, 1.0, 3.0)
    assert (queue.priority, queue.reclaim_min_runtime_s) == (7, 60)


def test_a_queue_without_resources_may_use_nothing() -> None:
    [queue] = case(queues=[{"name": "q", "resources_unset": True}]).snapshot.queues
    assert queue.quota == queue.limit == (0, 0, 0)


def test_earlier_queues_are_older() -> None:
    entries = [{"name": "a", "creation_offset_minutes": 0}, {"name": "b", "creation_offset_minutes": 2}]
    first, second = case(queues=entries).snapshot.queues
    assert second.created_s - first.created_s == 120


def test_the_scheduler_part_becomes_policy() -> None:
    scheduler = {
        "plugins": [
            {"name": "nodeplacement", "arguments": {"gpu": "spread", "cpu": "binpack"}},
            {"name": "gpuspread"},
            {"name": "minruntime", "arguments": {"reclaimResolveMethod": "queue"}},
        ],
        "params": {
            "max_consolidation_preemptees": 16,
            "allow_consolidating_reclaim": False,
            "default_staleness_grace_period_s": 0,
            "full_hierarchy_fairness": False,
        },
    }
    policy = case(scheduler=scheduler).snapshot.policy
    assert (policy.gpu_placement, policy.cpu_placement, policy.gpu_sharing_placement) == ("spread", "binpack", "spread")
    assert (policy.max_consolidation_gangs, policy.consolidating_reclaim) == (16, False)
    assert policy.staleness_grace_s == 0
    assert policy.full_hierarchy
    assert policy.reclaim_resolve == "queue"


def test_the_run_part_is_passed_on() -> None:
    document = {
        "schema": "kai-case/1",
        "name": "c",
        "instance": {
            "nodes": [],
            "queues": [{"name": "q"}],
            "jobs": [{"name": "j", "queue": "q", "delete_when_evicted": True}],
        },
        "run": {
            "kind": "integration",
            "actions": ["allocate", "stalegangeviction"],
            "rounds": 2,
            "rounds_after_match": 5,
        },
        "expected": {"jobs": {}},
    }
    loaded = load_case(document)
    assert loaded.actions == (Action.ALLOCATE, Action.STALE)
    assert (loaded.kind, loaded.rounds, loaded.rounds_after_match) == ("integration", 2, 5)
    assert loaded.deleted_when_evicted == {"default/j"}
    assert loaded.expected == {"jobs": {}}


def test_names_of_the_file_lead_to_keys() -> None:
    loaded = case({"namespace": "ns"})
    assert (loaded.gangs["job"], loaded.pods["job-0"]) == ("ns/job", "ns/job-0")


def test_fields_not_known_are_named_in_a_notice() -> None:
    loaded = case({"flavour": "sweet"}, nodes=[{"name": "n1", "colour": "red"}])
    assert any("instance.jobs.flavour" in n.text and "instance.nodes.colour" in n.text for n in loaded.snapshot.notices)


@pytest.mark.parametrize(
    ("instance", "field"),
    [
        ({"nodes": [{"gpus": 1}]}, "instance.nodes[0].name"),
        ({"nodes": [{"name": "n", "gpus": -1}]}, "instance.nodes[0].gpus"),
        ({"nodes": [{"name": "n", "gpus": "many"}]}, "instance.nodes[0].gpus"),
        ({"jobs": [{"name": "j"}]}, "instance.jobs[0].queue"),
        ({"queues": "none"}, "instance.queues"),
    ],
)
def test_a_slip_is_named_with_its_field(instance: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        case(**instance)
    assert (caught.value.file, caught.value.field) == ("c.json", field)


def test_an_unknown_action_is_refused_with_the_known_ones() -> None:
    document = {
        "schema": "kai-case/1",
        "name": "c",
        "instance": {"nodes": [], "queues": []},
        "run": {"actions": ["fly"]},
    }
    with pytest.raises(InputError, match="stalegangeviction"):
        load_case(document)


def claims_case(tasks: list[dict[str, Any]], *claims: dict[str, Any], enabled: bool = True) -> CaseFile:
    labels = {"labels": {"kai.scheduler/queue": "q"}, "device_class": GPU_CLASS}
    dra = {
        "device_classes": [GPU_CLASS],
        "resource_slices": [{"name": "s", "node": "n1", "device_class": GPU_CLASS, "devices": 2}],
        "resource_claims": [labels | claim for claim in claims],
    }
    scheduler = {"plugins": [{"name": "predicates"}], "dynamic_resources_enabled": enabled}
    return case({"tasks": tasks}, nodes=[{"name": "n1"}], dra=dra, scheduler=scheduler)


def test_a_claim_of_one_pod_is_a_request_of_whole_gpus() -> None:
    loaded = claims_case([{"id": "job-0", "resource_claims": ["c"]}], {"name": "c", "count": 2}).snapshot
    assert loaded.nodes[0].gpus == 2
    assert loaded.gangs[0].pods[0].gpu == GpuRequest(2)


def test_an_allocated_claim_tells_the_devices() -> None:
    results = [{"pool": "n1", "device": "1"}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"name": "job-0"}]}
    task = {"id": "job-0", "state": "Running", "node": "n1", "resource_claims": ["c"]}
    assert claims_case([task], {"name": "c", "status": status}).snapshot.gangs[0].pods[0].devices == (1,)


def test_a_shared_claim_is_paid_once_and_holds_the_others_to_its_node() -> None:
    status = {
        "allocation": {"devices": {"results": [{"pool": "n1", "device": "0"}]}},
        "reservedFor": [{"name": "job-0"}, {"name": "job-1"}],
    }
    tasks = [
        {"id": "job-0", "state": "Running", "node": "n1", "resource_claims": ["c"]},
        {"id": "job-1", "resource_claims": ["c"]},
    ]
    snapshot = claims_case(tasks, {"name": "c", "status": status}).snapshot
    runs, waits = snapshot.gangs[0].pods
    # Somebody waits for it, so its device stays taken whoever leaves; who runs with it pays for it.
    assert [(pod.node, pod.devices) for pod in snapshot.foreign] == [("n1", (0,))]
    assert (runs.quota_gpu_milli, waits.quota_gpu_milli) == (1000, 0)
    assert (runs.gpu, waits.gpu) == (GpuRequest(), GpuRequest())
    assert waits.constraints.node_terms == (((Requirement("metadata.name", "In", ("n1",)),),),)


@pytest.mark.parametrize(("reserved", "blocked"), [(255, False), (256, True)])
def test_a_claim_has_at_most_256_consumers(reserved: int, blocked: bool) -> None:
    status = {"reservedFor": [{"name": f"pod-{i}"} for i in range(reserved)]}
    loaded = claims_case([{"id": "job-0", "resource_claims": ["c"]}], {"name": "c", "status": status})
    assert bool(loaded.snapshot.gangs[0].pods[0].constraints.blocked) is blocked


def test_a_claim_of_another_queue_and_a_missing_claim_block_their_pods() -> None:
    tasks = [{"id": "job-0", "resource_claims": ["c"]}, {"id": "job-1", "resource_claims": ["lost"]}]
    loaded = claims_case(tasks, {"name": "c", "labels": {"kai.scheduler/queue": "other"}})
    first, second = loaded.snapshot.gangs[0].pods
    assert "queue 'other'" in first.constraints.blocked[0]
    assert "not found" in second.constraints.blocked[0]


def test_claims_are_not_considered_where_the_feature_is_off() -> None:
    loaded = claims_case([{"id": "job-0", "resource_claims": ["c"]}], {"name": "c"}, enabled=False)
    assert loaded.snapshot.gangs[0].pods[0].gpu == GpuRequest()
    assert any("dynamic resources are off" in notice.text for notice in loaded.snapshot.notices)


@pytest.mark.slow
def test_every_shipped_case_loads_without_anything_set_aside_and_survives_the_native_format() -> None:
    files = sorted((INSTANCES / "cases").glob("*/*.json"))
    assert len(files) == 297
    for file in files:
        loaded = load_instance(file)
        assert loaded.case is not None
        assert not [n for n in loaded.snapshot.notices if n.kind == "set-aside"], file
        assert again(native_from_snapshot(loaded.snapshot)) == loaded.snapshot, file


@pytest.mark.slow
def test_the_largest_benchmark_has_its_size() -> None:
    loaded = load_instance(INSTANCES / "bench" / "ReclaimManySingleGPUJobsFullCycle_500Node.json.zst")
    assert (len(loaded.snapshot.nodes), len(loaded.snapshot.gangs)) == (500, 8000)
