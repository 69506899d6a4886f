"""Shapes of gangs that a cycle never asked for keep earlier numbers, and lose nothing by it."""

from dataclasses import replace

from kai_solver.domain import Gang, Node, Pod, PodStatus, Queue, Snapshot, flat_gang
from kai_solver.problem import Memo, build_problem
from kai_solver.units import ResourceSchema

NODE = Node("n", (64_000, 1 << 38, 0, 100))


def a_gang(name: str) -> Gang:
    """Of two pods that run."""
    pods = (Pod("ns", f"{name}-{i}", (1000, 1, 0, 1), status=PodStatus.RUNNING, node="n") for i in range(2))
    return Gang("ns", name, "b", flat_gang(2), tuple(pods))


def a_snapshot(*gangs: Gang, queues: tuple[str, ...] = ("b",)) -> Snapshot:
    """Of these gangs on one node."""
    return Snapshot(0.0, ResourceSchema(), (NODE,), tuple(map(Queue, queues)), gangs)


def test_a_problem_still_has_its_own_numbers_when_a_later_one_has_others() -> None:
    memo, kept = Memo(), a_gang("m")
    first = build_problem(a_snapshot(kept), memo)
    second = build_problem(a_snapshot(a_gang("a"), kept), memo)
    third = build_problem(a_snapshot(a_gang("a"), a_gang("b"), kept, queues=("a", "b")), memo)
    shapes = [third.gangs[2], second.gangs[1], first.gangs[0], build_problem(third.snapshot, memo).gangs[2]]
    assert [(shape.index, shape.first, shape.queue, shape.active) for shape in shapes] == [
        (2, 4, 1, (4, 5)),
        (1, 2, 0, (2, 3)),
        (0, 0, 0, (0, 1)),
        (2, 4, 1, (4, 5)),
    ]


def test_a_gang_that_is_asked_for_in_no_cycle_is_numbered_when_it_is() -> None:
    memo, kept = Memo(), a_gang("m")
    for count in range(5):
        problem = build_problem(a_snapshot(*map(a_gang, "abcdef"[:count]), kept), memo)
    assert problem.gangs[-1].active == (8, 9)
    again = build_problem(replace(problem.snapshot, now_s=1.0), memo)
    assert again.gangs[4] is problem.gangs[4]
