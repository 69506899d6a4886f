"""What was done counts until it is seen, and not for ever."""

from typing import Any

import pytest

from kai_solver.cluster.assumed import LONGEST_S, Assumed


def pod(uid: str = "u", **more: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": "p", "uid": uid, **more}, "spec": {"containers": []}, "status": {}}


def test_a_bind_counts_until_the_pod_has_a_node() -> None:
    assumed = Assumed()
    assumed.bound("n/p", "u", "n1", 0.0, groups=("g",), annotations=(("a", "1"),))
    waiting = pod()
    (seen,) = assumed.overlay([waiting], 1.0)
    assert seen["spec"]["nodeName"] == "n1"
    assert seen["metadata"]["labels"] == {"runai-gpu-group": "g"}
    assert seen["metadata"]["annotations"] == {"a": "1"}
    assert waiting == pod(), "the store's object is as it was"
    assert assumed.overlay([waiting], 2.0)[0] is seen, "nothing changed: the very same object"
    bound = pod()
    bound["spec"]["nodeName"] = "n1"
    assert assumed.overlay([bound], 3.0)[0] is bound
    assert len(assumed) == 0


def test_an_eviction_counts_until_the_pod_is_being_deleted() -> None:
    assumed = Assumed()
    assumed.leaves("n/p", "u", 0.0)
    (seen,) = assumed.overlay([pod()], 1.0)
    assert seen["metadata"]["deletionTimestamp"] == "1970-01-01T00:00:00Z"
    leaving = pod(deletionTimestamp="2026-01-01T00:00:00Z")
    assert assumed.overlay([leaving], 2.0)[0] is leaving
    assert len(assumed) == 0


def test_what_leaves_has_its_place_until_it_is_gone() -> None:
    assumed = Assumed()
    assumed.bound("n/p", "u", "n1", 0.0, groups=("g",))
    assumed.leaves("n/p", "u", 1.0, certain=True)
    (seen,) = assumed.overlay([pod()], 1e6)
    assert seen["spec"]["nodeName"] == "n1", "the watch has not shown the binding yet, and its GPUs are not free"
    assert seen["metadata"]["labels"] == {"runai-gpu-group": "g"}
    assert "deletionTimestamp" in seen["metadata"]
    bound = pod()
    bound["spec"]["nodeName"] = "n1"
    assert "deletionTimestamp" in assumed.overlay([bound], 1e6)[0]["metadata"], "that it leaves is not shown either"
    assert assumed.overlay([pod(deletionTimestamp="2026-01-01T00:00:00Z")], 1e6)
    assert len(assumed) == 0


def test_what_does_not_leave_has_its_place_all_the_same() -> None:
    assumed = Assumed()
    assumed.bound("n/p", "u", "n1", 0.0, groups=("g",), annotations=(("a", "1"),))
    assumed.leaves("n/p", "u", 1.0, certain=True)
    assumed.stays("n/p", "the one before")
    assert "deletionTimestamp" in assumed.overlay([pod()], 2.0)[0]["metadata"]
    assumed.stays("n/p", "u")
    (seen,) = assumed.overlay([pod()], 1e6)
    assert "deletionTimestamp" not in seen["metadata"]
    assert seen["spec"]["nodeName"] == "n1", "the watch has not shown the binding yet, and its GPUs are not free"
    assert seen["metadata"]["labels"] == {"runai-gpu-group": "g"}
    assert seen["metadata"]["annotations"] == {"a": "1"}


def test_what_is_not_seen_to_leave_has_its_place_all_the_same() -> None:
    assumed = Assumed()
    assumed.bound("n/p", "u", "n1", 0.0)
    assumed.leaves("n/p", "u", 1.0)
    (seen,) = assumed.overlay([pod()], 2.0 + LONGEST_S)
    assert (seen["spec"]["nodeName"], "deletionTimestamp" in seen["metadata"]) == ("n1", False)
    assert assumed.expired == 1
    assumed.leaves("n/q", "v", 1e3, certain=True)
    assumed.stays("n/q", "v")
    assert len(assumed) == 1, "nothing else is assumed of who was seen on its node"


def test_another_pod_of_that_name_has_another_place() -> None:
    assumed = Assumed()
    assumed.bound("n/p", "the one before", "n1", 0.0)
    assumed.leaves("n/p", "u", 1.0)
    assert "nodeName" not in assumed.overlay([pod()], 2.0)[0]["spec"]


def test_another_pod_of_that_name_is_another_pod() -> None:
    assumed = Assumed()
    assumed.bound("n/p", "u", "n1", 0.0)
    other = pod(uid="v")
    assert assumed.overlay([other], 1.0)[0] is other
    assert len(assumed) == 0


def test_a_pod_that_is_gone_is_forgotten() -> None:
    assumed = Assumed()
    assumed.bound("n/p", "u", "n1", 0.0)
    assert assumed.overlay([], 1.0) == ()
    assert len(assumed) == 0


def test_a_bind_counts_however_long_the_watch_is_silent() -> None:
    assumed = Assumed()
    assumed.bound("n/p", "u", "n1", 0.0)
    assert assumed.overlay([pod()], 1e6)[0]["spec"]["nodeName"] == "n1", "or its GPUs would be promised again"
    assert assumed.expired == 0


def test_what_is_not_known_is_not_believed_for_ever() -> None:
    assumed = Assumed()
    assumed.bound("n/p", "u", "n1", 0.0)
    assumed.doubted("n/p", "u", 20.0)
    assumed.forget("n/p", "u")
    assumed.doubted("n/other", "u", 20.0)
    assert assumed.overlay([pod()], 20.0 + LONGEST_S)[0]["spec"]["nodeName"] == "n1", "it may have been bound"
    assert "nodeName" not in assumed.overlay([pod()], 21.0 + LONGEST_S)[0]["spec"]
    assert assumed.expired == 1


def test_an_eviction_that_nothing_shows_is_not_believed_for_ever() -> None:
    assumed = Assumed()
    assumed.leaves("n/p", "u", 0.0)
    assert "deletionTimestamp" in assumed.overlay([pod()], LONGEST_S)[0]["metadata"]
    assert "deletionTimestamp" not in assumed.overlay([pod()], LONGEST_S + 1)[0]["metadata"]


@pytest.mark.parametrize("older", [[], [pod(uid="the one before")]])
def test_what_looked_earlier_refutes_nothing(older: list[dict[str, Any]]) -> None:
    assumed = Assumed()
    assumed.bound("n/p", "u", "n1", 2.0)
    assert assumed.overlay(older, 1.0) == tuple(older), "the pod was not there yet"
    assert assumed.overlay([pod()], 3.0)[0]["spec"]["nodeName"] == "n1"


def test_what_was_not_done_is_taken_back() -> None:
    assumed = Assumed()
    assumed.bound("n/p", "u", "n1", 0.0)
    assumed.forget("n/p", "the one before")
    waiting = pod()
    assert assumed.overlay([waiting], 1.0)[0]["spec"]["nodeName"] == "n1"
    assumed.forget("n/p", "u")
    assert assumed.overlay([waiting], 1.0)[0] is waiting


def test_an_eviction_under_way_counts_however_long_it_takes() -> None:
    assumed = Assumed()
    assumed.leaves("n/p", "u", 0.0, certain=True)
    assert "deletionTimestamp" in assumed.overlay([pod()], 10 * LONGEST_S)[0]["metadata"]
    assumed.doubted("n/p", "u", 10 * LONGEST_S)
    assert "deletionTimestamp" in assumed.overlay([pod()], 11 * LONGEST_S)[0]["metadata"]
    assert "deletionTimestamp" not in assumed.overlay([pod()], 11 * LONGEST_S + 1)[0]["metadata"]


def test_a_pod_is_expected_as_it_was_bound_until_that_is_seen() -> None:
    assumed, waiting = Assumed(), pod()
    assert assumed.expected(waiting) is waiting
    assumed.bound("n/p", "u", "n1", 0.0, annotations=(("a", "1"),))
    assert assumed.expected(waiting)["spec"]["nodeName"] == "n1"
    assert assumed.expected(waiting)["metadata"]["annotations"] == {"a": "1"}
    other, bound = pod(uid="v"), pod() | {"spec": {"nodeName": "n2"}}
    assert assumed.expected(other) is other
    assert assumed.expected(bound) is bound
