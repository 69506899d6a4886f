"""Where pods may run, as Kubernetes means it."""

from dataclasses import replace
from typing import Any

import pytest

from kai_solver.domain import PodAffinityTerm, Policy, Requirement, SpreadConstraint, Toleration
from kai_solver.kubeobjects import KubeSettings
from kai_solver.predicates import Placed, kept_off

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def test_selector_and_affinity_must_both_hold_and_one_term_of_the_affinity_is_enough(build: Any) -> None:
    terms = [
        {
            "matchExpressions": [expression("zone", "In", "a", "b")],
            "matchFields": [expression("metadata.name", "In", "n")],
        },
        {"matchExpressions": [expression("gen", "Gt", "3")]},
        {},
    ]
    spec = {"nodeSelector": {"kind": "x"}, "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
    found = build.one_pod(build.pod("p", {"spec": spec})).constraints.node_terms
    zone, name = Requirement("zone", "In", ("a", "b")), Requirement("metadata.name", "In", ("n",))
    assert found == (((Requirement("kind", "In", ("x",)),),), ((zone, name), (Requirement("gen", "Gt", ("3",)),)))


def test_affinity_with_empty_terms_only_holds_nowhere(build: Any) -> None:
    spec: dict[str, Any] = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}}
    assert build.one_pod(build.pod("p", {"spec": spec})).constraints.node_terms == ((),)


def test_preferences_keep_their_weights(build: Any) -> None:
    preferred = [{"weight": 30, "preference": {"matchExpressions": [expression("ssd", "Exists")]}}]
    spec = {"affinity": {"nodeAffinity": {PREFERRED: preferred}}}
    found = build.one_pod(build.pod("p", {"spec": spec})).constraints.preferred
    assert found == ((30, (Requirement("ssd", "Exists"),)),)


def test_tolerations_have_kubernetes_defaults(build: Any) -> None:
    spec = {"tolerations": [{"key": "k", "value": "v"}, {"operator": "Exists"}]}
    found = build.one_pod(build.pod("p", {"spec": spec})).constraints.tolerations
    assert found == (Toleration("k", "Equal", "v"), Toleration("", "Exists"))


def test_pod_affinity_names_its_namespaces(build: Any) -> None:
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": name[0]}}}
        for name in ("a1", "a2", "b1")
    ]
    selector = {"matchLabels": {"app": "x"}, "matchExpressions": [expression("tier", "NotIn", "db")]}
    terms = [
        {"labelSelector": selector, "topologyKey": "host"},
        {"labelSelector": {}, "topologyKey": "rack", "namespaceSelector": {}},
        {"topologyKey": "rack", "namespaceSelector": {"matchLabels": {"team": "a"}}},
        {"labelSelector": {}, "topologyKey": "rack", "namespaceSelector": {"matchLabels": {"team": "z"}}},
    ]
    pod = build.pod(
        "p", {"spec": {"affinity": {"podAffinity": {REQUIRED: terms}, "podAntiAffinity": {REQUIRED: terms[:1]}}}}
    )
    found = build.one_pod(pod, *namespaces).constraints
    first = PodAffinityTerm((Requirement("app", "In", ("x",)), Requirement("tier", "NotIn", ("db",))), "host")
    assert found.affinity[0] == first
    assert found.affinity[1] == PodAffinityTerm((), "rack", ("*",))
    assert found.affinity[2].namespaces == ("a1", "a2")
    assert found.affinity[2].selector != ()  # a missing selector matches no pod
    assert found.affinity[3].namespaces == ("",)  # matches no namespace, which is not the pod's own
    assert found.anti_affinity == (first,)


