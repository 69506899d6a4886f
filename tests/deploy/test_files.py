"""Dashboard, alerts and examples, as far as no tool is needed; alerts with promtool."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from pydantic import BaseModel

from kai_solver.controller.gauges import ClusterGauges
from kai_solver.domain import OneTenant, SpareNodes
from kai_solver.engine import Engine
from kai_solver.instances_io import load_instance
from kai_solver.metrics import Metrics
from kai_solver.modelfiles import load_model
from tests.controller.reporting_world import World
from tests.deploy.conftest import CHART, OTHERS, ROOT, model_of
from tests.support.engines import PATIENT_S
from tests.support.schemas import violations

EXAMPLES = sorted((ROOT / "deploy" / "examples").glob("*.yaml"))
ALERTS = CHART / "files" / "alerts.yaml"
PLAIN = sorted((ROOT / "deploy").rglob("*.yaml"))
NOT_YAML = CHART / "templates"


@pytest.mark.parametrize(
    "file", [path for path in PLAIN if NOT_YAML not in path.parents], ids=lambda file: str(file.relative_to(ROOT))
)
def test_every_file_is_yaml_without_a_key_twice(file: Path) -> None:
    assert list(yaml.load_all(file.read_text(), Strict))


class Strict(yaml.SafeLoader):
    """Refuses a key that stands twice, which YAML's rules forbid and PyYAML overlooks."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: a key twice"
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


@pytest.mark.parametrize("file", sorted((ROOT / "deploy" / "manifests").glob("*.yaml")), ids=lambda file: file.name)
def test_plain_manifests_are_what_kubernetes_knows(file: Path) -> None:
    """The same as of the chart's objects, where there is no helm."""
    for value in yaml.safe_load_all(file.read_text()):
        if value["kind"] not in OTHERS:
            model_of(value).model_validate(value)


# -- alerts and dashboard ----------------------------------------------------------------------------------------------


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    return found


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    pages = {rule["annotations"]["runbook"]: rule["alert"] for rule in rules()}
    assert {name: (ROOT / name).read_text().splitlines()[0] for name in pages} == {
        name: f"# {alert}" for name, alert in pages.items()
    }
    assert {str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "runbooks").glob("*.md")} == set(pages)


def test_the_page_of_alerts_lists_them_all() -> None:
    rows = {line for line in (ROOT / "docs" / "alerts.md").read_text().splitlines() if line.startswith("| [")}
    assert rows == {
        f"| [`{rule['alert']}`]({rule['annotations']['runbook'].removeprefix('docs/')}) "
        f"| {rule['labels']['severity']} | {rule['annotations']['summary']} |"
        for rule in rules()
    }


