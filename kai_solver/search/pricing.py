"""From what a cycle admitted to the linear programme of what must leave for it, and from its prices to bounds.

The programme is asked of the solver's process, which solves it while this one goes on; the bounds are worked out here,
in integers. They hold for every plan with the same admissions, whichever takes which victims.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kai_solver.domain import Action
from kai_solver.model.joint import Arrival, IntArray, Joint, Mover
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Outcome
from kai_solver.prices import Packing, Programme, Solved, Unit, programme_of
from kai_solver.prices.packing import Block
from kai_solver.problem.capacity import fitting
from kai_solver.search.child import SolverChild
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.refine import is_loose, joint_of
from kai_solver.search.rights import Rights
from kai_solver.units import GPU

WORK, GPUS = "evicted-work", "evicted-gpus"
LEAST_OUT = 1e-6
"""Parts of units below it are the solver's rounding."""
Row = tuple[list[int], list[int], int]
"""Units, weights, and the most that the weighed sum of those that leave may be."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A solved programme.

    ``solved``: as of `glop.solve`, stage by stage, then again for the plan as it was. ``units``: those that may leave,
    by column.
    """

    programme: Programme
    solved: tuple[Solved, ...]
    units: tuple[int, ...] = ()

    @property
    def leaving(self) -> frozenset[int]:
        """Units of which at least a part leaves where every stage is at its least.

        The programme is almost integral: a part of one unit leaves of 707 on 1,000 loaded nodes, parts of two of 1,470
        on 2,000 (2026-11-23).
        """
        last = next((stage for stage in self.solved if stage.number == len(self.programme.costs) - 1), None)
        if last is None:
            return frozenset()
        return frozenset(self.units[number] for number in np.flatnonzero(last.out > LEAST_OUT).tolist())

    @property
    def least(self) -> dict[str, int]:
        """By stage, what no plan is below whose earlier stages are at their least; in the order of the stages."""
        held: dict[str, int] = {}
        for stage in self.solved:
            held.setdefault(stage.name, stage.held)
        return self.bounds_at(held)

    def bounds_at(self, values: Mapping[str, float]) -> dict[str, int]:
        """By stage, what no plan is below whose earlier stages cost no more than ``values``; 0 for those not there."""
        at = [math.floor(values.get(cost.name, 0)) for cost in self.programme.costs]
        found: dict[str, int] = {}
        for stage in self.solved:
            bound = self.programme.bound(stage, at[: stage.number])
            found[stage.name] = max(found.get(stage.name, 0), bound)
        return found


