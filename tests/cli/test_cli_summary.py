"""Plans in words: grouping, cutting, and the live line."""

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from kai_solver.cli.bench_report import _gap
from kai_solver.cli.console import open_console
from kai_solver.cli.inputs import Request, parse_actions, parse_budget_s
from kai_solver.cli.phrases import arrows, bound_words, in_the_way, nodes_of, outcome, pending_lines, places, same_cause
from kai_solver.cli.progress import ProgressLine, words
from kai_solver.cli.summary import print_summary
from kai_solver.domain import (
    Action,
    AtMost,
    Bind,
    Blocker,
    Device,
    Eviction,
    Gang,
    Move,
    Notice,
    Pending,
    Plan,
    Policy,
    Proof,
    Reason,
    Snapshot,
    SolverModel,
    Stage,
    flat_gang,
)
from kai_solver.engine import Progress
from kai_solver.errors import InputError
from kai_solver.instances_io.importers import Loaded
from kai_solver.units import ResourceSchema


def summary(
    plan: Plan,
    *,
    full: bool = False,
    timing: bool = False,
    notices: tuple[Notice, ...] = (),
    policy: Policy | None = None,
) -> str:
    gangs = tuple(Gang("ns", f"g{i:03}", "queue-a" if i % 2 else "queue-b", flat_gang(1)) for i in range(100))
    snapshot = Snapshot(0.0, ResourceSchema(), (), (), gangs, policy=policy or Policy(), notices=notices)
    request = Request(Path("dir/cluster.yaml"), Loaded(snapshot, "native"), SolverModel("m"), 2.0)
    console = Console(file=io.StringIO(), width=400, markup=False, highlight=False)
    print_summary(request, plan, full=full, timing=timing, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def binds(count: int) -> tuple[Bind, ...]:
    return tuple(Bind(f"ns/g{i:03}-0", f"ns/g{i:03}", f"n{i}", (Device(0, 1000),)) for i in range(count))


def test_an_instance_without_a_name_is_called_by_its_file() -> None:
    assert summary(Plan()).startswith("cluster.yaml: 0 nodes")


def test_actions_that_the_policy_disables_are_not_named() -> None:
    text = summary(Plan(), policy=Policy(disabled_actions=frozenset(Action) - {Action.ALLOCATE, Action.RECLAIM}))
    assert "budget 2 s; allocate, reclaim\n" in text


def test_a_short_plan_names_every_gang() -> None:
    text = summary(Plan(binds=binds(3)))
    assert "ns/g002     1  n2 (GPU 0)  allocate  now" in text


def test_a_long_plan_is_told_by_queue_and_in_full_on_demand() -> None:
    plan = Plan(binds=binds(100))
    assert "50 gangs of queue-a    50  n1 (GPU 0), n3 (GPU 0), n5 (GPU 0), n7 (GPU 0) and 46 more nodes" in summary(
        plan
    )
    assert "ns/g099" in summary(plan, full=True)


def test_long_lists_of_victims_join_the_gangs_that_they_help() -> None:
    evictions = tuple(Eviction(f"ns/g{i:03}-0", f"ns/g{i:03}", "n", "reclaim", (f"ns/t{i % 6}",)) for i in range(100))
    text = summary(Plan(evictions=evictions))
    assert "50 gangs of queue-b    50  n x50  reclaim  ns/t0, ns/t2, ns/t4" in text
    assert text.count(" gangs of ") == 2


def test_moves_are_told_by_gang_with_their_places() -> None:
    moves = tuple(Move(f"ns/g000-{i}", "ns/g000", "a", "b", (), ("ns/t",)) for i in range(2))
    assert "ns/g000     2  a -> b x2   ns/t" in summary(Plan(moves=moves))


def waits(name: str, *blocking: Blocker, reason: Reason = Reason.NOT_ENOUGH_RESOURCES) -> Pending:
    return Pending(f"ns/{name}", reason, f"gang {name} lacks GPUs", Proof("proven", "count", blocking))


def test_gangs_that_wait_alike_are_one_group_and_the_largest_is_first() -> None:
    groups = same_cause([waits("x", reason=Reason.OVER_LIMIT), waits("a"), waits("b")])
    assert [[entry.gang for entry in group] for group in groups] == [["ns/a", "ns/b"], ["ns/x"]]


def test_blockers_are_cut_with_a_count() -> None:
    blocking = tuple(Blocker("resource", f"r{i}", "2", "1") for i in range(5))
    lines = pending_lines([waits("a", *blocking)], {}, blockers=3)
    assert lines[-2:] == ["      - and 2 more", "      gang a lacks GPUs"]
    assert len(pending_lines([waits("a", *blocking)], {}, blockers=None)) == len(lines) + 1


def test_what_is_proven_of_several_together_is_said_once_for_all() -> None:
    proof = Proof("unknown", "preempt: budget", at_most=AtMost(3, 1))
    pending = tuple(replace(waits(name), proof=proof) for name in "abc")
    text = summary(Plan(pending=(*pending, waits("d"))))
    assert "4 gangs pending, 1 of them proven, and at least 2 of the others have to wait" in text
    assert (
        text.count("Of 3 gangs that wait, these among them, at most 1 can run beside all that this plan admits.") == 1
    )


def test_a_single_gang_that_waits_is_proven_or_not() -> None:
    assert "1 gang pending, proven\n" in summary(Plan(pending=(waits("a"),)))
    open_one = replace(waits("a"), proof=Proof("unknown", "preempt: budget"))
    assert "1 gang pending, not proven\n" in summary(Plan(pending=(open_one,)))


def test_room_that_only_a_gang_may_take_is_told_from_all_room() -> None:
    part = Blocker("resource", "gpu", "14 pods of 8 GPUs", "room for 8", resource="gpu", short=48_000)
    told = "it needs 14 pods of 8 GPUs, and the cluster has room for 8 that this gang may take; 48 GPUs short"
    assert in_the_way(part, of_gang=True) == told
    whole = replace(part, have="room for 12 even if nothing else ran")
    assert "may take" not in in_the_way(whole, of_gang=True)


def test_a_gap_above_the_whole_bound_is_no_figure() -> None:
    assert [_gap(gap) for gap in (None, 0.0, 1.0, 63.576)] == ["", "0.0%", "100.0%", "no useful bound"]


def test_many_causes_are_cut_with_counts() -> None:
    pending = tuple(waits(f"p{i}", Blocker("resource", str(i), "1", "0")) for i in range(15))
    assert "... and 5 more causes (5 gangs); --full shows all" in summary(Plan(pending=pending))
    assert "--full" not in summary(Plan(pending=pending), full=True)


def test_stages_times_notes_and_notices_are_shown() -> None:
    plan = Plan(stages=(Stage("moved-pods", 4, 3, False),), timing_s={"decide": 0.25}, notes=("the budget ended",))
    text = summary(plan, notices=(Notice("set-aside", "gang x", "unknown queue"),))
    for expected in ("moved-pods      4      3  33.3%", "decided in 0.25 s of 2 s", "note: the budget ended"):
        assert expected in text
    assert "set-aside: gang x: unknown queue" in text


def test_phases_add_up_and_what_lies_within_them_stands_apart() -> None:
    timing = {"build": 0.1, "stages": 0.3, "proof": 0.2, "decide": 0.5, "first-plan": 0.15}
    text = summary(Plan(timing_s=timing), timing=True)
    table = text.split("Time")[1].split("Of these")[0].splitlines()[2:]
    times = {line.rsplit("  ", 1)[0].strip(): float(line.split()[-2]) for line in table if line}
    assert sum(times.values()) == pytest.approx(2 * times["together"])
    assert "until their proof 200.0 ms" in text
    assert "Time" not in summary(Plan(timing_s=timing))


def test_why_no_bound_is_claimed_is_said() -> None:
    stages = (Stage("pending-gangs", 1, 1, True), Stage("evicted-pods", 2, 0, False))
    text = summary(Plan(stages=stages, unclaimed="elastic gangs could give up other pods"))
    assert "evicted-pods       2      -       -\n" in text
    assert "-: bounds not claimed: elastic gangs could give up other pods" in text


def test_names_are_short_and_lines_keep_the_width() -> None:
    uid = "8056cd3e-9ed4-4ca5-a0c1-6b828b138534"
    gangs = (Gang("team", f"pg-train-{uid}", "q", flat_gang(1)), Gang("team", "other", "q", flat_gang(1)))
    snapshot = Snapshot(0.0, ResourceSchema(), (), (), gangs)
    request = Request(Path("cluster.yaml"), Loaded(snapshot, "native"), SolverModel("m"), 2.0)
    pending = Pending(gangs[0].key, Reason.NOT_ENOUGH_RESOURCES, "word " * 50, Proof("unknown"))
    bind = Bind("team/other-0", "team/other", "a-node-with-a-name-that-is-long")
    plan = Plan(pending=(pending,), binds=(bind,), notes=("note " * 30,))
    for width in (60, 100):
        console = open_console(io.StringIO())
        console.width = width
        print_summary(request, plan, console=console)
        assert isinstance(console.file, io.StringIO)
        lines = console.file.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert [line for line in lines if line != line.rstrip()] == []
        assert "  team/train: NotEnoughResources" in lines


def test_a_gang_admitted_chunk_by_chunk_counts_once_a_rung() -> None:
    admitted = (("ns/a", Action.ALLOCATE),) * 3 + (("ns/b", Action.RECLAIM),)
    assert outcome(Plan(admitted=admitted)).startswith("2 gangs admitted (allocate 1, reclaim 1)")


def test_devices_are_ranges_and_shares() -> None:
    whole = Bind("p", "g", "n", tuple(Device(i, 1000) for i in (0, 1, 2, 5)))
    shared = replace(whole, devices=(Device(7, 250),))
    assert places([whole, shared]) == "n (GPU 0-2, 5, 0.25 of 7)"


def test_lists_of_nodes_and_moves_say_how_many_more() -> None:
    assert nodes_of(["a", "b", "a", "c", "d", "e"]) == "a x2, b, c, d and 1 more node"
    assert arrows([("a", str(i)) for i in range(6)]) == "a -> 0, a -> 1, a -> 2, a -> 3 and 2 more"


@pytest.mark.parametrize(
    ("value", "bound", "stake", "words"),
    [
        (4, 4, 0, "4 proven"),
        (4, 3, 0, "3 33.3%"),
        (4, 0, 0, "- -"),
        (4, 0, 800, "- -"),
        (4, 3, 800, "3 12.5%"),
        (0, -4, 0, "-4 100.0%"),
        (0, -math.inf, 0, "- -"),
        (0, 0, 0, "0 proven"),
    ],
)
def test_a_bound_that_says_nothing_is_not_claimed_and_a_gap_is_a_part_of_it(
    value: float, bound: float, stake: float, words: str
) -> None:
    assert " ".join(bound_words(Stage("s", value, bound, value == bound, stake))) == words


def test_the_live_line_shows_incumbent_bound_and_gap() -> None:
    assert words(Progress("stages", 1.5, 4.0, 3.0, "moving")).split("  ")[1:] == [
        "1.50 s",
        "stages",
        "incumbent 4",
        "bound 3",
        "gap 33.3%",
        "moving",
    ]


def test_progress_is_live_on_a_terminal_and_a_line_a_phase_elsewhere() -> None:
    events = [Progress("ladder", 0.1), Progress("ladder", 0.2), Progress("stages", 0.3, 1.0, 0.0)]
    plain, terminal = Console(file=io.StringIO(), width=80), Console(file=io.StringIO(), width=80, force_terminal=True)
    for console in (plain, terminal):
        with ProgressLine(console) as show:
            for event in events:
                show(event)
    assert isinstance(plain.file, io.StringIO)
    assert isinstance(terminal.file, io.StringIO)
    assert [line.split()[2] for line in plain.file.getvalue().splitlines()] == ["ladder", "stages"]
    assert "\x1b[" in terminal.file.getvalue()


@pytest.mark.parametrize(("text", "seconds"), [("2s", 2.0), ("500ms", 0.5), ("1m", 60.0), ("1.5", 1.5)])
def test_budgets_are_durations_or_seconds(text: str, seconds: float) -> None:
    assert parse_budget_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "0", "nan", "inf", "2 days"])
def test_other_budgets_are_refused_with_their_option(text: str) -> None:
    with pytest.raises(InputError, match="--budget"):
        parse_budget_s(text)


def test_actions_are_a_ladder() -> None:
    assert parse_actions("allocate, reclaim") == (Action.ALLOCATE, Action.RECLAIM)
    with pytest.raises(InputError, match="unknown action 'steal'"):
        parse_actions("steal")


@pytest.mark.parametrize(
    ("have", "resource", "said"),
    [
        ("1 pod", "pods", "the cluster has 1 pod; 1 pod short"),
        ("less than 80 GPUs", "gpu", "the cluster has less than 80 GPUs"),
    ],
)
def test_what_is_short_is_said_unless_it_is_less_than_what_is_asked_for(have: str, resource: str, said: str) -> None:
    blocker = Blocker("resource", resource, "more", have, resource=resource, short=1)
    assert in_the_way(blocker) == f"it needs more, and {said}"
