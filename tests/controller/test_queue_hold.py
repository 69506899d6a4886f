"""A queue on hold, by its annotation, while the controller runs."""

from kai_solver.cluster.resources import PODS, QUEUES
from tests.controller.replicas import bound, cluster, pod, running, until


def annotated(value: str | None) -> dict[str, object]:
    return {"metadata": {"annotations": {"kai-solver/rule-stop": value}}}


def test_a_queue_is_held_and_resumed_by_its_annotation() -> None:
    api = cluster()
    pod(api, "runs")
    with running(api):
        until(lambda: bound(api) == {"runs"})
        api.patch(QUEUES, "", "q", annotated("hold"))
        pod(api, "waits")
        until(lambda: "Queue q is on hold" in why(api.get(PODS, "n", "waits")))
        assert bound(api) == {"runs"}
        api.patch(QUEUES, "", "q", annotated(None))
        until(lambda: bound(api) == {"runs", "waits"})


def why(found: dict[str, object]) -> str:
    """The message of the pod's condition."""
    status = found.get("status")
    return str(status.get("conditions")) if isinstance(status, dict) else ""
