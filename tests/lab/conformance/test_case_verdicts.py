"""Hand-made cases with hand-made plans: what counts as expected, better and different."""

from typing import Any

import pytest

from kai_solver.domain import Action, Bind, Device, Eviction, Move, Pending, Plan, Proof, Reason, Snapshot, ZoneShare
from kai_solver.instances_io import load_case
from kai_solver.lab.conformance import Case, Outcome, Verdict, judge
from kai_solver.lab.conformance import run_case as run_rounds

Document = dict[str, Any]


def queue(name: str, quota: float = 2) -> Document:
    return {"name": name, "parent": "default", "gpu": {"quota": quota, "limit": -1, "over_quota_weight": quota}}


def job(name: str, *states: tuple[str, str], gpus: float = 1, queue: str = "q", **more: Any) -> Document:
    tasks = [
        {"id": f"{name}-{i}", "state": state} | ({"node": node} if node else {})
        for i, (state, node) in enumerate(states)
    ]
    return {
        "name": name,
        "namespace": "ns",
        "queue": queue,
        "priority": 50,
        "age_minutes": 1,
        "min_available": len(states),
        "task_request": {"gpus": gpus, "cpu_cores": 1, "memory_bytes": 10**9},
        "tasks": tasks,
    } | more


def case_document(jobs: list[Document], expected: Document, **more: Any) -> Document:
    root = {"name": "default", "gpu": {"quota": -1, "limit": -1, "over_quota_weight": -1}}
    node = {"gpus": 2, "gpu_memory_mib": 100, "cpu_cores": 100, "memory_bytes": 10**11, "max_pods": 110}
    return {
        "schema": "kai-case/1",
        "name": "hand-made",
        "instance": {
            "nodes": [{"name": name} | node for name in ("a", "b")],
            "queues": [root, queue("q"), queue("r")],
            "jobs": jobs,
        },
        "run": {"kind": "single_session", "actions": ["allocate", "reclaim"]},
        "expected": expected,
    } | more


def verdict(document: Document, *plans: Plan) -> Verdict:
    """Judge the case with these plans, one a round; further rounds do nothing."""
    return judge(Case.model_validate(document), outcome(document, *plans))


def outcome(document: Document, *plans: Plan) -> Outcome:
    case, left = Case.model_validate(document), list(plans)

    def decide(snapshot: Snapshot, actions: tuple[Action, ...]) -> Plan:
        return left.pop(0) if left else Plan()

    return run_rounds(load_case(document).snapshot, case.run, decide, case.lasting)


def bind(task: str, node: str, *devices: int, milli: int = 1000, nominated: bool = False) -> Bind:
    gang = f"ns/{task.rpartition('-')[0]}"
    return Bind(f"ns/{task}", gang, node, tuple(Device(d, milli) for d in devices), nominated=nominated)


def placing(*binds: Bind) -> Plan:
    admitted = tuple((gang, Action.ALLOCATE) for gang in dict.fromkeys(b.gang for b in binds))
    return Plan(binds=binds, admitted=admitted)


WAITING = [job("j", ("Pending", ""))]


def test_binding_where_expected_is_as_expected() -> None:
    document = case_document(WAITING, {"jobs": {"j": {"status": "Binding", "node": "a", "gpus_required": 1}}})
    assert verdict(document, placing(bind("j-0", "a", 0))).kind == "as expected"


def test_an_equal_node_is_as_good() -> None:
    document = case_document(WAITING, {"jobs": {"j": {"status": "Binding", "node": "a"}}})
    assert verdict(document, placing(bind("j-0", "b", 0))).kind == "as expected"


def test_a_node_with_other_load_is_not_equal() -> None:
    jobs = [*WAITING, job("busy", ("Running", "a"))]
    document = case_document(jobs, {"jobs": {"j": {"status": "Binding", "node": "a"}}})
    found = verdict(document, placing(bind("j-0", "b", 0)))
    assert found.kind == "different"
    assert "j-0 is Binding on b, expected on a" in found.reason


def test_a_node_that_a_pod_asks_for_by_name_is_not_equal() -> None:
    asked = job("picky", ("Pending", ""))
    asked["tasks"][0]["allowed_nodes"] = ["a"]
    document = case_document([*WAITING, asked], {"jobs": {"j": {"status": "Binding", "node": "a"}}})
    assert verdict(document, placing(bind("j-0", "b", 0))).kind == "different"


