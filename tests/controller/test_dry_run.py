"""A dry run names what it would do: in its log, at ``/plan``, in its recording, and in the report on that."""

import html
import json
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import urllib3
from structlog.testing import capture_logs
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import PODS
from kai_solver.controller.app import Controller
from kai_solver.controller.loop import Cycle
from kai_solver.controller.orders import Orders
from kai_solver.controller.reporting.deciding import Planned, Shadow
from kai_solver.domain import Pending, Plan, PodStatus, Proof, Reason
from kai_solver.shadow.lines import Bound, Decision, Look
from kai_solver.shadow.recordings import Recorder, read_recording
from tests.cluster.plane.plane import free_ports
from tests.controller.replicas import cluster, pod, running, until
from tests.support.builders import a_cluster, a_gang, a_node, a_pod

TOKEN = "an operator"  # noqa: S105


def cycles(replica: Controller, more: int) -> None:
    """Let so many further cycles pass."""
    wanted = replica.scheduler._number + more
    for _ in range(more):
        until(lambda: replica.scheduler.is_idle)
        replica.scheduler.news.notify()
        before = replica.scheduler._number
        until(lambda before=before: replica.scheduler._number > before)  # type: ignore[misc]
    until(lambda: replica.scheduler._number >= wanted and replica.scheduler.is_idle)


def bind(api: MemoryApi, name: str, node: str = "a") -> None:
    """The other scheduler binds a pod, which runs from then on."""
    api.create(PODS, "n", {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}, subresource="binding")
    api.patch(PODS, "n", name, {"status": {"phase": "Running"}}, subresource="status")


def shadowed(*words: str) -> Any:
    asked = CliRunner().invoke(app, ["shadow", *words])
    assert asked.exit_code == 0, asked.output
    return asked


def short(gang: str) -> str:
    """Without the uid of its pod."""
    return gang.rsplit("-", 5)[0]


def counted(replica: Controller) -> dict[str, float | None]:
    value = replica.metrics.registry.get_sample_value
    return {
        "accept": value("kai_scheduling_decisions_total", {"decision": "accept"}),
        "queue": value("kai_scheduling_decisions_total", {"decision": "queue"}),
        "allocate": value("kai_podgroups_scheduled_by_action_total", {"action": "allocate"}),
        "acted on": value("kai_podgroups_acted_on_by_action_total", {"action": "allocate"}),
        "waits": value("kai_solver_gang_wait_seconds_count"),
    }


def test_names_are_logged_and_counted_once_and_stored(tmp_path: Path) -> None:
    api, folder = cluster(), tmp_path / "recording"
    pod(api, "fits")
    pod(api, "large", gpus=9)
    with capture_logs() as logs, running(api, dry_run=True, recording={"folder": str(folder)}) as replica:
        until(lambda: any(line["event"] == "decision" for line in logs))
        cycles(replica, 5)
        said = [(line["decision"], short(line["gang"])) for line in logs if line["event"] == "decision"]
        assert sorted(said) == [("bind", "n/pg-fits"), ("pending", "n/pg-large")]
        once = {"accept": 1.0, "queue": 1.0, "allocate": 1.0, "acted on": 2.0, "waits": 1.0}
        assert counted(replica) == once
        assert replica.metrics.registry.get_sample_value("kai_queue_depth_total") == 1.0
        bind(api, "fits")
        cycles(replica, 2)
        until(lambda: any(isinstance(line, Bound) for line in read_recording([folder])))
        assert counted(replica) == once
    lines = list(read_recording([folder]))
    assert [short(one.gang) for one in lines if isinstance(one, Bound)] == ["n/pg-fits"]
    assert {one.decision: one.binds for one in lines if isinstance(one, Decision)}["bind"][0].node == "a"
    assert sum(isinstance(one, Look) for one in lines) >= 7
    found = json.loads(shadowed("--recording", str(folder), "--json").stdout)
    assert {short(one["gang"]): one["verdict"] for one in found["by_gang"]} == {
        "n/pg-fits": "same",
        "n/pg-large": "same",
    }


def test_after_a_time_in_which_nothing_could_be_stored_the_recording_begins_anew(tmp_path: Path) -> None:
    waits = a_gang("g", a_pod("g-0", status=PodStatus.PENDING))
    snapshot = replace(a_cluster([a_node("n0")], [waits]), now_s=1_700_000_000.0)
    plan = Plan(pending=(Pending("ns/g", Reason.OVER_LIMIT, "too much", Proof("proven")),))
    folder = tmp_path / "recording"
    folder.write_text("in the way")
    recorder = Recorder(folder, 1, 2)
    shadow = Shadow(lambda _: None, recorder, lambda: 1_700_000_001.0)
    shadow.cycle(Cycle(1, snapshot, plan, Orders(), (), frozenset(), 0.0, 0.0))
    folder.unlink()
    for number in (2, 3):
        shadow.cycle(Cycle(number, snapshot, plan, Orders(), (), frozenset(), 0.0, 0.0))
    recorder.close()
    assert [line.kind for line in read_recording([folder])] == ["begin", "decision", "cycle", "cycle"]


