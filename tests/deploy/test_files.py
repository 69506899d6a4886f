"""Dashboard, alerts and examples, as far as no tool is needed; alerts with promtool."""

import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from pydantic import BaseModel

from kai_solver.controller.gauges import ClusterGauges
from kai_solver.domain import OneTenant, Plan, Snapshot, SpareNodes
from kai_solver.engine import Engine
from kai_solver.instances_io import load_instance
from kai_solver.metrics import Metrics
from kai_solver.modelfiles import load_model
from tests.controller.reporting_world import World
from tests.deploy.conftest import CHART, OTHERS, ROOT, model_of
from tests.support.engines import PATIENT_S
from tests.support.schemas import violations

QUEUES = ROOT / "deploy" / "examples" / "queues.yaml"
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
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec:
  selectors: [{cel: {expression: device.driver == "gpu.nvidia.com"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: dra}
spec:
  nodeName: dra
  driver: gpu.nvidia.com
  pool: {name: dra, generation: 1, resourceSliceCount: 1}
  devices:
    - name: gpu-0
      capacity: {memory: {value: 80Gi}}
"""
NODE = """\
---
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{topology.example.org/block: a, topology.example.org/rack: {rack}, kubernetes.io/hostname: {name}, {labels}}}
status:
  allocatable: {{cpu: "64", memory: 512Gi, pods: "110", {devices}}}
  conditions: [{{type: Ready, status: "True"}}]
"""
PRIORITY_CLASS = """\
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: {name}}}
value: {value}
"""
PRIORITY_CLASSES = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
WHOLE = 'nvidia.com/gpu.memory: "81920"', 'nvidia.com/gpu: "8"'
NODES = {
    "n1": ("r1", *WHOLE),
    "n2": ("r2", *WHOLE),
    "n3": ("r2", *WHOLE),
    "n4": ("r3", *WHOLE),
    "dra": ("r3", 'dra: "yes"', 'nvidia.com/gpu: "0"'),
    "mig": ("r3", "nvidia.com/mig.strategy: mixed", 'nvidia.com/mig-1g.10gb: "7"'),
    "pool": ("r3", "kai.scheduler/node-pool: a100", 'nvidia.com/gpu: "8"'),
}
POOL = {
    "apiVersion": "kai.scheduler/v1",
    "kind": "SchedulingShard",
    "metadata": {"name": "a100"},
    "spec": {"partitionLabelValue": "a100"},
}
EXPECTED = re.compile(
    "is a manifest without pods|of other node pools|has no status: no pod that it matches may be evicted"
)
"""Notices of objects that are manifests, or of the other node pool."""

PLACED: dict[str, dict[tuple[str, str], list[str]]] = {
    "disruption-budget": {("vision", f"pg-pod-renderer-{at}"): ["n1"] for at in range(4)},
    "dra-claim": {("vision", "pg-pod-with-a-claim"): ["dra"]},
    "elastic-gang": {("language", "pg-job-elastic"): ["n1"] * 4 + ["n2"] * 4},
    "fraction": {("vision", "pg-pod-notebook-on-half-a-gpu"): ["n1"]},
    "gpu-memory": {("vision", "pg-pod-twenty-gigabytes"): ["n1"]},
    "inference": {("vision", f"pg-pod-model-server-{at}"): [f"n{at + 1}"] for at in range(3)},
    "job-gang": {("vision", "pg-job-gang-of-four"): ["n1"] * 4},
    "jobset": {("language", "pg-jobset-pretraining"): ["mig", "n1", "n1", "n2", "n2"]},
    "leaderworkerset": {
        ("language", f"pg-leaderworkerset-large-model-group-{at}"): [f"n{at + 1}"] * 2 for at in (0, 1)
    },
    "mig": {("vision", "pg-pod-one-slice"): ["mig"]},
    "mpijob": {("vision", "pg-mpijob-simulation"): ["mig", "n1", "n1", "n1", "n1"]},
    "node-pool": {("vision-a100", "pg-pod-in-the-pool"): ["pool"]},
    "notebook": {("vision", "pg-notebook-exploration"): ["n1"]},
    "nvlink-racks": {},
    "pod": {("vision", "pg-pod-one-gpu"): ["n1"]},
    "pytorchjob": {("vision", "pg-pytorchjob-finetune"): ["n1"] * 8},
    "queues": {},
    "rack-topology": {("language", "pg-job-within-one-rack"): ["n2", "n3"]},
    "rayjob": {("vision", "pg-rayjob-tuning"): ["mig", "n1", "n1"]},
}
"""Nodes of the pods of every gang, by queue and name, of each example by itself."""


def example_cluster(folder: Path, *examples: Path, nodes: Iterable[str] = NODES) -> Path:
    """These examples with queues and KAI's priority classes, and nodes of three racks, of a DRA driver and with MIG."""
    rows = [(name, *NODES[name]) for name in nodes]
    text = CLUSTER + "".join(
        NODE.format(name=name, rack=rack, labels=labels, devices=devices) for name, rack, labels, devices in rows
    )
    classes = (PRIORITY_CLASS.format(name=name, value=value) for name, value in PRIORITY_CLASSES.items())
    (folder / "cluster.yaml").write_text(text + "".join(classes))
    for file in {*examples, QUEUES}:
        (folder / file.name).write_text(file.read_text())
    return folder


