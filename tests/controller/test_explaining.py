"""Why a pod waits, asked of a running controller: over HTTP, and by the command."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import urllib3
from structlog.testing import capture_logs
from typer.testing import CliRunner

from kai_solver.cli import served
from kai_solver.cli.app import app
from kai_solver.cli.served import explanation_of
from kai_solver.cluster.binding import GangBound
from kai_solver.cluster.lease import Lease
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import NODES, PODS
from kai_solver.cluster.store import Store
from kai_solver.controller.app import Controller
from kai_solver.controller.explaining import Explaining
from kai_solver.controller.loop import Cycle, Evicted
from kai_solver.controller.settings import ControllerSettings
from kai_solver.errors import InputError
from kai_solver.explaining import Explainer
from kai_solver.kubeobjects import KubeSettings
from tests.cluster.plane.plane import free_ports
from tests.controller.replicas import QUICK, bound, cluster, pod, running, until

TOKEN = "an operator"  # noqa: S105
SHOWN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(autouse=True)
def kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's kubeconfig has a token."""
    monkeypatch.setattr(served, "bearer_token", lambda: TOKEN)


def known(api: MemoryApi) -> MemoryApi:
    """One caller may get explanations."""
    api.accounts[TOKEN] = frozenset({"/explain"})
    return api


class Newest:
    """A reporter that keeps the newest cycle."""

    seen: Cycle | None = None

    def cycle(self, cycle: Cycle) -> None:
        self.seen = cycle

    def bound(self, outcome: GangBound) -> None:
        pass

    def evicted(self, evicted: Evicted) -> None:
        pass


class Asked:
    """A controller with one pod that runs and one that asks for more than the node has."""

    def __init__(self, api: MemoryApi, server: str, newest: Newest | None = None) -> None:
        self.api, self.server, self.newest = api, server, newest or Newest()

    def get(self, query: str) -> urllib3.BaseHTTPResponse:
        return urllib3.request("GET", f"{self.server}/explain{query}", headers=SHOWN, retries=False)

    def says(self, query: str) -> tuple[int, str]:
        answer = self.get(query)
        return answer.status, answer.data.decode().strip()


@pytest.fixture
def asked() -> Iterator[Asked]:
    api, (port,) = known(cluster()), free_ports(1)
    pod(api, "runs")
    pod(api, "waits", gpus=9)
    newest = Newest()
    with capture_logs(), running(api, (newest,), write_pod_groups=False, answers_bind_address=f"127.0.0.1:{port}"):
        found = Asked(api, f"http://127.0.0.1:{port}", newest)
        until(lambda: bound(api) == {"runs"} and found.says("?pod=waits")[0] == 200)
        yield found


def test_what_waits_is_explained_as_offline(asked: Asked) -> None:
    document = orjson.loads(asked.get("?namespace=n&pod=waits").data)
    assert (document["state"], document["queue"]) == ("pending", "q")
    assert document["queue_source"] == "label kai.scheduler/queue of the pods"
    assert "9 GPUs" in document["message"] or "nvidia.com/gpu" in document["message"]
    cycle = asked.newest.seen
    assert cycle is not None
    expected = Explainer(cycle.snapshot, cycle.plan).explain(document["gang"])
    assert explanation_of(document) == expected
    assert document == orjson.loads(orjson.dumps(expected.document()))


def test_what_runs_is_explained_too(asked: Asked) -> None:
    until(lambda: orjson.loads(asked.get("?pod=runs").data)["state"] in ("placed", "running"))


def test_the_link_that_limits_what_is_placed_is_told() -> None:
    """The node's annotation says how its GPUs are linked."""
    api, (port,) = known(cluster()), free_ports(1)
    api.patch(NODES, "", "a", {"metadata": {"annotations": {"kai-solver/gpu-topology": "dgx1-v100-8"}}})
    pod(api, "pair", gpus=2)
    with capture_logs(), running(api, answers_bind_address=f"127.0.0.1:{port}"):
        asked = Asked(api, f"http://127.0.0.1:{port}")

        until(lambda: bound(api) == {"pair"} and asked.says("?pod=pair")[0] == 200)
        found = orjson.loads(asked.get("?pod=pair").data)
        link = found["link"]
        assert (link["pod"], link["known"], link["kind"], link["gb_s"]) == ("n/pair", "wish", "NV2", 50)
        assert "50 GB/s over NV2 between GPUs" in run("n/pair", "--server", asked.server).stdout
        assert explanation_of(found).link is not None


def test_the_namespace_is_needed_only_where_names_meet(asked: Asked) -> None:
    pod(asked.api, "waits", namespace="other")
    until(lambda: asked.says("?pod=waits")[0] == 400)
    assert asked.says("?pod=waits")[1] == "several pods are named waits: n/waits, other/waits"
    until(lambda: asked.says("?pod=waits&namespace=other")[0] == 200)


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("", 400, "name the pod: /explain?namespace=team-a&pod=train-0"),
        ("?pod=wiats", 404, "no gang, pod or workload is named 'wiats'. Did you mean waits?"),
        ("?pod=weits&namespace=n", 404, "no gang, pod or workload is named 'n/weits'. Did you mean n/waits?"),
    ],
)
def test_a_wrong_name_is_told(asked: Asked, query: str, status: int, words: str) -> None:
    assert asked.says(query) == (status, words)


