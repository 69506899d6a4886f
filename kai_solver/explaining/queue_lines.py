"""Queues in numbers: the tree of ``fairshare``, and the chain above one gang."""

from collections.abc import Iterator, Sequence

from kai_solver.domain import QueueVector, Snapshot
from kai_solver.explaining.explanation import QueueLine
from kai_solver.problem import Problem, build_problem


def fair_share_lines(snapshot: Snapshot) -> tuple[QueueLine, ...]:
    """Every queue that takes part, parents before children, siblings by name."""
    problem = build_problem(snapshot)
    return tuple(queue_line(problem, problem, queue) for queue in _depth_first(problem))


def chain_lines(before: Problem, after: Problem, queue: str) -> tuple[QueueLine, ...]:
    """The queue and its ancestors; fair share from the start of the cycle, allocation as the plan leaves it."""
    index = before.queues.index.get(queue)
    return () if index is None else tuple(queue_line(before, after, q) for q in before.queues.path[index])


def queue_line(before: Problem, after: Problem, queue: int) -> QueueLine:
    """One queue; ``before`` and ``after`` have the same queues."""
    tree = before.queues
    owner = tree.queues[queue]
    return QueueLine(
        name=tree.names[queue],
        depth=len(tree.path[queue]) - 1,
        priority=owner.priority,
        quota=owner.quota,
        limit=owner.limit,
        weight=owner.weight,
        usage=owner.usage,
        fair_share=_vector(before.share[queue]),
        allocated=_vector(after.allocated[queue]),
        non_preemptible=_vector(after.allocated_fixed[queue]),
        requested=_vector(before.request[queue]),
    )


def _depth_first(problem: Problem) -> Iterator[int]:
    tree = problem.queues

    def below(queues: Sequence[int]) -> Iterator[int]:
        for queue in sorted(queues, key=tree.names.__getitem__):
            yield queue
            yield from below(tree.children[queue])

    yield from below(tree.roots)


def _vector(amounts: Sequence[int]) -> QueueVector:
    cpu, memory, gpu = (int(amount) for amount in amounts)
    return cpu, memory, gpu
