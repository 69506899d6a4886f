"""Whatever comes in: an object is set aside by name, the rest goes on, and nothing raises but `InputError`."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.errors import InputError
from kai_solver.kubeobjects import RawObjects, load_kai_snapshot, objects_from_documents, snapshot_from_objects
from kai_solver.kubeobjects.objects import KINDS
from kai_solver.kubeobjects.raw import Raw


def test_a_doubled_name_is_set_aside_and_the_first_one_counts(build: Any) -> None:
    found = build.read(build.node("n", gpus=4), build.node("n", gpus=8), build.pod("p"), build.pod("p"))
    assert [node.gpus for node in found.nodes] == [4]
    assert sum(len(gang.pods) for gang in found.gangs) == 1
    assert len([text for text in build.texts(found, "set-aside") if "second" in text]) == 2


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("spec", "containers"), [], "no containers"),
        (("spec", "containers"), "main", "not a list"),
        (("spec", "containers", 0, "resources", "requests", "cpu"), "-1", "negative"),
        (("spec", "containers", 0, "resources", "requests", "memory"), "much", "not a quantity"),
        (("spec", "containers", 0, "resources", "requests", "memory"), "1e30", "absurdly"),
        (("spec", "containers", 0, "resources", "requests"), {"gpu": 1}, "not a resource"),
        (("spec", "containers", 0, "resources"), 7, "not an object"),
        (("metadata", "labels"), {"a": 1}, "not a string"),
        (("metadata", "labels"), [], "not an object"),
        (("metadata", "creationTimestamp"), "yesterday", "not a time"),
        (("metadata", "ownerReferences"), [{"kind": "Job"}], "ownerReferences[0].name"),
        (("spec", "tolerations"), [{"operator": "Maybe"}], "not an operator"),
        (("spec", "affinity"), {"nodeAffinity": []}, "not an object"),
        (("spec", "topologySpreadConstraints"), [{"maxSkew": 0, "topologyKey": "z"}], "maxSkew"),
        (("spec", "nodeName"), 5, "not a string"),
        (("status", "phase"), "Dreaming", "not a phase"),
    ],
)
def test_a_malformed_pod_is_set_aside_by_field_and_the_rest_goes_on(
    build: Any, path: Any, value: Any, words: str
) -> None:
    bad = build.pod("bad")
    here = bad
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    found = build.read(bad, build.pod("good"))
    assert [pod.name for gang in found.gangs for pod in gang.pods] == ["good"]
    assert any(text.startswith("Pod ns/bad: ") and words in text for text in build.texts(found, "set-aside"))


@pytest.mark.parametrize(
    "more",
    [
        {"status": {"allocatable": {"cpu": "-4"}}},
        {"status": {"allocatable": {"nvidia.com/gpu": "1e40"}}},
        {"status": {"allocatable": []}},
        {"spec": {"taints": [{"key": "k", "effect": "Never"}]}},
        {"spec": {"unschedulable": "yes"}},
    ],
)
def test_a_malformed_node_is_set_aside_and_what_runs_there_too(build: Any, more: dict[str, Any]) -> None:
    found = build.read(build.node("bad", more), build.node("n"), build.pod(node="bad", phase="Running"))
    assert [node.name for node in found.nodes] == ["n"]
    texts = build.texts(found, "set-aside")
    assert any(text.startswith("Node bad: ") for text in texts)
    assert any(text.startswith("Pod ns/p: runs on node 'bad'") for text in texts)


def test_an_over_committed_node_is_kept_as_it_is(build: Any) -> None:
    pods = [build.pod(f"p{i}", gpus=8, node="n", phase="Running") for i in range(2)]
    found = build.read(build.node(gpus=8), *pods)
    assert sum(pod.gpu.devices for gang in found.gangs for pod in gang.pods) == 16
    assert not build.texts(found, "set-aside")


def test_errors_name_the_path() -> None:
    raw = Raw({"a": {"b": [1, "x"]}})
    with pytest.raises(InputError, match=r"a\.b\[1\]: 'x' is not a whole number"):
        raw.items("a.b")[1].integer()
    with pytest.raises(InputError, match=r"^a\.b: "):
        raw.text("a.b.c")
    assert raw.text("no.such.field", "default") == "default"


junk_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["-1", "1e99", "0.5", "n", "1Gi", "Running", "2020-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"]),
)
junk = st.recursive(
    junk_leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from([kind.field for kind in KINDS] + ["other"]), st.lists(junk, max_size=3)))
def test_junk_of_every_kind_never_raises(found: dict[str, list[Any]]) -> None:
    objects = RawObjects(**{field: tuple(values) for field, values in found.items()})
    snapshot = snapshot_from_objects(objects, now_s=0.0)
    assert snapshot.nodes == ()


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=3), junk), max_size=4))
def test_junk_documents_never_raise(documents: list[tuple[str, Any]]) -> None:
    snapshot = snapshot_from_objects(objects_from_documents(documents), now_s=0.0)
    assert (snapshot.nodes, snapshot.gangs, snapshot.foreign) == ((), (), ())
    if any(isinstance(value, dict | str) for _, value in documents):
        assert snapshot.notices, "something was left out without a word"


@settings(max_examples=100, deadline=None)
@given(st.fixed_dictionaries({}, optional={"rawObjects": junk, "schedulerParams": junk, "config": junk}))
def test_junk_snapshots_raise_input_errors_only(document: dict[str, Any]) -> None:
    refused = None
    try:
        objects, kube_settings, now_s = load_kai_snapshot(document)
    except InputError as error:
        refused = error
    if refused is not None:
        assert refused.field
        assert refused.cure
        return
    snapshot = snapshot_from_objects(objects, now_s=now_s, settings=kube_settings)
    assert (snapshot.nodes, snapshot.gangs) == ((), ())


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [here] + [path for key, inner in value.items() for path in paths(inner, (*here, key))]
    if isinstance(value, list):
        return [here] + [path for index, inner in enumerate(value) for path in paths(inner, (*here, index))]
    return [here]


def cluster(build: Any) -> list[dict[str, Any]]:
    """A little of everything, so that every reader has something to stumble over."""
    part = {"name": "a", "minMember": 1, "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": build.pod()["spec"]}
    metadata = {"name": "o", "namespace": "ns"}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]}
    spread = {"topologyKey": "z", "maxSkew": 1, "labelSelector": {"matchLabels": {"a": "b"}}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    rich = {
        "affinity": {
            "nodeAffinity": {required: terms},
            "podAffinity": {required: [{"topologyKey": "z", "labelSelector": {"matchLabels": {"a": "b"}}}]},
        },
        "topologySpreadConstraints": [spread],
        "tolerations": [{"key": "k"}],
        "volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "w", "configMap": {"name": "m"}},
        ],
        "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
    }
    job_id = {"kai.nvidia.com/job-id": "j", "kai.nvidia.com/job-size": "1"}
    return [
        build.node(
            "n", {"metadata": {"labels": {"a": "b"}}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
        ),
        build.queue("q"),
        build.pod_group("pg", {"queue": "q", "subGroups": [part], "preemptionDelay": "1s", "priorityClassName": "x"}),
        build.pod(
            "a", {"spec": rich}, annotations={"pod-group-name": "pg", "gpu-fraction": "0.5"}, node="n", phase="Running"
        ),
        build.pod("b", owner=build.owner("Job", "o"), labels=job_id),
        build.pod("c", owner=build.owner("PyTorchJob", "o", "kubeflow.org/v1", "")),
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "x"}, "value": 5},
        {"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest", "metadata": metadata}
        | {"spec": {"podName": "b", "selectedNode": "n", "selectedGPUGroups": ["g"]}, "status": {"phase": "Pending"}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "ns"}}
        | {"spec": {"volumeName": "v"}},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}}
        | {"spec": {"nodeAffinity": {"required": terms}}},
        {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "t"}}
        | {"spec": {"levels": [{"nodeLabel": "rack"}]}},
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata}
        | {
            "spec": {
                "pytorchReplicaSpecs": {
                    "Master": {"template": template},
                    "Worker": {"replicas": 2, "template": template},
                }
            }
        },
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
        | {"spec": {"replicas": 1, "template": template}},
        {"apiVersion": "kai.nvidia.com/v1", "kind": "ResourceQuota", "metadata": {"name": "r"}}
        | {"spec": {"hierarchy": [{"name": "h", "weight": 1, "children": [{"name": "i", "weight": 2}]}]}},
        {"apiVersion": "kai.nvidia.com/v1", "kind": "Quota", "metadata": {"name": "r"}}
        | {"spec": {"namespace": "ns", "guaranteedQuota": {"gpus": 1, "memory": "1Gi"}}},
    ]


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_one_damaged_field_anywhere_never_raises_and_never_takes_the_rest_along(data: st.DataObject) -> None:
    objects = copy.deepcopy(CLUSTER)
    victim = data.draw(st.sampled_from(range(len(objects))))
    path = data.draw(st.sampled_from(paths(objects[victim])[1:]))
    here: Any = objects[victim]
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = data.draw(junk)
    snapshot = snapshot_from_objects(objects_from_documents([("f.yaml", value) for value in objects]), now_s=0.0)
    whole = snapshot_from_objects(objects_from_documents([("f.yaml", value) for value in CLUSTER]), now_s=0.0)
    if victim != 0:
        assert [node.name for node in snapshot.nodes] == ["n"]
    lost = len(whole.queues) - len(snapshot.queues)
    assert lost <= 2
    assert not lost or snapshot.notices != whole.notices


CLUSTER: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def _fill(build: Any) -> None:
    if not CLUSTER:
        CLUSTER.extend(cluster(build))