def test_tasks_expected_on_one_node_may_not_be_spread_over_equal_ones() -> None:
    jobs = [job("j", ("Pending", ""), ("Pending", ""))]
    document = case_document(jobs, {"jobs": {"j": {"status": "Binding", "node": "a"}}})
    assert verdict(document, placing(bind("j-0", "b", 0), bind("j-1", "b", 1))).kind == "as expected"
    assert verdict(document, placing(bind("j-0", "a", 0), bind("j-1", "b", 0))).kind == "different"


def test_pending_where_binding_is_expected_is_different() -> None:
    document = case_document(WAITING, {"tasks": {"j-0": {"status": "Binding"}}})
    assert verdict(document, Plan()).differences == ("j-0 is Pending, expected Binding",)


@pytest.mark.parametrize(("says", "kind"), [(["OverLimit", "at most"], "as expected"), (["at least"], "different")])
def test_words_of_the_reason_are_looked_for(says: list[str], kind: str) -> None:
    document = case_document(WAITING, {"jobs": {"j": {"status": "Pending", "says": says}}})
    waits = Pending("ns/j", Reason.OVER_LIMIT, "at most 2 GPUs", Proof("proven", "rule"))
    assert verdict(document, Plan(pending=(waits,))).kind == kind


def test_a_job_that_is_not_told_to_wait_says_nothing() -> None:
    document = case_document(WAITING, {"jobs": {"j": {"says": ["OverLimit"]}}})
    assert verdict(document, Plan()).differences == ("j-0 waits because of 'nothing', expected to say 'OverLimit'",)


def test_a_plan_that_the_checker_refuses_is_different_even_where_states_match() -> None:
    document = case_document([job("j", ("Pending", ""), gpus=3)], {"jobs": {"j": {"status": "Binding", "node": "a"}}})
    found = verdict(document, placing(bind("j-0", "a", 0, 1, 2)))
    assert found.kind == "different"
    assert found.reason.startswith("the checker refuses the plan")


def test_more_cache_calls_than_allowed_are_different() -> None:
    document = case_document(WAITING, {"max_cache_calls": {"binds": 0}})
    assert verdict(document, placing(bind("j-0", "a", 0))).reason == "round 1: 1 binds, at most 0 expected"


def test_shared_devices_are_compared_as_classes() -> None:
    jobs = [job(name, ("Pending", ""), gpus=0.5) for name in ("j", "k")]
    same = {name: {"status": "Binding", "node": "a", "gpu_groups": ["0"]} for name in ("j", "k")}
    apart = {"j": same["j"], "k": same["k"] | {"gpu_groups": ["1"]}}
    together = placing(bind("j-0", "a", 1, milli=500), bind("k-0", "a", 1, milli=500))
    assert verdict(case_document(jobs, {"jobs": same}), together).kind == "as expected"
    assert "share a GPU, expected otherwise" in verdict(case_document(jobs, {"jobs": apart}), together).reason


def test_sharing_that_the_recorded_outcome_does_not_show_asserts_nothing() -> None:
    jobs = [job(name, ("Pending", ""), gpus=0.5) for name in ("j", "k")]
    expected = {name: {"status": "Binding", "node": "a", "gpu_groups": ["0"]} for name in ("j", "k")}
    at_match = {f"{name}-0": {"status": "Binding", "node": "a", "gpu_groups": [name]} for name in ("j", "k")}
    apart = placing(bind("j-0", "a", 0, milli=500), bind("k-0", "a", 1, milli=500))
    document = case_document(jobs, {"jobs": expected}, actual={"rounds": [], "at_match": at_match})
    assert verdict(document, apart).kind == "as expected"


def test_an_unknown_name_of_the_table_asserts_nothing() -> None:
    document = case_document(WAITING, {"tasks": {"nobody-0": {"status": "Running"}}})
    assert verdict(document, Plan()).kind == "as expected"


def test_requests_are_compared() -> None:
    document = case_document(WAITING, {"jobs": {"j": {"gpus_required": 2}}})
    assert verdict(document, Plan()).reason == "j requests 1 GPUs, expected 2"


@pytest.mark.parametrize(("idle", "kind"), [(1, "as expected"), (2, "different")])
def test_idle_devices_of_a_node_are_compared(idle: int, kind: str) -> None:
    document = case_document(
        [job("busy", ("Running", "a"))], {"nodes": {"a": {"idle_gpus": idle, "releasing_gpus": 0}}}
    )
    assert verdict(document, Plan()).kind == kind


