"""Every command through typer's runner: what it prints, what it writes, how it ends."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kai_solver.cli.app import app
from kai_solver.cli.inputs import parse_span_s
from kai_solver.domain import Eviction, Plan
from kai_solver.errors import SolverError
from kai_solver.instances_io.planfile import plan_to_document
from tests.support.engines import GREEDY

QUEUE = {"quota": 2, "limit": -1, "over_quota_weight": 1}


def job(name: str, queue: str, *nodes: str, gpus: float = 1, **more: Any) -> dict[str, Any]:
    tasks = [
        {"id": f"{name}-{i}", "state": "Running" if node else "Pending"} | ({"node": node} if node else {})
        for i, node in enumerate(nodes)
    ]
    request = {"gpus": gpus, "cpu_cores": 1, "memory_bytes": 10**9}
    base = {"name": name, "namespace": "ns", "queue": queue, "priority": 50, "min_available": len(nodes)}
    return base | {"age_minutes": 5, "task_request": request, "tasks": tasks} | more


def write_case(folder: Path, *, name: str = "case.json", **more: Any) -> Path:
    """Two nodes of two GPUs full of queue ``rich``; ``poor`` wants one GPU, and nobody can have three on one node."""
    node = {"gpus": 2, "cpu_cores": 100, "memory_bytes": 10**11, "max_pods": 110}
    root = {"name": "root", "gpu": {"quota": -1, "limit": -1, "over_quota_weight": -1}}
    document: dict[str, Any] = {
        "schema": "kai-case/1",
        "name": "reclaim one",
        "instance": {
            "nodes": [{"name": n} | node for n in ("a", "b")],
            "queues": [root, *({"name": q, "parent": "root", "gpu": QUEUE} for q in ("rich", "poor"))],
            "jobs": [
                *(job(f"old{i}", "rich", "ab"[i % 2], age_minutes=9 - i) for i in range(4)),
                job("new", "poor", ""),
                job("huge", "poor", "", gpus=3),
            ],
        },
        "run": {"kind": "single_session", "actions": ["allocate", "reclaim"]},
        "expected": {"jobs": {"new": {"status": "Pipelined"}, "huge": {"status": "Pending"}}},
    }
    path = folder / name
    path.write_text(json.dumps(document | more))
    return path


@pytest.fixture
def case(tmp_path: Path) -> Path:
    return write_case(tmp_path)


def run(*arguments: object) -> Result:
    wide = {"COLUMNS": "1000"}  # pytest-xdist gives its workers a width of its own
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=wide)


def test_solve_says_what_binds_what_is_evicted_for_which_gang_and_what_waits(case: Path) -> None:
    done = run("solve", case, *GREEDY)
    assert done.exit_code == 0
    for words in (
        "2 nodes, 4 GPUs, 3 queues, 6 gangs (4 pods running, 2 waiting)",
        "allocate, reclaim (from the instance's own actions)",
        "1 pod bound, 0 moved, 1 evicted; 1 gang pending",
        "when capacity there is released",
        "reclaim  ns/new",
        "ns/huge: ",
        "evicted-pods",
        "decide",
    ):
        assert words in done.stdout, words


@pytest.mark.slow
def test_progress_goes_to_standard_error_in_plain_lines(case: Path) -> None:
    done = run("solve", case, *GREEDY)
    assert " s  build\n" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert run("solve", case, *GREEDY, "--quiet").stderr == ""


def test_solve_prints_and_writes_the_plan_document(case: Path, tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    done = run("solve", case, *GREEDY, "--json", "--output", output, "--seed", 7)
    assert json.loads(done.stdout) == json.loads(output.read_text())
    plan = json.loads(done.stdout)
    assert plan["seed"] == 7
    assert [(e["reason"], e["for"]) for e in plan["evictions"]] == [("reclaim", ["ns/new"])]


def test_actions_override_the_ladder(case: Path) -> None:
    plan = json.loads(run("solve", case, *GREEDY, "--json", "--actions", "allocate").stdout)
    assert plan["evictions"] == []
    assert len(plan["pending"]) == 2


def test_a_written_plan_is_valid_and_one_for_another_cluster_is_not(case: Path, tmp_path: Path) -> None:
    output = tmp_path / "plan.json.zst"
    assert run("solve", case, *GREEDY, "--output", output).exit_code == 0
    good = run("validate", case, output)
    assert (good.exit_code, good.stdout) == (0, f"{output}: every rule holds\n")
    bad = run("validate", write_case(tmp_path, name="less.json", run={"actions": ["allocate"]}), output)
    assert bad.exit_code == 1
    assert "1 violation" in bad.stdout


def test_violations_are_printed_as_json(case: Path, tmp_path: Path) -> None:
    plan = json.loads(run("solve", case, *GREEDY, "--json").stdout)
    plan["binds"][0]["node"] = "nowhere"
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(plan))
    done = run("validate", case, path, "--json")
    assert done.exit_code == 1
    assert {"rule", "object", "text"} == set(json.loads(done.stdout)["violations"][0])


def test_an_instance_alone_is_linted(case: Path, tmp_path: Path) -> None:
    done = run("validate", case)
    assert done.exit_code in (0, 1)
    lost = write_case(tmp_path, name="lost.json")
    lost.write_text(lost.read_text().replace('"queue": "poor"', '"queue": "nowhere"'))
    found = run("validate", lost)
    assert found.exit_code == 1
    assert "nowhere" in found.stdout


def test_explain_names_queues_nodes_and_what_would_have_to_change(case: Path) -> None:
    done = run("explain", case, "ns/huge", *GREEDY)
    assert done.exit_code == 0
    told = (
        "pending in queue poor",
        "Insufficient nvidia.com/gpu",
        "What would have to change",
        "fair share",
        "Tried out",
    )
    for words in told:
        assert words in done.stdout, words
    [document] = json.loads(run("explain", case, "huge", *GREEDY, "--json").stdout)["gangs"]
    assert (document["gang"], document["state"]) == ("ns/huge", "pending")


def test_explain_says_that_it_tries_something_out(case: Path) -> None:
    """Each change takes up to a budget, in which nothing else is printed."""
    loud = [option for option in GREEDY if option != "--quiet"]
    assert "trying out change 1, 7 s at most" in run("explain", case, "ns/huge", *loud, "--budget", "7s").stderr


def test_explain_says_who_named_the_queue(tmp_path: Path) -> None:
    limits = {"nvidia.com/gpu": 1}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "labels": {"project": "team"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}
    file = tmp_path / "cluster.yaml"
    file.write_text(json.dumps([node, pod]))
    done = run("explain", file, *GREEDY)
    assert "queue team by: label project" in done.stdout
    assert json.loads(run("explain", file, *GREEDY, "--json").stdout)["gangs"][0]["queue_source"] == "label project"


def test_explain_names_the_slowest_link_of_a_gang_and_a_better_set(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "format: kai-solver/v1\nnodes: [{name: n0, gpus: 8, gpuTopology: dgx1-v100-8}]\nqueues: [{name: q, quota: 8}]\n"
        "gangs: [{name: g, queue: q, pods: [{gpus: 2, status: Running, node: n0, devices: [0, 1]}]}]\n"
    )
    done = run("explain", file, "g", *GREEDY)
    assert "25 GB/s over NV1 between GPUs 0 and 1 of n0 (pod g-0); 50 GB/s over NV2 on n0 now" in done.stdout
    link = json.loads(run("explain", file, "g", *GREEDY, "--json").stdout)["gangs"][0]["link"]
    assert (link["node"], link["gpus"], link["gb_s"], link["better"][0]["gb_s"]) == ("n0", [0, 1], 25, 50)


def test_explain_without_a_gang_explains_all_that_are_pending(case: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    run("solve", case, *GREEDY, "--output", plan)
    documents = json.loads(run("explain", case, "--plan", plan, "--json").stdout)["gangs"]
    assert [document["gang"] for document in documents] == ["ns/huge"]


def test_explain_of_a_victim_says_for_which_gang(case: Path) -> None:
    plan = json.loads(run("solve", case, *GREEDY, "--json").stdout)
    done = run("explain", case, plan["evictions"][0]["gang"], *GREEDY)
    assert "evicted in queue rich" in done.stdout
    assert "was preempted by workload ns/new" in done.stdout


def test_fairshare_prints_the_tree(case: Path) -> None:
    done = run("fairshare", case)
    assert done.exit_code == 0
    assert [row.split()[0] for row in done.stdout.splitlines() if "gpu" in row] == ["root", "poor", "rich"]
    by_name = {entry["name"]: entry for entry in json.loads(run("fairshare", case, "--json").stdout)["queues"]}
    assert by_name["rich"]["fair_share"]["gpu"] == 2000
    assert by_name["rich"]["allocated"]["gpu"] == 4000


@pytest.mark.parametrize("name", ["native.json", "native.yaml", "native.json.zst", "snapshot.zip", "objects.yaml"])
def test_what_convert_writes_is_solved_to_the_same_effect(case: Path, tmp_path: Path, name: str) -> None:
    output = tmp_path / name
    form = ["--to", "kubernetes"] if name == "objects.yaml" else []
    converted = run("convert", case, output, *form)
    assert converted.exit_code == 0, converted.stderr
    solved = run("solve", output, *GREEDY, "--json", "--actions", "allocate,reclaim")
    assert solved.exit_code == 0, solved.stderr
    plan = json.loads(solved.stdout)
    assert (len(plan["binds"]), len(plan["evictions"]), len(plan["pending"])) == (1, 1, 1)


def test_convert_replaces_a_file_only_with_force(case: Path, tmp_path: Path) -> None:
    output = tmp_path / "native.json"
    output.write_text("mine")
    refused = run("convert", case, output)
    assert refused.exit_code == 2
    assert "exists" in refused.stderr
    assert "--force" in refused.stderr
    assert output.read_text() == "mine"
    assert run("convert", case, output, "--force").exit_code == 0
    assert json.loads(output.read_text())["format"] == "kai-solver/v1"


@pytest.mark.parametrize("name", ["native.txt", "native", "snapshot.zip.zst"])
def test_convert_refuses_a_name_that_says_no_form(case: Path, tmp_path: Path, name: str) -> None:
    refused = run("convert", case, tmp_path / name)
    assert refused.exit_code == 2
    assert "does not say in which form to write" in refused.stderr
    assert not (tmp_path / name).exists()


def test_kubernetes_objects_in_json_are_a_list(case: Path, tmp_path: Path) -> None:
    output = tmp_path / "objects.json"
    assert run("convert", case, output, "--to", "kubernetes").exit_code == 0
    assert json.loads(output.read_text())["kind"] == "List"
    assert run("validate", output).exit_code == 0


def test_an_instance_comes_through_a_pipe(case: Path) -> None:
    done = CliRunner().invoke(app, ["solve", "-", *GREEDY, "--json"], input=case.read_text())
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["format"] == "kai-plan/v1"


def test_anonymized_names_are_gone(case: Path, tmp_path: Path) -> None:
    output = tmp_path / "hidden.json"
    assert run("convert", case, output, "--anonymize").exit_code == 0
    text = output.read_text()
    assert not [name for name in ("rich", "poor", "huge", "old0") if f'"{name}"' in text]
    assert json.loads(run("solve", output, *GREEDY, "--json", "--actions", "allocate,reclaim").stdout)["evictions"]


def test_times_can_be_moved_to_now(case: Path, tmp_path: Path) -> None:
    before, moved, kept = time.time(), tmp_path / "moved.json", tmp_path / "kept.json"
    assert run("convert", case, moved, "--as-of-now").exit_code == 0
    assert run("convert", case, kept).exit_code == 0
    assert before - 1 <= json.loads(moved.read_text())["now"] <= time.time() + 1
    assert json.loads(kept.read_text())["now"] < before - 3600


def test_conformance_prints_a_line_a_case_and_totals(tmp_path: Path) -> None:
    write_case(tmp_path, name="good.json")
    write_case(tmp_path, name="bad.json", expected={"jobs": {"new": {"status": "Binding"}}})
    (tmp_path / "broken.json").write_text('{"schema": "kai-case/1", "expected": ')
    (tmp_path / "other.json").write_text("{}")
    done = run("conformance", tmp_path, *GREEDY)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert [line.split(": ")[0].split() for line in lines[:-1]] == [
        ["different", "bad.json"],
        ["different", "broken.json"],
        ["as", "expected", "good.json"],
    ]
    assert lines[-1] == "3 cases: 1 as expected, 0 better, 2 different"


def test_conformance_of_good_cases_ends_with_0_and_gives_json(tmp_path: Path) -> None:
    write_case(tmp_path)
    done = run("conformance", tmp_path, *GREEDY, "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["totals"] == {"as expected": 1, "better": 0, "different": 0}
    assert run("conformance", tmp_path, *GREEDY).stdout.splitlines()[-1].startswith("1 case: 1 as expected")
    assert document["cases"][0]["verdict"] == "as expected"


def test_conformance_prints_what_a_case_says_of_kai_and_of_us(tmp_path: Path) -> None:
    statement = {"kai": "Waits.", "known_by": "read", "reference": "4.3 row 1", "ours": "Places it."}
    write_case(tmp_path, name="good.json", statement=statement)
    bad = {"jobs": {"new": {"status": "Binding"}}}
    write_case(tmp_path, name="hard.json", statement=statement | {"needs_solver": True}, expected=bad)
    lines = run("conformance", tmp_path, *GREEDY, "-v").stdout.splitlines()
    assert [line.strip() for line in lines[:3]] == [
        "as expected good.json",
        "- KAI (read, 4.3 row 1): Waits.",
        "- ours: Places it.",
    ]
    assert lines[3].startswith("different   hard.json (needs the solver): new-0 is Pipelined")
    document = json.loads(run("conformance", tmp_path, *GREEDY, "--json").stdout)
    assert [case["statement"]["needs_solver"] for case in document["cases"]] == [False, True]


@pytest.mark.slow
def test_bench_prints_a_table_csv_and_json_and_judges_peers(case: Path, tmp_path: Path) -> None:
    tasks = {f"{name}-0": {"status": "Pipelined"} for name in ("new", "huge")}
    peer = {"summary": {"tasks_evicted": 0, "tasks_moved": 0}, "tasks": tasks}
    (tmp_path / "case.kai-better.json").write_text(json.dumps(peer))
    arguments = ["bench", case, "--models", "greedy-only", "--budget", "60s"]
    done = run(*arguments, "--check-peers")
    assert done.exit_code == 1
    assert "kai-better places 2 gangs" in done.stderr
    assert "case  " in done.stdout
    csv = run(*arguments, "--csv", "--quiet").stdout.splitlines()
    assert len(csv) == 2
    assert {"command", "instance", "model", "seed"} <= set(csv[0].split(","))


@pytest.mark.parametrize(("text", "seeds"), [("3", (3,)), ("1,2,5", (1, 2, 5)), ("1..3", (1, 2, 3))])
def test_seeds_are_one_a_list_or_a_range(text: str, seeds: tuple[int, ...]) -> None:
    from kai_solver.cli.bench import parse_seeds

    assert parse_seeds(text) == seeds


def test_models_are_listed_and_shown() -> None:
    assert "greedy-only" in run("models", "list").stdout
    shown = run("models", "show", "default").stdout
    assert "ladder" in shown
    assert "search.workers" in shown


BAD = {
    "no such file": "solve {folder}/absent.json",
    "noise": "solve {folder}/noise.json",
    "no such model": "solve {case} --model nobody",
    "no such action": "solve {case} --actions allocate,steal",
    "no budget": "solve {case} --budget soon",
    "zero budget": "solve {case} --budget 0s",
    "unwritable": "solve {case} --model greedy-only --quiet --output {folder}/no/plan.json",
    "no such gang": "explain {case} nobody --model greedy-only --quiet",
    "no such plan": "validate {case} {folder}/plan.json",
    "not a plan": "validate {case} {case}",
    "no cases": "conformance {folder}/absent",
    "no seeds": "bench {case} --seeds 5..1",
    "no instances": "bench {folder}/absent",
}


@pytest.mark.parametrize("command", BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_exit_code_2(case: Path, command: str) -> None:
    (case.parent / "noise.json").write_bytes(b"\x00\xff" * 1000)
    done = run(*command.format(case=case, folder=case.parent).split())
    assert done.exit_code == 2
    assert done.stderr.startswith("kai-solver: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.output


@pytest.mark.parametrize("command", ["explain {case}", "topology {case}", "topology {case} --node a"])
def test_a_plan_of_another_instance_is_refused(case: Path, tmp_path: Path, command: str) -> None:
    plan = plan_to_document(Plan(evictions=(Eviction("n/nobody", "n/gone", "a", "preempt"),)))
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = run(*command.format(case=case).split(), "--plan", tmp_path / "plan.json")
    assert done.exit_code == 2
    assert "plan.json: is the plan of another instance: this one has no pod n/nobody" in done.stderr


@pytest.mark.parametrize("place", ["no/plan.json", "."])
def test_a_place_where_no_plan_can_be_is_refused_before_anything_is_solved(
    case: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("kai_solver.engine.Engine.cycle", lambda *_, **__: pytest.fail("it was solved"))
    done = run("solve", case, *GREEDY, "--output", case.parent / place)
    assert done.exit_code == 2
    assert "Name a writable place" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_failing_engine_is_exit_code_3_and_one_line(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SolverError("the child is gone")

    monkeypatch.setattr("kai_solver.engine.Engine.cycle", fail)
    done = run("solve", case, *GREEDY, "--quiet")
    assert (done.exit_code, done.stderr) == (3, "kai-solver: the child is gone\n")


def test_a_bug_is_exit_code_3_and_shows_its_traceback_only_on_demand(
    case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("kai_solver.engine.Engine.cycle", fail)
    done = run("solve", case, *GREEDY, "--quiet")
    assert done.exit_code == 3
    assert "internal error: ZeroDivisionError" in done.stderr
    monkeypatch.setenv("KAI_SOLVER_DEBUG", "1")
    assert isinstance(run("solve", case, *GREEDY, "--quiet").exception, ZeroDivisionError)


def test_names_with_control_characters_and_markup_reach_nothing_raw(case: Path) -> None:
    case.write_text(case.read_text().replace("huge", "h\\u001b[31m[bold]"))
    done = run("solve", case, *GREEDY, "--quiet")
    assert done.exit_code in (0, 2)
    assert "\x1b" not in done.output


def test_a_limit_of_the_input_can_be_raised_and_lowered(tmp_path: Path) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text("format: kai-solver/v1\nnodes: [{name: n, labels: {a: b}}]\nqueues: [{name: q}]\n")
    assert run("fairshare", file, "--input-limit", "depth=4").exit_code == 0
    refused = run("fairshare", file, "--input-limit", "depth=2")
    assert refused.exit_code == 2
    assert "deep" in refused.output


@pytest.mark.parametrize("limit", ["width=3", "depth", "depth=much", "bytes=0"])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, limit: str) -> None:
    refused = run("fairshare", tmp_path / "missing.yaml", "--input-limit", limit)
    assert refused.exit_code == 2
    assert f"--input-limit: {limit!r} is not a limit. Write bytes=4Gi" in refused.output


def test_explain_says_where_no_change_that_was_tried_is_enough() -> None:
    done = run("explain", Path(__file__).parents[2] / "instances" / "monday-morning.yaml", "flagship", "--quiet")
    lines = [line.strip() for line in done.stdout.splitlines()]
    tried = lines[lines.index("Tried out, one change at a time") + 1 :]
    assert tried[0].startswith("2 more nodes like c-3: it still waits, as it needs 14 pods of 8 GPUs")
    assert tried[1] == "No single change that was tried lets it run."


@pytest.mark.parametrize(("text", "seconds"), [("60", 60.0), ("1m", 60.0), ("0.5", 0.5), ("1h30m", 5400.0)])
def test_how_long_a_command_runs_is_given_in_seconds_or_as_a_duration(text: str, seconds: float) -> None:
    assert parse_span_s(text) == seconds


UTF16 = '{"a": 1}'.encode("utf-16")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.yaml", UTF16, "is text in UTF-16. Save it as UTF-8"),
        ("a.json", b'["x"]', "has text in place of an object"),
        ("a.txt", b"hello", "has text in place of an object"),
        ("a.yaml", b"kind: Pod\napiVersion: v1\nmetadata: {name: p}\n", "has no nodes"),
        ("a.json", b'{"format": "kai-plan/v1"}', "is a plan and not an instance. Give the instance first"),
        (
            "a.yaml",
            b"format: kai-scenario/v1\n",
            "is a scenario and not an instance. Replay it: kai-solver simulate FILE",
        ),
        (
            "a.yaml",
            b"format: kai-bench/v1\n",
            "is a benchmark set and not an instance. Measure it: kai-solver bench FILE",
        ),
    ],
)
@pytest.mark.parametrize("command", ["solve", "validate", "explain"])
def test_what_is_no_instance_is_named_with_what_to_do(
    tmp_path: Path, command: str, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    done = run(command, tmp_path / name)
    assert done.exit_code == 2
    assert words in done.stderr


def test_an_instance_of_which_all_work_was_set_aside_is_no_success(tmp_path: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": "x"}}
    (tmp_path / "a.json").write_text(json.dumps([node, deployment]))
    done = run("solve", tmp_path / "a.json")
    assert done.exit_code == 2
    assert "has nothing to schedule, and Deployment d was set aside" in done.stderr


def test_the_plan_of_another_instance_is_one_line(case: Path, tmp_path: Path) -> None:
    other = Plan(evictions=(Eviction("default/elsewhere", "default/g", "n", "reclaim"),))
    (tmp_path / "plan.json").write_text(json.dumps(plan_to_document(other)))
    done = run("validate", case, tmp_path / "plan.json")
    assert done.exit_code == 2
    assert "is the plan of another instance: this one has no pod default/elsewhere" in done.stderr


def test_a_plan_is_not_written_into_a_file_of_yaml(case: Path, tmp_path: Path) -> None:
    done = run("solve", case, "--output", tmp_path / "plan.yaml")
    assert done.exit_code == 2
    assert "would hold JSON, and its name says YAML" in done.stderr


def test_an_unknown_model_is_refused_before_anything_is_measured(case: Path) -> None:
    done = run("bench", case, "--models", "greedy-only,defualt")
    assert done.exit_code == 2
    assert "[1/" not in done.stderr
