"""What gangs lack that were refused without a text, said of the state in which the actions have ended."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kai_solver.domain import Action, Blocker, Gang, Proof, Reason
from kai_solver.planstate.outcome import Outcome, Refusal
from kai_solver.planstate.state import State
from kai_solver.problem import build_problem
from kai_solver.reasons.pending import FOUND_NO_ROOM, pending_gangs
from kai_solver.reasons.untold import tell
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

UNTOLD = Refusal(Reason.NOT_ENOUGH_RESOURCES, "", Proof("unasked", "greedy"))


def refused(*gangs: Gang, refusal: Refusal = UNTOLD) -> Outcome:
    """One node with 8 GPUs, of which pods use 6; ``gangs`` wait, and allocate has refused them."""
    cluster = a_cluster([a_node("n0", 8)], [a_gang("runs", gpus=6, on="n0"), *gangs], [a_queue("q", 8)])
    outcome = Outcome(State(build_problem(cluster)))
    for gang in outcome.waiting:
        outcome.refuse(gang, Action.ALLOCATE, refusal)
        outcome.refuse(gang, Action.RECLAIM, UNTOLD)
    return outcome


def messages(outcome: Outcome, is_late: Callable[[], bool] = lambda: False) -> dict[str, str]:
    tell(outcome, is_late)
    return {entry.gang: entry.message for entry in pending_gangs(outcome.state.problem, outcome, lambda: True)}


def test_each_gang_is_told_what_lacks_in_its_own_name() -> None:
    outcome = refused(a_gang("one", gpus=4), a_gang("other", gpus=4), a_gang("pair", gpus=2, pods=2))
    mark = outcome.state.mark()
    found = messages(outcome)
    assert outcome.state.mark() == mark
    assert "0/1 nodes are available: 1 Insufficient nvidia.com/gpu." in found["ns/one"]
    assert {name for name in ("one", "other") if f"ns/{name}-0" in found[f"ns/{name}"]} == {"one", "other"}
    assert "Resources were found for 1 pods while 2 are required" in found["ns/pair"]
    [allocate, reclaim] = outcome.refusals[outcome.waiting[0]].values()
    assert allocate.fit_errors
    assert allocate.proof == replace(UNTOLD.proof, blocking=allocate.proof.blocking)
    assert [blocker.kind for blocker in allocate.proof.blocking] == ["resource"]
    assert reclaim is UNTOLD


def test_equal_gangs_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []

    def is_late() -> bool:
        looks.append(True)
        return False

    messages(refused(a_gang("one", gpus=4), a_gang("other", gpus=4), a_gang("third", gpus=3)), is_late)
    assert len(looks) == 2


def test_equal_gangs_that_were_refused_alike_share_what_is_told() -> None:
    outcome = refused(a_gang("one", gpus=4), a_gang("other", gpus=4), a_gang("third", gpus=4), a_gang("small", gpus=3))
    apart = replace(UNTOLD, proof=Proof("unknown", "budget"))
    outcome.refuse(outcome.waiting[2], Action.ALLOCATE, apart)  # The small one: they are in order of name.
    tell(outcome, lambda: False)
    told = [outcome.refusals[gang][Action.ALLOCATE] for gang in outcome.waiting]
    names = [outcome.state.problem.gangs[gang].gang.name for gang in outcome.waiting]
    one, other, small, third = (told[names.index(name)] for name in ("one", "other", "small", "third"))
    assert one is other
    assert (one.proof.state, small.proof.state, third.proof.state) == ("unasked", "unknown", "unasked")


def test_what_blocks_one_gang_is_not_said_of_another() -> None:
    outcome = refused(a_gang("one", gpus=4), a_gang("other", gpus=4))
    own, unasked = outcome.waiting
    blocker = Blocker("queue-limit", "q", "4", "2")
    outcome.refuse(own, Action.ALLOCATE, replace(UNTOLD, proof=Proof("proven", "count", (blocker,))))
    tell(outcome, lambda: False)
    assert outcome.refusals[own][Action.ALLOCATE].proof.blocking == (blocker,)
    assert [b.kind for b in outcome.refusals[unasked][Action.ALLOCATE].proof.blocking] == ["resource"]


@pytest.mark.usefixtures("faults")
def test_after_an_error_the_state_is_as_before_and_the_gang_had_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(state: State, *_: object) -> Refusal:
        state.put(state.gangs[1].pending[0][0], 0, now=False)
        raise RuntimeError("no words today")

    monkeypatch.setattr("kai_solver.reasons.untold.shortage", fails)
    outcome = refused(a_gang("one", gpus=2))
    mark = outcome.state.mark()
    assert messages(outcome) == {"ns/one": FOUND_NO_ROOM}
    assert outcome.state.mark() == mark


def test_what_was_told_stays() -> None:
    blocker = Blocker("queue-limit", "q", "4", "2")
    told = Refusal(Reason.OVER_LIMIT, "over its limit", Proof("proven", "limit", (blocker,)))
    outcome = refused(a_gang("one", gpus=4), refusal=told)
    assert messages(outcome) == {"ns/one": "over its limit"}
    assert outcome.refusals[outcome.waiting[0]][Action.ALLOCATE] is told


@pytest.mark.parametrize(("gpus", "late"), [(4, True), (2, False)], ids=["no time", "there is room by now"])
def test_where_nothing_can_be_told_it_had_no_room_in_its_turn(gpus: int, *, late: bool) -> None:
    assert messages(refused(a_gang("one", gpus=gpus)), lambda: late) == {"ns/one": FOUND_NO_ROOM}
