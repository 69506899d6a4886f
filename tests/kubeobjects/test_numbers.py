"""Numbers as users write them: every text is a number or an `InputError`, whatever its digits."""

import json
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.errors import InputError
from kai_solver.kubeobjects import RawObjects, snapshot_from_objects
from kai_solver.kubeobjects.raw import Raw
from kai_solver.units import mig_slices, parse_duration_s, parse_quantity, parse_whole

HUGE = st.sampled_from(
    ["9" * 30, "9" * 400, "9" * 5000, "1e40000000", "1e-40000000", "-1", "+-5", "²", "٣", "1e999", "nan"]
)
TEXTS = st.one_of(HUGE, st.text("0123456789.eE+-numkMGTPi", max_size=30), st.text(max_size=8))
THOUSANDTH, BILLIONTH = Fraction(1, 1000), Fraction(1, 10**9)
SUFFIXES: dict[str, int | Fraction] = {"": 1, "m": THOUSANDTH, "k": 1000, "Gi": 2**30, "Ei": 2**60, "n": BILLIONTH}


@given(TEXTS)
def test_a_quantity_is_a_number_or_refused(text: str) -> None:
    with suppress(InputError):
        assert 0 <= parse_quantity(text, 1000) <= 2**53


@given(st.integers(0, 10**25), st.integers(0, 10**20), st.sampled_from(sorted(SUFFIXES)))
def test_a_quantity_is_rounded_up_exactly(whole: int, part: int, suffix: str) -> None:
    exact = (whole + Fraction(part, 10**20) if part < 10**20 else Fraction(whole)) * SUFFIXES[suffix]
    text = f"{whole}.{part:020}{suffix}" if part < 10**20 else f"{whole}{suffix}"
    rounded = -(-exact.numerator // exact.denominator)
    if exact > 2**53:
        with pytest.raises(InputError):
            parse_quantity(text)
    else:
        assert parse_quantity(text) == rounded


@given(TEXTS, st.sampled_from(["", "s", "h", "h1m", "ms"]))
def test_a_duration_is_finite_or_refused(text: str, unit: str) -> None:
    with suppress(InputError):
        assert abs(parse_duration_s(text + unit)) < 1e10


@given(TEXTS)
def test_a_whole_number_has_few_digits(text: str) -> None:
    assert 0 <= (parse_whole(text) or 0) < 10**15


@given(st.one_of(st.integers(), st.integers(10**300, 10**310), st.just(10**5000), st.floats(), TEXTS))
def test_numbers_of_objects_are_bounded(value: object) -> None:
    for read in (Raw(value).integer, Raw(value).number, Raw(value).count, Raw(value).quantity, Raw(value).duration_s):
        with suppress(InputError):
            assert abs(read() or 0) <= 2**53


def test_no_number_of_a_mig_resource_is_too_long() -> None:
    assert mig_slices("nvidia.com/mig-2g.10gb") == 2
    assert mig_slices(f"nvidia.com/mig-{'9' * 5000}g.10gb") == 0


PLACES = (
    ("labels", "kai.scheduler/task-priority"),
    ("labels", "runai/priority"),
    ("labels", "nvidia.com/gpu.memory"),
    ("labels", "nvidia.com/gpu.replicas"),
    ("annotations", "gpu-fraction"),
    ("annotations", "gpu-memory"),
    ("annotations", "gpu-fraction-num-devices"),
    ("annotations", "kai.scheduler/batch-min-member"),
    ("annotations", "kai-solver/created"),
    ("annotations", "kai-solver/usage"),
    ("annotations", "kai-solver/devices"),
    ("annotations", "kai.scheduler/stale-podgroup-timestamp"),
)


@pytest.mark.parametrize(("part", "name"), PLACES)
@given(text=TEXTS)
def test_no_number_of_a_label_or_annotation_ends_the_reading(part: str, name: str, text: str) -> None:
    noted = {part: {name: text}}
    request = {"cpu": "1", "memory": "1Gi"}
    node = {
        "kind": "Node",
        "metadata": {"name": "n", **noted},
        "status": {"allocatable": {**request, "nvidia.com/gpu": 2}},
    }
    queue = {"kind": "Queue", "metadata": {"name": "q", **noted}, "spec": {}}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "d", "uid": "u", **noted},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": {"requests": request}}]},
    }
    group = {
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "d", "uid": "g", **noted},
        "spec": {"queue": "q"},
    }
    objects = RawObjects(nodes=(node,), queues=(queue,), pods=(pod,), pod_groups=(group,))
    json.dumps([notice.text for notice in snapshot_from_objects(objects, now_s=0.0).notices])


@given(text=TEXTS)
def test_no_amount_ends_the_reading(text: str) -> None:
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": text}}}
    whole = {"kind": "Node", "metadata": {"name": "w"}, "status": {"allocatable": {"cpu": "4"}}}
    snapshot = snapshot_from_objects(RawObjects(nodes=(node, whole)), now_s=0.0)
    assert "w" in {found.name for found in snapshot.nodes}


def test_a_message_shows_little_of_a_long_text() -> None:
    with pytest.raises(InputError) as found:
        Raw("9" * 100_000, "metadata.name").count()
    assert len(str(found.value)) < 300
    assert len(str(InputError("x" * 100_000, field="f"))) < 1100
