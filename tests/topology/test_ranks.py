"""Which pod of its workload a pod is, as the labels of the workloads' controllers tell."""

import pytest

from kai_solver.domain import PodSet, SubGroup, TopologyConstraint
from kai_solver.topology import fewest_apart, named_topology, neighbours_apart, rank_of

COMPLETION, JOB = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index"


@pytest.mark.parametrize(
    ("labels", "rank"),
    [
        ({COMPLETION: "12"}, (12,)),
        ({"apps.kubernetes.io/pod-index": "3"}, (3,)),
        ({"training.kubeflow.org/replica-index": "0"}, (0,)),
        ({"leaderworkerset.sigs.k8s.io/worker-index": "7"}, (7,)),
        ({JOB: "2", COMPLETION: "5"}, (2, 5)),
        ({JOB: "2"}, (2,)),
        ({JOB: "0", "jobset.sigs.k8s.io/job-global-index": "4", COMPLETION: "1"}, (4, 1)),
        ({"kai-solver/rank": "9", COMPLETION: "1"}, (9,)),
        ({}, None),
        ({COMPLETION: "first"}, None),
        ({COMPLETION: "-1"}, None),
        ({COMPLETION: "²"}, None),
        ({COMPLETION: "1" * 30}, None),
    ],
)
def test_a_rank_is_what_the_labels_say(labels: dict[str, str], rank: tuple[int, ...] | None) -> None:
    assert rank_of(labels) == rank


def test_ten_comes_after_nine() -> None:
    assert (rank_of({COMPLETION: "9"}) or ()) < (rank_of({COMPLETION: "10"}) or ())


def test_neighbours_apart_are_counted() -> None:
    assert neighbours_apart("aabba") == 2
    assert fewest_apart("aabba") == 1
    assert (neighbours_apart(""), fewest_apart("")) == (0, 0)


def test_ranks_lie_along_the_topology_that_the_gang_names() -> None:
    inner = SubGroup(children=(PodSet("a", 1), PodSet("b", 1, TopologyConstraint("second", "rack"))))
    assert named_topology(inner, ["first", "second"]) == "second"
    assert named_topology(inner, ["first"]) == "first"
    assert named_topology(SubGroup(children=(PodSet("a", 1),)), ["first", "second"]) is None
