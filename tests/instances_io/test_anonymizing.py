"""Hashed names: consistent, keyed, and everything that refers to something still refers to it."""

from kai_solver.domain import (
    Constraints,
    Gang,
    Node,
    Pod,
    PodSet,
    PodStatus,
    Queue,
    Requirement,
    Snapshot,
    SubGroup,
    Taint,
    Toleration,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    counted_gpu_milli,
)
from kai_solver.instances_io import sanitize, snapshot_from_native
from kai_solver.instances_io.anonymize import anonymize
from kai_solver.kubeobjects import KubeSettings, objects_from_snapshot
from kai_solver.kubeobjects.volumes import missing_claims
from kai_solver.units import ResourceSchema

TERMS = (
    ((Requirement("metadata.name", "In", ("node-a",)),),),
    ((Requirement("team", "In", ("red",)),),),
    ((Requirement("generation", "Gt", ("3",)),),),
)
SNAPSHOT = sanitize(
    Snapshot(
        now_s=5.0,
        schema=ResourceSchema(),
        nodes=(
            Node(
                "node-a",
                (1000, 0, 1000, 10),
                gpus=1,
                labels={"kubernetes.io/hostname": "node-a", "rack": "r7", "team": "red", "generation": "4"},
                taints=(Taint("dedicated", "vision"),),
            ),
        ),
        queues=(Queue("research", display_name="Research"), Queue("vision", parent="research")),
        gangs=(
            Gang(
                "prod",
                "train",
                "vision",
                SubGroup(children=(PodSet("workers", 1),), topology=TopologyConstraint("racks", "rack", "r")),
                (
                    Pod(
                        "prod",
                        "train-0",
                        (10, 0, 0, 1),
                        status=PodStatus.RUNNING,
                        node="node-a",
                        podset="workers",
                        constraints=Constraints(TERMS, tolerations=(Toleration("dedicated", "Equal", "vision"),)),
                    ),
                ),
            ),
        ),
        topologies=(Topology("racks", (TopologyLevel("rack", "r"),)),),
    )
)
SECRETS = (
    "node-a",
    "research",
    "Research",
    "vision",
    "train",
    "prod",
    "workers",
    "racks",
    "red",
    "r7",
    "dedicated",
    "team",
)


def test_no_name_is_left() -> None:
    text = repr(anonymize(SNAPSHOT))
    assert not [secret for secret in SECRETS if f"'{secret}'" in text]


def test_the_same_salt_gives_the_same_names_and_another_gives_others() -> None:
    assert anonymize(SNAPSHOT, b"a") == anonymize(SNAPSHOT, b"a")
    assert anonymize(SNAPSHOT, b"a") != anonymize(SNAPSHOT, b"b")
    assert anonymize(SNAPSHOT) != anonymize(SNAPSHOT)


def test_references_still_lead_somewhere() -> None:
    hidden = anonymize(SNAPSHOT)
    [node], [gang] = hidden.nodes, hidden.gangs
    pod = gang.pods[0]
    assert pod.node == node.name
    assert {queue.name for queue in hidden.queues} >= {gang.queue, hidden.queues[1].parent}
    assert next(gang.root.podsets()).name == pod.podset
    assert gang.root.topology is not None
    assert gang.root.topology.topology == hidden.topologies[0].name
    assert hidden.topologies[0].level_index(gang.root.topology.required) == 0
    assert hidden.topologies[0].level_index(gang.root.topology.preferred) == 0
    assert hidden.topologies[0].levels[0].node_label in node.labels
    assert sanitize(hidden) == hidden


def test_terms_tolerations_and_labels_still_match() -> None:
    hidden = anonymize(SNAPSHOT)
    [node], pod = hidden.nodes, hidden.gangs[0].pods[0]
    by_name, by_team, by_generation = (entry[0][0] for entry in pod.constraints.node_terms)
    assert (by_name.key, by_name.values) == ("metadata.name", (node.name,))
    assert node.labels["kubernetes.io/hostname"] == node.name
    assert node.labels[by_team.key] == by_team.values[0]
    assert (node.labels[by_generation.key], by_generation.values) == ("4", ("3",))
    toleration, taint = pod.constraints.tolerations[0], node.taints[0]
    assert (toleration.key, toleration.value) == (taint.key, taint.value)


def test_keys_of_well_known_labels_stay_and_numbers_stay() -> None:
    hidden = anonymize(SNAPSHOT)
    assert "kubernetes.io/hostname" in hidden.nodes[0].labels
    assert hidden.nodes[0].allocatable == SNAPSHOT.nodes[0].allocatable
    assert hidden.gangs[0].priority == SNAPSHOT.gangs[0].priority


def test_how_gpus_are_divided_is_kept() -> None:
    mig = {"nvidia.com/mig.strategy": "single", "node-role.kubernetes.io/mig-enabled": "true"}
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.product": "A100"} | mig
    document = {
        "format": "kai-solver/v1",
        "nodes": [{"name": "n", "gpus": 1, "labels": labels, "resources": {"nvidia.com/gpu.shared": 8}}],
        "queues": [{"name": "q"}],
        "gangs": [{"name": "g", "queue": "q", "pods": [{"gpus": 0.5}]}],
    }
    hidden = anonymize(snapshot_from_native(document))
    kept = hidden.nodes[0].labels
    assert (kept["nvidia.com/gpu.replicas"], kept["nvidia.com/mig.strategy"]) == ("4", "single")
    assert kept["nvidia.com/gpu.product"] != "A100"
    assert counted_gpu_milli(hidden.nodes[0], hidden.schema, hidden.policy) == 1000 + 8 * 250
    assert hidden.gangs[0].pods[0].constraints.node_terms[0][0][0].values == ("single",)


def test_a_claim_that_is_missing_stays_missing_under_another_name() -> None:
    """Written for KAI, the pod refers to it, and KAI does not start it."""
    missing = 'VolumeBinding: persistentvolumeclaim "payroll" not found'
    pods = [{"gpus": 1, "blocked": [missing, "payroll is closed"]}]
    document = {
        "format": "kai-solver/v1",
        "queues": [{"name": "q"}],
        "gangs": [{"name": "g", "queue": "q", "pods": pods}],
    }
    hashed = anonymize(snapshot_from_native(document))
    ((pod,),) = (gang.pods for gang in hashed.gangs)
    (claim,) = missing_claims(pod.constraints.blocked)
    assert len(pod.constraints.blocked) == 2
    assert "payroll" not in " ".join(pod.constraints.blocked)
    (written,) = objects_from_snapshot(hashed, KubeSettings()).pods
    assert [volume["persistentVolumeClaim"]["claimName"] for volume in written["spec"]["volumes"]] == [claim]