def test_spread_that_must_hold_and_spread_that_should(build: Any) -> None:
    spread: list[dict[str, Any]] = [
        {
            "maxSkew": 2,
            "minDomains": 3,
            "topologyKey": "zone",
            "labelSelector": {"matchLabels": {"a": "b"}},
            "matchLabelKeys": ["rev", "no"],
            "nodeAffinityPolicy": "Ignore",
            "nodeTaintsPolicy": "Honor",
        },
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}},
    ]
    found = build.one_pod(build.pod("p", {"spec": {"topologySpreadConstraints": spread}}, labels={"rev": "7"}))
    selector = (Requirement("a", "In", ("b",)), Requirement("rev", "In", ("7",)))
    assert found.constraints.spread == (SpreadConstraint(selector, "zone", 2, 3, False, True),)
    assert found.constraints.preferred_spread == (SpreadConstraint((), "zone", 1),)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("maxSkew", 0),
        ("minDomains", 0),
        ("whenUnsatisfiable", "x"),
        ("nodeTaintsPolicy", "x"),
        ("nodeAffinityPolicy", "x"),
    ],
)
def test_a_spread_rule_that_means_nothing_is_told_with_its_field(build: Any, field: str, value: Any) -> None:
    spec = {"topologySpreadConstraints": [{"topologyKey": "zone", field: value}]}
    assert any(field in text for text in build.texts(build.read(build.pod("p", {"spec": spec})), "set-aside"))


def test_preferred_pod_affinity_has_weights_and_anti_affinity_negative_ones(build: Any) -> None:
    def term(weight: int, key: str) -> dict[str, Any]:
        return {"weight": weight, "podAffinityTerm": {"labelSelector": {}, "topologyKey": key}}

    affinity = {"podAffinity": {PREFERRED: [term(30, "rack")]}, "podAntiAffinity": {PREFERRED: [term(7, "host")]}}
    found = build.one_pod(build.pod("p", {"spec": {"affinity": affinity}})).constraints
    assert found.preferred_pods == ((30, PodAffinityTerm((), "rack")), (-7, PodAffinityTerm((), "host")))


def test_label_keys_stand_for_the_pods_own_values(build: Any) -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "x"}, "matchExpressions": [expression("rev", "In", "7")]},
        "topologyKey": "host",
        "matchLabelKeys": ["rev", "absent"],
        "mismatchLabelKeys": ["tenant"],
    }
    spec = {"affinity": {"podAffinity": {REQUIRED: [term]}}}
    found = build.one_pod(build.pod("p", {"spec": spec}, labels={"rev": "7", "tenant": "t"})).constraints
    assert found.affinity[0].selector == (
        Requirement("app", "In", ("x",)),
        Requirement("rev", "In", ("7",)),  # the API server had written it down already
        Requirement("tenant", "NotIn", ("t",)),
    )


def test_a_namespace_selector_without_namespaces_is_told(build: Any) -> None:
    term = {"labelSelector": {}, "topologyKey": "host", "namespaceSelector": {"matchLabels": {"team": "a"}}}
    pod = build.pod("p", {"spec": {"affinity": {"podAffinity": {REQUIRED: [term]}}}})
    assert any("Namespace objects" in notice.text for notice in build.read(pod).notices)


def test_host_ports_name_protocol_and_address(build: Any) -> None:
    ports = [{"hostPort": 80}, {"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}, {"containerPort": 9}]
    spec = {"containers": [{"name": "c", "ports": ports}]}
    assert build.one_pod(build.pod("p", {"spec": spec})).constraints.host_ports == ("53/UDP/10.0.0.1", "80/TCP")
    spec["hostNetwork"] = True  # type: ignore[assignment]
    assert "9/TCP" in build.one_pod(build.pod("p", {"spec": spec})).constraints.host_ports


IN_USE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"


def claim(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "c", "namespace": "ns"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def volume(**affinity: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": affinity}


USES_CLAIM = {"spec": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}}


def test_a_bound_volume_says_where_its_pod_may_run(build: Any) -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression("zone", "In", "a")]}]}
    local = volume(nodeAffinity={"required": required})
    found = build.one_pod(build.pod("p", USES_CLAIM), claim(volumeName="v"), local).constraints
    assert found.node_terms == (((Requirement("zone", "In", ("a",)),),),)
    assert found.blocked == ()
    anywhere = build.one_pod(build.pod("p", USES_CLAIM), claim(volumeName="v"), volume()).constraints
    assert anywhere.node_terms == ()


