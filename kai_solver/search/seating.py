"""Seats on nodes whose links make a difference: what gangs lose with them, and which are better.

All GPUs of a gang wait for its slowest link. So a gang loses as much as that one of its pods which lacks the largest
part of its product's best bandwidth, times its GPUs. Names are chosen node by node as the plan will choose them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kai_solver.links import FULL, Asking, Board
from kai_solver.problem.fabric import Fabric

MOST_STEPS = 10_000
"""Places tried, some 10 µs each: within it the seats of small clusters are all tried."""
LOOKS = 16
"""Places tried between two looks at the clock."""
ALL_FREE = 16
"""Pods up to which all may change seats; of more, those of gangs that lose more than they must."""


@dataclass(frozen=True, slots=True)
class GpuAssignment:
    """A pod of the plan with whole GPUs.

    Attributes
    ----------
    nodes
        Where it may sit, its own first.
    is_fixed
        Rules beyond room and domains say where it may be: it stays, and nothing is known of what it must lose.
    """

    pod: int
    gang: int
    asking: Asking
    request: tuple[int, ...]
    nodes: tuple[int, ...]
    is_fixed: bool

    @property
    def counts(self) -> bool:
        """Whether links matter to it."""
        return self.asking.count > 1


@dataclass(slots=True)
class Host:
    """A node while seats are tried: its GPUs, and what is free of everything else now and finally."""

    kind: int
    board: Board
    idle: list[int]
    future: list[int]
    is_idle: bool
    assignments: int = 0

    def has_room(self, assignment: GpuAssignment) -> bool:
        """Whether it fits beside the pods that are there."""
        frees = (self.idle, self.future) if assignment.asking.at_once else (self.future,)
        return all(
            amount <= has for free in frees for amount, has in zip(assignment.request, free, strict=True) if amount
        )

    def shift(self, assignment: GpuAssignment, sign: int) -> None:
        """Take (-1) or give back (+1) what it asks for."""
        self.assignments -= sign
        for resource, amount in enumerate(assignment.request):
            self.future[resource] += sign * amount
            self.idle[resource] += sign * amount if assignment.asking.at_once else 0

    @property
    def likeness(self) -> tuple[object, ...]:
        """Equal for nodes that nothing tells apart."""
        board = self.board
        return (self.kind, board.now, board.later, tuple(self.idle), tuple(self.future), self.is_idle, self.assignments)


@dataclass(slots=True)
class Seating:
    """GpuAssignments and hosts of one plan, and the search over their seats.

    Attributes
    ----------
    assignments
        In the turns in which GPUs get names on a node.
    is_whole
        Whether every assignment may sit wherever its pod could be.
    most_opened
        Idle nodes that may get an assignment.
    gpus
        Of each gang's assignments for which links matter.
    least
        What the slowest pod of each gang loses at least.
    best, best_cost
        The best seats so far, and what gangs lose with them.
    """

    fabric: Fabric
    assignments: list[GpuAssignment]
    hosts: Mapping[int, Host]
    is_whole: bool
    most_opened: int
    gpus: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    least: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    best: tuple[int, ...] = ()
    best_cost: int = 0
    steps: int = 0
    _free: set[int] = field(default_factory=set)
    _is_over: Callable[[], bool] = field(default=lambda: False)

    def __post_init__(self) -> None:
        for assignment in self.assignments:
            if assignment.counts:
                self.gpus[assignment.gang] += assignment.asking.count
                self.least[assignment.gang] = max(self.least[assignment.gang], self._least(assignment))
        self.best = tuple(assignment.nodes[0] for assignment in self.assignments)
        self.best_cost = self.cost_of(self.best)

    @property
    def bound(self) -> int:
        """What gangs lose at least: each of its pods alone, on the best node that it may be on."""
        return sum(gpus * self.least[gang] for gang, gpus in self.gpus.items())

    def cost_of(self, seats: Iterable[int]) -> int:
        """What gangs lose with these seats."""
        return sum(self.gpus[gang] * loss for gang, loss in self._worst(seats).items())

    def _worst(self, seats: Iterable[int]) -> dict[int, int]:
        """What the slowest pod of each gang loses; each node's names as the plan will have them."""
        worst: dict[int, int] = defaultdict(int)
        taken: list[tuple[GpuAssignment, Host, int]] = []
        for assignment, node in zip(self.assignments, seats, strict=True):
            host = self.hosts[node]
            taken.append((assignment, host, host.board.later))
            loss = self._sit(assignment, host)
            worst[assignment.gang] = max(worst[assignment.gang], FULL if loss is None else loss)
        for step in reversed(taken):
            self._rise(*step)
        return worst

    def search(self, is_over: Callable[[], bool]) -> bool:
        """Find better seats; True where all were tried. ``is_over``: whether the time is."""
        self._is_over = is_over
        self.steps = 0
        worst = self._worst(self.best)
        lossy = {gang for gang, loss in worst.items() if loss > self.least[gang]}
        is_small = len(self.assignments) <= ALL_FREE
        self._free = {assignment.pod for assignment in self.assignments if is_small or assignment.gang in lossy}
        return self._dive(0, [], {}, 0, set()) and is_small

    def _dive(self, at: int, seats: list[int], worst: dict[int, int], cost: int, opened: set[int]) -> bool:
        if at == len(self.assignments):
            self.best, self.best_cost = tuple(seats), cost
            return True
        assignment, is_done = self.assignments[at], True
        for node, loss in self._choices(assignment, opened):
            if not self.best_cost:
                return True
            if self.steps > MOST_STEPS or (self.steps % LOOKS == 0 and self._is_over()):
                return False
            host, before, had = self.hosts[node], self.hosts[node].board.later, worst.get(assignment.gang, 0)
            more = cost + self.gpus[assignment.gang] * (max(had, loss) - had)
            if more >= self.best_cost:
                continue
            opens = {node} if host.is_idle and node not in opened else set[int]()
            self._sit(assignment, host)
            seats.append(node)
            worst[assignment.gang] = max(had, loss)
            is_done &= self._dive(at + 1, seats, worst, more, opened | opens)
            worst[assignment.gang] = had
            seats.pop()
            self._rise(assignment, host, before)
        return is_done

    def _choices(self, assignment: GpuAssignment, opened: set[int]) -> list[tuple[int, int]]:
        """Nodes with room and what the pod would lose there, the least first; of identical nodes one."""
        found: list[tuple[int, int]] = []
        identical: set[tuple[object, ...]] = set()
        for node in assignment.nodes if assignment.pod in self._free else assignment.nodes[:1]:
            host = self.hosts[node]
            if host.is_idle and node not in opened and len(opened) >= self.most_opened:
                continue
            if (likeness := host.likeness) in identical or not host.has_room(assignment):
                continue
            identical.add(likeness)
            self.steps += 1
            before = host.board.later
            loss = self._sit(assignment, host)
            self._rise(assignment, host, before)
            if loss is not None:
                found.append((node, loss))
        return sorted(found, key=lambda choice: choice[1])

    def _sit(self, assignment: GpuAssignment, host: Host) -> int | None:
        """Seat an assignment; what it loses, None where its GPUs are not there."""
        host.shift(assignment, -1)
        if host.kind < 0:
            return 0
        mask = host.board.give(self.fabric.tables, host.kind, assignment.asking)
        return None if mask is None else self.fabric.tables.loss(host.kind, mask)

    @staticmethod
    def _rise(assignment: GpuAssignment, host: Host, before: int) -> None:
        host.shift(assignment, +1)
        host.board.later = before

    def _least(self, assignment: GpuAssignment) -> int:
        """What it loses at least, were it alone."""
        if assignment.is_fixed or any(self.hosts[node].kind < 0 for node in assignment.nodes):
            return 0
        losses = []
        for node in assignment.nodes:
            kind, asking = self.hosts[node].kind, assignment.asking
            mask = self.fabric.tables.pick(kind, self.hosts[node].board.free(asking), asking.count, asking.wish)
            losses += [] if mask is None else [self.fabric.tables.loss(kind, mask)]
        return min(losses, default=0)
