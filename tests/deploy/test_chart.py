"""The chart renders what it says, and what a cluster accepts."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from pydantic import BaseModel, ValidationError

from kai_solver.controller.settings import ControllerSettings, load_settings
from tests.deploy.conftest import CHART, OTHERS, ROOT, Render, model_of
from tests.support import manifests
from tests.support.schemas import violations

pytestmark = pytest.mark.timeout(2400)  # whoever comes first builds helm

ALL = {
    "serviceMonitor.enabled": "true",
    "prometheusRule.enabled": "true",
    "dashboard.enabled": "true",
    "replicas": "2",
    "models": '{"mine.toml": "extends = \\"default\\"\\nname = \\"mine\\"\\n"}',
    "shards": '[{"nodePool": ""}, {"nodePool": "a100", "replicas": 1, "settings": {"model": "fast"}}]',
}
NOT_ADMITTING = {"settings.admission.enabled": "false"}
BOTH_WAYS = {"shards": '[{"nodePool": ""}, {"nodePool": "b", "settings": {"binding": "bindrequest"}}]'}


ASKED = ("tokenreviews", "subjectaccessreviews")
"""Made, as the API has it, to ask something; nothing is kept of them."""


def kind(objects: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [found for found in objects if found["kind"] == name]


def test_helm_finds_nothing_wrong(helm: Path) -> None:
    done = subprocess.run(
        [str(helm), "lint", "--strict", str(CHART)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("values", [{}, ALL], ids=["default", "all"])
def test_every_object_is_what_kubernetes_knows(render: Render, values: dict[str, str]) -> None:
    objects = render(**values)
    assert len(objects) > 10
    for value in objects:
        if value["kind"] not in OTHERS:
            model_of(value).model_validate(value)


def test_an_unknown_field_would_be_found(render: Render) -> None:
    (deployment, *_) = kind(render(), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["imagePullPolize"] = "Always"
    with pytest.raises(ValueError, match="imagePullPolize"):
        client.V1Deployment.model_validate(deployment)


@pytest.mark.slow
def test_kubeconform_agrees(render: Render, kubeconform: Path, tmp_path: Path) -> None:
    objects = render(**ALL)
    for value in objects:
        if value["kind"] not in OTHERS:
            schema = model_of(value).model_json_schema(by_alias=True)
            (tmp_path / f"{value['kind'].lower()}.json").write_text(json.dumps(schema))
    (tmp_path / "queue.json").write_text(json.dumps(schema_of("queues.scheduling.run.ai")))
    command = [str(kubeconform), "-strict", "-summary", "-skip", "ServiceMonitor,PrometheusRule"]
    command += ["-schema-location", str(tmp_path / "{{.ResourceKind}}.json")]
    done = subprocess.run(
        command, input=yaml.safe_dump_all(objects), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    valid = re.search(r"Valid: (\d+)", done.stdout)
    assert valid is not None
    assert int(valid[1]) == len(objects) - 2


# -- one Deployment a shard --------------------------------------------------------------------------------------------


def test_each_shard_has_a_deployment_and_settings_that_the_controller_reads(render: Render, tmp_path: Path) -> None:
    objects = render(**ALL)
    names = [found["metadata"]["name"] for found in kind(objects, "Deployment")]
    assert names == ["kai-solver", "kai-solver-a100"]
    files = {
        found["metadata"]["name"]: found["data"]["settings.yaml"]
        for found in kind(objects, "ConfigMap")
        if "settings.yaml" in found["data"]
    }
    assert list(files) == names
    pools = []
    for name, text in files.items():
        path = tmp_path / name
        path.write_text(text)
        settings = load_settings(path)
        pools.append((settings.node_pool, settings.model, settings.namespace, settings.lease_name))
    assert pools == [
        ("", "default", "kai-solver", "kai-solver-kai-scheduler"),
        ("a100", "fast", "kai-solver", "kai-solver-kai-scheduler-a100"),
    ]


def test_settings_that_change_restart_their_shard(render: Render) -> None:
    def checksum(**values: str) -> str:
        (deployment,) = kind(render(**values), "Deployment")
        found: str = deployment["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
        return found

    assert checksum() != checksum(**{"settings.period": "2"})


def test_kais_leases_are_looked_at_by_name_alone(render: Render) -> None:
    (role,) = (
        found for found in kind(render(**ALL), "ClusterRole") if found["metadata"]["name"].endswith("-beside-kai")
    )
    (rule,) = role["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["kai-scheduler", "kai-scheduler-a100"], ["list"])


def test_a_dry_run_stores_its_decisions_on_the_volume_that_is_named(render: Render) -> None:
    stated = {"settings.recording.folder": '"/recording"'}
    claim = {"recording.volume": '{"emptyDir": null, "persistentVolumeClaim": {"claimName": "mine"}}'}

    def mounted(**values: str) -> list[tuple[str, object]]:
        (deployment,) = kind(render(**values), "Deployment")
        pod = deployment["spec"]["template"]["spec"]
        volumes = {one["name"]: {key: found for key, found in one.items() if key != "name"} for one in pod["volumes"]}
        mounts = pod["containers"][0]["volumeMounts"]
        return [(one["mountPath"], volumes["recording"]) for one in mounts if one["name"] == "recording"]

    dry = {"settings.dry_run": "true", **stated}
    assert mounted(**dry) == [("/recording", {"emptyDir": {"sizeLimit": "256Mi"}})]
    assert mounted(**dry, **claim) == [("/recording", {"persistentVolumeClaim": {"claimName": "mine"}})]
    assert mounted(**stated) == mounted(**{"settings.dry_run": "true"}) == []


def test_who_only_looks_on_may_change_nothing(render: Render) -> None:
    objects = render(**{"settings.dry_run": "true"})
    roles = kind(objects, "ClusterRole") + kind(objects, "Role")
    granted = [rule for role in roles for rule in role["rules"] if "apiGroups" in rule]
    verbs = {verb for rule in granted for verb in rule["verbs"] if rule["resources"][0] not in ASKED}
    assert verbs == {"list", "watch", "get"}
    named = [rule for rule in granted if "get" in rule["verbs"]]
    assert [(rule["resources"], rule["resourceNames"]) for rule in named] == [(["secrets"], ["kai-solver-signing"])]
    one_acts = '[{"nodePool": ""}, {"nodePool": "b", "settings": {"dry_run": false}}]'
    roles = kind(render(**{"settings.dry_run": "true", "shards": one_acts}), "ClusterRole")
    assert "create" in {verb for role in roles for rule in role["rules"] for verb in rule["verbs"]}


def test_the_rights_are_those_of_the_files(render: Render) -> None:
    objects = render(**BOTH_WAYS)
    others = ("-beside-kai", "-read-answers", "-read-metrics")
    roles = [found for found in kind(objects, "ClusterRole") if not found["metadata"]["name"].endswith(others)]
    files = {path.stem: yaml.safe_load(path.read_text()) for path in (CHART / "files" / "rbac").glob("*.yaml")}
    found = {role["metadata"]["name"].removeprefix("kai-solver-"): role["rules"] for role in roles}
    own = [role for role in kind(objects, "Role") if not role["metadata"]["name"].endswith("-reservation-pods")]
    within = {role["metadata"]["name"].removeprefix("kai-solver-"): role["rules"] for role in own}
    assert {name: verbs(rules) for name, rules in (found | within).items()} == {
        name: verbs(rules) for name, rules in files.items()
    }
    assert {role["metadata"]["name"]: role["metadata"]["namespace"] for role in own} == {
        "kai-solver-lead": "kai-solver",
        "kai-solver-keys": "kai-solver",
        "kai-solver-sign": "kai-solver",
        "kai-solver-certificate": "kai-solver",
        "kai-solver-share": "kai-resource-reservation",
    }


def verbs(rules: list[dict[str, Any]]) -> list[Any]:
    return [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in rules]


def test_readers_get_answers_or_metrics_and_are_nobody_until_bound(render: Render) -> None:
    objects = render()
    rules = {role["metadata"]["name"]: role["rules"] for role in kind(objects, "ClusterRole")}
    answers = ["/explain", "/plan", "/recording", "/get-snapshot"]
    assert rules["kai-solver-read-answers"] == [{"nonResourceURLs": answers, "verbs": ["get"]}]
    assert rules["kai-solver-read-metrics"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    bound = {binding["roleRef"]["name"] for binding in kind(objects, "ClusterRoleBinding")}
    assert not {name for name in bound if "-read-" in name}


@pytest.mark.slow
def test_callers_are_reviewed_where_something_is_guarded(render: Render) -> None:
    def reviews(**values: str) -> bool:
        return "kai-solver-callers" in {role["metadata"]["name"] for role in kind(render(**values), "ClusterRole")}

    assert reviews()
    assert not reviews(**{"settings.answers_bind_address": '""'})
    assert reviews(**{"settings.answers_bind_address": '""', "settings.metrics_authorization": "true"})


def test_prometheus_shows_its_token_where_metrics_are_guarded(render: Render) -> None:
    def shown(**values: str) -> bool:
        (monitor,) = kind(render(**{"serviceMonitor.enabled": "true", **values}), "ServiceMonitor")
        return "bearerTokenFile" in monitor["spec"]["endpoints"][0]

    assert not shown()
    assert shown(**{"settings.metrics_authorization": "true"})


def test_what_has_a_name_is_granted_by_name(render: Render) -> None:
    objects = render(**{"settings.admission.runtime_class": '"nvidia-cdi"'})
    roles = {role["metadata"]["name"]: role["rules"] for role in kind(objects, "ClusterRole") + kind(objects, "Role")}
    assert [rule["resourceNames"] for rule in roles["kai-solver-admission"] if "resourceNames" in rule] == [
        ["nvidia-cdi"],
        ["kai-solver-admission"],
    ]
    assert [rule.get("resourceNames") for rule in roles["kai-solver-certificate"]] == [None, ["kai-solver-admission"]]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("{}", ["kai-solver-signing"]),
        ('{"signing_secret": "other"}', ["kai-solver-signing", "other"]),
    ],
)
def test_each_shard_may_read_and_renew_its_own_keys(render: Render, stated: str, expected: list[str]) -> None:
    objects = render(shards=f'[{{"nodePool": ""}}, {{"nodePool": "b", "settings": {stated}}}]')
    rules = {role["metadata"]["name"]: role["rules"] for role in kind(objects, "Role")}
    for name in ("kai-solver-keys", "kai-solver-sign"):
        assert rules[name][-1]["resourceNames"] == expected


def test_shards_are_told_apart_in_metrics(render: Render) -> None:
    objects = render(**ALL)
    (monitor,) = kind(objects, "ServiceMonitor")
    (label,) = monitor["spec"]["podTargetLabels"]
    values = [found["spec"]["template"]["metadata"]["labels"][label] for found in kind(objects, "Deployment")]
    assert values == ["kai-solver", "kai-solver-a100"]


# -- admission ---------------------------------------------------------------------------------------------------------

HOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")


def test_without_admission_nothing_is_called(render: Render) -> None:
    for objects in (render(**NOT_ADMITTING), render(**{"settings.dry_run": "true"})):
        assert [found for name in HOOKS for found in kind(objects, name)] == []
        assert len(kind(objects, "Service")) == 1


def test_the_controller_serves_what_the_configurations_call(render: Render, tmp_path: Path) -> None:
    objects = render()
    service = {found["metadata"]["name"]: found for found in kind(objects, "Service")}["kai-solver-admission"]
    (config,) = (found for found in kind(objects, "ConfigMap") if "settings.yaml" in found["data"])
    (tmp_path / "settings.yaml").write_text(config["data"]["settings.yaml"])
    stated = load_settings(tmp_path / "settings.yaml").admission
    (deployment,) = kind(objects, "Deployment")
    ports = {port["name"]: port for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert stated.bind_address == f":{ports[service['spec']['ports'][0]['targetPort']]['containerPort']}"
    for name in HOOKS:
        (found,) = kind(objects, name)
        assert found["metadata"]["name"] == stated.configuration
        for hook in found["webhooks"]:
            called = hook["clientConfig"]["service"]
            assert (called["name"], called["namespace"]) == (stated.service, "kai-solver")
            assert (hook["failurePolicy"], hook["sideEffects"]) == ("Ignore", "None")


def test_the_api_server_calls_only_replicas_that_serve(render: Render) -> None:
    shards = [
        {"nodePool": "a"},
        {"nodePool": "b", "settings": {"dry_run": True}},
        {"nodePool": "c", "settings": {"admission": {"enabled": False}}},
    ]
    objects = render(shards=json.dumps(shards))
    services = {found["metadata"]["name"]: found["spec"]["selector"] for found in kind(objects, "Service")}
    templates = {
        found["metadata"]["name"]: found["spec"]["template"]["metadata"]["labels"]
        for found in kind(objects, "Deployment")
    }

    def called(service: str) -> list[str]:
        return [name for name, labels in templates.items() if services[service].items() <= labels.items()]

    assert called("kai-solver-admission") == ["kai-solver-a"]
    assert called("kai-solver-metrics") == ["kai-solver-a", "kai-solver-b", "kai-solver-c"]
    for deployment in kind(objects, "Deployment"):
        assert "kai-solver/serves-admission" not in deployment["spec"]["selector"]["matchLabels"], "cannot be changed"
    assert all(kind(render(shards=json.dumps(shards[1:])), name) == [] for name in HOOKS)


@pytest.mark.parametrize("name", HOOKS)
def test_ephemeral_containers_are_judged_and_told(render: Render, name: str) -> None:
    (found,) = kind(render(), name)
    for hook in found["webhooks"]:
        named = {resource: rule["operations"] for rule in hook["rules"] for resource in rule["resources"]}
        assert named.get("pods/ephemeralcontainers") == (["UPDATE"] if "pods" in named else None)


def test_shards_never_have_one_lease(helm: Path, render: Render) -> None:
    named = ("--set", "settings.leadership.name=mine")
    done = manifests.template(helm, *named, "--set-json", 'shards=[{"nodePool": "a"}, {"nodePool": "b"}]')
    assert done.returncode != 0
    assert 'node pools "a" and "b" have one Lease, mine' in done.stderr
    own = {"settings": {"leadership": {"name": "other"}}}
    observes = {"settings": {"dry_run": True}}
    shards = json.dumps([{"nodePool": "a"}, {"nodePool": "b", **own}, {"nodePool": "c", **observes}])
    assert len(kind(render(shards=shards, **{"settings.leadership.name": '"mine"'}), "Deployment")) == 3


def test_only_our_pods_are_judged(render: Render) -> None:
    shards = '[{"nodePool": ""}, {"nodePool": "b", "settings": {"scheduler_name": "second"}}]'
    (found,) = kind(render(shards=shards), HOOKS[0])
    (condition,) = found["webhooks"][0]["matchConditions"]
    assert condition["expression"] == "object.spec.schedulerName in ['kai-scheduler', 'second']"


def test_a_given_certificate_is_mounted_and_no_secret_is_granted(render: Render) -> None:
    given = {"settings.admission.cert_file": '"/etc/kai-solver-certificate/tls.crt"', "webhook.certificate": '"mine"'}
    objects = render(**given)
    (deployment,) = kind(objects, "Deployment")
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert {"name": "certificate", "secret": {"secretName": "mine"}} in volumes
    assert "kai-solver-certificate" not in {role["metadata"]["name"] for role in kind(objects, "Role")}


@pytest.mark.parametrize(
    "stated", [{"settings.sharing.image": '""'}, {"settings.dry_run": "true"}, {"settings.binding": '"bindrequest"'}]
)
def test_where_no_gpu_is_shared_by_us_nothing_of_that_is_made(stated: dict[str, str], render: Render) -> None:
    objects = render(**stated)
    assert "kai-resource-reservation" not in {found["metadata"].get("namespace") for found in objects}
    assert kind(objects, "Namespace") == []


def test_gpus_are_shared_without_further_ado(render: Render, tmp_path: Path) -> None:
    objects = render()
    (made,) = kind(objects, "Namespace")
    assert made["metadata"]["name"] == "kai-resource-reservation"
    (config,) = (found for found in kind(objects, "ConfigMap") if "settings.yaml" in found["data"])
    (tmp_path / "settings.yaml").write_text(config["data"]["settings.yaml"])
    assert re.fullmatch(r"[^:]+/resourcereservation:v[0-9.]+", load_settings(tmp_path / "settings.yaml").sharing.image)


def test_a_shard_that_shares_gpus_has_what_that_needs(render: Render) -> None:
    shares = {"nodePool": "b", "settings": {"sharing": {"image": "agent:1", "service_account": "mine"}}}
    objects = render(shards=json.dumps([{"nodePool": "a"}, shares]), **{"settings.sharing.image": '""'})
    assert [found["metadata"]["name"] for found in kind(objects, "Namespace")] == ["kai-resource-reservation"]
    assert "mine" in {found["metadata"]["name"] for found in kind(objects, "ServiceAccount")}
    roles = {found["metadata"]["name"] for name in ("Role", "ClusterRole") for found in kind(objects, name)}
    assert {"kai-solver-reservation-pods", "kai-solver-share", "kai-solver-sharing"} <= roles
    observes = shares | {"settings": {"sharing": {"image": "agent:1"}, "dry_run": True}}
    objects = render(shards=json.dumps([{"nodePool": "a"}, observes]), **{"settings.sharing.image": '""'})
    assert kind(objects, "Namespace") == []


@pytest.mark.parametrize(("binding", "granted"), [("own", {"bind"}), ("bindrequest", {"request"})])
def test_who_asks_kais_binder_may_not_bind(binding: str, granted: set[str], render: Render) -> None:
    roles = kind(render(**{"settings.binding": f'"{binding}"'}), "ClusterRole")
    found = {role["metadata"]["name"].removeprefix("kai-solver-"): role["rules"] for role in roles}
    assert found.keys() & {"bind", "request"} == granted
    resources = {resource for rules in found.values() for rule in rules for resource in rule.get("resources", ())}
    assert ("pods/binding" in resources) == (binding == "own")


@pytest.mark.slow
def test_a_budget_only_where_there_are_several_replicas(render: Render) -> None:
    assert kind(render(), "PodDisruptionBudget") == []
    (budget,) = kind(render(**ALL), "PodDisruptionBudget")
    assert budget["metadata"]["name"] == "kai-solver"


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, "REGISTRY/kai-solver:0.1.0"),
        ({"image": '{"repository": "a/b", "tag": "x"}'}, "a/b:x"),
        ({"image": f'{{"repository": "a/b", "tag": "x", "digest": "sha256:{"0" * 64}"}}'}, f"a/b@sha256:{'0' * 64}"),
    ],
)
def test_a_digest_goes_before_a_tag(render: Render, stated: dict[str, str], expected: str) -> None:
    for deployment in kind(render(**stated), "Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == expected


def test_pods_are_restricted(render: Render) -> None:
    for deployment in kind(render(**ALL), "Deployment"):
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["securityContext"]["runAsUser"] == 65532
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
        }


def test_another_prefix_of_metrics_reaches_alerts_and_dashboard(render: Render) -> None:
    objects = render(**ALL, **{"settings.metrics_namespace": '"gpu"'})
    (rules,) = kind(objects, "PrometheusRule")
    (dashboard,) = (found for found in kind(objects, "ConfigMap") if "kai-solver.json" in found["data"])
    text = json.dumps(rules["spec"]) + dashboard["data"]["kai-solver.json"]
    assert "gpu_queue_depth_total" in text
    assert "gpu_solver_leader" in text
    assert not re.search(r"\bkai_", text)
    json.loads(dashboard["data"]["kai-solver.json"])


def test_alerts_link_to_where_the_runbooks_are(render: Render) -> None:
    (rules,) = kind(render(**ALL, **{"prometheusRule.runbooks": '"https://docs.example.org/r/"'}), "PrometheusRule")
    links = [rule["annotations"]["runbook_url"] for rule in rules["spec"]["groups"][0]["rules"]]
    assert all(re.fullmatch(r"https://docs\.example\.org/r/[a-z-]+\.md", link) for link in links)


def test_without_an_address_of_the_runbooks_no_alert_has_a_link_that_leads_nowhere(render: Render) -> None:
    (rules,) = kind(render(**ALL), "PrometheusRule")
    notes = [rule["annotations"] for rule in rules["spec"]["groups"][0]["rules"]]
    assert not any("runbook_url" in note for note in notes)
    assert all((ROOT / note["runbook"]).is_file() for note in notes)


# -- GitOps ------------------------------------------------------------------------------------------------------------


def test_a_template_makes_no_queue_or_class_which_the_cluster_may_have(render: Render) -> None:
    """``helm template`` cannot look; a release asks whether they exist, which the tests of the control plane show."""
    assert not {"Queue", "PriorityClass"} & {found["kind"] for found in render()}
    both = {"queues.create": "true", "priorityClasses.create": "true"}
    made = [found for found in render(**both) if found["kind"] in ("Queue", "PriorityClass")]
    assert len(made) == 6
    for found in made:
        assert found["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false"


def test_a_template_is_the_same_every_time(render: Render) -> None:
    """No random secret and no time: Argo CD and Flux would apply it again and again."""
    assert render(**ALL) == render(**ALL)


@pytest.mark.parametrize("name", ["argocd.yaml", "flux.yaml"])
def test_examples_of_gitops_state_values_that_the_chart_accepts(name: str) -> None:
    documents = list(yaml.safe_load_all((ROOT / "deploy" / "gitops" / name).read_text()))
    spec = documents[-1]["spec"]
    values = spec["values"] if name == "flux.yaml" else spec["source"]["helm"]["valuesObject"]
    assert violations(values, json.loads((CHART / "values.schema.json").read_text())) == []
    assert values["image"]["repository"]


# -- helm test ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gauge", "status", "must_lead", "code"),
    [("1.0", 200, "1", 0), ("0.0", 200, "1", 1), ("0.0", 200, "0", 0), ("", 401, "1", 0), ("", 500, "1", 1)],
)
def test_helm_test_asks_the_metrics_for_a_leader(
    render: Render, gauge: str, status: int, must_lead: str, code: int
) -> None:
    pod = next(found for found in render() if found["kind"] == "Pod")
    (container,) = pod["spec"]["containers"]

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(f"kai_solver_leader {gauge}\n".encode())

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        env = {"METRICS_URL": url, "MUST_LEAD": must_lead, "LIMIT_S": "0.1"}
        done = subprocess.run(
            [sys.executable, "-c", *container["args"]], env=env, capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == code, done.stderr
    assert bool(done.stderr) == bool(code)


def test_the_pod_of_helm_test_is_not_of_the_release(render: Render) -> None:
    """The Service and the NetworkPolicy select by labels."""
    objects = render(**{"networkPolicy.metricsFrom": '[{"podSelector": {}}]'})
    pod = next(found for found in objects if found["kind"] == "Pod")
    (service,) = (found for found in kind(objects, "Service") if found["metadata"]["name"].endswith("-metrics"))
    assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (policy,) = kind(objects, "NetworkPolicy")
    assert {"podSelector": {"matchLabels": pod["metadata"]["labels"]}} in policy["spec"]["ingress"][0]["from"]


def test_egress_to_prometheus_is_added_to_that_to_the_api_server(render: Render) -> None:
    rule = {"ports": [{"port": 9090}]}
    (policy,) = kind(render(**{"networkPolicy.egress": json.dumps([rule])}), "NetworkPolicy")
    api_server, other = policy["spec"]["egress"]
    assert {port["port"] for port in api_server["ports"]} == {443, 6443}
    assert other == rule


def test_authorities_are_those_that_python_trusts(render: Render) -> None:
    (deployment,) = kind(render(authorities='"roots"'), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (folder,) = (mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "authorities")
    assert {"name": "authorities", "configMap": {"name": "roots"}} in pod["volumes"]
    assert {"name": "SSL_CERT_FILE", "value": f"{folder}/ca.crt"} in container["env"]
    assert {"name": "OMP_NUM_THREADS", "value": "1"} in container["env"]


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        'settings={"perriod": 1}',
        'settings={"grouping": "mine"}',
        "shards=[]",
        'shards=[{"nodePool": "a b"}]',
        'image={"digest": "latest"}',
        'replica="2"',
        'settings={"model": "nope"}',
        'settings={"budget": "abc"}',
        'settings={"period": "1 second"}',
        'settings={"budget": -3}',
        'settings={"policy": {"drain_lead": "-60s"}}',
        'settings={"metrics_bind_address": "8080"}',
        'prometheusRule={"runbooks": "docs/runbooks"}',
    ],
)
def test_a_mistake_in_the_values_is_refused(wrong: str, helm: Path) -> None:
    done = manifests.template(helm, "--set-json", wrong)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr


@pytest.mark.parametrize("pools", [("a100", "a100"), ("a.100", "a-100"), ("", "")])
def test_two_shards_of_one_name_are_refused(pools: tuple[str, str], helm: Path) -> None:
    done = manifests.template(helm, "--set-json", f"shards={json.dumps([{'nodePool': pool} for pool in pools])}")
    assert done.returncode != 0
    assert "State one shard for each node pool" in done.stderr


PROBES: tuple[object, ...] = (
    -100_000,
    -2,
    -1,
    0,
    0.5,
    1,
    5,
    300,
    2_000,
    5_000,
    20_000,
    90_000,
    "-60s",
    "60s",
    "0s",
    "0.5m",
    "x",
    "",
    None,
    [],
    ["a"],
)
JUDGED_TOGETHER = {"leadership"}
"""Settings that the controller compares with each other, and a schema cannot."""


@pytest.mark.slow
@pytest.mark.parametrize("probe", PROBES, ids=repr)
def test_what_the_schema_accepts_the_controller_accepts(probe: object) -> None:
    """A mistake is told at ``helm install``, not by a pod that does not start."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    wrong = []
    for *parts, last in leaves(ControllerSettings()):
        if parts[:1] == ["model"] or JUDGED_TOGETHER & set(parts):
            continue
        stated: dict[str, object] = {last: probe}
        for part in reversed(parts):
            stated = {part: stated}
        if not violations({"image": {"repository": "a"}, "settings": stated}, schema):
            try:
                ControllerSettings.model_validate(stated)
            except ValidationError as error:
                wrong.append(f"{'.'.join([*parts, last])}: {error.errors()[0]['msg']}")
    assert wrong == []