def test_a_missing_claim_blocks_in_words(build: Any) -> None:
    (reason,) = build.one_pod(build.pod("p", USES_CLAIM)).constraints.blocked
    assert reason.startswith('VolumeBinding: persistentvolumeclaim "c" not found')


def test_an_unbound_claim_blocks_unless_its_class_waits_for_the_pod(build: Any) -> None:
    waiting = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "local"},
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    unbound = claim(storageClassName="local")
    assert build.one_pod(build.pod("p", USES_CLAIM), unbound, waiting).constraints.blocked == ()
    (reason,) = build.one_pod(build.pod("p", USES_CLAIM), unbound).constraints.blocked
    assert reason.startswith("VolumeBinding: pod has unbound immediate PersistentVolumeClaims")


def a_class(provisioner: str = "csi.example", **more: Any) -> dict[str, Any]:
    head = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
    return {**head, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", **more}


def test_a_class_that_waits_may_make_volumes_in_some_places_only(build: Any) -> None:
    places = [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]
    found = build.one_pod(
        build.pod("p", USES_CLAIM), claim(storageClassName="local"), a_class(allowedTopologies=places)
    ).constraints
    assert found.node_terms == (((Requirement("zone", "In", ("a", "b")),),),)
    assert found.blocked == ()


def test_a_claim_whose_volume_is_being_made_for_a_node_goes_there(build: Any) -> None:
    chosen = claim(storageClassName="local")
    chosen["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": "n"}
    found = build.one_pod(build.pod("p", USES_CLAIM), chosen, a_class()).constraints
    assert found.node_terms == (((Requirement("metadata.name", "In", ("n",)),),),)


def a_driver(**spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example"}}
    return {**head, "spec": {"storageCapacity": True, **spec}}


def a_store(name: str, node: str, **more: Any) -> dict[str, Any]:
    """What the driver can still store on a node."""
    metadata = {"namespace": "csi", "name": name}
    head = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "metadata": metadata}
    return {**head, "storageClassName": "local", "nodeTopology": {"matchLabels": {"host": node}}, **more}


WANTED = claim(storageClassName="local", resources={"requests": {"storage": "5Gi"}})


def test_a_volume_is_made_where_its_driver_has_storage(build: Any) -> None:
    stores = [
        a_store("b", "n-2", capacity="5Gi"),
        a_store("a", "n-1", capacity="10Gi"),
        a_store("full", "n-3", capacity="4Gi"),
        a_store("no-large-ones", "n-4", capacity="10Gi", maximumVolumeSize="4Gi"),
        a_store("of-another-class", "n-5", capacity="10Gi", storageClassName="other"),
        a_store("says-nothing", "n-6"),
        a_store("nowhere", "n-7", capacity="10Gi", nodeTopology=None),
    ]
    places = [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]
    kind = a_class(allowedTopologies=places)
    found = build.one_pod(build.pod("p", USES_CLAIM), WANTED, kind, a_driver(), *stores).constraints
    assert found.node_terms == (
        ((Requirement("zone", "In", ("a",)),),),
        ((Requirement("host", "In", ("n-1", "n-2")),),),
    )
    (reason,) = build.one_pod(build.pod("p", USES_CLAIM), WANTED, kind, a_driver(), *stores[2:]).constraints.blocked
    assert reason == 'VolumeBinding: node(s) did not have enough free storage for persistentvolumeclaim "c"'


@pytest.mark.parametrize(
    "objects",
    [
        [],
        [a_driver(storageCapacity=False)],
        [a_driver(), a_store("everywhere", "n", capacity="5Gi", nodeTopology={})],
    ],
)
def test_storage_does_not_matter_where_the_driver_says_nothing_or_has_it_everywhere(
    build: Any, objects: list[dict[str, Any]]
) -> None:
    found = build.one_pod(build.pod("p", USES_CLAIM), WANTED, a_class(), *objects).constraints
    assert (found.node_terms, found.blocked) == ((), ())
    assert build.one_pod(build.pod("p", USES_CLAIM), WANTED, a_class(), a_driver()).constraints.blocked


def test_a_broken_report_of_storage_is_set_aside_and_the_others_count(build: Any) -> None:
    broken = a_store("broken", "n-1", capacity=[])
    found = build.read(
        build.pod("p", USES_CLAIM), WANTED, a_class(), a_driver(), broken, a_store("b", "n-2", capacity="5Gi")
    )
    ((pod,),) = (gang.pods for gang in found.gangs)
    assert pod.constraints.node_terms == (((Requirement("host", "In", ("n-2",)),),),)
    assert any(text.startswith("CSIStorageCapacity csi/broken: capacity") for text in build.texts(found, "set-aside"))


def local_volume(name: str, zone: str, size: str = "10Gi", **more: Any) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression("zone", "In", zone)]}]}
    spec = {"storageClassName": "local", "capacity": {"storage": size}, "nodeAffinity": {"required": required}}
    head = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    return {**head, "spec": {**spec, "accessModes": ["ReadWriteOnce"], **more}}


