"""Where a gang that waits stands in its queue."""

from dataclasses import replace

from kai_solver.domain import Snapshot
from kai_solver.engine import cycle
from kai_solver.explaining import Explanation, explain_gang
from kai_solver.modelfiles import load_model
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

NODES = [a_node("n0", 2)]


def explained(snapshot: Snapshot, *gangs: str) -> list[Explanation]:
    plan = cycle(snapshot, load_model("greedy-only"))
    return [explain_gang(snapshot, plan, gang) for gang in gangs]


def test_gangs_stand_in_the_order_in_which_they_are_asked_for() -> None:
    """By priority, then below the minimum, then by age; each queue for itself."""
    full = a_gang("full", gpus=2, on="n0", priority=100)
    waiting = [
        a_gang("young", created_s=9.0),
        a_gang("old", created_s=1.0),
        a_gang("urgent", created_s=20.0, priority=75),
        a_gang("alone", queue="r"),
    ]
    grows = a_gang("grows", pods=2, need=1, on="n0", gpus=0, created_s=0.0)
    grows = replace(grows, pods=(grows.pods[0], replace(a_gang("grows", pods=2).pods[1])))
    snapshot = a_cluster(NODES, [full, *waiting, grows], [a_queue("q"), a_queue("r")])
    found = explained(snapshot, "urgent", "old", "young", "grows", "alone")
    places = [(e.place.position, e.place.waiting) for e in found if e.place is not None]
    assert places == [(1, 4), (2, 4), (3, 4), (4, 4), (1, 1)]
    texts = [e.place.text for e in found if e.place is not None]
    assert texts[1] == "Position 2 of 4 gangs that wait in queue q"
    assert texts[4] == "The only gang that waits in queue r"
    assert found[1].document()["place"] == {"queue": "q", "position": 2, "waiting": 4, "text": texts[1]}


def test_a_gang_that_runs_or_whose_queue_does_not_exist_has_no_place() -> None:
    snapshot = a_cluster(NODES, [a_gang("runs", on="n0"), a_gang("lost", queue="nowhere")], [a_queue("q")])
    runs, lost = explained(snapshot, "runs", "lost")
    assert lost.state == "pending"
    assert runs.place is None
    assert lost.place is None
    assert lost.document()["place"] is None