def served(api: MemoryApi, folder: Path, *paths: str, **more: Any) -> tuple[Any, str]:
    """Settings under which answers are served to one operator, and the address."""
    api.accounts[TOKEN] = frozenset(paths)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    recording = {"folder": str(folder)} if folder.name else {}
    return {"answers_bind_address": address, "recording": recording, **more}, f"http://{address}"


def get(address: str, path: str, token: str = TOKEN) -> urllib3.BaseHTTPResponse:
    return urllib3.request("GET", f"{address}{path}", headers={"Authorization": f"Bearer {token}"}, retries=False)


@pytest.mark.parametrize("dry_run", [True, False])
def test_the_plan_is_served_to_those_who_may_see_it(dry_run: bool) -> None:
    api = cluster()
    pod(api, "large", gpus=9)
    stated, address = served(api, Path(), "/plan", dry_run=dry_run)
    with running(api, **stated) as replica:
        until(lambda: replica.scheduler._number > 0 and replica.scheduler.is_idle and not replica.not_ready())
        until(lambda: get(address, "/plan").status == 200)
        until(lambda: json.loads(get(address, "/plan").data)["cycle"] == replica.scheduler._number)
        found = json.loads(get(address, "/plan").data)
        assert {key: found[key] for key in ("format", "dry_run")} == {"format": "kai-decisions/v1", "dry_run": dry_run}
        (decision,) = found["gangs"]
        assert (short(decision["gang"]), decision["decision"]) == ("n/pg-large", "pending")
        assert decision["pending"]["reason"] == "NotEnoughResources"
        assert "MaxNodePoolResources" in decision["pending"]["message"]
        assert get(address, "/plan", "someone else").status == 401
        assert get(address, "/recording").status == 403


def test_nothing_is_said_before_the_first_cycle() -> None:
    assert Planned().answer({}).status == 503


@pytest.mark.parametrize(("dry_run", "why"), [(True, b"recording.folder"), (False, b"not a dry run")])
def test_nothing_is_recorded_unasked(dry_run: bool, why: bytes) -> None:
    api = cluster()
    stated, address = served(api, Path(), "/recording", dry_run=dry_run)
    with running(api, **stated) as replica:
        until(lambda: replica.scheduler._number > 0)
        answer = get(address, "/recording")
        assert (answer.status, why in answer.data) == (404, True)


def test_the_report_is_made_of_what_a_controller_serves(tmp_path: Path) -> None:
    """One gang begins later than it would have here, one waits that would have run, and one both leave alone."""
    api = cluster()
    stated, address = served(api, tmp_path / "recording", "/recording", dry_run=True)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    asked = "--server", address, "--token-file", str(token)
    for name, gpus in (("starts", 1), ("waits", 1), ("large", 9)):
        pod(api, name, gpus=gpus)
    with running(api, **stated) as replica:
        until(lambda: replica.scheduler._number > 0 and not replica.not_ready())
        cycles(replica, 1)
        bind(api, "starts")
        cycles(replica, 2)
        page = tmp_path / "report.html"
        words = shadowed(*asked, "--html", str(page)).stdout
    assert "3 gangs compared" in words
    assert "No pod was evicted" in words
    title = next(line for line in words.splitlines() if line.startswith("kai-solver beside"))
    assert html.escape(title) in page.read_text()
    assert "n/large" in page.read_text()


def test_what_is_to_be_compared_must_be_clear(tmp_path: Path) -> None:
    for words in ((), ("--live", "--recording", "x"), ("a.zip",), ("a.zip", "b.zip", "--live")):
        asked = CliRunner().invoke(app, ["shadow", *words])
        assert asked.exit_code == 2
        assert "one of them only" in asked.stderr
    asked = CliRunner().invoke(app, ["shadow", "--recording", str(tmp_path)])
    assert asked.exit_code == 2
    assert "holds no decisions.jsonl" in asked.stderr


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"hello\r\n", "does not answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut", "does not answer"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "nothing is recorded yet"),
    ],
)
def test_a_server_that_answers_something_else_is_an_error(tmp_path: Path, answer: bytes, problem: str) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def say() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        speaker = threading.Thread(target=say)
        speaker.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        done = CliRunner().invoke(app, ["shadow", "--server", address, "--token-file", str(token)])
        speaker.join()
    assert done.exit_code == 2
    assert problem in done.output
