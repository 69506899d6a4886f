"""Whatever the bytes are: an InputError that names the file and a cure, never another exception, never a long wait."""

import contextlib
import gzip
import io
import random
import re
import zipfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_solver.errors import InputError, LimitExceededError
from kai_solver.instances_io import Limits, load_instance, read_documents
from kai_solver.instances_io.json_text import parse_json
from kai_solver.instances_io.reader import parse
from kai_solver.instances_io.unpack import Member, unpack
from kai_solver.instances_io.yaml_text import parse_yaml

SMALL = Limits(max_bytes=1 << 20, max_objects=1000, max_json_objects=1000, max_depth=64)
MINIMAL = b'{"format": "kai-solver/v1", "nodes": [{"name": "n", "gpus": 1}]}'


def zipped(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.json", data)
    return content.getvalue()


def refused(tmp_path: Path, data: bytes, limits: Limits | None = None, name: str = "bad.json") -> InputError:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        load_instance(path, limits=limits)
    assert str(path) in str(caught.value)
    assert caught.value.cure
    return caught.value


@pytest.mark.parametrize("pack", [lambda d: d, gzip.compress, zstandard.compress, lambda d: zipped(instance=d)])
def test_every_packing_of_an_instance_is_read(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    path = tmp_path / "instance"
    path.write_bytes(pack(MINIMAL))
    assert load_instance(path).snapshot.nodes[0].gpus == 1


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, lambda d: zipped(bomb=d)])
def test_a_bomb_is_never_unpacked_beyond_the_limit(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    error = refused(tmp_path, pack(b" " * (64 << 20)), SMALL)
    assert isinstance(error, LimitExceededError)
    assert "1,048,576 bytes" in error.problem


def test_the_limit_of_bytes_holds_for_all_members_of_a_zip_together(tmp_path: Path) -> None:
    half = b'{"a": "' + b"x" * 700_000 + b'"}'
    assert isinstance(refused(tmp_path, zipped(a=half, b=half), SMALL), LimitExceededError)


def test_a_zip_whose_directory_lies_about_sizes_is_refused(tmp_path: Path) -> None:
    honest = zipped(bomb=b" " * (8 << 20))
    lying = honest.replace((8 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert "corrupt" in refused(tmp_path, lying, SMALL).problem


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, lambda d: zipped(instance=d)])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_a_truncated_archive_is_called_so(tmp_path: Path, pack: object, kept: float) -> None:
    assert callable(pack)
    whole = pack(MINIMAL + random.Random(7).randbytes(5000).hex().encode().join([b"  ", b"  "]))
    error = refused(tmp_path, whole[: int(len(whole) * kept)])
    assert "truncated or corrupt" in error.problem


def test_a_flipped_byte_in_a_zip_is_called_corrupt(tmp_path: Path) -> None:
    data = bytearray(zipped(instance=MINIMAL))
    data[50] ^= 0xFF
    assert "corrupt" in refused(tmp_path, bytes(data)).problem


def test_a_zip_that_is_shorter_than_its_directory_says_is_called_corrupt(tmp_path: Path) -> None:
    """Places are counted from the directory at its end, and come to lie before the beginning."""
    whole = zipped(instance=MINIMAL)
    assert "corrupt" in refused(tmp_path, whole[:4] + whole[5:]).problem


def test_a_zip_without_json_or_yaml_is_refused(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("readme.txt", "nothing here")
    assert "no JSON or YAML" in refused(tmp_path, content.getvalue()).problem


@pytest.mark.parametrize("text", [False, True])
def test_ten_megabytes_of_noise_are_refused(tmp_path: Path, text: bool) -> None:
    noise = random.Random(1).randbytes(10_000_000)
    if text:
        noise = noise.translate(bytes(32 + byte % 95 for byte in range(256)))
    problem = refused(tmp_path, noise).problem
    assert problem == ("has text in place of an object" if text else "is neither JSON nor YAML nor a known archive")


def test_a_yaml_bomb_is_refused_before_it_expands() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(LimitExceededError, match="values"):
        parse_yaml("\n".join(lines).encode(), "bomb.yaml", SMALL)


def test_a_yaml_bomb_of_mappings_counts_objects() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{p: *a{n - 1}, q: *a{n - 1}}}" for n in range(1, 40)]
    with pytest.raises(LimitExceededError, match=r"objects|values|deeper"):
        parse_yaml("\n".join(lines).encode(), "bomb.yaml", SMALL)


def test_a_chain_of_aliases_counts_as_deep_as_it_expands() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 80)]
    with pytest.raises(LimitExceededError, match="deeper than 64"):
        parse_yaml("\n".join(lines).encode(), "chain.yaml", SMALL)


