"""SWF logs and the openb trace as what has been: jobs with their moments, and past usage."""

import gzip
from pathlib import Path
from typing import Any

import pytest

import kai_solver
from kai_solver.errors import InputError
from kai_solver.lab.history import History, read_history, read_mapping

OPENB = Path(__file__).parents[3] / "instances" / "openb" / "openb_pod_list_default.csv"
HEAD = "; Version: 2.2\n; UnixStartTime: 1000000\n"
BEGIN_S = 1_000_000.0
ZERO = "2026-11-09T00:00:00Z"
ZERO_S = 1_794_182_400.0


def swf_line(submit: int, wait: int, run: int, processors: int, user: int = 7, queue: int = 2) -> str:
    return f"1 {submit} {wait} {run} {processors} -1 -1 {processors} -1 -1 1 {user} 1 -1 {queue} -1 -1 -1\n"


def read(tmp_path: Path, name: str, text: str, **mapping: Any) -> History:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return read_history(path, read_mapping(mapping))


@pytest.mark.parametrize("name", ["log.swf", "log.swf.gz", "log.txt"])
def test_jobs_of_an_swf_log_have_the_moments_that_it_says(name: str, tmp_path: Path) -> None:
    history = read(tmp_path, name, HEAD + swf_line(10, 5, 100, 12) + swf_line(20, -1, 7, 1, user=-1, queue=-1))
    first, second = history.jobs
    assert (first.submit_s - BEGIN_S, first.start_s - BEGIN_S, (first.end_s or 0) - BEGIN_S) == (10, 15, 115)
    assert (first.pods, first.gpu_milli, first.queue, first.user) == (2, 6000, "2", "7")
    assert (second.start_s - BEGIN_S, second.pods, second.gpu_milli, second.queue, second.user) == (20, 1, 1000, "", "")


def test_the_mapping_says_when_a_log_begins_and_how_large_a_processor_is(tmp_path: Path) -> None:
    for zero in (ZERO, ZERO_S):
        [job] = read(
            tmp_path, "log.swf", HEAD + swf_line(10, 5, 100, 4), timeZero=zero, gpusPerProcessor=2, gpusPerPod=4
        ).jobs
        assert (job.submit_s, job.pods, job.gpu_milli) == (ZERO_S + 10, 2, 4000)
    with pytest.raises(InputError, match="write epoch seconds, or 2026-11-09"):
        read_mapping({"timeZero": "yesterday"})


def test_lines_of_a_log_that_say_too_little_are_set_aside_and_others_refused(tmp_path: Path) -> None:
    history = read(tmp_path, "log.swf", swf_line(10, 0, 1, 1) + "1 2 3\n")
    assert [(one.object, one.text) for one in history.notices] == [("log.swf: line 2", "has 3 fields, not 18")]
    with pytest.raises(InputError, match=r"line 2: time goes backwards.*Sort the log"):
        read(tmp_path, "log.swf", swf_line(10, 0, 1, 1) + swf_line(5, 0, 1, 1))


def test_pods_of_openb_are_jobs_with_their_quality_of_service_as_queue() -> None:
    history = read_history(OPENB, read_mapping({"timeZero": ZERO}))
    assert len(history.jobs) == 8152 - 897
    first, second = history.jobs[:2]
    assert (first.name, first.submit_s, first.end_s) == ("openb-pod-0000", ZERO_S, ZERO_S + 12537496)
    assert (first.cpu_milli, first.memory_bytes, first.gpu_milli, first.queue) == (12000, 16384 * 2**20, 1000, "LS")
    assert second.gpu_milli == 460
    [notice] = history.notices
    assert notice.object.endswith("897 pods")
    assert "never ran in the trace" in notice.text


def test_a_trace_of_which_nothing_can_be_used_says_why(tmp_path: Path) -> None:
    head = OPENB.read_text().partition("\n")[0]
    with pytest.raises(InputError, match=r"jobs.csv: has no job that can be used; the first, p: time goes backwards"):
        read(tmp_path, "jobs.csv", f"{head}\np,1000,1024,1,1000,,LS,Running,10,5,10\n")


def test_traces_are_past_usage(tmp_path: Path) -> None:
    cluster = {
        "format": "kai-solver/v1",
        "now": ZERO_S + 36_000,
        "nodes": [{"name": "n-{i}", "count": 2, "gpus": 4, "cpu": 8, "memory": "64Gi"}],
        "queues": [{"name": "a", "quota": 4}, {"name": "b", "quota": 4}],
        "gangs": [{"name": "waits", "queue": "a", "pods": [{"gpus": 1}]}],
    }
    log = tmp_path / "log.swf"
    log.write_text(swf_line(0, 0, 18_000, 4, queue=1))
    mapping = {"timeZero": ZERO, "queues": {"1": "a", "LS": "b"}, "usage": {"windowSize": "10h"}}
    for history, queue in ((log, "a"), (OPENB, "b")):
        found = kai_solver.load(cluster, history=history, mapping=mapping)
        usage = dict(found.frame("queues").select("queue", "past_usage").rows())
        assert usage.pop(queue) == pytest.approx(0.25 if queue == "a" else 0.125, abs=0.01)
        assert set(usage.values()) == {0.0}