def leaves(part: BaseModel) -> Iterator[list[str]]:
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, BaseModel):
            yield from ([name, *below] for below in leaves(value))
        else:
            yield [name]


@pytest.mark.parametrize("stated", ["renew=20", "live=5", "retry=0", "retry=10"])
def test_a_lease_that_two_replicas_could_have_is_refused(helm: Path, stated: str) -> None:
    done = manifests.template(helm, "--set", f"settings.leadership.{stated}")
    assert done.returncode != 0
    assert "settings.leadership: retry must be above 0 and below renew" in done.stderr


@pytest.mark.parametrize("stated", ["renew=12", "live=1m"])
def test_another_lease_is_accepted(helm: Path, stated: str) -> None:
    done = manifests.template(helm, "--set", f"settings.leadership.{stated}")
    assert done.returncode == 0, done.stderr


def test_an_image_must_be_named(helm: Path) -> None:
    done = manifests.template(helm, "--set", "image.repository=")
    assert done.returncode != 0
    assert "image.repository is required" in done.stderr


def test_the_schema_knows_the_models_that_ship(helm: Path) -> None:
    for path in (ROOT / "models").glob("*.toml"):
        done = manifests.template(helm, "--set", f"settings.model={path.stem}")
        assert done.returncode == 0, done.stderr
    assert manifests.template(helm, "--set", "settings.model=/etc/kai-solver-models/mine.toml").returncode == 0


