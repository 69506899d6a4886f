"""What one version stored is read by the next one and by the one before, with a gang that is bound in half."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kai_solver.cluster.api import key_of
from kai_solver.cluster.lease import Lease
from kai_solver.cluster.memory import BUILT_IN, MemoryApi
from kai_solver.cluster.resources import LEASES, PODS, SECRETS
from kai_solver.controller.keys import SigningKeys
from kai_solver.controller.loop import Cycle, Reporter
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.stored import FORMAT, newer_values, noted_format, notes
from kai_solver.kubeobjects.trust import Signer
from kai_solver.shadow.lines import Begin, read_lines, text_of
from tests.controller.replicas import bound, pod, running, until
from tests.controller.stored import HALF, SHARED

STORED = Path(__file__).parent / "data" / "stored-by-5eaea9ce.json"
KINDS = {(kind.api_version, kind.kind): kind for kind in BUILT_IN}
NEWER = f"v{FORMAT + 1}:"
SPACE = "kai-solver"

Change = Callable[[dict[str, Any]], None]


def load(change: Change = lambda _item: None) -> MemoryApi:
    """The cluster of the file, with uids and times; ``change`` is made to each object."""
    api = MemoryApi()
    for item in json.loads(STORED.read_text())["items"]:
        change(item)
        with api._lock:
            api._write("ADDED", KINDS[item["apiVersion"], item["kind"]], key_of(item), item)
    return api


def nodes_of(api: MemoryApi) -> dict[str, str]:
    """Node by uid of the pods that have one."""
    return {
        one["metadata"]["uid"]: one["spec"]["nodeName"] for one in api.page(PODS).items if one["spec"].get("nodeName")
    }


def as_newer(item: dict[str, Any]) -> None:
    """As if a newer version had written its own values in another format, with fields that are not known yet."""
    annotations = item["metadata"].get("annotations") or {}
    ours = (names.OWN_SHARE, names.OWN_WISHED, names.OWN_CREATED, *names.SIGNATURES.values())
    for name in list(annotations):
        if name in ours or name.startswith(names.USER_PREFIX):
            annotations[name] = f'{NEWER}{{"parts": [1]}}'
    if item["kind"] in ("Pod", "PodGroup"):
        annotations["kai-solver/of-a-later-version"] = "x"
        item["metadata"]["annotations"] = annotations
    if item["kind"] in ("Lease", "Secret"):
        item["metadata"]["annotations"] = {names.OWN_STORED_FORMAT: str(FORMAT + 1), names.OWN_VERSION: "9.0.0"}


def test_the_file_holds_what_a_controller_stores() -> None:
    found = [item["metadata"].get("annotations") or {} for item in json.loads(STORED.read_text())["items"]]
    written = {name for annotations in found for name in annotations}
    assert {names.OWN_SHARE, names.OWN_SIGNED_SHARE, names.OWN_CREATED, names.POD_GROUP, names.LAST_START} <= written
    assert any(name.startswith(names.USER_PREFIX) for name in written)


@pytest.mark.slow
@pytest.mark.parametrize("change", [lambda _item: None, as_newer], ids=["before", "newer"])
def test_a_gang_bound_in_half_becomes_whole_and_no_pod_that_runs_leaves(change: Change) -> None:
    """Up from the version that wrote the file, and back from a version whose values are not known."""
    api = load(change)
    before = nodes_of(api)
    assert {name for name in HALF if name in bound(api)} == set(HALF[:2])
    with running(api, idle=0.1, status_rate=1000.0) as replica:
        until(lambda: set(HALF) <= bound(api))
        for number in range(3):
            pod(api, f"whole-{number}")
        until(lambda: any(name.startswith("whole") for name in bound(api)))
        seen = replica.scheduler._number
        until(lambda: replica.scheduler._number > seen + 3)
        assert not replica.lost
    after = nodes_of(api)
    assert before.items() <= after.items()
    whole = {name for name in bound(api) if name.startswith("whole")}
    assert len(whole) == 2, "of eight GPUs five are taken by whole pods and one is shared"
    assert {"waits"}.isdisjoint(bound(api))
    assert set(SHARED) <= bound(api)


class Noticing(Reporter):
    def __init__(self) -> None:
        self.said: list[str] = []

    def cycle(self, cycle: Cycle) -> None:
        self.said = [f"{notice.object}: {notice.text}" for notice in cycle.snapshot.notices]

    def bound(self, outcome: object) -> None: ...

    def evicted(self, evicted: object) -> None: ...


@pytest.mark.slow
def test_values_of_a_newer_format_are_set_aside_with_a_reason_and_stay() -> None:
    api, reporter = load(as_newer), Noticing()
    with capture_logs() as logs, running(api, (reporter,), idle=0.1):
        until(lambda: set(HALF) <= bound(api))
        until(lambda: bool(reporter.said))
    said = reporter.said
    assert any("kai-solver/gpu-share has format 2" in text for text in said), said
    assert any(f"{names.USER_PREFIX}UID has format 2" in text for text in said), said
    assert any(f"{names.OWN_CREATED} has format 2" in text for text in said), said
    assert [line["version"] for line in logs if line["event"].startswith("a newer version led before")] == ["9.0.0"]
    (kept,) = (one for one in api.page(PODS).items if one["metadata"]["namespace"] == names.RESERVATION_NAMESPACE)
    users = {name for name, value in kept["metadata"]["annotations"].items() if value.startswith(NEWER)}
    assert len([name for name in users if name.startswith(names.USER_PREFIX)]) == 2


def test_up_and_back_again_the_same_values_are_believed() -> None:
    """Keys and signatures of before verify, and a replica of before could go on with what is written now."""
    api = load()
    keys = SigningKeys(api, SPACE, "kai-solver-signing", Signer(), lambda: True)
    keys.refresh()
    found = {one["metadata"]["name"]: one["metadata"] for one in api.page(PODS).items}
    for name in SHARED:
        stated = found[name]["annotations"]
        assert keys.signer.verifies(
            found[name]["uid"], names.OWN_SHARE, stated[names.OWN_SHARE], stated[names.OWN_SIGNED_SHARE]
        )
    assert not list(newer_values(found["share-0"]["annotations"]))


def test_keys_of_a_newer_format_are_left_as_they_are() -> None:
    api = load(as_newer)
    before = api.get(SECRETS, SPACE, "kai-solver-signing")
    keys = SigningKeys(api, SPACE, "kai-solver-signing", Signer(), lambda: True)
    with pytest.raises(InputError, match="has format 2, which a newer kai-solver wrote"):
        keys.refresh()
    assert api.get(SECRETS, SPACE, "kai-solver-signing") == before
    assert keys.signer.sign("u", "n", "v"), "the process signs by a key of its own"


def test_a_leader_notes_its_version_and_learns_that_of_the_one_before() -> None:
    api = MemoryApi()
    first = Lease(api, "kai", "x", "a", monotonic=lambda: 0.0, notes={**notes("9"), "k": "v"})
    assert first.attempt()
    api.patch(LEASES, "kai", "x", {"metadata": {"annotations": {names.OWN_STORED_FORMAT: str(FORMAT + 1)}}})
    api.patch(LEASES, "kai", "x", {"spec": {"holderIdentity": ""}})
    second = Lease(api, "kai", "x", "b", notes=notes("8"))
    assert second.attempt()
    assert (noted_format(second.former), second.former[names.OWN_VERSION]) == (FORMAT + 1, "9")
    stands = api.get(LEASES, "kai", "x")["metadata"]["annotations"]
    assert stands == {"k": "v", **notes("8")}
    assert noted_format(stands) == 0


@pytest.mark.parametrize("stated", [None, {}, [], "x", {names.OWN_STORED_FORMAT: 7}, {names.OWN_STORED_FORMAT: "-2"}])
def test_a_note_that_says_nothing_is_no_newer_format(stated: object) -> None:
    assert noted_format(stated) == 0


@pytest.mark.parametrize("value", ["500m of a b", "v1:x", "v:", "v02:x", " v2:x", "vast 2:", 7, None, {}])
def test_what_begins_with_no_newer_format_is_read_as_before(value: object) -> None:
    assert not list(newer_values({names.OWN_SHARE: value}))


def test_lines_of_a_newer_recording_are_left_out_and_counted() -> None:
    own, newer = text_of(Begin(at=1.0)).encode(), b'{"format": "kai-shadow/v2", "kind": "begin", "when": {}}'
    with capture_logs() as logs:
        assert list(read_lines([own, newer, newer, own], "f")) == [Begin(at=1.0)] * 2
    assert [(line["lines"], line["file"]) for line in logs] == [(2, "f")]
    with pytest.raises(InputError, match="all lines have the format kai-shadow/v2"):
        list(read_lines([newer], "f"))