def test_an_alias_inside_what_it_names_is_a_loop() -> None:
    with pytest.raises(InputError, match="loop"):
        parse_yaml(b"groups: &g\n  - name: a\n    groups: *g\n", "loop.yaml", SMALL)


def test_an_honest_alias_is_expanded() -> None:
    [document] = parse_yaml(b"a: &shared {gpus: 4}\nb: *shared\n", "f.yaml", SMALL)
    assert document["b"] == {"gpus": 4}


@pytest.mark.parametrize("depth", [65, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_json_that_is_too_deep_is_refused(tmp_path: Path, depth: int, opening: bytes, closing: bytes) -> None:
    data = opening * depth + b"1" + closing * depth
    assert isinstance(refused(tmp_path, data), LimitExceededError)


def test_json_of_the_deepest_allowed_level_is_read() -> None:
    assert parse_json(b"[" * 64 + b"]" * 64, "f", SMALL) is not None


def test_brackets_inside_strings_do_not_count_as_depth() -> None:
    text = b'{"a": "' + b"[{" * 500 + b'\\\\", "b": "\\"' + b"[" * 500 + b'"}'
    assert set(parse_json(text, "f", SMALL)) == {"a", "b"}


@pytest.mark.parametrize("data", [b"[" * 10_000, b"- " * 10_000, b"{a: " * 5000])
def test_yaml_that_is_too_deep_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        parse_yaml(data, "deep.yaml", SMALL)


def test_more_objects_than_allowed_are_refused() -> None:
    with pytest.raises(LimitExceededError, match="1,000 objects"):
        parse_json(b"[" + b"{}," * 1000 + b"{}]", "f", SMALL)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_json_knows_no_nan_and_no_infinity(tmp_path: Path, number: str) -> None:
    data = b'{"format": "kai-solver/v1", "now": ' + number.encode() + b"}"
    assert "NaN" in refused(tmp_path, data).cure


@pytest.mark.parametrize("number", [".nan", ".inf", "-.INF"])
def test_yaml_numbers_are_finite(tmp_path: Path, number: str) -> None:
    error = refused(tmp_path, f"format: kai-solver/v1\nnow: {number}\n".encode(), name="bad.yaml")
    assert "line 2" in error.problem


def test_a_key_that_stands_twice_in_json_is_named(tmp_path: Path) -> None:
    data = b'{"format": "kai-solver/v1", "queues": [{"name": "a", "quota": 1, "quota": 2}]}'
    assert "'quota' occurs twice" in refused(tmp_path, data).problem


def test_the_same_key_in_two_objects_is_fine() -> None:
    assert parse_json(b'[{"a:b": 1}, {"a:b": ":"}]', "f", SMALL) == [{"a:b": 1}, {"a:b": ":"}]


def test_a_key_that_stands_twice_in_yaml_is_named_with_its_line(tmp_path: Path) -> None:
    error = refused(tmp_path, b"format: kai-solver/v1\nname: a\nname: b\n", name="bad.yaml")
    assert "line 3" in error.problem
    assert "'name' occurs twice" in error.problem


def test_yaml_dates_stay_text_as_in_kubernetes() -> None:
    assert parse_yaml(b"at: 2026-01-02T03:04:05Z\n", "f", SMALL) == [{"at": "2026-01-02T03:04:05Z"}]


def test_python_objects_in_yaml_are_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, b"format: !!python/object/apply:os.system [echo]\n", name="bad.yaml")
    assert "could not determine a constructor" in error.problem


@pytest.mark.parametrize("data", [b"", b"   \n", b"# only a comment\n", b"---\n---\n"])
def test_an_empty_file_is_refused(tmp_path: Path, data: bytes) -> None:
    assert "empty" in refused(tmp_path, data, name="empty.yaml").problem


@pytest.mark.parametrize("data", [b"[1, 2]", b"just text", b'"text"', b"3"])
def test_what_is_no_object_is_refused(tmp_path: Path, data: bytes) -> None:
    assert "in place of an object" in refused(tmp_path, data).problem


def test_an_object_of_no_known_kind_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    error = refused(tmp_path, b'{"a": 1}')
    assert "native" in error.cure
    assert "kai-snapshot" in error.cure


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no-such-file\.json: cannot be read"):
        load_instance(tmp_path / "no-such-file.json")


def test_a_directory_without_instances_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(InputError, match="holds no JSON or YAML"):
        load_instance(tmp_path)


def test_a_directory_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("name: second\n---\nname: third\n")
    (tmp_path / "a.json").write_text('{"name": "first"}')
    assert [document["name"] for _, document in read_documents(tmp_path)] == ["first", "second", "third"]


def a_directory_with_a_broken_file(folder: Path, broken: bytes) -> None:
    node = 'apiVersion: v1\nkind: Node\nmetadata: {name: NAME}\nstatus: {allocatable: {cpu: "1"}}\n'
    for name in ("first", "last"):
        (folder / f"{name}.yaml").write_text(node.replace("NAME", name))
    (folder / "broken.yaml").write_bytes(broken)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (b"kind: Node\nmetadata: {name: x\n", "line 3"),
        (b"- just\n- text\n", "has text in place of an object"),
        (b"PK\x03\x04 no more", "truncated or corrupt zip"),
    ],
)
def test_a_broken_file_of_a_directory_is_set_aside_and_the_others_are_read(
    tmp_path: Path, broken: bytes, said: str
) -> None:
    a_directory_with_a_broken_file(tmp_path, broken)
    snapshot = load_instance(tmp_path).snapshot
    assert sorted(node.name for node in snapshot.nodes) == ["first", "last"]
    (notice,) = [n for n in snapshot.notices if n.kind == "set-aside"]
    assert notice.object == f"File {tmp_path / 'broken.yaml'}"
    assert said in notice.text
    assert re.search(r"\. [A-Z][^.]+$", notice.text), f"no cure in {notice.text!r}"
    with pytest.raises(InputError, match=re.escape(said)):
        read_documents(tmp_path)