@pytest.mark.slow
def test_the_schema_accepts_the_chart_s_own_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert violations(values, schema) == []
    assert set(schema["properties"]) - {"global"} == set(values)


def test_every_value_says_what_it_is() -> None:
    """In helm-docs' style, above the key or above the key that it is in."""
    silent, told, above = [], "", False
    for line in (CHART / "values.yaml").read_text().splitlines():
        key = re.match(r"(?:  )?(\w+):(.*)", line)
        if key and not line.startswith(" "):
            told = key[1] if above else ""
            silent += [line] if key[2].strip() and not above else []
        elif key and not above and not told:
            silent.append(line)
        above = line.lstrip().startswith("#") and (above or "# -- " in line)
    assert silent == []


# -- manifests ---------------------------------------------------------------------------------------------------------


def test_the_manifests_are_what_the_chart_renders(helm: Path) -> None:
    stored = {name: (manifests.FOLDER / name).read_text() for name in ("defaults.yaml", "kai-solver.yaml")}
    assert stored == manifests.rendered(helm), "python -m tests.support.manifests writes them anew"


def test_the_manifests_that_are_applied_overwrite_nothing_of_others() -> None:
    kinds = [found["kind"] for found in yaml.safe_load_all((manifests.FOLDER / "kai-solver.yaml").read_text())]
    assert not {"PriorityClass", "Queue", "CustomResourceDefinition"} & set(kinds)
    assert "Deployment" in kinds


def test_the_version_is_that_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert (chart["version"], chart["appVersion"]) == (version[1], version[1])


def schema_of(name: str) -> dict[str, Any]:
    crd = yaml.safe_load((CHART / "crds" / f"{name}.yaml").read_text())
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.slow
def test_kinds_that_are_named_as_owners_may_be_read_and_no_more(render: Render) -> None:
    def rules(**values: str) -> list[dict[str, Any]]:
        roles = kind(render(**values), "ClusterRole")
        (found,) = [role["rules"] for role in roles if role["metadata"]["name"].endswith("-owners")]
        return list(found)

    mine = {"apiGroups": ["example.org"], "resources": ["trainings"]}
    more = rules(**{"rbac.owners": json.dumps([mine])})
    assert [rule for rule in more if rule not in rules()] == [mine | {"verbs": ["get"]}]


def test_who_made_the_pods_is_nobodys_business_where_others_group_them(render: Render) -> None:
    def parts(**values: str) -> set[str]:
        return {role["metadata"]["name"].rpartition("-")[2] for role in kind(render(**values), "ClusterRole")}

    assert parts() - parts(**{"settings.grouping": '"external"'}) == {"owners"}
