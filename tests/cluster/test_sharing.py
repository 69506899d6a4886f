"""Shared devices are held by reservation pods, one a group, as long as somebody uses them."""

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, Object, WatchEvent
from kai_solver.cluster.binding import BindError, Placement
from kai_solver.cluster.resources import CONFIG_MAPS, NODES, PODS
from kai_solver.cluster.sharing import ReservationPod, Sharing, node_pool
from tests.cluster.preparing_world import World

RESERVED = "kai-resource-reservation"
INDEX = "run.ai/reserve_for_gpu_index"


class Bench(World):
    """An agent writes the device into each reservation pod ``after_s`` seconds; negative: never."""

    def __init__(self, after_s: float = 1.0) -> None:
        super().__init__()
        self.after_s = after_s
        self.while_waiting = self.agents
        self.sharing = self.scheduler()
        self.node("a")
        self.node("b", **{"kai.scheduler/node-pool": "other"})

    def scheduler(self) -> Sharing:
        is_ours = node_pool(self.store, "kai.scheduler/node-pool", "")
        kind = ReservationPod("us", "agent")
        found = Sharing(self.api, self.store, self.patience(40), kind, is_ours, lambda: time.time() + self.now_s)
        self.see()
        return found

    def agents(self, now_s: float) -> None:
        for index, pod in enumerate(self.reservations()):
            if pod["metadata"].get("deletionTimestamp"):
                self.api.delete(PODS, RESERVED, pod["metadata"]["name"], grace_s=0)
            elif 0 <= self.after_s <= now_s and INDEX not in pod["metadata"]["annotations"]:
                body = {"metadata": {"annotations": {INDEX: str(index + 3)}}}
                self.api.patch(PODS, RESERVED, pod["metadata"]["name"], body)

    def reservations(self) -> list[Object]:
        return self.api.page(PODS, namespace=RESERVED).items

    def staying(self) -> list[str]:
        found = [pod for pod in self.reservations() if "deletionTimestamp" not in pod["metadata"]]
        return [pod["metadata"]["labels"]["runai-gpu-group"] for pod in found]

    def user(self, name: str, *groups: str, node: str = "a", **fields: Any) -> Placement:
        """A pod that asks for half of each device, and the place that a plan gives it."""
        devices = tuple((index, 500) for index in range(len(groups)))
        asked = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": str(len(groups))}
        fields["annotations"] = asked | fields.get("annotations", {})
        share = ("kai-solver/gpu-share", f"500m of {' '.join(groups)}")
        return replace(self.pod(name, node, **fields), groups=groups, devices=devices, annotations=(share,))

    def ready(self, name: str, *groups: str) -> Placement:
        placement = self.user(name, *groups)
        self.sharing.prepare(placement)
        return placement

    def labels(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.api.get(PODS, "n", name)["metadata"].get("labels") or {}
        return found


def test_a_reservation_pod_holds_a_whole_device_and_the_pod_is_told_its_group() -> None:
    bench = Bench()
    toleration = {"key": "gpu", "operator": "Exists"}
    placement = bench.user("p", "g", tolerations=[toleration])
    assert bench.sharing.concerns(placement)
    bench.sharing.prepare(placement)
    (found,) = bench.reservations()
    assert found["metadata"]["labels"]["app"] == "kai-resource-reservation"
    assert found["metadata"]["labels"]["runai-gpu-group"] == "g"
    assert found["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert found["metadata"]["annotations"]["kai-solver/gpus"] == "0", "which device it had best get"
    assert found["spec"]["nodeName"] == "a"
    assert found["spec"]["tolerations"] == [toleration]
    assert found["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert bench.labels("p") == {"runai-gpu-group": "g"}


def test_a_second_pod_of_the_group_shares_its_reservation() -> None:
    bench = Bench()
    bench.ready("p", "g")
    before_s = bench.now_s
    bench.ready("q", "g")
    assert bench.staying() == ["g"]
    assert bench.now_s == before_s, "nothing to wait for"


def test_pods_of_one_group_at_once_make_one_reservation() -> None:
    bench = Bench(after_s=-1)
    placements = [bench.user(f"p{i}", "g") for i in range(4)]
    threads = [threading.Thread(target=bench.sharing._make, args=("one", s, "g", {})) for s in placements]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.staying() == ["g"]


def test_several_devices_have_a_label_each() -> None:
    bench = Bench()
    bench.ready("p", "g", "h")
    assert sorted(bench.staying()) == ["g", "h"]
    assert bench.labels("p") == {"runai-gpu-group/g": "g", "runai-gpu-group/h": "h"}


def test_labels_of_an_attempt_before_are_replaced() -> None:
    bench = Bench()
    bench.ready("p", "g", "h")
    uid = bench.api.get(PODS, "n", "p")["metadata"]["uid"]
    bench.see()
    bench.sharing.prepare(Placement("n", "p", uid, "a", devices=((0, 500),), groups=("k",)))
    assert bench.labels("p") == {"runai-gpu-group": "k"}


def test_config_maps_that_the_pod_refers_to_say_its_devices() -> None:
    bench = Bench()
    reference = {"configMapKeyRef": {"name": "x-shared-gpu-0", "key": "NVIDIA_VISIBLE_DEVICES"}}
    other = {"configMapKeyRef": {"name": "its-own", "key": "k"}}
    container = {
        "name": "c",
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": reference}, {"name": "K", "valueFrom": other}],
        "envFrom": [{"configMapRef": {"name": "x-shared-gpu-0-evar"}}],
    }
    annotations = {"runai/shared-gpu-configmap": "x-shared-gpu"}
    placement = bench.user("p", "g", annotations=annotations, containers=[container])
    for _ in range(2):  # done twice it does no harm
        bench.sharing.prepare(placement)
    maps = {found["metadata"]["name"]: found for found in bench.api.page(CONFIG_MAPS, namespace="n").items}
    assert maps.keys() == {"x-shared-gpu-0", "x-shared-gpu-0-evar"}
    assert maps["x-shared-gpu-0"]["data"]["NVIDIA_VISIBLE_DEVICES"] == "3"
    assert maps["x-shared-gpu-0"]["data"]["GPU_PORTION"] == "0.5"
    assert maps["x-shared-gpu-0-evar"]["data"] == {}
    assert maps["x-shared-gpu-0"]["metadata"]["ownerReferences"][0]["uid"] == placement.uid


def test_an_agent_that_never_answers_is_waited_for_40_seconds_and_taken_back() -> None:
    bench = Bench(after_s=-1)
    placement = bench.user("p", "g")
    bench.sharing.assume(placement)
    with pytest.raises(BindError, match="within 40 s"):
        bench.sharing.prepare(placement)
    assert bench.now_s == pytest.approx(40, abs=0.5)
    assert bench.staying() == ["g"]
    bench.sharing.undo(placement)
    assert bench.staying() == []
    assert bench.labels("p") == {}


def test_undoing_leaves_what_others_use() -> None:
    bench = Bench()
    first = bench.ready("p", "g")
    bench.bind(first)
    second = bench.ready("q", "g")
    bench.see()
    bench.sharing.undo(second)
    assert bench.staying() == ["g"]
    assert bench.labels("p") == {"runai-gpu-group": "g"}
    assert bench.labels("q") == {}


def test_labels_that_no_watch_has_shown_are_taken_off() -> None:
    bench = Bench()
    placement = bench.ready("p", "g", "h")
    assert "labels" not in bench.store.get(PODS, "n/p")["metadata"]  # type: ignore[index]
    bench.sharing.undo(placement)
    assert bench.labels("p") == {}


def test_labels_of_another_pod_of_that_name_stay() -> None:
    bench = Bench()
    placement = bench.ready("p", "g")
    bench.api.delete(PODS, "n", "p")
    bench.api.create(PODS, "n", {"metadata": {"name": "p", "labels": {"runai-gpu-group": "g"}}, "spec": {}})
    bench.sharing.undo(placement)
    assert bench.labels("p") == {"runai-gpu-group": "g"}


def test_a_node_that_refuses_ends_the_waiting() -> None:
    bench = Bench(after_s=-1)

    def refuse(_: float) -> None:
        for pod in bench.reservations():
            status = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
            bench.api.patch(PODS, RESERVED, pod["metadata"]["name"], {"status": status}, subresource="status")

    bench.while_waiting = refuse
    with pytest.raises(BindError, match="UnexpectedAdmissionError"):
        bench.sharing.prepare(bench.user("p", "g"))
    assert bench.now_s < 1


def test_what_may_not_make_reservation_pods_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    placement = bench.user("p", "g")

    def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(403, "Forbidden", "may not")

    monkeypatch.setattr(bench.api, "create", refuse)
    with pytest.raises(ApiError, match="may not"):
        bench.sharing.prepare(placement)


# -- orphans -----------------------------------------------------------------------------------------------------------


def test_a_reservation_goes_with_its_last_user() -> None:
    bench = Bench()
    for name in ("p", "q"):
        bench.bind(bench.ready(name, "g"))
    assert bench.sharing.collect() == 0
    bench.api.delete(PODS, "n", "p", grace_s=0)
    bench.see()
    assert bench.sharing.collect() == 0
    bench.api.patch(PODS, "n", "q", {"status": {"phase": "Succeeded"}}, subresource="status")
    bench.see()
    assert bench.sharing.collect() == 1
    assert bench.sharing.collect() == 0, "it leaves already"


def test_a_pod_on_its_way_counts_as_a_user() -> None:
    bench = Bench()
    bench.ready("p", "g")
    assert bench.sharing.collect() == 0
    bench.now_s += 400
    assert bench.sharing.collect() == 1, "whoever was so long on his way does not come"


def test_after_a_restart_orphans_are_found() -> None:
    bench = Bench()
    bench.bind(bench.ready("p", "g"))
    bench.ready("q", "h")  # and the process dies before it is bound
    bench.see()
    again = bench.scheduler()
    for pod in bench.store.all(PODS):
        again._hear(PODS, f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", None, pod)
    assert again.collect() == 1
    assert bench.staying() == ["g"]


def test_what_others_made_is_an_orphan_only_when_it_is_old() -> None:
    bench = Bench()
    labels = {"app": "kai-resource-reservation", "runai-gpu-group": "theirs"}
    bench.api.create(PODS, RESERVED, {"metadata": {"name": "r", "labels": labels}, "spec": {"nodeName": "a"}})
    bench.see()
    assert bench.sharing.collect() == 0
    bench.now_s += 130
    assert bench.sharing.collect() == 1


def test_nodes_of_other_pools_are_left_alone() -> None:
    bench = Bench()
    labels = {"app": "kai-resource-reservation", "runai-gpu-group": "theirs"}
    bench.api.create(PODS, RESERVED, {"metadata": {"name": "r", "labels": labels}, "spec": {"nodeName": "b"}})
    bench.see()
    bench.now_s += 1000
    assert bench.sharing.collect() == 0
    bench.api.delete(NODES, "", "b")
    bench.see()
    assert bench.sharing.collect() == 1, "a node that is gone is nobody's"


def test_whole_devices_wait_until_an_orphan_is_gone() -> None:
    bench = Bench()
    bench.bind(bench.ready("p", "g"))
    whole = replace(bench.pod("w", "a"), devices=((0, 1000),))
    assert not bench.sharing.concerns(whole)
    bench.api.delete(PODS, "n", "p", grace_s=0)
    bench.see()
    assert bench.sharing.concerns(whole)
    bench.sharing.prepare(whole)
    assert bench.reservations() == []


def test_whole_devices_wait_also_where_another_sent_it_away() -> None:
    bench = Bench()
    bench.ready("p", "g")
    bench.sharing._flying.clear()
    whole = replace(bench.pod("w", "a"), devices=((0, 1000),))
    (reservation,) = bench.reservations()
    bench.api.delete(PODS, RESERVED, reservation["metadata"]["name"])
    bench.see()
    assert bench.sharing.concerns(whole), "its device is free only when it is gone"
    bench.sharing.prepare(whole)
    assert bench.reservations() == []
    assert not bench.sharing.concerns(whole)


def test_a_group_whose_reservation_leaves_gets_a_new_one() -> None:
    bench = Bench()
    placement = bench.ready("p", "g")
    (first,) = bench.reservations()
    bench.sharing._flying.clear()
    assert bench.sharing.collect() == 1
    bench.sharing.prepare(placement)
    (second,) = bench.reservations()
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


def test_the_collector_runs_until_told_to_stop_and_only_where_it_leads() -> None:
    bench = Bench()
    bench.leads = False
    labels = {"runai-gpu-group": "g", "app.kubernetes.io/managed-by": "us"}
    bench.api.create(PODS, RESERVED, {"metadata": {"name": "r", "labels": labels}, "spec": {"nodeName": "a"}})
    stop = threading.Event()
    thread = threading.Thread(target=bench.sharing.run, args=(stop,))
    thread.start()
    bench.see()
    time.sleep(0.8)
    assert bench.staying() == ["g"]
    bench.leads = True
    bench.api.patch(PODS, RESERVED, "r", {"metadata": {"labels": {"x": "y"}}})
    bench.see()
    end_s = time.monotonic() + 10
    while bench.staying() and time.monotonic() < end_s:
        time.sleep(0.05)
    stop.set()
    bench.sharing._news.set()
    thread.join(5)
    assert bench.staying() == []


# -- what users can write ----------------------------------------------------------------------------------------------


def users(bench: Bench) -> dict[str, set[str]]:
    """By group: values by which its reservation pod names users."""
    return {
        pod["metadata"]["labels"]["runai-gpu-group"]: {
            text for name, text in pod["metadata"]["annotations"].items() if name.startswith("users.kai-solver/")
        }
        for pod in bench.reservations()
    }


def test_reservation_pods_name_the_users_of_their_devices() -> None:
    bench = Bench()
    for name, groups in (("p", ("g", "h")), ("q", ("g",))):
        bench.bind(bench.ready(name, *groups))
    assert users(bench) == {"g": {"500m n/p", "500m n/q"}, "h": {"500m n/p"}}
    bench.api.delete(PODS, "n", "p", grace_s=0)
    bench.see()
    bench.bind(bench.ready("r", "g"))
    assert users(bench)["g"] == {"500m n/q", "500m n/r"}, "names of pods that are gone go, too"


def test_what_was_not_bound_is_named_no_more() -> None:
    bench = Bench()
    placement = bench.ready("p", "g")
    bench.bind(bench.ready("q", "g"))
    bench.sharing.undo(placement)
    assert users(bench) == {"g": {"500m n/q"}}
    share = ("kai-solver/gpu-share", "500m of h")
    bench.sharing.prepare(replace(placement, groups=("h",), annotations=(share,)))
    bench.see()
    bench.sharing.prepare(placement)
    assert users(bench) == {"g": {"500m n/q", "500m n/p"}, "h": set()}, "one place at a time"


@pytest.mark.parametrize("change", [{"labels": {"runai-gpu-group": None}}, {"annotations": {"gpu-fraction": None}}])
def test_a_device_stays_reserved_whatever_its_users_take_off_themselves(change: Object) -> None:
    bench = Bench()
    bench.bind(bench.ready("p", "g"))
    bench.api.patch(PODS, "n", "p", {"metadata": change})
    bench.see()
    bench.now_s += 400
    assert bench.sharing.collect() == 0
    bench.api.delete(PODS, "n", "p", grace_s=0)
    bench.see()
    assert bench.sharing.collect() == 1


@pytest.mark.parametrize("annotations", [{}, {"gpu-fraction": "0.1"}])
def test_a_forged_label_keeps_no_device_from_others_for_nothing(annotations: dict[str, str]) -> None:
    bench = Bench()
    bench.bind(bench.ready("p", "g"))
    bench.bind(bench.ready("q", "h"))
    bench.api.patch(PODS, "n", "q", {"metadata": {"labels": {"runai-gpu-group": "g"}, "annotations": annotations}})
    forger = bench.pod("forger", "a")
    bench.api.patch(PODS, "n", "forger", {"metadata": {"labels": {"runai-gpu-group": "g"}}})
    bench.bind(forger)
    bench.api.delete(PODS, "n", "p", grace_s=0)
    bench.see()
    bench.now_s += 400
    assert bench.sharing.collect() == 1
    assert bench.staying() == ["h"]


@pytest.mark.parametrize("owner", [None, "u-another-pod"])
def test_a_config_map_of_another_is_not_written(owner: str | None) -> None:
    bench = Bench()
    metadata: Object = {"name": "x-root-ca.crt", "labels": {"app": "important"}}
    metadata |= {"ownerReferences": [{"kind": "Pod", "name": "p", "uid": owner}]} if owner else {}
    bench.api.create(CONFIG_MAPS, "n", {"metadata": metadata, "data": {"ca.crt": "..."}})
    before = bench.api.get(CONFIG_MAPS, "n", "x-root-ca.crt")
    placement = bench.user("p", "g", **refers("x-root-ca.crt"))
    with pytest.raises(BindError, match="was not made for this pod"):
        bench.sharing.prepare(placement)
    assert bench.api.get(CONFIG_MAPS, "n", "x-root-ca.crt") == before


def test_config_maps_of_other_pods_of_ours_are_not_written_while_those_are_there() -> None:
    bench = Bench()
    bench.bind(prepared := bench.user("p", "g", **refers("x-0")))
    bench.sharing.prepare(prepared)
    thief = bench.user("thief", "h", **refers("x-0"))
    with pytest.raises(BindError, match="was not made for this pod"):
        bench.sharing.prepare(thief)
    bench.api.delete(PODS, "n", "p", grace_s=0)
    bench.see()
    bench.sharing.prepare(thief)
    (found,) = bench.api.get(CONFIG_MAPS, "n", "x-0")["metadata"]["ownerReferences"]
    assert found["uid"] == thief.uid, "as a pod of a StatefulSet that is made again, under the name of the one before"


def refers(name: str) -> dict[str, Any]:
    """Fields of a pod that reads its device from this ConfigMap."""
    reference = {"configMapKeyRef": {"name": name, "key": "NVIDIA_VISIBLE_DEVICES"}}
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": reference}]
    return {"annotations": {"runai/shared-gpu-configmap": "x"}, "containers": [{"name": "c", "env": env}]}


@pytest.mark.parametrize(
    "spoilt",
    [
        {"spec": "1e-40000000"},
        {"spec": {"nodeName": []}},
        {"metadata": {"uid": []}},
        {"metadata": {"labels": {"runai-gpu-group": "h", "a": 1}}},
        {"metadata": {"creationTimestamp": "soon"}},
        {"metadata": {"deletionTimestamp": {}}},
    ],
)
def test_a_reservation_that_cannot_be_read_holds_nothing_up(spoilt: dict[str, Any]) -> None:
    bench = Bench()
    metadata = {"namespace": RESERVED, "name": "odd", "uid": "u", "labels": {"runai-gpu-group": "h"}}
    odd = {"metadata": metadata | spoilt.get("metadata", {}), "spec": spoilt.get("spec", {"nodeName": "a"})}
    bench.store.apply(PODS, WatchEvent("ADDED", odd))
    assert not bench.sharing.concerns(replace(bench.user("whole"), devices=((0, 1000),)))
    bench.sharing.collect()
    bench.sharing.prepare(bench.user("p", "g"))
    assert "g" in bench.staying()


@pytest.mark.parametrize("labels", [None, 1, [], {"kai.scheduler/node-pool": []}])
def test_a_node_whose_labels_cannot_be_read_is_of_no_pool(labels: object) -> None:
    bench = Bench()
    bench.store.apply(NODES, WatchEvent("ADDED", {"metadata": {"name": "odd", "labels": labels}}))
    assert not node_pool(bench.store, "kai.scheduler/node-pool", "x")("odd")


@pytest.mark.parametrize("group", [[], {}, 1, None, ["g"]])
def test_a_pod_whose_group_is_no_text_uses_none(group: object) -> None:
    bench = Bench()
    bench.ready("p", "g")
    metadata = {"namespace": "n", "name": "odd", "uid": "odd", "labels": {"runai-gpu-group": group}}
    bench.store.apply(PODS, WatchEvent("ADDED", {"metadata": metadata, "spec": {"nodeName": "a"}}))
    bench.sharing.collect()
    assert bench.staying() == ["g"]