class Pricing:
    """Asks the solver's process for the prices of what one cycle admitted.

    `begin` returns at once; `priced` waits for the answer. ``errors``: what failed, in words.
    """

    def __init__(self, child: SolverChild, *, by_gpus: bool, should_stop: Callable[[], bool]) -> None:
        self.errors: list[str] = []
        self._child = child
        self._by_gpus = by_gpus
        self._should_stop = should_stop
        self._admitted: frozenset[AllocationUnit] = frozenset()
        self._rights: Rights | None = None
        self._asked: Programme | None = None
        self._units: tuple[int, ...] = ()
        self._priced: Priced | None = None

    def begin(self, outcome: Outcome, rights: Rights, values: Mapping[str, float], deadline_s: float) -> None:
        """Ask for what ``outcome`` admitted; the answer has to be there by ``deadline_s`` on the child's clock.

        ``values``: by stage, what ``outcome`` costs. All that runs and may be disturbed at all counts as movable: the
        bounds on openb and loaded clusters are the same, and hold when more is admitted (`covers`). Nothing is asked
        where units might leave in parts, or pods may stay where the model has no place for them: then the programme
        would be of another question.
        """
        self._admitted, self._rights = outcome.admitted, rights
        self._asked, self._priced = None, None
        if outcome.pool is None:
            return
        rights = replace(rights, movable=frozenset(range(len(outcome.pool.units))))
        model_input = JointModelInput(outcome)
        if model_input.is_partial(rights.movable) or is_loose(outcome, rights):
            return
        joint = joint_of(model_input, rights)
        packing = packing_of(joint, by_gpus=self._by_gpus)
        self._units = tuple(mover.unit for mover in _leaving(joint))
        if packing.units:
            self._asked = programme_of(packing)
            at = {name: math.floor(value) for name, value in values.items()}
            self._child.ask_prices(self._asked, at, deadline_s)

    def is_of(self, outcome: Outcome) -> bool:
        """Whether `begin` was called for what ``outcome`` admits now, whatever it takes for that."""
        return outcome.admitted == self._admitted

    def covers(self, outcome: Outcome, rights: Rights) -> bool:
        """Whether bounds of `begin` hold for ``outcome``: it admits all that was admitted then, and by no more rights.

        A plan for more gangs is one for fewer, as long as those that came later let nothing else leave, and no unit in
        parts. All may move.
        """
        if self._rights is None or not self._admitted <= outcome.admitted:
            return False
        if is_loose(outcome, rights):
            return False
        then, now = (
            [found.by_action.get(action, frozenset()) for action in (Action.RECLAIM, Action.PREEMPT)]
            for found in (self._rights, rights)
        )
        return now[0] <= then[0] and now[1] <= then[1]

    def priced(self, deadline_s: float) -> Priced | None:
        """What was asked for; None where there is no answer by ``deadline_s``."""
        if self._asked is not None:
            solved, error = self._child.prices(deadline_s, self._should_stop)
            self.errors += [error] if error else []
            is_whole = len(solved) >= len(self._asked.costs)
            self._priced = Priced(self._asked, tuple(solved), self._units) if is_whole else None
            self._asked = None
        return self._priced

    def leaving_by(self, rows: Sequence[Row], deadline_s: float) -> frozenset[int]:
        """Units that leave where ``rows`` hold as well; none without an answer by ``deadline_s``.

        A row: units, weights, and the most that the weighed sum of those that leave may be.
        """
        priced = self._priced
        if priced is None:
            return frozenset()
        column_of = dict(zip(priced.units, priced.programme.costs[-1].columns.tolist(), strict=True))
        numbered = [([column_of[unit] for unit in units], weights, most) for units, weights, most in rows]
        self._child.ask_prices_with(numbered, priced.programme, deadline_s)
        solved, error = self._child.prices(deadline_s, self._should_stop)
        self.errors += [error] if error else []
        return replace(priced, solved=tuple(solved)).leaving

    def bounds(self, values: Mapping[str, float], deadline_s: float) -> dict[str, int]:
        """By stage, what no plan is below whose earlier stages cost no more than ``values``; none without an answer."""
        priced = self.priced(deadline_s)
        return {} if priced is None else priced.bounds_at(values)


def packing_of(joint: Joint, *, by_gpus: bool = False) -> Packing:
    """What must be packed for the arrivals of ``joint``.

    ``by_gpus``: thousandths of GPUs that are evicted cost, in place of the work.
    """
    reader = _Reader(joint)
    leaving = _leaving(joint)
    for arrival in joint.arrivals:
        if not arrival.optional:
            reader.ask(arrival, ())
    for mover in joint.movers:
        if not mover.may_leave:
            reader.ask(mover, mover.origin)
    units = [reader.unit(mover) for mover in leaving]
    name = GPUS if by_gpus else WORK
    costs = [
        (f"{name}/{stratum}", [(m.charge[GPU] if by_gpus else m.work) * (m.stratum == stratum) for m in leaving])
        for stratum in sorted({m.stratum for m in leaving}, reverse=True)
    ]
    return Packing(
        joint.problem,
        joint.free,
        joint.device_free,
        reader.asked,
        units,
        reader.blocks,
        reader.partitions,
        list(_rows(joint, leaving)),
        costs,
    )


def _leaving(joint: Joint) -> list[Mover]:
    return [mover for mover in joint.movers if mover.may_leave]