def test_a_class_that_makes_no_volumes_takes_the_free_ones_that_are_large_enough(build: Any) -> None:
    asking = claim(storageClassName="local", accessModes=["ReadWriteOnce"], resources={"requests": {"storage": "5Gi"}})
    volumes = [
        local_volume("fits", "a"),
        local_volume("kept", "b", claimRef={"namespace": "ns", "name": "c"}),
        local_volume("taken", "c", claimRef={"namespace": "ns", "name": "other"}),
        local_volume("small", "d", "1Gi"),
        local_volume("read-only", "e", accessModes=["ReadOnlyMany"]),
        local_volume("of-another-class", "f", storageClassName="other"),
    ]
    no_maker = a_class("kubernetes.io/no-provisioner")
    found = build.one_pod(build.pod("p", USES_CLAIM), asking, no_maker, *volumes).constraints
    assert found.node_terms == (((Requirement("zone", "In", ("a",)),), (Requirement("zone", "In", ("b",)),)),)
    (reason,) = build.one_pod(build.pod("p", USES_CLAIM), asking, no_maker, *volumes[2:]).constraints.blocked
    assert "didn't find available persistent volumes to bind" in reason


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"status": {"phase": "Lost"}, "spec": {"volumeName": "v"}}, 'bound to non-existent persistentvolume "v"'),
        ({"spec": {"volumeName": "gone"}}, 'bound to non-existent persistentvolume "gone"'),
        ({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}}, "is being deleted"),
    ],
)
def test_a_claim_in_trouble_says_which(build: Any, more: dict[str, Any], words: str) -> None:
    broken = claim()
    for part, fields in more.items():
        broken[part] = {**broken.get(part, {}), **fields}
    (reason,) = build.one_pod(build.pod("p", USES_CLAIM), broken, volume()).constraints.blocked
    assert words in reason


def test_a_claim_of_one_pod_keeps_a_second_one_away_until_the_first_leaves(build: Any) -> None:
    alone = claim(volumeName="v", accessModes=["ReadWriteOncePod"])
    user = build.pod("user", USES_CLAIM, gpus=1, node="n", phase="Running")
    found = build.read(user, build.pod("waits", USES_CLAIM), alone, volume(), build.queue("default-queue"))
    pods = {pod.name: pod for gang in found.gangs for pod in gang.pods}
    node = found.nodes[0]
    assert kept_off(pods["waits"], node, [Placed(pods["user"], node)]) == IN_USE
    other = build.pod("other", {"spec": {"volumes": []}})
    assert kept_off(build.one_pod(other), node, [Placed(pods["user"], node)]) is None
    elsewhere = replace(pods["waits"], namespace="another")
    assert kept_off(elsewhere, node, [Placed(pods["user"], node)]) is None