def test_several_gangs_that_a_name_could_mean_are_listed(asked: Asked) -> None:
    status, words = asked.says("?pod=n/")
    assert status == 400
    assert words.startswith("several gangs begin with 'n/'. Choose one: n/")


def test_pods_that_are_not_ours_are_told(asked: Asked) -> None:
    pod(asked.api, "theirs", scheduler="another")
    pod(asked.api, "done")
    asked.api.patch(PODS, "n", "done", {"status": {"phase": "Succeeded"}}, subresource="status")

    def said(name: str, words: str) -> Callable[[], bool]:
        return lambda: words in asked.says(f"?pod={name}")[1]

    until(said("theirs", "pod n/theirs is of the scheduler 'another', this one is 'kai-scheduler'"))
    until(lambda: asked.says("?pod=theirs")[0] == 404)
    labels = {"kai.scheduler/queue": "q", "kai.scheduler/node-pool": "elsewhere"}
    asked.api.patch(PODS, "n", "waits", {"metadata": {"labels": labels, "creationTimestamp": "2020-01-01T00:00:00Z"}})
    until(said("waits", "is not of the nodes without a node pool"))


def test_a_replica_that_does_not_lead_says_which_does() -> None:
    api = cluster()
    Lease(api, "kai-solver", "kai-solver-kai-scheduler", "the-other").attempt()
    stated: dict[str, Any] = {**QUICK, "leadership": {"live": 60.0, "renew": 50.0, "retry": 0.1}}
    replica = Controller(api, ControllerSettings(**stated))
    answer = replica.explain({"pod": "p"})
    assert answer.status == 503
    assert answer.body.startswith(b"not listed yet: pods, nodes, ")
    replica.stop.set()
    replica.run()
    with running(api, leadership=stated["leadership"]) as second:
        until(lambda: b"the-other leads" in second.explain({"pod": "p"}).body)
        assert second.explain({"pod": "p"}).status == 503


def test_before_the_first_decision_there_is_no_answer() -> None:
    answer = Explaining().answer({"pod": "waits"}, Store(), KubeSettings())
    assert answer.status == 503
    assert answer.body.startswith(b"nothing has been decided yet")


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["explain", *words], env={"COLUMNS": "200"})


def test_the_command_prints_what_the_controller_says(asked: Asked) -> None:
    done = run("n/waits", "--server", asked.server)
    assert done.exit_code == 0, done.output
    for words in (
        "n/waits",
        "pending in queue q",
        "queue q by: label kai.scheduler/queue of the pods",
        "Nodes, for 1 waiting pod",
        "What would have to change",
        "fair share",
    ):
        assert words in done.stdout, words
    document = json.loads(run("waits", "--server", asked.server + "/", "--json").stdout)
    assert document == {"format": "kai-explanation/v1", "gangs": [orjson.loads(asked.get("?pod=waits").data)]}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["n/nobody", "--server", "{server}"], "no gang, pod or workload is named 'n/nobody'"),
        (["n/waits", "again", "--server", "{server}"], "neither an instance nor a plan"),
        (["n/waits", "--server", "localhost:1"], "is not the address of a controller"),
        (["n/waits", "--server", "http://127.0.0.1:1"], "does not answer"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(asked: Asked, words: list[str], problem: str) -> None:
    done = run(*(word.format(server=asked.server) for word in words))
    assert done.exit_code == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_token_comes_from_a_file_or_the_kubeconfig_and_goes_nowhere_else(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    monkeypatch.setattr(served, "bearer_token", lambda: "nobody's")
    refused = run("n/waits", "--server", asked.server)
    assert (refused.exit_code, refused.stderr.count("does not know this token")) == (2, 1)
    assert run("n/waits", "--server", asked.server, "--token-file", str(file)).exit_code == 0
    assert "missing" in run("n/waits", "--server", asked.server, "--token-file", str(tmp_path / "missing")).stderr
    monkeypatch.setattr(served, "bearer_token", lambda: "")
    assert "--token-file FILE" in " ".join(run("n/waits", "--server", asked.server).stderr.split())


@pytest.mark.parametrize(
    ("server", "token"),
    [
        ("http://localhost:8082", TOKEN),
        ("http://127.0.0.1:8082", TOKEN),
        ("http://[::1]:8082", TOKEN),
        ("https://kai.example.org", TOKEN),
        ("http://kai.example.org", ""),
        ("http://localhost.example.org", ""),
    ],
)
def test_the_users_token_is_sent_in_clear_to_this_machine_alone(
    server: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[urllib.request.Request] = []

    def refuse(request: urllib.request.Request, timeout: float) -> None:
        sent.append(request)
        raise OSError("this test sends nothing")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(InputError, match="this test sends nothing"):
        served.ask(server, "n/waits")
    assert sent[0].unredirected_hdrs.get("Authorization", "") == (f"Bearer {token}" if token else "")


@pytest.mark.parametrize("document", [{}, {"queues": [{}]}, {"queues": [], "gang": "g", "state": "nonsense"}])
def test_another_form_of_answer_is_told(document: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="another form"):
        explanation_of(document)
