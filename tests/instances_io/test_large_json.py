"""Large JSON is built object by object, and read as in one piece; here all texts are large, in small chunks."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.errors import InputError, LimitExceededError
from kai_solver.instances_io import json_text
from kai_solver.instances_io.json_text import parse_json
from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(0, 9)
    | st.text('ab"\\[]{},: \n')
    | st.just("managedFields")
)
KEYS = st.text('ab"\\{[', max_size=3) | st.sampled_from(["metadata", "items"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=40
)


@pytest.fixture(autouse=True, scope="module")
def everything_is_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "_IN_PARTS_FROM", 0)
        patch.setattr(json_text, "_CHUNK", 7)
        yield


@settings(max_examples=300, deadline=None)
@given(VALUES, st.sampled_from([None, 1]))
def test_it_is_read_as_the_standard_library_reads_it(value: Any, indent: int | None) -> None:
    text = json.dumps({"all": [value, {"again": value}]}, indent=indent)
    assert parse_json(text.encode(), "f", DEFAULT_LIMITS) == json.loads(text)


@settings(max_examples=200, deadline=None)
@given(VALUES, VALUES, st.sampled_from([None, 1]))
def test_a_key_that_stands_twice_anywhere_is_refused(value: Any, other: Any, indent: int | None) -> None:
    one, two = json.dumps(value, indent=indent), json.dumps(other, indent=indent)
    twice = f'{{"all": [{one}, {{"b": [{{"a": {one}, "a": {two}}}]}}]}}'
    with pytest.raises(InputError, match="'a' occurs twice"):
        parse_json(twice.encode(), "f", DEFAULT_LIMITS)


@pytest.mark.parametrize(
    "text",
    [
        '[{"a": 1}',
        '[{"a": 1}}]',
        '[{"a": 1} {"b": 2}]',
        '[1 {"a": 1}]',
        '[{"a": 1},]',
        '[{"a": }]',
        '[{"a": "x}]',
        '{"a": [{"b": 1}], }',
        '[{"a": 1}] [{"b": 2}]',
        '[{"a": tru}]',
    ],
)
def test_what_is_no_json_is_refused_with_its_place_in_the_whole_text(text: str) -> None:
    with pytest.raises(InputError, match=r"is not JSON: .*line 1 column"):
        parse_json(text.encode(), "f", DEFAULT_LIMITS)


def test_of_managed_fields_the_times_are_kept() -> None:
    managed = [{"manager": "kubelet", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}, {"manager": "old"}]
    text = json.dumps({"items": [{"metadata": {"name": "a", "managedFields": managed}}]})
    [item] = parse_json(text.encode(), "f", DEFAULT_LIMITS)["items"]
    assert item == {"metadata": {"name": "a", "managedFields": [{"time": "2026-01-01T00:00:00Z"}]}}


@pytest.mark.parametrize("metadata", [None, [], "x", {"managedFields": 3}, {"managedFields": [3, {"time": {}}]}])
def test_malformed_metadata_is_left_to_others(metadata: Any) -> None:
    text = json.dumps([{"metadata": metadata}])
    [item] = parse_json(text.encode(), "f", DEFAULT_LIMITS)
    assert item.keys() == {"metadata"}


@pytest.mark.parametrize("text", [b"[" + b"{}," * 1000 + b"{}]", b'{"a":' * 1001 + b"1" + b"}" * 1001])
def test_limits_hold(text: bytes) -> None:
    with pytest.raises(LimitExceededError):
        parse_json(text, "f", Limits(max_json_objects=1000))


def test_a_long_run_of_backslashes_is_read_at_once() -> None:
    for length in (*range(1, 40), 100_000):
        value = ["\\" * length + '"', {"a": "\\" * length}]
        assert parse_json(json.dumps(value).encode(), "f", DEFAULT_LIMITS) == value


@pytest.mark.parametrize("depth", [251, 2000])
def test_deeper_than_can_be_compared_is_refused_whatever_the_limit(depth: int) -> None:
    with pytest.raises(LimitExceededError, match="deeper than 250"):
        parse_json(b"[" * depth + b"]" * depth, "f", Limits(max_depth=5000))
