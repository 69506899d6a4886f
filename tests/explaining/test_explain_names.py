"""The gang that a name means."""

from dataclasses import replace

import pytest

from kai_solver.domain import GpuRequest, Snapshot
from kai_solver.domain.names import short_name
from kai_solver.errors import InputError
from kai_solver.explaining import find_gang
from tests.explaining.test_explain_gangs import gang, pod, snapshot

UID = "038aea38-2cf5-4311-a865-9645b8548f73"


def cluster() -> Snapshot:
    train = gang(f"pg-train-llm-{UID}", pod("worker-0", GpuRequest(1)), pod("worker-1", GpuRequest(1)))
    other = replace(gang("train-vision", pod("vision-0", GpuRequest(1))), namespace="other")
    return snapshot(train, other)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (f"ns/pg-train-llm-{UID}", "ns/train-llm"),
        (f"pg-train-llm-{UID}", "ns/train-llm"),
        ("ns/train-llm", "ns/train-llm"),
        ("train-llm", "ns/train-llm"),
        ("train-l", "ns/train-llm"),
        ("worker-1", "ns/train-llm"),
        ("ns/worker-0", "ns/train-llm"),
        ("work", "ns/train-llm"),
        ("train-vision", "other/train-vision"),
        ("other/", "other/train-vision"),
    ],
)
def test_gangs_are_found_by_every_name_that_people_see(name: str, found: str) -> None:
    assert short_name(find_gang(cluster(), name).key) == found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("trian-vision", "Did you mean train-vision or vision-0?"),
        ("other/train-visoin", "Did you mean other/train-vision?"),
        ("train", "several gangs begin with 'train'"),
        ("", "no gang, pod or workload is named ''"),
        ("x" * 10_000, "namespace/name"),
    ],
)
def test_a_name_that_fits_no_gang_or_several_gets_what_is_like_it(name: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        find_gang(cluster(), name)
    assert words in str(caught.value)


def test_own_names_go_before_namespaces() -> None:
    train = gang(f"pg-nsight-{UID}", pod("worker-0", GpuRequest(1)))
    assert find_gang(snapshot(train, gang("train", pod("train-0", GpuRequest(1)))), "ns") is train


def test_several_gangs_are_named_as_other_commands_name_them() -> None:
    several = [gang(f"pg-sweep-{i}-{UID}", pod(f"sweep-{i}-x", GpuRequest(1))) for i in range(2)]
    with pytest.raises(InputError, match=r"Choose one: ns/sweep-0, ns/sweep-1$"):
        find_gang(snapshot(*several), "sweep")


def test_names_of_people_are_kept() -> None:
    assert short_name("ns/pg-mine") == "ns/pg-mine"
    assert short_name("pg-mine-2") == "pg-mine-2"
