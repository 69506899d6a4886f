"""Another package adds a rule and its check, a constraint family, a stage, an importer and a pod grouper.

Nothing of ours is changed. ``example_plugin`` is installed as pip would leave it: its code and its dist-info on the
path of a fresh interpreter.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

PLUGIN = Path(__file__).parent / "example_plugin"
INSTANCES = Path(__file__).parents[2] / "instances"


def install(folder: Path, points: str) -> dict[str, str]:
    """The environment of a process for which the package is installed with the entry ``points``."""
    info = folder / "site" / "lab_rules-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(info.parent), str(PLUGIN)])}


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    return install(tmp_path, (PLUGIN / "entry_points.txt").read_text())


def kai_solver(*arguments: object, env: dict[str, str] | None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kai_solver", *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


def plan_of(*arguments: object, env: dict[str, str]) -> dict[str, Any]:
    done = kai_solver("solve", *arguments, "--json", "--quiet", env=env)
    assert done.returncode == 0, done.stderr
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def write_model(folder: Path, text: str) -> Path:
    path = folder / "lab.toml"
    path.write_text(f'extends = "deterministic"\nname = "lab"\n{text}')
    return path


def crowded(folder: Path) -> Path:
    """A queue over its share fills two nodes, one of them quiet; a gang of four GPUs that is entitled to them arrives.

    Its victims cost the same on both nodes; the younger ones, who leave first, are on the quiet one.
    """
    tenant = {"count": 8, "queue": "borrowers", "created": "1h", "last_start": "20m"}
    young = tenant | {"created": "30m"}
    document = {
        "format": "kai-solver/v1",
        "nodes": [
            {"name": "a-quiet", "gpus": 8, "labels": {"lab.example/quiet": "yes"}},
            {"name": "b-loud", "gpus": 8},
        ],
        "queues": [{"name": "owners", "quota": 8}, {"name": "borrowers", "quota": 8}],
        "gangs": [
            young | {"name": "a-{i}", "pods": [{"gpus": 1, "running": {"a-quiet": 1}}]},
            tenant | {"name": "l-{i}", "pods": [{"gpus": 1, "running": {"b-loud": 1}}]},
            {"name": "large", "queue": "owners", "pods": [{"gpus": 4}]},
        ],
    }
    return write(folder / "crowded.json", document)


ALL_FAMILIES = (
    'families = ["gang", "subgroup", "capacity", "limit", "quota", "entitlement", "priority", "topology", "units", '
    '"moves", "affinity", "spread", "ports", "placement", "keep-quiet"]\n'
)


@pytest.mark.slow
def test_without_the_package_its_names_are_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path, ALL_FAMILIES)
    done = kai_solver("solve", crowded(tmp_path), "--model", model, env=None)
    assert done.returncode == 2
    assert "'keep-quiet'" in done.stderr


def nodes_of_large(plan: dict[str, Any]) -> list[str]:
    return [bind["node"] for bind in plan["binds"] if bind["gang"] == "default/large"]


@pytest.mark.slow
def test_without_the_package_the_quiet_node_is_disturbed(tmp_path: Path, installed: dict[str, str]) -> None:
    assert nodes_of_large(plan_of(crowded(tmp_path), env=installed)) == ["a-quiet"]


def chained(folder: Path) -> Path:
    """Only the solver finds the room: one pod takes the place of another, and that one goes to what is quiet here."""
    document = yaml.safe_load((INSTANCES / "solver" / "moves-chain-through-a-full-node.yaml").read_text())
    (node,) = (node for node in document["nodes"] if node["name"] == "c")
    node["labels"]["lab.example/quiet"] = "yes"
    return write(folder / "chained.json", document)


@pytest.mark.slow
def test_a_family_of_the_package_binds_the_solver(tmp_path: Path, installed: dict[str, str]) -> None:
    instance = chained(tmp_path)
    free = plan_of(instance, "--model", "deterministic", env=installed)
    assert "c" in {move["to"] for move in free["moves"]}
    bound = plan_of(instance, "--model", write_model(tmp_path, ALL_FAMILIES), env=installed)
    assert (bound["moves"], [entry["gang"] for entry in bound["pending"]]) == ([], ["default/wants-a-whole-h100-node"])


@pytest.mark.slow
def test_a_stage_of_the_package_decides_between_equal_plans(tmp_path: Path, installed: dict[str, str]) -> None:
    stages = '[[stages]]\nname = "disruption"\n[[stages]]\nname = "quiet-pods"\n'
    plan = plan_of(crowded(tmp_path), "--model", write_model(tmp_path, stages), env=installed)
    assert nodes_of_large(plan) == ["b-loud"]
    last = plan["stages"][-1]
    assert (last["name"], last["value"], last["optimal"]) == ("quiet-pods", 0, True)


@pytest.mark.slow
def test_an_importer_of_the_package_reads_its_own_kind(tmp_path: Path, installed: dict[str, str]) -> None:
    instance = write(tmp_path / "lab.json", {"benches": {"left": 8, "right": 4}, "wishes": {"alice": 8, "bob": 4}})
    plan = plan_of(instance, env=installed)
    assert sorted((bind["gang"], bind["node"]) for bind in plan["binds"]) == [
        ("default/alice", "left"),
        ("default/bob", "right"),
    ]


@pytest.mark.slow
def test_without_the_package_its_kind_is_unknown(tmp_path: Path) -> None:
    instance = write(tmp_path / "lab.json", {"benches": {}, "wishes": {}})
    done = kai_solver("solve", instance, env=None)
    assert done.returncode == 2
    assert "is of no known kind" in done.stderr


@pytest.mark.slow
def test_an_importer_that_fails_is_named(tmp_path: Path, installed: dict[str, str]) -> None:
    done = kai_solver("solve", write(tmp_path / "lab.json", {"benches": {"left": 8}, "wishes": 3}), env=installed)
    assert done.returncode == 2
    assert "lab-benches" in done.stderr
    assert "Traceback" not in done.stderr


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "lab", "uid": name, "labels": {"lab.example/campaign": "may"}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
        "status": {"phase": "Pending"},
    }


@pytest.mark.slow
def test_a_grouper_of_the_package_makes_one_gang(tmp_path: Path, installed: dict[str, str]) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "0"}}}
    instance = write(tmp_path / "pods.json", {"apiVersion": "v1", "kind": "List", "items": [node, pod("a"), pod("b")]})
    plan = plan_of(instance, env=installed)
    assert [entry["gang"] for entry in plan["pending"]] == ["lab/campaign-may"]


# -- a whole rule --------------------------------------------------------------------------------------------------


def sealed(folder: Path, *, gangs: int) -> Path:
    """Three nodes of one GPU, the first one sealed, and ``gangs`` of one GPU."""
    nodes = [{"name": name, "gpus": 1} for name in "abc"]
    document = {
        "format": "kai-solver/v1",
        "nodes": [nodes[0] | {"labels": {"lab.example/sealed": "yes"}}, *nodes[1:]],
        "queues": [{"name": "q", "quota": 9}],
        "gangs": [{"name": "g-{i}", "count": gangs, "queue": "q", "pods": [{"gpus": 1}]}],
    }
    return write(folder / "sealed.json", document)


def used(plan: dict[str, Any]) -> list[str]:
    return sorted(bind["node"] for bind in plan["binds"])


@pytest.mark.slow
@pytest.mark.parametrize("model", ["greedy-only", "default"])
def test_greedy_and_solver_keep_a_rule_of_the_package(tmp_path: Path, installed: dict[str, str], model: str) -> None:
    plan = plan_of(sealed(tmp_path, gangs=3), "--model", model, env=installed)
    assert used(plan) == ["b", "c"]
    (pending,) = plan["pending"]
    assert pending["proof"]["state"] == "proven"
    assert "1 node(s) were sealed" in pending["message"]


@pytest.mark.slow
def test_the_solver_keeps_a_rule_of_the_package_where_only_it_finds_room(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    document = json.loads(chained(tmp_path).read_text())
    (node,) = (node for node in document["nodes"] if node["name"] == "c")
    node["labels"]["lab.example/sealed"] = "yes"
    plan = plan_of(write(tmp_path / "sealed.json", document), "--model", "deterministic", env=installed)
    assert (plan["moves"], len(plan["pending"])) == ([], 1)


@pytest.mark.slow
def test_the_checker_refuses_a_plan_that_breaks_a_rule_of_the_package(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    instance, plan = sealed(tmp_path, gangs=3), tmp_path / "plan.json"
    bare = plan_of(instance, env={**os.environ})
    assert used(bare) == ["a", "b", "c"]
    done = kai_solver("validate", instance, write(plan, bare), env=installed)
    assert done.returncode == 1
    assert "a, which is sealed" in done.stdout + done.stderr


@pytest.mark.slow
def test_a_rule_of_the_package_is_named_as_what_blocks_and_as_cure(tmp_path: Path, installed: dict[str, str]) -> None:
    plan = plan_of(sealed(tmp_path, gangs=3), env=installed)
    gang = plan["pending"][0]["gang"]
    done = kai_solver("explain", sealed(tmp_path, gangs=3), gang, env=installed)
    assert "1 nodes are sealed" in done.stdout, done.stdout + done.stderr
    assert "no node sealed" in done.stdout


@pytest.mark.parametrize(
    ("group", "more"),
    [
        ("kai_solver.rules", ""),
        ("kai_solver.checks", ""),
        ("kai_solver.constraint_families", 'families = ["gang", "lab"]\n'),
        ("kai_solver.objective_stages", '[[stages]]\nname = "lab"\n'),
    ],
)
def test_a_package_that_cannot_be_loaded_stops_a_solve_before_it_decides(tmp_path: Path, group: str, more: str) -> None:
    env = install(tmp_path, f"[{group}]\nlab = lab_rules:no_such_part\n")
    done = kai_solver("solve", crowded(tmp_path), "--model", write_model(tmp_path, more), "--json", "--quiet", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"'lab' in {group} of package lab-rules cannot be loaded: AttributeError" in done.stderr
    assert "Mend or remove the package" in done.stderr