class _Reader:
    """Reads pods and domains off arrivals and movers."""

    def __init__(self, joint: Joint) -> None:
        self._joint = joint
        self.asked: Counter[int] = Counter()
        self.blocks: Counter[Block] = Counter()
        self.partitions: list[IntArray] = []
        self._numbers: dict[bytes, int] = {}
        self._fits: dict[int, Sequence[bool]] = {}

    def ask(self, item: Arrival | Mover, origin: Sequence[int]) -> None:
        """``item`` must have places."""
        pods, blocks = self._loads(item, origin)
        self.asked.update(dict(pods))
        self.blocks.update(blocks)

    def unit(self, mover: Mover) -> Unit:
        """``mover`` as one that may leave."""
        pods, blocks = self._loads(mover, mover.origin)
        return Unit(tuple(pods), tuple(blocks))

    def _loads(self, item: Arrival | Mover, origin: Sequence[int]) -> tuple[list[tuple[int, int]], list[Block]]:
        """Pods by shape, and blocks of pods that lie in one domain.

        A pod may stay where none could come now: then no place is asked for it, nor for the others of its piece.
        """
        pods: dict[int, int] = {}
        blocks: list[Block] = []
        first = 0
        for piece in item.pieces:
            nodes = origin[first : first + len(piece.pods)]
            first += len(piece.pods)
            fits = self._fit(piece.shape)
            if not all(fits[node] for node in nodes):
                continue
            pods[piece.shape] = pods.get(piece.shape, 0) + len(piece.pods)
            if piece.scopes:
                domain_of = item.scopes[piece.scopes[-1]].domain_of
                domains = set(domain_of[list(nodes)].tolist()) if nodes else {0}
                if len(domains) == 1 and -1 not in domains:
                    blocks.append((piece.shape, len(piece.pods), self._partition(domain_of)))
        return list(pods.items()), blocks

    def _fit(self, shape: int) -> Sequence[bool]:
        if shape not in self._fits:
            joint = self._joint
            self._fits[shape] = (fitting(joint.problem, joint.free, joint.device_free, shape) > 0).tolist()
        return self._fits[shape]

    def _partition(self, domain_of: IntArray) -> int:
        key = domain_of.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self.partitions)
            self.partitions.append(domain_of)
        return self._numbers[key]


# -- what binds those that leave ---------------------------------------------------------------------------------------


def _rows(joint: Joint, leaving: Sequence[Mover]) -> Iterator[Row]:
    """Sums over all that leave; which queue takes from which is not among them.

    What reclaim may take from each queue, as flows from queues to takers, raised no bound: 27,230,609 and 87,237,129
    with and without it on 1,000 and 5,000 loaded nodes (2026-11-23). What preempt may take as well has another way.
    """
    yield from _cores_last(leaving)
    yield from _releases(joint, leaving)
    yield from _limits(joint, leaving)


def _cores_last(leaving: Sequence[Mover]) -> Iterator[Row]:
    """What holds a minimum leaves only with what is above it."""
    number = {mover.unit: at for at, mover in enumerate(leaving)}
    for at, mover in enumerate(leaving):
        if mover.bears and not 0 < mover.quorum <= len(mover.bears):
            for above in mover.bears:
                if above in number:
                    yield [at, number[above]], [1, -1], 0


def _releases(joint: Joint, leaving: Sequence[Mover]) -> Iterator[Row]:
    """No more pods are evicted than optional rules let go; moves are not known here."""
    for cap, left in joint.releases:
        uses = [(at, pods) for at, mover in enumerate(leaving) if (pods := mover.used(cap))]
        if uses:
            yield [at for at, _ in uses], [pods for _, pods in uses], left


def _limits(joint: Joint, leaving: Sequence[Mover]) -> Iterator[Row]:
    """What arrivals bring to a queue at its limit must leave it, less what those that stay may save by moves."""
    path = joint.problem.queues.path
    number = {mover.unit: at for at, mover in enumerate(leaving)}
    for cap in joint.caps:
        if cap.family != "limit" or cap.room < 0:
            continue
        coming = [a for a in joint.arrivals if cap.queue in path[a.queue] and not a.optional]
        charged = sum(a.least[cap.resource] for a in coming)
        losses: list[tuple[int, int]] = []
        for mover in joint.movers:
            if cap.queue in path[mover.queue] and mover.charge[cap.resource]:
                charged -= mover.saves[cap.resource]
                if mover.unit in number:
                    losses.append((number[mover.unit], mover.charge[cap.resource]))
        if charged > cap.room and losses:
            yield [at for at, _ in losses], [-amount for _, amount in losses], cap.room - charged
