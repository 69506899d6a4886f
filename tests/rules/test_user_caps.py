"""Caps per user: the setting, the parts that keep the rule, and against every possible plan of a small cluster."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Action, Plan, Snapshot
from kai_solver.engine import Engine, cycle
from kai_solver.errors import InputError
from kai_solver.explaining.cures import cures
from kai_solver.instances_io.anonymize import anonymize
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.instances_io.native_write import native_from_snapshot
from kai_solver.kubeobjects.notices import Notices
from kai_solver.kubeobjects.rulesettings import read_rule_settings, write_rule_settings
from kai_solver.modelfiles import load_model
from tests.support.clusters import some

GREEDY = load_model("greedy-only")
GPUS = 2


def a_gang(name: str, user: str, *, gpus: float = 1, at: str = "", pods: int = 1, **more: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"gpus": gpus, "replicas": pods, "labels": {"user": user} if user else {}}
    return {"name": name, "queue": "team", "pods": [entry | ({"running": {at: pods}} if at else {})]} | more


def a_cluster(*gangs: dict[str, Any], cap: str = "gpus=2", nodes: int = 3, above: str = "") -> Snapshot:
    queues = [
        {"name": "dep", "quota": 99, "rules": {"usercaps": f"label=user {above}"} if above else {}},
        {"name": "team", "parent": "dep", "quota": 99, "rules": {"usercaps": f"label=user {cap}"} if cap else {}},
    ]
    head = {"format": "kai-solver/v1", "nodes": [{"name": f"n{i}", "gpus": GPUS} for i in range(nodes)]}
    return snapshot_from_native(head | {"queues": queues, "gangs": list(gangs)})


def plan_of(snapshot: Snapshot) -> Plan:
    plan = cycle(snapshot, GREEDY)
    assert check_plan(snapshot, plan) == ()
    return plan


def test_a_user_waits_with_a_proof_and_another_does_not() -> None:
    plan = plan_of(a_cluster(a_gang("a", "alice", at="n0"), a_gang("b", "alice", gpus=2), a_gang("c", "bob", gpus=2)))
    assert [gang for gang, _ in plan.admitted] == ["default/c"]
    (pending,) = plan.pending
    assert (pending.reason.value, pending.proof.state) == ("OverLimit", "proven")
    assert "User alice of queue team holds 1 GPU and asks for 2 GPUs more, at most 2 GPUs" in pending.message
    assert ("usercaps", "team") in [(element.kind, element.name) for element in pending.proof.blocking]


def test_pods_without_the_label_are_not_capped_and_pods_are_counted_too() -> None:
    assert not plan_of(a_cluster(a_gang("a", "", gpus=2, pods=3))).pending
    assert plan_of(a_cluster(a_gang("a", "alice", gpus=0.25, pods=3), cap="pods=2")).pending
    assert not plan_of(a_cluster(a_gang("a", "alice", gpus=0.25, pods=3), cap="gpus=1")).pending


def test_each_level_of_queues_has_its_own_cap() -> None:
    gang = a_gang("a", "alice", gpus=2)
    assert plan_of(a_cluster(gang, cap="", above="gpus=1")).pending
    assert plan_of(a_cluster(gang, cap="gpus=2", above="gpus=1")).pending
    assert not plan_of(a_cluster(gang, cap="gpus=2", above="gpus=2")).pending


def test_what_is_above_a_lowered_cap_stays_and_nothing_more_comes() -> None:
    held = [a_gang(f"a{i}", "alice", gpus=2, at=f"n{i}") for i in range(2)]
    plan = plan_of(a_cluster(*held, a_gang("b", "alice")))
    assert (len(plan.pending), plan.evictions, plan.moves) == (1, (), ())


@pytest.mark.parametrize("model", ["greedy-only", "deterministic"])
def test_running_pods_of_a_gang_that_is_set_aside_count(model: str) -> None:
    snapshot = a_cluster(a_gang("a", "alice", gpus=2, at="n0"), a_gang("b", "alice"), a_gang("c", "bob"))
    gangs = (replace(gang, set_aside="its tree is broken") if gang.name == "a" else gang for gang in snapshot.gangs)
    plan = cycle(replace(snapshot, gangs=tuple(gangs)), load_model(model))
    assert [gang for gang, _ in plan.admitted] == ["default/c"]
    assert not any("checker" in note for note in plan.notes)
    waits = next(entry for entry in plan.pending if entry.gang == "default/b")
    assert (waits.reason.value, waits.proof.state) == ("OverLimit", "proven")


def test_the_checker_refuses_a_plan_that_passes_a_cap() -> None:
    gangs = [a_gang("a", "alice", gpus=2), a_gang("b", "alice", gpus=2)]
    plan = plan_of(a_cluster(*gangs, cap=""))
    assert [(v.rule, v.object) for v in check_plan(a_cluster(*gangs), plan)] == [("usercaps", "team")]


def test_without_the_cap_the_gang_would_run() -> None:
    snapshot = a_cluster(a_gang("a", "alice", gpus=2, pods=2))
    (pending,) = plan_of(snapshot).pending
    found = cures(snapshot, "default/a", pending.proof.blocking, plan_of)
    assert [(cure.text, cure.runs) for cure in found] == [("no cap per user in queue team", True)]


# -- the setting ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("label=user gpus=8", ""),
        ("label=user gpus=8 pods=20", ""),
        ("gpus=8", "no label is named"),
        ("label=user", "nothing is capped"),
        ("label=user gpus=-1", "gpus=-1 is not a whole number"),
        ("label=user cpus=8", "'cpus' is not known"),
    ],
)
def test_what_a_setting_may_say(text: str, fault: str) -> None:
    notices = Notices()
    found = read_rule_settings({"kai-solver/rule-usercaps": text}, "Queue team", notices)
    assert found == (() if fault else (("usercaps", text),))
    assert fault in "".join(notice.text for notice in notices.all())
    assert bool(notices.all()) is bool(fault)
    queue = {"name": "q", "rules": {"usercaps": text}}
    if fault:
        with pytest.raises(InputError, match=r"queues\[0\].rules.usercaps"):
            snapshot_from_native({"format": "kai-solver/v1", "queues": [queue]})


@pytest.mark.parametrize(
    "text", ["gpus=" + "9" * 5000, "label=user gpus=\x1b[31m", "label=" * 50_000, "\n\u202e", "=", ""]
)
def test_a_hostile_setting_is_reported_in_one_short_line(text: str) -> None:
    notices = Notices()
    assert read_rule_settings({"kai-solver/rule-usercaps": text}, "Queue team", notices) == ()
    (notice,) = notices.all()
    assert notice.text.isprintable()
    assert len(notice.text) < 1000


def test_a_hostile_name_of_a_rule_is_reported_in_one_short_line() -> None:
    notices = Notices()
    assert read_rule_settings({"kai-solver/rule-\x1b" + "x" * 10_000: "1"}, "Queue team", notices) == ()
    assert notices.all()[0].text.isprintable()
    assert len(notices.all()[0].text) < 2000


def test_an_anonymous_cluster_keeps_the_caps_and_no_names() -> None:
    snapshot = a_cluster(a_gang("a", "alice", gpus=2, pods=2))
    queues = tuple(replace(queue, rules=(*queue.rules, ("of-others", "alice bob"))) for queue in snapshot.queues)
    secret = anonymize(replace(snapshot, queues=queues), b"salt")
    assert "alice" not in str([queue.rules for queue in secret.queues])
    assert plan_of(secret).pending[0].proof.blocking[0].kind == "usercaps"


def test_a_misspelt_rule_is_told() -> None:
    notices = Notices()
    assert read_rule_settings({"kai-solver/rule-usercap": "label=user gpus=8"}, "Queue team", notices) == ()
    assert "Did you mean 'usercaps'?" in notices.all()[0].text


def test_settings_are_written_as_they_are_read() -> None:
    rules = (("usercaps", "label=user gpus=8"),)
    assert read_rule_settings(write_rule_settings(rules), "Queue team", Notices()) == rules
    snapshot = a_cluster(a_gang("a", "alice"))
    again = snapshot_from_native(json.loads(json.dumps(native_from_snapshot(snapshot))))
    assert [queue.rules for queue in again.queues] == [queue.rules for queue in snapshot.queues]


# -- every plan of a small cluster ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Engine]]:
    base = load_model("deterministic")
    with (
        Engine(replace(base, actions=(Action.ALLOCATE, Action.CONSOLIDATION))) as moving,
        Engine(replace(base, actions=(Action.ALLOCATE, Action.CONSOLIDATION, Action.PREEMPT))) as preempting,
    ):
        yield {"moving": moving, "preempting": preempting}


users = st.sampled_from(["alice", "alice", "bob", ""])


@st.composite
def clusters(draw: Any) -> Snapshot:
    """One gang waits; the others run, of one pod each, wherever there is room."""
    free, gangs = [GPUS] * 3, []
    for number in range(draw(st.integers(0, 4))):
        node, gpus = draw(st.integers(0, 2)), draw(st.integers(1, GPUS))
        if free[node] >= gpus:
            free[node] -= gpus
            priority = draw(st.sampled_from([10, 20, 100]))
            gangs.append(a_gang(f"r{number}", draw(users), gpus=gpus, at=f"n{node}", priority=priority))
    gangs.append(a_gang("w", "alice", pods=draw(st.integers(1, 2)), gpus=draw(st.integers(1, GPUS)), priority=50))
    cap = draw(st.sampled_from(["gpus=2", "gpus=3", "pods=2", "pods=3 gpus=4", "gpus=1"]))
    return a_cluster(*gangs, cap=cap)


def is_possible(snapshot: Snapshot, *, may_evict: bool) -> bool:
    """Whether any assignment runs the waiting gang, with others moved, and evicted where they may be."""
    setting = dict(part.split("=") for part in dict(snapshot.queues[1].rules)["usercaps"].split())
    waiting = next(gang for gang in snapshot.gangs if gang.name == "w")
    running = [(gang, pod) for gang in snapshot.gangs for pod in gang.pods if pod.node]
    names = [node.name for node in snapshot.nodes]
    options: list[list[int]] = []
    for gang, pod in running:
        home = [names.index(pod.node)]
        options.append([*range(len(names)), *([-1] if may_evict else [])] if gang.preemptible else home)
    pods = [pod for _, pod in running] + list(waiting.pods)
    for choice in product(*options, *([range(len(names))] * len(waiting.pods))):
        load, mine = [0] * len(names), []
        for pod, at in zip(pods, choice, strict=True):
            if at >= 0:
                load[at] += pod.gpu.devices
                mine += [pod.gpu.devices] if pod.labels.get("user") == "alice" else []
        if (
            max(load) <= GPUS
            and sum(mine) <= int(setting.get("gpus", 99))
            and len(mine) <= int(setting.get("pods", 99))
        ):
            return True
    return False


def decide(engine: Engine, snapshot: Snapshot, *, may_evict: bool) -> None:
    """Fails where the plan breaks a rule, a plan that exists is missed, or what is not so is proven."""
    plan = engine.cycle(snapshot)
    assert check_plan(snapshot, plan) == ()
    assert not any("refused" in note for note in plan.notes), plan.notes
    if plan.pending:
        assert not is_possible(snapshot, may_evict=may_evict)
        assert plan.pending[0].proof.state == "proven"
    else:
        assert is_possible(snapshot, may_evict=may_evict)


@given(cluster=clusters())
@some(60)
def test_every_gang_that_moves_make_room_for_runs(engines: dict[str, Engine], cluster: Snapshot) -> None:
    decide(engines["moving"], cluster, may_evict=False)


@given(cluster=clusters())
@some(100)
def test_every_gang_that_victims_make_room_for_runs(engines: dict[str, Engine], cluster: Snapshot) -> None:
    decide(engines["preempting"], cluster, may_evict=True)