def recorded(**at_match: str) -> Document:
    """KAI's outcome in one round: Releasing tasks ran before."""
    states = {task.replace("_", "-"): {"status": status} for task, status in at_match.items()}
    tasks = {t: s | ({"was": "Running"} if s["status"] == "Releasing" else {}) for t, s in states.items()}
    return {"rounds": [{"tasks": tasks}], "at_match": states}


OVER_SHARE = [job(f"old{i}", ("Running", "ab"[i // 2]), queue="r", age_minutes=9 - i) for i in range(4)] + [
    job("new", ("Pending", ""))
]
RECLAIMED = Plan(
    binds=(Bind("ns/new-0", "ns/new", "b", (Device(1, 1000),), nominated=True, action=Action.RECLAIM),),
    evictions=(Eviction("ns/old3-0", "ns/old3", "b", "reclaim", ("ns/new",)),),
    admitted=(("ns/new", Action.RECLAIM),),
)
KAI_EVICTS_TWO = recorded(new_0="Pipelined", old0_0="Running", old1_0="Running", old2_0="Releasing", old3_0="Releasing")
EXPECTS_TWO = {
    "jobs": {"old2": {"status": "Releasing"}, "old3": {"status": "Releasing"}, "new": {"status": "Pipelined"}}
}


def test_fewer_victims_for_the_same_service_is_better() -> None:
    found = verdict(case_document(OVER_SHARE, EXPECTS_TWO, actual=KAI_EVICTS_TWO), RECLAIMED)
    assert (found.kind, found.rule) == ("better", "fewer-victims")
    assert "1 evicted (1 GPUs), 0 moved, KAI 2 evicted" in found.reason


def test_fewer_victims_without_a_recorded_outcome_is_different() -> None:
    assert verdict(case_document(OVER_SHARE, EXPECTS_TWO), RECLAIMED).kind == "different"


def test_fewer_victims_with_less_served_is_different() -> None:
    assert verdict(case_document(OVER_SHARE, EXPECTS_TWO, actual=KAI_EVICTS_TWO), Plan()).kind == "different"


def test_evicting_what_is_asserted_to_run_is_never_better() -> None:
    expected = EXPECTS_TWO | {"tasks": {"old3-0": {"status": "Running", "node": "b"}}}
    assert verdict(case_document(OVER_SHARE, expected, actual=KAI_EVICTS_TWO), RECLAIMED).kind == "different"


def test_serving_more_with_no_more_disturbed_is_better() -> None:
    document = case_document(WAITING, {"jobs": {"j": {"status": "Pending"}}}, actual=recorded(j_0="Pending"))
    found = verdict(document, placing(bind("j-0", "a", 0)))
    assert (found.kind, found.rule) == ("better", "serves-more")


def test_serving_a_later_job_instead_of_an_earlier_one_is_different() -> None:
    jobs = [job("first", ("Pending", ""), age_minutes=9), job("second", ("Pending", ""))]
    at_match = recorded(first_0="Binding", second_0="Pending")
    document = case_document(jobs, {"jobs": {"first": {"status": "Binding"}}}, actual=at_match)
    assert verdict(document, placing(bind("second-0", "a", 0))).kind == "different"


ROUNDS = {"run": {"kind": "integration", "actions": ["allocate"], "rounds": 2, "rounds_after_match": 1}}


def test_bound_pods_run_in_the_next_round() -> None:
    document = case_document(WAITING, {"jobs": {"j": {"status": "Running", "node": "a"}}}, **ROUNDS)
    assert verdict(document, placing(bind("j-0", "a", 0))).kind == "as expected"


def test_a_change_in_the_further_rounds_is_different() -> None:
    document = case_document(WAITING, {"jobs": {"j": {"status": "Pending"}}}, **ROUNDS)
    found = verdict(document, Plan(), Plan(), placing(bind("j-0", "a", 0)))
    assert found.kind == "different"
    assert "ns/j-0 was Pending and is Running on a 1 round(s) after the match" in found.reason


def test_evicted_pods_wait_again_unless_they_are_to_be_deleted() -> None:
    run = {"kind": "integration", "actions": ["reclaim"], "rounds": 1}
    plain = case_document(OVER_SHARE, {"jobs": {"old3": {"status": "Pending"}}}, run=run)
    assert verdict(plain, RECLAIMED).kind == "as expected"
    jobs = [j | {"delete_when_evicted": True} for j in OVER_SHARE]
    lasting = case_document(jobs, {"jobs": {"old3": {"status": "Releasing", "node": "b"}}}, run=run)
    assert verdict(lasting, RECLAIMED).kind == "as expected"


def test_a_moved_pod_is_pipelined_at_its_new_place() -> None:
    jobs = [job("r", ("Running", "a")), job("s", ("Running", "b")), job("big", ("Pending", ""), gpus=2)]
    expected = {"jobs": {"s": {"status": "Pipelined", "node": "a"}, "big": {"status": "Pipelined", "node": "b"}}}
    document = case_document(jobs, expected, run={"kind": "single_session", "actions": ["consolidation"]})
    devices = (Device(0, 1000), Device(1, 1000))
    plan = Plan(
        binds=(Bind("ns/big-0", "ns/big", "b", devices, nominated=True, action=Action.CONSOLIDATION),),
        moves=(Move("ns/s-0", "ns/s", "b", "a", (Device(1, 1000),), ("ns/big",)),),
        admitted=(("ns/big", Action.CONSOLIDATION),),
    )
    assert verdict(document, plan).kind == "as expected"


def in_zones(expected: Document, **more: Any) -> Document:
    """One pod of three cores waits, on nodes with two zones of four."""
    document = case_document([job("j", ("Pending", ""), gpus=0, qos_class="Guaranteed")], expected, **more)
    document["instance"]["jobs"][0]["task_request"]["cpu_cores"] = 3
    zones = [{"id": f"zone-{i}", "allocatable": {"cpu": "4"}, "available": {"cpu": "4"}} for i in range(2)]
    for node in document["instance"]["nodes"]:
        node["numa"] = {"policy": "single-numa-node", "scope": "pod", "zones": zones}
    return document


def aligned(zone: int) -> Plan:
    return placing(Bind("ns/j-0", "ns/j", "a", zones=(ZoneShare(f"zone-{zone}", (("cpu", 3000),)),)))


@pytest.mark.parametrize("run", [{}, ROUNDS])
def test_numa_zones_of_tasks_and_nodes_are_compared(run: Document) -> None:
    expected = {
        "jobs": {"j": {"node": "a", "numa_zones": [0]}},
        "nodes": {"a": {"numa_zones_available": {"0": {"cpu": "1"}, "1": {"cpu": "4000m"}}}},
    }
    document = in_zones(expected, **run)
    assert verdict(document, aligned(0)).kind == "as expected"
    assert "is in NUMA zones [1], expected [0]" in verdict(document, aligned(1)).reason
    expected["jobs"]["j"]["numa_zones"] = [1]  # type: ignore[index]
    assert "zone 0 has 4000 of cpu left, expected 1000" in verdict(in_zones(expected, **run), aligned(1)).reason


def test_a_zone_that_the_node_does_not_have_is_different() -> None:
    document = in_zones({"nodes": {"a": {"numa_zones_available": {"7": {"cpu": "1"}}}}})
    assert "has no NUMA zone 7" in verdict(document, aligned(0)).reason


def test_without_the_plugin_zones_mean_nothing() -> None:
    document = in_zones({"jobs": {"j": {"status": "Binding", "node": "a"}}})
    document["instance"]["scheduler"] = {"plugins": [{"name": "proportion"}]}
    assert verdict(document, placing(bind("j-0", "a"))).kind == "as expected"


def test_where_reports_are_trusted_zones_start_from_what_was_free() -> None:
    expected = {"nodes": {"a": {"numa_zones_available": {"0": {"cpu": "-1"}}}}}
    document = in_zones(expected)
    zones = [{"id": "zone-0", "allocatable": {"cpu": "4"}, "available": {"cpu": "2"}}]
    document["instance"]["nodes"][0]["numa"]["zones"] = zones
    document["instance"]["scheduler"] = {"plugins": [{"name": "numa", "arguments": {"reconstructAvailable": "false"}}]}
    found = verdict(document, aligned(0))
    assert "of cpu left" not in found.reason
    assert "numa: a: node a: NUMA zone zone-0 has 1000 of cpu too little" in found.reason