def test_a_directory_of_broken_files_only_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text("{")
    with pytest.raises(InputError, match=r"a\.yaml"):
        load_instance(tmp_path)


def test_a_bomb_in_a_directory_is_refused_and_not_set_aside(tmp_path: Path) -> None:
    a_directory_with_a_broken_file(tmp_path, b"{" * 100)
    with pytest.raises(LimitExceededError, match="deep"):
        load_instance(tmp_path)


def test_the_limit_of_bytes_holds_for_a_directory_as_a_whole(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.json").write_bytes(b'{"a": "' + b"x" * 500_000 + b'"}')
    with pytest.raises(LimitExceededError):
        read_documents(tmp_path, SMALL)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=400) | st.text(alphabet='{}[]":,-&*a1\\\n #|>!', max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InputError):
        documents = [found for member in unpack(data, "fuzz", SMALL) for found in parse(member, SMALL)]
        assert all(isinstance(document, dict) for _, document in documents)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    st.recursive(st.none() | st.booleans() | st.text() | st.integers(-9, 9), lambda s: st.dictionaries(st.text(), s))
)
def test_json_is_read_as_the_standard_library_reads_it(value: object) -> None:
    import json

    assert parse_json(json.dumps(value).encode(), "f", SMALL) == value


def test_members_are_named_with_their_archive() -> None:
    [member] = unpack(zipped(snapshot=b"{}"), "export.zip", SMALL)
    assert member == Member("export.zip!snapshot.json", b"{}")