def test_an_ephemeral_volumes_claim_is_made_later_but_counts_once_it_is_there(build: Any) -> None:
    spec = {"spec": {"volumes": [{"name": "d", "ephemeral": {"volumeClaimTemplate": {}}}]}}
    assert build.one_pod(build.pod("p", spec)).constraints.blocked == ()
    made = claim(volumeName="v")
    made["metadata"]["name"] = "p-d"
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression("zone", "In", "a")]}]}
    found = build.one_pod(build.pod("p", spec), made, volume(nodeAffinity={"required": required})).constraints
    assert found.node_terms == (((Requirement("zone", "In", ("a",)),),),)


def test_a_claim_of_another_namespace_does_not_help(build: Any) -> None:
    other = claim(volumeName="v")
    other["metadata"]["namespace"] = "elsewhere"
    assert build.one_pod(build.pod("p", USES_CLAIM), other, volume()).constraints.blocked


def test_required_config_maps_block_while_they_are_missing_and_optional_ones_do_not(build: Any) -> None:
    spec = {
        "volumes": [
            {"name": "v", "configMap": {"name": "volume"}},
            {"name": "o", "configMap": {"name": "optional", "optional": True}},
            {"name": "unmounted", "configMap": {"name": "nobody-asks"}},
            {"name": "p", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}},
        ],
        "containers": [
            {
                "name": "c",
                "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "o", "mountPath": "/o"}],
                "envFrom": [{"configMapRef": {"name": "from"}}],
                "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "key", "key": "k"}}}],
            }
        ],
    }
    there = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "from", "namespace": "ns"}}
    blocked = build.one_pod(build.pod("p", {"spec": spec}), there).constraints.blocked
    assert [reason.split(". ")[0] for reason in blocked] == ["ConfigMap: Missing required configmaps: [key volume]"]


def test_maps_that_the_binder_makes_for_shares_are_not_missing(build: Any) -> None:
    container = {"name": "c", "envFrom": [{"configMapRef": {"name": "p-shared-gpu-0"}}]}
    annotations = {"runai/shared-gpu-configmap": "p-shared-gpu"}
    shared = build.pod("p", {"spec": {"containers": [container]}}, annotations=annotations)
    assert build.one_pod(shared).constraints.blocked == ()
    assert build.one_pod(build.pod("p", {"spec": {"containers": [container]}})).constraints.blocked


def test_restricted_scheduling_sends_gpu_work_to_gpu_workers(build: Any) -> None:
    settings = KubeSettings(policy=Policy(restrict_node_scheduling=True))
    label = "node-role.kubernetes.io/"
    gpu = build.one_pod(build.pod(annotations={"gpu-fraction": "0.5"}), settings=settings)
    cpu = build.one_pod(build.pod(), settings=settings)
    assert gpu.constraints.node_terms == (((Requirement(label + "gpu-worker", "Exists"),),),)
    assert cpu.constraints.node_terms == (((Requirement(label + "cpu-worker", "Exists"),),),)


def test_equal_constraints_are_one_object(build: Any) -> None:
    more = {"spec": {"nodeSelector": {"a": "b"}}}
    found = build.read(build.pod("p1", more), build.pod("p2", more))
    first, second = (gang.pods[0].constraints for gang in found.gangs)
    assert first is second


def test_a_pod_that_a_waiting_pod_must_be_near_stays_on_its_node(build: Any) -> None:
    selector = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}
    runs: dict[str, Any] = {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    anchor, other = build.pod("anchor", runs, labels={"app": "x"}), build.pod("other", runs)
    waits = build.pod("waits", {"spec": {"affinity": near}})

    def held(*objects: Any) -> list[str]:
        found = build.read(build.node("n"), *objects)
        pods = [pod for gang in found.gangs for pod in gang.pods if pod.node]
        return [
            pod.name
            for pod in pods
            if any(term[0].key == "metadata.name" for t in pod.constraints.node_terms for term in t)
        ]

    assert held(anchor, other, waits) == ["anchor"]
    assert held(anchor, other) == [], "nothing waits for it"