def plan_of(snapshot: Snapshot) -> Plan:
    with Engine(load_model("greedy-only")) as engine:
        return engine.cycle(snapshot, budget_s=PATIENT_S)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_is_understood_and_placed(file: Path, tmp_path: Path) -> None:
    folder = example_cluster(tmp_path, file)
    if file.stem == "node-pool":
        (folder / "shard.yaml").write_text(yaml.safe_dump(POOL))
    snapshot = load_instance(folder).snapshot
    assert [notice for notice in snapshot.notices if not EXPECTED.search(notice.text)] == []
    plan = plan_of(snapshot)
    assert [pending.gang for pending in plan.pending] == []
    nodes: dict[tuple[str, str], list[str]] = {(gang.queue, gang.name): [] for gang in snapshot.gangs}
    queue_of = {gang.key: (gang.queue, gang.name) for gang in snapshot.gangs}
    for bind in sorted(plan.binds, key=lambda bind: bind.node):
        nodes[queue_of[bind.gang]].append(bind.node)
    assert nodes == PLACED[file.stem]


def test_all_examples_can_be_applied_together(tmp_path: Path) -> None:
    """No two have an object of one name, and a pool's work is left to its scheduler."""
    snapshot = load_instance(example_cluster(tmp_path, *EXAMPLES)).snapshot
    assert [notice for notice in snapshot.notices if not EXPECTED.search(notice.text)] == []
    ruled = {topology.name: (topology.one_tenant, topology.spares) for topology in snapshot.topologies}
    rules = OneTenant("clique", "namespace"), SpareNodes("clique", 2)
    assert ruled == {"data-centre": (None, None), "nvlink": rules}
    wanted = {gang for example, gangs in PLACED.items() if example != "node-pool" for gang in gangs}
    assert {(gang.queue, gang.name) for gang in snapshot.gangs} == wanted


def test_the_elastic_gang_starts_with_what_fits(tmp_path: Path) -> None:
    (elastic,) = (file for file in EXAMPLES if file.stem == "elastic-gang")
    folder = example_cluster(tmp_path, elastic, nodes=["n1"])
    assert len(plan_of(load_instance(folder).snapshot).binds) == 4


@pytest.mark.parametrize(("gpus", "leave"), [(2, 1), (4, 0)])
def test_the_budget_lets_one_pod_leave_at_a_time(gpus: int, leave: int, tmp_path: Path) -> None:
    """A notebook needs the GPUs of one pod, or of two, on a node that the four fill."""
    found = {file.stem: list(yaml.safe_load_all(file.read_text())) for file in EXAMPLES}
    budget, deployment = found["disruption-budget"]
    (notebook,) = found["notebook"]
    budget["status"] = {"currentHealthy": 4, "desiredHealthy": 3, "disruptionsAllowed": 1, "expectedPods": 4}
    notebook["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(gpus)
    template = deployment["spec"]["template"]
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "renderer", "controller": True}
    running = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": f"renderer-{at}", "ownerReferences": [owner]},
            "spec": {**template["spec"], "nodeName": "n1"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for at in range(4)
    ]
    folder = example_cluster(tmp_path, nodes=["n1"])
    (folder / "work.yaml").write_text(yaml.safe_dump_all([budget, deployment, notebook, *running]))
    assert len(plan_of(load_instance(folder).snapshot).evictions) == leave


KNOWN: dict[str, type[BaseModel]] = {
    "Deployment": client.V1Deployment,
    "Job": client.V1Job,
    "Pod": client.V1Pod,
    "PodDisruptionBudget": client.V1PodDisruptionBudget,
    "ResourceClaimTemplate": client.V1ResourceClaimTemplate,
}
OURS = {"Queue": "queues.scheduling.run.ai", "Topology": "topologies.kai.scheduler"}
TEMPLATED = {"JobSet", "LeaderWorkerSet", "MPIJob", "Notebook", "PyTorchJob", "RayJob"}


def pod_templates(value: Any) -> Iterator[dict[str, Any]]:
    """All pod templates somewhere in an object: they are what has a spec with containers."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield value
        for inner in value.values():
            yield from pod_templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pod_templates(inner)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_kubernetes_would_accept_the_example(file: Path) -> None:
    for value in yaml.safe_load_all(file.read_text()):
        if value["kind"] in KNOWN:
            KNOWN[value["kind"]].model_validate(value)
        elif value["kind"] in OURS:
            crd = yaml.safe_load((CHART / "crds" / f"{OURS[value['kind']]}.yaml").read_text())
            assert violations(value, crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]) == []
        else:
            assert value["kind"] in TEMPLATED
            templates = list(pod_templates(value))
            assert templates
            for template in templates:
                client.V1PodTemplateSpec.model_validate(template)


def test_every_example_is_listed() -> None:
    page = (ROOT / "deploy" / "README.md").read_text()
    assert set(re.findall(r"`examples/([\w-]+)\.yaml`", page)) == {file.stem for file in EXAMPLES}
