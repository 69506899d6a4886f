"""Workloads from files and generators: what is read, what is set aside, what is refused and how."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kai_solver.errors import InputError
from kai_solver.instances_io.schemas import published_schemas
from kai_solver.lab.history import read_swf
from kai_solver.lab.simulate import Result, Scenario, load_scenario, scenario_of, summarize
from kai_solver.lab.simulate.hopeless import hopeless
from kai_solver.lab.simulate.swf_jobs import split
from tests.support.schemas import violations

Make = Callable[..., Scenario]
Run = Callable[..., Result]
JobOf = Callable[..., dict[str, Any]]

OPENB = Path(__file__).parents[3] / "instances" / "openb"
SCENARIOS = Path(__file__).parents[3] / "instances" / "scenarios"
GOOD = "1 0 5 100 4 -1 -1 8 200 -1 1 3 1 -1 2 -1 -1 -1"


def line(**fields: Any) -> str:
    words = GOOD.split()
    places = {"submit": 1, "runtime": 3, "allocated": 4, "requested": 7, "queue": 14}
    for name, value in fields.items():
        words[places[name]] = str(value)
    return " ".join(words)


def test_swf_lines_are_read_and_comments_skipped() -> None:
    rows, notices = read_swf(f"; Version: 2.2\n\n{GOOD}\n{line(submit=7, allocated=-1)}\n", "log.swf")
    assert [(row.line, row.submit_s, row.runtime_s, row.processors, row.queue) for row in rows] == [
        (3, 0, 100, 4, 2),
        (4, 7, 100, 8, 2),
    ]
    assert notices == []


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("1 2 3", "has 3 fields, not 18"),
        (line(runtime="x"), "holds something that is no number"),
        (line(runtime=-1), "has no run time: -1"),
        (line(submit=-1), "has no submit time: -1"),
        (line(submit="nan"), "has no submit time: nan"),
        (line(runtime="inf"), "has no run time: inf"),
        (line(allocated=0, requested=-1), "has no number of processors"),
        (line(allocated=1e12), "has no number of processors"),
    ],
)
def test_swf_lines_that_tell_too_little_are_set_aside(bad: str, why: str) -> None:
    rows, notices = read_swf(f"{GOOD}\n{bad}\n{GOOD}", "log.swf")
    assert len(rows) == 2
    [notice] = notices
    assert notice.object == "log.swf: line 2"
    assert why in notice.text


def test_swf_that_goes_backwards_or_holds_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"line 2: time goes backwards: submitted at 3, after line 1 at 10"):
        read_swf(f"{line(submit=10)}\n{line(submit=3)}", "log.swf")
    with pytest.raises(InputError, match="has no usable line"):
        read_swf("these are words\n", "log.swf")
    assert read_swf("; only comments\n", "log.swf") == ([], [])


def test_processors_become_pods() -> None:
    assert [list(split(gpus, 8)) for gpus in (1, 8, 20)] == [[1], [8], [8, 8, 4]]


def test_an_swf_log_is_replayed(make: Make, run: Run, tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(f"{line(submit=50, allocated=12)}\n{line(submit=60, queue=9)}\nbroken\n")
    (tmp_path / "s.yaml").write_text(
        """