def test_alerts_fire_when_they_should_and_only_then(promtool: Path) -> None:
    command = [str(promtool), "test", "rules", "alerts_test.yaml"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested() -> None:
    tests = yaml.safe_load((Path(__file__).parent / "alerts_test.yaml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules()}


def panels() -> Iterator[dict[str, Any]]:
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    yield from (panel for panel in dashboard["panels"] if panel["type"] != "row")


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in dashboard["panels"])
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_prometheus_understands_every_query(promtool: Path, tmp_path: Path) -> None:
    queries = [all_of(target["expr"]) for panel in panels() for target in panel["targets"]]
    assert len(queries) > 20
    recorded = [{"record": f"test:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    done = subprocess.run(
        [str(promtool), "check", "rules", str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def all_of(query: str) -> str:
    """A query with all variables at ``All``."""
    return query.replace("$namespace", ".*").replace("$queue", ".*")


def test_tables_show_queues_and_what_waits_longest(promtool: Path, tmp_path: Path) -> None:
    """The queries of both tables over what a controller serves: half of a quota of 4 is held, and one pod waits."""
    world, metrics = World(), Metrics()
    world.queue("q", quota=4)
    world.queue("free")
    world.node("a")
    world.pod("runs", gpus=2)
    world.round()
    world.pod("waits", gpus=16)
    ClusterGauges(metrics, lambda: world.engine.memo.problem).cycle(world.cycle())
    served = [sample for family in metrics.registry.collect() for sample in family.samples]
    (since,) = (one for one in served if one.name == "kai_solver_pending_since_timestamp_seconds")
    at_s = int(since.value) + 600
    values: dict[str, list[dict[str, float]]] = {
        "Queues: quota, fair share, use": [
            {"q": 4, "free": -1},
            {"q": 8, "free": 0},
            {"q": 2, "free": 0},
            {"q": 0.004, "free": -1},
            {"q": 0, "free": 0},
            {"q": 0, "free": 0},
        ],
        "Gangs that wait longest": [{since.labels["gang"]: at_s - since.value}],
    }
    labels = {
        "Queues: quota, fair share, use": '{{queue_metadata_name="{0}"}}',
        "Gangs that wait longest": '{{gang="{0}", queue="q", reason="NotEnoughResources"}}',
    }
    tests = [
        {
            "expr": all_of(target["expr"]),
            "eval_time": f"{at_s}s",
            "exp_samples": [{"labels": labels[panel["title"]].format(key), "value": n} for key, n in rows.items()],
        }
        for panel in panels()
        if panel["title"] in values
        for target, rows in zip(panel["targets"], values[panel["title"]], strict=True)
    ]
    assert len(tests) == 7
    series = [
        {
            "series": one.name + "{" + ", ".join(f'{name}="{value}"' for name, value in one.labels.items()) + "}",
            "values": f"{one.value} {one.value}",
        }
        for one in served
        if one.name.startswith("kai_")
    ]
    test = {"interval": f"{at_s}s", "input_series": series, "promql_expr_test": tests}
    file = tmp_path / "tables.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": f"{at_s}s", "tests": [test]}))
    done = subprocess.run(
        [str(promtool), "test", "rules", str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# -- examples ----------------------------------------------------------------------------------------------------------

CLUSTER = """\
{nodes}
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: gpu.nvidia.com}}
spec:
  selectors: [{{cel: {{expression: device.driver == "gpu.nvidia.com"}}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: dra}}
spec:
  nodeName: dra
  driver: gpu.nvidia.com
  pool: {{name: dra, generation: 1, resourceSliceCount: 1}}
  devices:
    - name: gpu-0
      capacity: {{memory: {{value: 80Gi}}}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: train}}
value: 50
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: build-preemptible}}
value: 75
"""
NODE = """\
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels:
    topology.example.org/block: a
    topology.example.org/rack: {rack}
    kubernetes.io/hostname: {name}
status:
  allocatable: {{cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "{gpus}"}}
  conditions: [{{type: Ready, status: "True"}}]
---
"""


@pytest.fixture
def quick_start(tmp_path: Path) -> Path:
    """All examples on five nodes of three racks, one of them with a DRA driver's device."""
    nodes = [("n1", "r1", 8), ("n2", "r2", 8), ("n3", "r2", 8), ("n4", "r3", 8), ("dra", "r3", 0)]
    text = "".join(NODE.format(name=name, rack=rack, gpus=gpus) for name, rack, gpus in nodes).rstrip("-\n")
    (tmp_path / "cluster.yaml").write_text(CLUSTER.format(nodes=text + "\n---"))
    for file in EXAMPLES:
        (tmp_path / file.name).write_text(file.read_text())
    return tmp_path


def test_the_importer_understands_every_example(quick_start: Path) -> None:
    snapshot = load_instance(quick_start).snapshot
    told = [notice for notice in snapshot.notices if "is a manifest without pods" not in notice.text]
    assert told == []
    ruled = {topology.name: (topology.one_tenant, topology.spares) for topology in snapshot.topologies}
    rules = OneTenant("clique", "namespace"), SpareNodes("clique", 2)
    assert ruled == {"data-centre": (None, None), "nvlink": rules}
    assert {(gang.name, gang.queue, len(gang.pods)) for gang in snapshot.gangs} == {
        ("pg-pod-one-gpu", "vision", 1),
        ("pg-pod-notebook-on-half-a-gpu", "vision", 1),
        ("pg-pod-with-a-claim", "vision", 1),
        ("pg-job-gang-of-four", "vision", 4),
        ("pg-pytorchjob-finetune", "vision", 8),
        ("pg-job-within-one-rack", "language", 2),
    }


def test_every_example_runs(quick_start: Path) -> None:
    with Engine(load_model("greedy-only")) as engine:
        plan = engine.cycle(load_instance(quick_start).snapshot, budget_s=PATIENT_S)
    nodes: dict[str, set[str]] = {}
    for bind in plan.binds:
        nodes.setdefault(bind.gang, set()).add(bind.node)
    assert [pending.gang for pending in plan.pending] == []
    assert nodes["default/pg-job-within-one-rack"] == {"n2", "n3"}
    assert nodes["default/pg-pod-with-a-claim"] == {"dra"}


KNOWN: dict[str, type[BaseModel]] = {
    "Pod": client.V1Pod,
    "Job": client.V1Job,
    "ResourceClaimTemplate": client.V1ResourceClaimTemplate,
}
OURS = {"Queue": "queues.scheduling.run.ai", "Topology": "topologies.kai.scheduler"}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_kubernetes_would_accept_the_example(file: Path) -> None:
    for value in yaml.safe_load_all(file.read_text()):
        if value["kind"] in KNOWN:
            KNOWN[value["kind"]].model_validate(value)
        elif value["kind"] in OURS:
            crd = yaml.safe_load((CHART / "crds" / f"{OURS[value['kind']]}.yaml").read_text())
            assert violations(value, crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]) == []
        else:
            assert value["kind"] == "PyTorchJob"
            for replicas in value["spec"]["pytorchReplicaSpecs"].values():
                client.V1PodTemplateSpec.model_validate(replicas["template"])
