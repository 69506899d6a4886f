"""CSV histories: columns by a mapping; what cannot be used is set aside with line and reason."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.errors import InputError
from kai_solver.lab.history import History, read_history, read_mapping
from kai_solver.lab.history.table import table_jobs

COLUMNS = {
    "submit": "submitted",
    "start": "started",
    "end": "ended",
    "pods": "workers",
    "gpus": "gpus",
    "queue": "team",
    "user": "user",
    "name": "job",
}
HEAD = "job,submitted,started,ended,workers,gpus,team,user\n"


def read(tmp_path: Path, text: str | bytes, **mapping: Any) -> History:
    path = tmp_path / "jobs.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_history(path, read_mapping({"columns": COLUMNS} | mapping))


def reasons(history: History) -> dict[str, str]:
    return {notice.object.removeprefix("jobs.csv: "): notice.text for notice in history.notices}


def test_a_row_is_a_job(tmp_path: Path) -> None:
    [job] = read(tmp_path, HEAD + "a,100,160,260,2,4,vision,ana\n").jobs
    assert (job.name, job.submit_s, job.start_s, job.end_s) == ("a", 100.0, 160.0, 260.0)
    assert (job.pods, job.gpu_milli, job.cpu_milli, job.memory_bytes) == (2, 4000, 4000, 16 * 2**30)
    assert (job.queue, job.user, job.place) == ("vision", "ana", "line 2")


def test_times_of_all_forms(tmp_path: Path) -> None:
    text = HEAD + "a,2026-11-09T08:00:00Z,2026-11-09T09:00:00+01:00,2026-11-09 10:00:00,1,1,v,u\n"
    [job] = read(tmp_path, text, timeZone="Europe/Berlin").jobs
    assert job.submit_s == job.start_s == 1762675200.0 + 365 * 86400
    assert job.end_s == job.start_s + 3600
    [job] = read(tmp_path, HEAD + "a,,09.11.2026 08:00,09.11.2026 09:00,1,1,v,u\n", timeFormat="%d.%m.%Y %H:%M").jobs
    assert (job.submit_s, job.end_s) == (job.start_s, job.start_s + 3600)


def test_gpus_of_a_job_are_divided_among_its_pods(tmp_path: Path) -> None:
    history = read(tmp_path, HEAD + "a,1,1,2,4,32,v,u\nb,1,1,2,2,1,v,u\nc,1,1,2,2,3,v,u\n", gpusAre="per-job")
    assert [job.gpu_milli for job in history.jobs] == [8000, 500]
    assert "1.5 for each pod is neither" in reasons(history)["line 4"]


def test_quantities_delimiters_and_quotes(tmp_path: Path) -> None:
    text = 'name;start;end;cpu;mem\n"a;b";1;2;500m;2Gi\n'
    columns = {"name": "name", "gpus": "", "cpu": "cpu", "memory": "mem"}
    [job] = read(tmp_path, text, columns=columns, delimiter=";").jobs
    assert (job.name, job.cpu_milli, job.memory_bytes, job.gpu_milli) == ("a;b", 500, 2 * 2**30, 0)


BAD_ROWS = {
    "x,1,2": "has 3 fields, and the header has 8",
    "x,1,2,3,1,1,v,u,more": "has 9 fields, and the header has 8",
    "x,1,,3,1,1,v,u": "never started",
    "x,5,2,3,1,1,v,u": "time goes backwards: it started before it was submitted",
    "x,1,5,3,1,1,v,u": "time goes backwards: it ended before it started",
    "x,1,1,99999999999,1,1,v,u": "more than 30 years",
    "x,yesterday,2,3,1,1,v,u": "submit: 'yesterday' is no time",
    "x,1,nan-ish,3,1,1,v,u": "start: 'nan-ish' is no time",
    "x,1,inf,3,1,1,v,u": "start: 'inf' is no time",
    "x,1,-7,3,1,1,v,u": "start: '-7' is no time",
    "x,1,2,3,0,1,v,u": "pods: 0 is not from 1",
    "x,1,2,3,1.5,1,v,u": "pods: '1.5' is not a whole number",
    "x,1,2,3,9999999,1,v,u": "pods: 9999999 is not from 1",
    "x,1,2,3,1,many,v,u": "gpus: 'many' is not a number",
    "x,1,2,3,1,1.5,v,u": "neither a whole number nor a part",
    "x,1,2,3,1,-4,v,u": "gpus: -4 is not from 0",
    "x,1,2,3,1,1e99,v,u": "is not from 0",
}


@pytest.mark.parametrize("row", BAD_ROWS)
def test_a_bad_row_is_set_aside_and_the_others_stay(tmp_path: Path, row: str) -> None:
    history = read(tmp_path, f"{HEAD}a,1,2,3,1,1,v,u\n{row}\n\nb,4,5,6,1,1,v,u\n")
    assert [job.name for job in history.jobs] == ["a", "b"]
    assert list(reasons(history)) == ["line 3"]
    assert BAD_ROWS[row] in reasons(history)["line 3"]


def test_gaps_and_order_do_not_matter(tmp_path: Path) -> None:
    text = HEAD + "late,900,901,902,1,1,v,u\nearly,1,,,,,,\nfirst,2,3,,,,,\n"
    history = read(tmp_path, text)
    assert [(job.name, job.end_s, job.pods, job.gpu_milli) for job in history.jobs] == [
        ("first", None, 1, 0),
        ("late", 902.0, 1, 1000),
    ]
    assert "never started" in reasons(history)["line 3"]


WHOLE = {
    "": "has no column",
    HEAD: "has no jobs",
    HEAD + "x\n": "has no usable row; the first, line 2",
    "submitted,started,ended,workers,gpu,team,user,job\n": "has no column 'gpus' for gpus",
    HEAD.replace("team", "job"): "has two columns 'job'",
}


@pytest.mark.parametrize("text", WHOLE)
def test_a_file_of_which_nothing_can_be_used(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"jobs\.csv") as caught:
        read(tmp_path, text)
    assert WHOLE[text] in str(caught.value)
    assert caught.value.cure


def test_a_column_that_is_nearly_right_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Write columns: \{gpus: gpu\}"):
        read(tmp_path, "submitted,started,ended,workers,gpu,team,user,job\n")


BAD_MAPPINGS: list[tuple[dict[str, Any], str]] = [
    ({"columns": {"pdos": "x"}}, "Did you mean 'pods'"),
    ({"delimiter": ";;"}, "delimiter"),
    ({"timeZone": "Mars/Olympus"}, "'Mars/Olympus' is no time zone"),
    ({"timeZone": "../../etc/passwd"}, "is no time zone"),
    ({"usage": {"windowSize": "0s"}}, "usage.windowSize"),
    ({"format": "kai-history/v9"}, "format"),
]


@pytest.mark.parametrize(("mapping", "said"), BAD_MAPPINGS)
def test_a_bad_mapping_is_an_error_with_a_cure(tmp_path: Path, mapping: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read(tmp_path, HEAD + "a,1,2,3,1,1,v,u\n", **mapping)
    assert caught.value.cure


def test_packed_files_with_a_byte_order_mark_and_foreign_bytes(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + HEAD.encode() + b"\xff\xfe\x00,1,2,3,1,1,v,u\r\n"
    [job] = read(tmp_path, gzip.compress(data)).jobs
    assert job.pods == 1


def test_a_field_beyond_what_csv_reads_is_set_aside(tmp_path: Path) -> None:
    history = read(tmp_path, f"{HEAD}{'x' * 200_000},1,2,3,1,1,v,u\nb,4,5,6,1,1,v,u\n")
    assert [job.name for job in history.jobs] == ["b"]
    assert len(history.notices) == 1


@given(st.binary(max_size=300))
def test_no_bytes_crash_it(data: bytes) -> None:
    doc = read_mapping({"columns": COLUMNS})
    for content in (data, HEAD.encode() + data):
        try:
            jobs, aside = table_jobs(content, "jobs.csv", doc)
        except InputError:
            continue
        else:
            assert all(job.pods >= 1 for job in jobs)
            assert all(reason for _, reason in aside)


@pytest.mark.slow
def test_a_hundred_thousand_rows_of_which_many_are_bad(tmp_path: Path) -> None:
    rows = [f"j{i},{i},{i + 5},{i + 60},2,4,v,u{i % 50}" if i % 10 else f"j{i},,oops,1" for i in range(100_000)]
    history = read(tmp_path, HEAD + "\n".join(rows) + "\n")
    assert len(history.jobs) == 90_000
    assert len(history.notices) == 101
    assert history.notices[-1].text == "and 9,900 more rows"
