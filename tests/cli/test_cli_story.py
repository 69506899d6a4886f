"""Cycles in lines for people: each thing once, in words."""

from kai_solver.cli.story import Story
from kai_solver.controller.loop import Cycle
from kai_solver.controller.orders import Orders
from kai_solver.domain import Action, Bind, Eviction, Move, Pending, Plan, Proof, Reason, Snapshot
from kai_solver.units.resources import ResourceSchema

UID = "7c49a90c-02b7-4399-892e-e5d170bc3cbd"


def told(story: Story, **plan: tuple[object, ...]) -> list[str]:
    snapshot = Snapshot(0.0, ResourceSchema(), (), (), ())
    made = Plan(**plan)  # type: ignore[arg-type]
    return story.lines(Cycle(7, snapshot, made, Orders(), (), frozenset(), 0.0, 0.123))


def pending(message: str, reason: Reason = Reason.OVER_LIMIT) -> Pending:
    return Pending("demo/wants", reason, message, Proof("proven", "quota"))


def test_a_quiet_cycle_says_nothing() -> None:
    assert told(Story()) == []


def test_what_begins_where() -> None:
    gang = f"demo/pg-train-{UID}"
    binds = tuple(Bind(f"demo/p-{index}", gang, f"n-{index % 5}") for index in range(6))
    lines = told(Story(), binds=binds, admitted=((gang, Action.ALLOCATE),))
    assert lines == [
        "cycle 7, 123 ms: 1 gang admitted",
        "  train gets n-0, n-1, n-2, n-3 and 1 more for 6 pods",
    ]


def test_what_leaves_and_what_moves_for_which_gang() -> None:
    gone = Eviction("demo/v-0", "demo/victim", "a", "reclaim", helps=("demo/wants",))
    moved = Move("demo/m-0", "demo/mover", "a", "b", helps=("demo/wants",))
    lines = told(Story(), evictions=(gone,), moves=(moved,))
    assert lines == [
        "cycle 7, 123 ms: 1 pod evicted, 1 pod moved",
        "  victim gives up 1 pod for wants (reclaim)",
        "  mover goes from a to b for wants (consolidation)",
    ]


def test_what_waits_is_told_once_and_again_when_the_reason_changes() -> None:
    story = Story()
    lines = told(story, pending=(pending("q quota has reached the limit. More."),))
    assert lines == ["cycle 7, 123 ms: 1 gang waits", "  wants waits (proven): q quota has reached the limit"]
    assert told(story, pending=(pending("q quota has reached the limit. More."),)) == []
    assert told(story, pending=(pending("q quota has reached another limit."),)) == []
    no_room = pending("no room", Reason.NOT_ENOUGH_RESOURCES)
    assert "no room" in told(story, pending=(no_room,))[1]
    assert told(story) == []
    assert told(story, pending=(no_room,)) != []


def test_a_promise_is_told_once_and_then_its_keeping() -> None:
    story = Story()
    promised = Bind("demo/p", "demo/wants", "a", nominated=True)
    assert told(story, binds=(promised,))[1] == "  wants is promised a for 1 pod"
    assert told(story, binds=(promised,)) == []
    kept = Bind("demo/p", "demo/wants", "a")
    assert told(story, binds=(kept,))[1] == "  wants gets a for 1 pod"
