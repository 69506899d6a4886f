"""What is stored of a dry run, what is read again, and what is seen of the scheduler at work."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from kai_solver.domain import Bind, Eviction, Gang, Move, Pending, Plan, PodStatus, Proof, Reason, Snapshot
from kai_solver.errors import InputError
from kai_solver.shadow.comparing import compare
from kai_solver.shadow.deciding import Changes, decisions_of
from kai_solver.shadow.lines import Begin, Bound, Gone, Left, Line, Marked, document_of, read_lines, text_of
from kai_solver.shadow.observing import Observer
from kai_solver.shadow.recordings import FILE, PIECE, Recorder, files_of, read_recording, recording_of
from tests.support.builders import a_cluster, a_gang, a_node, a_pod

NOW_S = 1_700_000_000.0


def seen(*gangs: Gang, at: float = 0.0) -> Snapshot:
    return replace(a_cluster([a_node("n0")], list(gangs)), now_s=NOW_S + at)


def gang(name: str, *statuses: PodStatus, node: str = "n0", **more: Any) -> Gang:
    """One pod of one GPU for each status."""
    pods = [
        a_pod(f"{name}-{i}", status=status, node="" if status is PodStatus.PENDING else node)
        for i, status in enumerate(statuses)
    ]
    return a_gang(name, *pods, **more)


WAITS, RUNS, LEAVES, ENDED = PodStatus.PENDING, PodStatus.RUNNING, PodStatus.RELEASING, PodStatus.SUCCEEDED


# -- decisions ---------------------------------------------------------------------------------------------------------


def test_a_decision_names_pods_nodes_and_gangs() -> None:
    plan = Plan(
        binds=(Bind("ns/g-0", "ns/g", "n0"), Bind("ns/g-1", "ns/g", "n0", nominated=True)),
        moves=(Move("ns/m-0", "ns/m", "n0", "n1", helps=("ns/g",)),),
        evictions=(Eviction("ns/v-0", "ns/v", "n0", "reclaim", helps=("ns/g",)),),
        pending=(Pending("ns/w", Reason.OVER_LIMIT, "too much", Proof("proven")),),
    )
    gangs = gang("g", WAITS, WAITS), gang("m", RUNS), gang("v", RUNS), gang("w", WAITS), gang("idle", RUNS)
    found = decisions_of(seen(*gangs), plan, 7, NOW_S)
    assert {key: one.decision for key, one in found.items()} == {
        "ns/g": "bind",
        "ns/m": "move",
        "ns/v": "evict",
        "ns/w": "pending",
    }
    document = document_of(found["ns/g"])
    assert document["format"] == "kai-shadow/v1"
    assert document["at"] == "2023-11-14T22:13:20.000Z"
    assert document["binds"] == [
        {"pod": "ns/g-0", "node": "n0"},
        {"pod": "ns/g-1", "node": "n0", "promised": True},
    ]
    assert document["gpus"] == 2.0
    assert document_of(found["ns/m"])["moves"] == [{"pod": "ns/m-0", "from": "n0", "to": "n1", "for": ["ns/g"]}]
    assert document_of(found["ns/v"])["evictions"][0]["for"] == ["ns/g"]
    assert document_of(found["ns/w"])["pending"] == {"reason": "OverLimit", "message": "too much", "proof": "proven"}
    assert decisions_of(seen(*gangs), plan, 7, NOW_S, {"ns/g"}).keys() == {"ns/m", "ns/v", "ns/w"}


def test_only_what_becomes_of_a_gang_is_a_change() -> None:
    cluster, changes = seen(gang("g", WAITS)), Changes()

    def changed(**plan: Any) -> list[str]:
        return [one.decision for one in changes.of(decisions_of(cluster, Plan(**plan), 1, NOW_S))]

    def pending(reason: Reason, words: str) -> tuple[Pending, ...]:
        return (Pending("ns/g", reason, words, Proof("unknown")),)

    assert changed(binds=(Bind("ns/g-0", "ns/g", "n0"),)) == ["bind"]
    assert changed(binds=(Bind("ns/g-0", "ns/g", "n1"),)) == [], "another node"
    assert changed(binds=(Bind("ns/g-0", "ns/g", "n1", nominated=True),)) == ["promise"]
    assert changed(pending=pending(Reason.OVER_LIMIT, "a")) == ["pending"]
    assert changed(pending=pending(Reason.OVER_LIMIT, "b")) == [], "other words"
    assert changed(pending=pending(Reason.TOPOLOGY, "b")) == ["pending"]
    assert changed() == []
    assert changed(pending=pending(Reason.TOPOLOGY, "b")) == ["pending"], "it was gone meanwhile"


# -- what the other scheduler does -------------------------------------------------------------------------------------


def observed(before: Snapshot, after: Snapshot, **pods: Any) -> list[Line]:
    observer = Observer(lambda key: pods.get(key.rpartition("/")[2].replace("-", "_")))
    assert observer.see(before, before.now_s) == []
    return observer.see(after, after.now_s)


def conditions(**stated: Any) -> dict[str, Any]:
    return {"status": {"conditions": [stated]}}


def test_a_pod_that_is_bound_has_the_time_of_its_condition() -> None:
    said = conditions(type="PodScheduled", status="True", lastTransitionTime="2023-11-14T22:13:25Z")
    found = observed(seen(gang("g", WAITS, WAITS)), seen(gang("g", RUNS, RUNS), at=9), g_0=said)
    assert [(one.kind, one.pod, one.since - NOW_S) for one in found if isinstance(one, Bound)] == [
        ("bound", "ns/g-0", 5.0),
        ("bound", "ns/g-1", 9.0),
    ]


@pytest.mark.parametrize("status", [None, 7, {"conditions": "no"}, {"conditions": [{"type": ["x"]}]}])
def test_a_malformed_pod_has_the_time_of_the_look(status: Any) -> None:
    found = observed(seen(gang("g", WAITS)), seen(gang("g", RUNS), at=9), g_0={"status": status})
    assert [one.since - NOW_S for one in found if isinstance(one, Bound)] == [9.0]


def test_pods_leave_in_three_ways() -> None:
    wanted = conditions(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    gangs = gang("a", RUNS), gang("b", RUNS), gang("c", RUNS), gang("d", RUNS), gang("e", LEAVES)
    after = gang("a", ENDED), gang("b", LEAVES), gang("c", LEAVES), gang("e", LEAVES)
    found = observed(seen(*gangs), seen(*after, at=9), b_0=wanted)
    assert {one.gang: one.how for one in found if isinstance(one, Left)} == {
        "ns/a": "ended",
        "ns/b": "disrupted",
        "ns/c": "deleted",
        "ns/d": "deleted",
    }


def test_a_pod_group_that_notes_an_eviction_is_seen_once() -> None:
    before, after = seen(gang("a", RUNS)), seen(gang("a", LEAVES, last_eviction_s=NOW_S + 8), at=9)
    assert [one.since - NOW_S for one in observed(before, after) if isinstance(one, Marked)] == [8.0]
    assert not [one for one in observed(after, replace(after, now_s=NOW_S + 10)) if isinstance(one, Marked)]


def test_a_gang_that_goes_without_a_place_is_gone() -> None:
    before = seen(gang("g", WAITS), gang("h", WAITS), gang("r", RUNS))
    assert [one.gang for one in observed(before, seen(gang("h", WAITS), at=9)) if isinstance(one, Gone)] == ["ns/g"]


# -- stored and read ---------------------------------------------------------------------------------------------------


LARGE = "x" * 10_000


def begun(at: float) -> Begin:
    """A line of ten kilobytes."""
    return Begin(at=NOW_S + at, version=LARGE)


def stored(folder: Path, lines: list[Begin], files: int) -> bytes:
    recorder = Recorder(folder, 1, files)
    try:
        for start in range(0, len(lines), 10):
            recorder.write(lines[start : start + 10])
        stored = recorder.content()
        found = b"".join(stored)
        assert stored.size == len(found)
        return found
    finally:
        recorder.close()


def test_a_recording_is_read_as_it_was_whatever_is_written_meanwhile(tmp_path: Path) -> None:
    """Files are renamed and deleted while a client reads; no more than one piece is in memory."""
    recorder = Recorder(tmp_path, 1, 2)
    for number in range(180):
        recorder.write([begun(number)])
    before = b"".join(recorder.content())
    reading = recorder.content()
    found = [next(pieces := iter(reading))]
    for number in range(300):
        recorder.write([begun(number)])
    found += pieces
    assert b"".join(found) == before
    assert max(map(len, found)) <= PIECE < len(before)
    left = recorder.content()
    left.close()
    with pytest.raises(ValueError, match="closed"):
        list(left)
    recorder.close()


def test_what_is_stored_is_read_again_over_files_and_restarts(tmp_path: Path) -> None:
    folder, lines = tmp_path / "new" / "folder", [begun(i) for i in range(150)]
    stored(folder, lines, 3)
    stored(folder, [begun(999)], 3)
    files = files_of(folder)
    assert [file.name for file in files] == [f"{FILE}.1", FILE]
    assert all(file.stat().st_size <= 1 << 20 for file in files)
    assert list(read_recording([folder])) == [*lines, begun(999)]


def test_the_oldest_file_is_deleted(tmp_path: Path) -> None:
    content = stored(tmp_path, [begun(i) for i in range(400)], 2)
    found = [line.at - NOW_S for line in read_recording([tmp_path])]
    assert found == list(range(int(found[0]), 400))
    assert found[0] > 100
    assert content.count(b"\n") == len(found)
    assert len(content) <= 2 << 20


def test_a_folder_that_cannot_be_written_is_said_once_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recorder = Recorder(tmp_path / "file" / "folder", 1, 2)
    with capture_logs() as logs:
        for _ in range(3):
            recorder.write([Begin(at=NOW_S)])
    assert [line["event"] for line in logs] == ["decisions cannot be stored"]
    (tmp_path / "file").unlink()
    recorder.write([Begin(at=NOW_S)])
    recorder.close()
    assert list(read_recording([tmp_path / "file" / "folder"])) == [Begin(at=NOW_S)]


def test_a_full_disk_is_said_once_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to("/dev/full")
    recorder = Recorder(tmp_path, 1, 2)
    with capture_logs() as logs:
        assert [recorder.write([begun(i)]) for i in range(3)] == [False, False, False]
    assert [line["event"] for line in logs] == ["decisions cannot be stored"]
    (tmp_path / FILE).unlink()
    assert recorder.write([begun(4)])
    recorder.close()
    assert list(read_recording([tmp_path])) == [begun(4)]


@pytest.mark.parametrize("kept", [[], [begun(0)]])
@pytest.mark.parametrize("cut", [9, 3 << 20])
def test_after_a_line_that_was_cut_short_the_rest_can_be_read(tmp_path: Path, kept: list[Begin], cut: int) -> None:
    stored(tmp_path, kept, 4)
    with (tmp_path / FILE).open("a") as file:
        file.write("x" * cut)
    stored(tmp_path, [begun(1)], 4)
    assert list(read_recording([tmp_path])) == [*kept, begun(1)]


@pytest.mark.parametrize("stamp", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", -1e30, 1e30])
def test_times_at_the_ends_of_the_calendar_are_written_again(stamp: str | float) -> None:
    line = orjson.dumps({"format": "kai-shadow/v1", "kind": "begin", "at": stamp})
    (begin,) = read_lines([line], "f")
    assert document_of(begin)["at"][:4] in ("0001", "9999")


@pytest.mark.parametrize("kind", [["begin"], {}, None, 7])
def test_a_kind_that_is_no_text_is_left_out(kind: Any) -> None:
    assert list(read_lines([orjson.dumps({"format": "kai-shadow/v1", "kind": kind})], "f")) == []


def test_a_last_line_cut_short_and_later_kinds_are_left_out() -> None:
    later = orjson.dumps({"format": "kai-shadow/v1", "kind": "weather"})
    begin = text_of(Begin(at=NOW_S)).encode()
    assert list(read_lines([begin, b"", later, begin[:9]], "f")) == [Begin(at=NOW_S)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "f: line 1: is not JSON"),
        (b"[]", "f: line 1: is not of the format kai-shadow/v1"),
        (b'{"format": "kai-plan/v1"}', "f: line 1: is not of the format"),
        (b'{"format": "kai-shadow/v1", "kind": "begin"}', "f: line 1: begin.at: Field required"),
        (b'{"format": "kai-shadow/v1", "kind": "begin", "at": "noon"}', "f: line 1: begin.at: Input should be"),
    ],
)
def test_another_file_is_refused_with_its_line(text: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        list(read_lines([text, text_of(Begin(at=NOW_S)).encode()], "f"))


def test_nothing_recorded_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"recording\.folder"):
        list(read_recording([tmp_path]))
    with pytest.raises(InputError, match="cannot be read"):
        list(read_recording([tmp_path / "none"]))


# -- two snapshots -----------------------------------------------------------------------------------------------------


def test_two_snapshots_are_a_recording_of_one_cycle() -> None:
    """Here g is placed at once and v leaves for h; there h waits, and g is bound a minute later."""
    before = seen(gang("g", WAITS), gang("h", WAITS), gang("v", RUNS))
    after = seen(gang("g", RUNS), gang("h", WAITS), gang("v", RUNS), at=600)
    plan = Plan(
        binds=(Bind("ns/g-0", "ns/g", "n0"), Bind("ns/h-0", "ns/h", "n0", nominated=True)),
        evictions=(Eviction("ns/v-0", "ns/v", "n0", "reclaim", helps=("ns/h",)),),
    )
    said = conditions(type="PodScheduled", status="True", lastTransitionTime="2023-11-14T22:14:20Z")
    found = compare(recording_of(before, plan, after, 0.5, {"ns/g-0": said}))
    assert {row.gang: row.verdict for row in found.rows} == {"ns/g": "better", "ns/h": "better", "ns/v": "worse"}
    assert found.saved == [(59.5, 1.0)]
    assert (found.evicted_here, found.evicted_there) == (1, 0)


def test_the_second_snapshot_must_be_the_later_one() -> None:
    cluster = seen(gang("g", WAITS))
    with pytest.raises(InputError, match="not later"):
        recording_of(cluster, Plan(), cluster, 0.5, {})
