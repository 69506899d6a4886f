"""What users can write is not believed as ours: names of devices, times, references to other namespaces."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.cluster.promises import Promises
from kai_solver.domain import Gang, Plan, Pod, Snapshot
from kai_solver.kubeobjects import KubeSettings, RawObjects, Recall, objects_from_documents, snapshot_from_objects
from kai_solver.kubeobjects.access import Access, Allowance
from kai_solver.kubeobjects.shares import Share, parse_share, share_text
from kai_solver.kubeobjects.times import LATE_S, bounded_creation_s
from kai_solver.kubeobjects.trust import Signer, Trust, signatures
from tests.kubeobjects.conftest import Build, merged
from tests.support.engines import patient_engine

Object = dict[str, Any]
SIGNER = Signer((b"k" * 32,))
STRICT = KubeSettings(trust=Trust(strict=True, signer=SIGNER))
FINDS = Path(__file__).parent / "data" / "finds"


def find(name: str) -> list[Object]:
    (path,) = FINDS.glob(f"{name}-*.json")
    items: list[Object] = json.loads(path.read_text())["items"]
    return items


def read(items: list[Object], settings: KubeSettings | None = None, now_s: float = 1.79e9) -> Snapshot:
    objects = objects_from_documents([("find.json", value) for value in items])
    return snapshot_from_objects(objects, now_s=now_s, settings=settings)


def decided(items: list[Object], settings: KubeSettings | None = None) -> tuple[Plan, set[str]]:
    """The plan, and the names of the pods that it binds now."""
    with patient_engine("greedy-only") as engine:
        plan = engine.cycle(read(items, settings))
    return plan, {bind.pod for bind in plan.binds if not bind.nominated}


# -- shared devices ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [None, STRICT])
def test_forged_devices_do_not_keep_others_from_their_gpus(settings: KubeSettings | None) -> None:
    _, bound = decided(find("12"), settings)
    least = 10 if settings is None else 15  # in a cluster these pods never got a device
    assert len(bound) == least


def reservation(group: str, index: int = 0, node: str = "n", **users: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"gpu-reservation-{group}",
            "namespace": "kai-resource-reservation",
            "uid": f"r-{group}",
            "labels": {"runai-gpu-group": group},
            "annotations": {"run.ai/reserve_for_gpu_index": str(index)}
            | {f"users.kai-solver/{uid.replace('_', '-')}": text for uid, text in users.items()},
        },
        "spec": {"nodeName": node, "containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }


def share(build: Build, name: str = "p", fraction: str = "0.5", group: str = "", **annotations: str) -> Object:
    labels = {"runai-gpu-group": group} if group else {}
    return build.pod(
        name, node="n", phase="Running", labels=labels, annotations={"gpu-fraction": fraction, **annotations}
    )


def signed(group: str, uid: str, amount: str = "500m") -> dict[str, str]:
    value = ("kai-solver/gpu-share", f"{amount} of {group}")
    return dict([value, *signatures([value], uid, SIGNER)])


def test_a_reservation_pod_says_which_pod_has_its_device_whatever_that_says(build: Build) -> None:
    liar = share(build, fraction="0.1", group="other", **{"kai-solver/devices": "5"})
    found = build.one_pod(liar, reservation("g", 3, uid_p="500m ns/p"), reservation("other", 4), settings=STRICT)
    assert (found.gpu_groups, found.devices, found.gpu.milli) == (("g",), (3,), 500)


def test_a_pod_that_takes_off_all_that_it_says_keeps_what_it_has(build: Build) -> None:
    bare = build.pod(node="n", phase="Running")
    found = build.one_pod(bare, reservation("g", 3, uid_p="20000Mi ns/p"), settings=STRICT)
    assert (found.gpu_groups, found.devices, found.gpu.memory_mib) == (("g",), (3,), 20_000)


def test_what_was_signed_for_another_pod_says_nothing(build: Build) -> None:
    own = share(build, **signed("g", "uid-p"))
    assert build.one_pod(own, settings=STRICT).gpu_groups == ("g",), "its reservation pod may not be seen yet"
    copied = share(build, **signed("g", "uid-of-another"))
    assert build.one_pod(copied, settings=STRICT).gpu_groups == ()


def test_of_what_another_key_signed_nothing_is_believed(build: Build) -> None:
    lost = replace(STRICT, trust=Trust(strict=True, signer=Signer((b"x" * 32,))))
    pod = share(build, group="g", **signed("g", "uid-p"))
    assert build.one_pod(pod, settings=lost).gpu.devices == 0
    again = build.one_pod(pod, reservation("g", 2), settings=lost)
    assert (again.gpu_groups, again.devices) == (("g",), (2,)), "worked out again from the reservation pods"


def test_without_any_proof_a_pod_holds_no_gpu_and_says_so(build: Build) -> None:
    snapshot = build.read(share(build, group="g"), reservation("g", node="elsewhere"), settings=STRICT)
    (pod,) = (pod for gang in snapshot.gangs for pod in gang.pods)
    assert (pod.gpu.devices, pod.gpu_groups) == (0, ())
    assert any("no scheduler gave it any" in text for text in build.texts(snapshot))


def test_a_place_that_is_promised_to_a_shared_pod_is_kept(build: Build) -> None:
    promises, moved = Promises(), share(build, group="g")
    promises.move(moved, "n")
    promises.overlay((), 0.0)
    (stand_in,) = promises.overlay((), 1.0)
    (found,) = build.read(dict(stand_in), settings=STRICT).foreign
    assert (found.node, found.gpu.milli, found.gpu_groups) == ("n", 500, ())
    forged = merged(dict(stand_in), {"metadata": {"uid": "0b0f0c3e-0000-4000-8000-000000000000"}})
    (found,) = build.read(forged, settings=STRICT).foreign
    assert found.gpu.devices == 0, "the API server names objects, not their users"


def test_labels_alone_never_fill_a_device_beyond_its_room(build: Build) -> None:
    liars = [share(build, f"liar-{index}", "0.4", "g") for index in range(20)]
    owner = share(build, fraction="0.5")
    snapshot = build.read(owner, *liars, reservation("g", 0, uid_p="500m ns/p"), settings=STRICT)
    pods = [pod for gang in snapshot.gangs for pod in gang.pods]
    assert sum(pod.gpu.milli for pod in pods if pod.gpu_groups) == 900
    assert next(pod for pod in pods if pod.name == "p").gpu.milli == 500


def test_labels_of_a_waiting_pod_say_nothing(build: Build) -> None:
    pod = build.pod(labels={"runai-gpu-group": "g"}, annotations={"gpu-fraction": "0.5"})
    assert build.one_pod(pod, reservation("g"), settings=STRICT).gpu_groups == ()


def test_a_bind_request_tells_the_devices_that_a_binder_gave(build: Build) -> None:
    request = {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {"name": "p", "namespace": "ns", "ownerReferences": [{"kind": "Pod", "uid": "uid-p"}]},
        "spec": {"podName": "p", "selectedNode": "n", "selectedGPUGroups": ["g"]},
        "status": {"phase": "Succeeded"},
    }
    liar = share(build, group="other")
    assert build.one_pod(liar, request, reservation("other"), settings=STRICT).gpu_groups == ("g",)


def test_proofs_are_asked_for_again_when_they_come_later(build: Build) -> None:
    """A pod object that did not change may hold something else by what reservation pods say now."""
    recall, node = Recall(), build.node()
    pod, settings = share(build, group="g"), STRICT

    def groups(*more: Object) -> tuple[str, ...]:
        objects = RawObjects(pods=(pod, *more), nodes=(node,))
        snapshot = snapshot_from_objects(objects, now_s=build.now_s, settings=settings, recall=recall)
        return snapshot.gangs[0].pods[0].gpu_groups

    assert groups() == ()
    assert groups(reservation("g")) == ("g",)
    assert groups(reservation("g"), reservation("h", uid_p="500m ns/p")) == ("h",)
    assert groups() == ()


@given(
    st.lists(st.from_regex(r"[a-z0-9-]{1,8}", fullmatch=True), min_size=1, max_size=4),
    st.integers(1, 999),
    st.integers(0, 200_000),
)
def test_a_written_share_is_read_as_it_was(groups: list[str], milli: int, memory_mib: int) -> None:
    from kai_solver.domain import gpus_asked

    gpu = gpus_asked(len(groups), 0 if memory_mib else milli, memory_mib)
    assert parse_share(share_text(Share(tuple(groups), gpu))) == Share(tuple(groups), gpu)


@given(st.text(max_size=40))
def test_a_share_that_cannot_be_read_is_none(text: str) -> None:
    found = parse_share(text)
    assert found is None or share_text(found) == text or found.gpu.devices > 0


# -- signatures --------------------------------------------------------------------------------------------------------


@given(uid=st.text(max_size=20), name=st.text(max_size=20), value=st.text(max_size=20), other=st.text(max_size=60))
def test_a_signature_holds_for_one_value_of_one_object(uid: str, name: str, value: str, other: str) -> None:
    signature = SIGNER.sign(uid, name, value)
    assert SIGNER.verifies(uid, name, value, signature) == bool(uid)
    assert not SIGNER.verifies(uid, name, value, other)
    for changed in ((uid + "x", name, value), (uid, name + "x", value), (uid, name, value + "x")):
        assert not SIGNER.verifies(*changed, signature)
    assert not SIGNER.verifies(uid + name, "", value, signature) or not name


def test_former_keys_still_verify() -> None:
    old, new = b"o" * 32, b"n" * 32
    signature = Signer((old,)).sign("u", "n", "v")
    assert Signer((new, old)).verifies("u", "n", "v", signature)
    assert not Signer((new,)).verifies("u", "n", "v", signature)
    assert not Signer().verifies("u", "n", "v", signature)
    assert Signer().sign("u", "n", "v") == ""


@pytest.mark.parametrize("by", ["nobody", "us", "admission"])
def test_wished_gpus_are_believed_only_of_us(build: Build, by: str) -> None:
    value = ("kai-solver/gpus", "2,3")
    annotations = dict([value, *(signatures([value], "uid-p", SIGNER) if by == "us" else ())])
    guarded = frozenset({"kai-solver/gpus"} if by == "admission" else ())
    settings = KubeSettings(trust=Trust(strict=True, guarded=guarded, signer=SIGNER))
    pod = build.pod(gpus=2, node="n", phase="Running", annotations=annotations)
    assert build.one_pod(pod, settings=settings).wished == (() if by == "nobody" else (2, 3))
    assert build.one_pod(pod).wished == (2, 3), "a file knows no signer"


@pytest.mark.parametrize("key", ["kai.scheduler/numa-placement-observed", "kai.scheduler/numa-placement-predicted"])
@pytest.mark.parametrize("is_signed", [False, True])
def test_numa_zones_are_believed_only_of_us(build: Build, key: str, is_signed: bool) -> None:
    value = (key, '[{"zone": "node-0", "amount": {"cpu": "4"}}]')
    annotations = dict([value, *(signatures([value], "uid-p", SIGNER) if is_signed else ())])
    zones = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n"},
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "zones": [
            {
                "name": f"node-{at}",
                "type": "Node",
                "resources": [{"name": "cpu", "allocatable": "32", "available": "32"}],
            }
            for at in range(2)
        ],
    }
    pod = build.pod(node="n", phase="Running", annotations=annotations)
    believed = bool(build.one_pod(pod, zones, settings=STRICT).zones)
    assert believed == (is_signed and "predicted" in key)
    assert build.one_pod(pod, zones).zones


def test_what_only_exports_write_says_nothing_in_a_cluster(build: Build) -> None:
    blocked = build.pod(annotations={"kai-solver/blocked": '["no"]', "kai-solver/devices": "x"})
    assert build.one_pod(blocked, settings=STRICT).constraints.blocked == ()
    bomb = build.pod(annotations={"kai-solver/blocked": "[" * 100_000})
    assert build.one_pod(bomb, settings=STRICT).constraints.blocked == ()
    aside = build.pod_group(more={"metadata": {"annotations": {"kai-solver/set-aside": "never reclaim me"}}})
    assert build.one_gang(aside, settings=STRICT).set_aside == ""
    assert build.one_gang(aside).set_aside == "never reclaim me"
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "annotations": {"kai-solver/problem": "no"}},
        "spec": {},
    }
    claims = build.read(claim, settings=STRICT).claims
    assert claims is not None
    assert claims.claims[0].problem == ""


# -- namespaces --------------------------------------------------------------------------------------------------------


def gang_of(snapshot: Snapshot, pod: str) -> Gang:
    (gang,) = (gang for gang in snapshot.gangs if any(one.key == pod for one in gang.pods))
    return gang


@pytest.mark.parametrize("settings", [None, STRICT])
def test_a_pod_group_of_another_namespace_captures_no_pods(settings: KubeSettings | None) -> None:
    items = find("15")
    gang = gang_of(read(items, settings), "other/victim-0")
    assert (gang.namespace, gang.queue) == ("other", "other")
    _, bound = decided(items, settings)
    assert bound == {"other/victim-0"}


@pytest.mark.parametrize("reference", ["owner", "annotation"])
def test_a_pod_does_not_join_a_pod_group_of_another_namespace(build: Build, reference: str) -> None:
    rich = {"metadata": {"namespace": "rich", "ownerReferences": [build.owner("Job")]}, "spec": {"queue": "rich"}}
    if reference == "annotation":
        rich["metadata"] = {
            "namespace": "rich",
            "annotations": {"kai.scheduler/top-owner-metadata": "name: owner\nuid: u-owner\n"},
        }
    thief = build.pod("thief", owner=build.owner("Job"))
    gang = gang_of(build.read(build.pod_group(more=rich), thief), "ns/thief")
    assert (gang.namespace, gang.queue) == ("ns", "default-queue")


def test_labels_of_an_owner_in_another_namespace_say_nothing(build: Build) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "rich", "uid": "u-owner", "labels": {"kai.scheduler/queue": "rich"}},
    }
    thief = build.pod("thief", owner=build.owner("Job", "j"))
    assert gang_of(build.read(job, thief), "ns/thief").queue == "default-queue"
    own = build.pod("own", {"metadata": {"namespace": "rich"}}, owner=build.owner("Job", "j"))
    assert gang_of(build.read(job, own), "rich/own").queue == "rich"


def test_a_pod_that_owns_another_is_of_the_same_namespace(build: Build) -> None:
    leader = build.pod("leader", {"metadata": {"namespace": "rich", "uid": "u-owner"}})
    leader["metadata"]["labels"] = {"kai.scheduler/queue": "rich"}
    thief = build.pod("thief", owner=build.owner("Pod", "leader", api="v1"))
    assert gang_of(build.read(leader, thief), "ns/thief").queue == "default-queue"


def test_a_claim_of_another_namespace_is_not_the_pods(build: Build) -> None:
    def claim(namespace: str) -> Object:
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": f"made-{namespace}",
                "namespace": namespace,
                "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
                "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "uid-p"}],
            },
            "spec": {},
        }

    pod = build.pod(more={"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}})
    assert build.one_pod(pod, claim("evil")).claims == ()
    assert build.one_pod(pod, claim("ns"), claim("evil")).claims == ("ns/made-ns",)


# -- times -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [None, STRICT])
def test_a_stated_creation_does_not_jump_the_queue(settings: KubeSettings | None) -> None:
    _, bound = decided(find("18"), settings)
    assert bound == {"user/early1", "user/early2"}


@given(
    stated_s=st.floats(0, 4e9),
    written_s=st.floats(1, 4e9),
    pods_s=st.lists(st.floats(1, 4e9), max_size=4),
)
def test_a_creation_is_never_before_what_the_api_server_saw(
    stated_s: float, written_s: float, pods_s: list[float]
) -> None:
    found_s = bounded_creation_s(stated_s, written_s, pods_s)
    assert found_s >= min([written_s, *pods_s])
    assert found_s <= max([written_s, *pods_s])


def test_a_pod_group_of_ours_keeps_its_place_when_its_pods_are_made_again() -> None:
    assert bounded_creation_s(1000.0, 1005.0, [1000.0, 1001.0]) == 1000.0
    assert bounded_creation_s(1000.0, 1005.0, [90_000.0]) == 1005.0
    assert bounded_creation_s(1000.0, 9000.0, [1000.0]) == 1000.0, "written late, after an outage"
    assert bounded_creation_s(10.0, 90_000.0 + LATE_S, [90_000.0]) == 90_000.0 + LATE_S, "a lie"


STAMPS = ["last-start-timestamp", "last-eviction-timestamp", "stale-podgroup-timestamp"]


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("settings", [None, STRICT])
def test_a_time_of_the_future_says_nothing(build: Build, stamp: str, settings: KubeSettings | None) -> None:
    annotations = {f"kai.scheduler/{stamp}": "2099-01-01T00:00:00Z"}
    group = build.pod_group(more={"metadata": {"annotations": annotations}})
    snapshot = build.read(group, settings=settings)
    (gang,) = snapshot.gangs
    assert (gang.last_start_s, gang.last_eviction_s, gang.stale_since_s) == (None, None, None)
    if settings is None:
        assert any("is in the future" in text for text in build.texts(snapshot))


def test_when_a_gang_began_its_pods_say_and_not_its_pod_group(build: Build) -> None:
    said = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-10T00:00:00Z"}
    pod = build.pod(node="n", phase="Running", annotations={"pod-group-name": "pg"})
    pod["status"]["conditions"] = [said]
    stated = {"kai.scheduler/last-start-timestamp": "1970-01-02T00:00:00Z"}
    group = build.pod_group(more={"metadata": {"annotations": stated}})
    assert build.one_gang(group, pod, settings=STRICT).last_start_s == 9 * 86_400.0
    assert build.one_gang(group, pod).last_start_s == 86_400.0, "a file is believed"


# -- others ------------------------------------------------------------------------------------------------------------


BROKEN = {"queue": "q", "minMember": 2, "subGroups": [{"name": "a", "parent": "a"}]}
LOST = {"queue": "q", "minMember": 1}


@pytest.mark.parametrize("spec", [BROKEN, LOST])
def test_a_pod_group_that_is_spoilt_keeps_nothing_from_being_reclaimed(build: Build, spec: Object) -> None:
    named = {"pod-group-name": "pg"}
    runs = build.pod("runs", gpus=2, node="n", phase="Running", annotations=named)
    waits = build.pod("waits", gpus=2, annotations=named)
    ghost = build.pod("ghost", node="nowhere", phase="Running", annotations=named)
    objects = [build.pod_group(spec=spec), build.queue(), runs, waits, *([ghost] if spec is LOST else [])]
    gang = build.one_gang(*objects, settings=STRICT)
    (podset,) = gang.root.podsets()
    assert (gang.set_aside, gang.queue, gang.preemptible, podset.min_member) == ("", "q", True, 1)
    by_name = {pod.name: pod for pod in gang.pods}
    assert by_name["runs"].node == "n"
    assert by_name["waits"].constraints.blocked[0].startswith("its PodGroup is set aside: ")
    assert build.one_gang(*objects).set_aside, "in a file it is load, as in KAI"
    alone = build.one_gang(build.pod_group(spec=BROKEN), waits, settings=STRICT)
    assert alone.set_aside, "without pods that run there is nothing to reclaim"


def test_a_gang_that_lost_a_node_stays_as_preemptible_as_it_is(build: Build) -> None:
    named = {"pod-group-name": "pg"}
    pods = [build.pod(node, node=node, phase="Running", annotations=named) for node in ("n", "nowhere")]
    for stated in ("preemptible", "non-preemptible"):
        group = build.pod_group(spec={**LOST, "preemptibility": stated})
        gang = build.one_gang(group, build.queue(), *pods, settings=STRICT)
        assert (gang.set_aside, gang.preemptible) == ("", stated == "preemptible")


def test_a_pod_group_that_is_spoilt_is_charged_to_no_queue_that_its_namespace_may_not_use(build: Build) -> None:
    settings = replace(STRICT, access=Access(queues=(Allowance(("q",), ("others",)),)))
    runs = build.pod("runs", node="n", phase="Running", annotations={"pod-group-name": "pg"})
    gang = build.one_gang(build.pod_group(spec=BROKEN), build.queue(), runs, settings=settings)
    assert gang.queue == "default-queue"


def test_no_pod_keeps_all_others_from_the_whole_cluster(build: Build) -> None:
    term = {"topologyKey": "kai-solver/cluster", "namespaceSelector": {}, "labelSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    tyrant = build.pod("tyrant", {"spec": {"affinity": affinity}}, node="n", phase="Running")
    snapshot = build.read(tyrant, build.pod("other"), settings=STRICT)
    everybody = [*snapshot.foreign, *(pod for gang in snapshot.gangs for pod in gang.pods)]
    assert [pod.constraints.anti_affinity for pod in everybody] == [(), ()]
    assert [pod.name for pod in snapshot.foreign] == ["tyrant"], "what runs still holds its node"


@pytest.mark.parametrize("forged", [{"gpu-fraction": "much"}, {"gpu-memory": "1", "gpu-fraction": "0.5"}])
def test_what_runs_holds_its_place_whatever_its_users_write_on_it(build: Build, forged: dict[str, str]) -> None:
    pod = build.pod(gpus=2, node="n", phase="Running", annotations=forged)
    assert build.one_pod(pod, settings=STRICT).gpu.devices == 2
    shared = build.pod(node="n", phase="Running", annotations=forged)
    assert build.one_pod(shared, reservation("g", uid_p="500m ns/p"), settings=STRICT).gpu.milli == 500
    waiting = build.pod(gpus=2, annotations=forged)
    assert build.read(waiting, settings=STRICT).gangs == ()
    assert build.read(pod).gangs == (), "of a file every object that cannot be read is set aside"


def plain(pod: Pod) -> Mapping[str, object]:
    return {"gpu": pod.gpu, "groups": pod.gpu_groups, "devices": pod.devices, "wished": pod.wished, "zones": pod.zones}


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "kai-solver/devices",
                "kai-solver/gpus",
                "kai-solver/gpu-share",
                "kai-solver/signed-gpus",
                "kai-solver/signed-gpu-share",
                "kai-solver/blocked",
                "runai-gpu-group",
                "kai.scheduler/numa-placement-observed",
                "kai.scheduler/numa-placement-predicted",
            ]
        ),
        st.sampled_from(["0", "0,1", "500m of g", "g", "[[[", '["x"]', "h", '[{"zone": "node-0", "amount": {}}]', ""]),
    )
)
def test_no_annotation_of_a_user_changes_what_a_pod_of_ours_holds(forged: dict[str, str]) -> None:
    build = Build()
    held = reservation("g", 3, uid_p="500m ns/p"), reservation("h", 4)

    def reading(annotations: dict[str, str], labels: dict[str, str]) -> Mapping[str, object]:
        pod = build.pod(node="n", phase="Running", annotations=annotations, labels=labels)
        return plain(build.one_pod(pod, *held, settings=STRICT))

    honest = reading({"gpu-fraction": "0.5"}, {"runai-gpu-group": "g"})
    labels = {name: value for name, value in forged.items() if name == "runai-gpu-group"}
    assert reading({"gpu-fraction": "0.9"} | forged, labels) == honest