format: kai-scenario/v1
cluster: {nodes: [{name: "n-{i}", count: 2, gpus: 8}], queues: [{name: a, quota: 8}, {name: b, quota: 8}]}
workloads: [{kind: swf, name: log, file: log.swf, queue: a, queues: {9: b}, stretch: 2, timeScale: 0.5}]
"""
    )
    scenario = load_scenario(tmp_path / "s.yaml")
    first, second = scenario.jobs
    assert [pod.gpu.devices for pod in first.gang.pods] == [8, 4]
    assert (first.arrival_s, first.runtime_s, first.gang.queue) == (0, 200, "a")
    assert (second.arrival_s, second.runtime_s, second.gang.queue) == (5, 200, "b")
    assert [notice.object for notice in scenario.notices] == [f"{tmp_path / 'log.swf'}: line 3"]
    assert summarize(run(scenario)).jobs["done"] == 2


def openb(**changes: Any) -> dict[str, Any]:
    workload = {"kind": "openb", "name": "trace", "pods": "openb_pod_list_default.csv", "queue": "openb-all"}
    return {
        "format": "kai-scenario/v1",
        "cluster": {"openbNodes": "openb_node_list_gpu_node.csv"},
        "workloads": [workload | changes],
    }


def test_openb_runs_at_its_own_times_stretched_to_a_load() -> None:
    scenario = scenario_of(openb(load=0.5, timeScale=0.01, first=500), folder=OPENB)
    gpus = sum(node.gpus for node in scenario.cluster.nodes)
    span_s = scenario.jobs[-1].arrival_s - scenario.jobs[0].arrival_s
    asked = sum(job.gpu_milli / 1000 * job.runtime_s for job in scenario.jobs)
    assert gpus == 6212
    assert len(scenario.jobs) == 500
    assert asked == pytest.approx(0.5 * gpus * span_s)
    texts = [notice.text for notice in scenario.notices]
    assert "897 pods of the list never ran" in texts[0]
    assert "run times are stretched by" in texts[1]


def test_openb_times_are_cut_and_stretched_by_a_factor() -> None:
    plain, cut = (scenario_of(openb(stretch=2, first=300, **more), folder=OPENB).jobs for more in ({}, {"longest": 50}))
    assert max(job.runtime_s for job in plain) > 100
    assert [job.runtime_s for job in cut] == [min(job.runtime_s, 100) for job in plain]


def test_openb_in_the_order_of_an_arrival_file() -> None:
    arrivals = "arrivals_default_seed42.txt.gz"
    document = openb(arrivals=arrivals, process={"process": "regular", "perHour": 3600}, first=50)
    jobs = scenario_of(document, folder=OPENB).jobs
    assert [job.arrival_s for job in jobs] == list(range(50))
    with pytest.raises(InputError, match="a list of arrivals has no times"):
        scenario_of(openb(arrivals=arrivals), folder=OPENB)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("p,1000,1,1,1000,,LS,Running,10,50,5", "time goes backwards: created 10, started 5, deleted 50"),
        ("p,1000,1,1,1000,,LS,Running,10,5,", "time goes backwards"),
        ("p,1000,1,1,1000,,LS,Running,-4,5,", "creation_time"),
        ("p,1000,1,1,1000,,LS,Running,,,", "has no times"),
    ],
)
def test_times_of_openb_that_cannot_be_are_refused(row: str, why: str, tmp_path: Path) -> None:
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time"
    (tmp_path / "pods.csv").write_text(f"{header},scheduled_time\n{row}\n")
    document = openb(pods="pods.csv") | {"cluster": {"nodes": [], "queues": [{"name": "openb-all"}]}}
    with pytest.raises(InputError, match=why):
        scenario_of(document, folder=tmp_path)


def test_a_load_needs_a_cluster_and_some_time(tmp_path: Path) -> None:
    document = openb(load=0.5, first=1)
    with pytest.raises(InputError, match="no load can be reached"):
        scenario_of(document, folder=OPENB)


def test_generators_draw_by_weight_and_within_bounds(make: Make, job: JobOf) -> None:
    drawn = job(
        count=400,
        queue={"a": 3, "b": 1},
        pods={1: 1, 2: 0},
        gpus={0.5: 1, 4: 1},
        arrivals={"process": "poisson", "perHour": 3600, "start": 10},
        runtime={"typical": 60, "sigma": 2, "atLeast": 30, "atMost": 90},
    )
    jobs = make(drawn).jobs
    assert {len(found.gang.pods) for found in jobs} == {1}
    assert {found.gpu_milli for found in jobs} == {500, 4000}
    assert 0.6 < sum(found.gang.queue == "a" for found in jobs) / 400 < 0.9
    assert {found.runtime_s for found in jobs} >= {30.0, 90.0}
    assert jobs[0].arrival_s > 10
    assert 300 < jobs[-1].arrival_s < 520  # 400 arrivals, one a second


def test_services_run_pod_by_pod_and_gangs_do_not(make: Make, job: JobOf) -> None:
    [alone] = make(job(pods=3, gang=False)).jobs
    [together] = make(job(pods=3)).jobs
    minimum = [next(iter(found.gang.root.podsets())).min_member for found in (alone, together)]
    assert minimum == [1, 3]


# -- absurd input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["greedy-only", "kube-default"])
def test_no_nodes_no_arrivals_and_jobs_beyond_the_cluster_give_empty_results(
    make: Make, run: Run, job: JobOf, policy: str
) -> None:
    none = summarize(run(make(job(), cluster={"nodes": [], "queues": [{"name": "a"}]}, duration=60), policy))
    assert (none.utilisation, none.goodput, none.fragmentation, none.jobs["pending"]) == (0, 0, 0, 1)
    quiet = summarize(run(make(duration=60), policy))
    assert (quiet.end_s, quiet.cycles, quiet.decided, quiet.wait_by_size) == (60, 61, 0, ())
    endless = summarize(run(make(), policy))
    assert (endless.end_s, endless.jobs["done"]) == (0, 0)
    large = summarize(run(make(job(gpus=9)), policy))
    assert (large.jobs["pending"], large.wait_by_size[0].never) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"duration": -5}, "duration"),
        ({"period": 0}, "period"),
        ({"releasing": "-3s"}, "releasing"),
        ({"format": "kai-scenario/v9"}, "is not a scenario"),
        ({"sed": 3}, "Did you mean 'seed'"),
        ({"cluster": {"nodes": [{"name": "n", "gpus": -1}]}}, "gpus"),
        ({"cluster": {"file": "a.yaml", "openbNodes": "b.csv"}}, "in more than one way"),
        ({"failures": {"outages": [{"node": "ghost", "at": 1, "lasts": 1}]}}, "unknown node 'ghost'"),
        ({"failures": {"outages": [{"node": "n-0", "at": 1, "lasts": -1}]}}, "lasts"),
        ({"failures": {"random": {"meanBetween": 1, "meanRepair": 1}}}, "random failures need an end"),
    ],
)
def test_scenarios_that_cannot_be_are_refused_by_field(make: Make, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=r"scenario\.yaml") as refused:
        make(**changes)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"queue": "ghost"}, "queue 'ghost' does not exist. Leaf queues: a, b"),
        ({"queue": {"a": 0}}, "has no weight above 0"),
        ({"gpus": 1.5}, "1.5 GPUs are no request"),
        ({"pods": 0}, "pods"),
        ({"count": -1}, "count"),
        ({"count": None}, "nothing says how many jobs arrive"),
        ({"runtime": {"typical": -1}}, "typical"),
        ({"kind": "magic"}, "magic"),
        ({"checkpoint": 0}, "checkpoint"),
        ({"arrivals": {"start": "2h", "end": "1h"}}, "end at 3600 s, before they start at 7200 s"),
        ({"runtime": {"typical": 9, "atLeast": 5, "atMost": 4}}, "no run time is both"),
        ({"kind": "swf"}, "file"),
    ],
)
def test_workloads_that_cannot_be_are_refused_by_field(
    make: Make, job: JobOf, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(InputError) as refused:
        make(job(**changes))
    assert why in str(refused.value)


def test_two_workloads_of_one_name_are_refused(make: Make, job: JobOf) -> None:
    with pytest.raises(InputError, match="two workloads are named 'w'"):
        make(job(), job())


def test_work_of_no_time_is_done_at_once(make: Make, run: Run, job: JobOf) -> None:
    nothing = {"distribution": "fixed", "typical": 0.001, "atLeast": 0, "atMost": 0.001}
    assert summarize(run(make(job(count=3, runtime=nothing)))).jobs["done"] == 3


@pytest.mark.parametrize("file", sorted(SCENARIOS.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_scenarios_load_and_follow_the_schema(file: Path) -> None:
    assert violations(yaml.safe_load(file.read_text()), published_schemas()["scenario.schema.json"]) == []
    assert load_scenario(file).jobs


@pytest.mark.parametrize(
    ("nodes", "changes", "why"),
    [
        (0, {}, "cluster: has no nodes: no job can run"),
        (2, {"gpus": 9}, "workload w: 1 of 1 jobs can never run: a pod asks for 9 GPUs, the largest node has 8 GPUs"),
        (2, {"gpus": {8: 1, 16: 3}, "count": 60}, "a pod asks for 16 GPUs, the largest node has 8 GPUs"),
        (2, {"pods": 3}, "a gang asks for 24 GPUs at once, the cluster has 16 GPUs"),
        (2, {"cpu": 65}, "a pod asks for 65 CPU cores, the largest node has 64 CPU cores"),
        (2, {"count": 0}, "workloads: no job arrives: the tables have no jobs"),
        (2, {"at": 900.0}, "workloads: no job arrives: the tables have no jobs"),
        (2, {"pods": 3, "minPods": 2}, ""),
        (2, {"pods": 2}, ""),
    ],
)
def test_what_can_never_run_is_told(make: Make, job: JobOf, nodes: int, changes: dict[str, Any], why: str) -> None:
    queues = [{"name": "a", "quota": 8}]
    cluster = {"nodes": [{"name": "n-{i}", "count": nodes, "gpus": 8, "cpu": 64}], "queues": queues}
    scenario = make(job(**changes), cluster=cluster, duration=600)
    told = [f"{notice.object}: {notice.text}" for notice in scenario.notices]
    assert len(told) == bool(why)
    assert all(text.endswith(why) for text in told)


def test_what_arrives_after_the_end_is_told(make: Make, job: JobOf) -> None:
    scenario = make(job(count=3))
    late = replace(scenario.jobs[0], arrival_s=600.0)
    told = list(hopeless(scenario.cluster.nodes, [*scenario.jobs, late], 600.0))
    assert [notice.text for notice in told] == ["1 of 4 jobs arrive at the end or later, and never run"]


def test_a_replay_without_nodes_or_jobs_has_empty_results(make: Make, job: JobOf, run: Run) -> None:
    cluster = {"nodes": [], "queues": [{"name": "a", "quota": 8}]}
    for scenario in (make(job(), cluster=cluster, duration=10), make(duration=10)):
        result = run(scenario)
        summary = summarize(result)
        assert (sum(summary.jobs.values()), summary.jobs.get("done", 0)) == (len(scenario.jobs), 0)
        assert (summary.utilisation, summary.goodput) == (0, 0)
        assert not any(row.binds or row.evictions for row in result.records.cycles)
