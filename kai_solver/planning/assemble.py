"""An outcome of the search as a plan: binds, moves, evictions, and what stays pending, each with its reason."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any

from kai_solver.domain import Action, Bind, Device, Eviction, EvictionReason, GpuLink, Move, Plan, Unmoved
from kai_solver.planning.gpus import Comer, GpuNames, chosen_gpus, known_graphs, named_claims
from kai_solver.planning.ranks import places_by_rank
from kai_solver.planstate.origins import is_at_origin
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import Place
from kai_solver.problem import Problem
from kai_solver.reasons.evictions import EvictionTexts
from kai_solver.reasons.pending import pending_gangs
from kai_solver.units import MILLI
from kai_solver.units.shares import WHOLE

_REASONS: dict[Action, EvictionReason] = {Action.RECLAIM: "reclaim", Action.PREEMPT: "preempt", Action.STALE: "stale"}


Labels = dict[int, dict[int, int]]
"""By node, the published index of each device where that is not its own."""


@dataclass(slots=True)
class _Cause:
    """Why a unit was disturbed: the last action that did it, and the gangs (indices) it helps."""

    action: Action
    gangs: dict[int, None] = field(default_factory=dict)

    def helps(self, problem: Problem) -> tuple[str, ...]:
        """Keys of the gangs."""
        return tuple([problem.gangs[gang].gang.key for gang in self.gangs])


@dataclass(frozen=True, slots=True)
class _GivenDevices:
    """Which pods are placed where.

    Attributes
    ----------
    moved
        Pods that ran elsewhere, or with other shared devices or zones.
    names
        GPUs chosen by their links.
    """

    places: Mapping[int, Place]
    moved: Sequence[int]
    labels: Labels
    names: GpuNames

    def devices(self, problem: Problem, pod: int, place: Place) -> tuple[tuple[Device, ...], GpuLink | None]:
        """Devices of a pod with that ``place``, and what their links are worth; None: not chosen by them."""
        return self.names.get(pod) or (_devices(problem, pod, place, self.labels), None)


def assemble(problem: Problem, outcome: Outcome, is_late: Callable[[], bool] = lambda: False) -> Plan:
    """Plan of ``outcome``; order is that of admission, then of names. Stages, timing and source are the caller's.

    ``is_late``: True once there is no time left to find the smallest sets of what blocks.
    """
    causes, texts = _causes(outcome), EvictionTexts(problem)
    given_devices = _given_devices(problem, outcome)
    plan = Plan(
        binds=_binds(problem, outcome, given_devices),
        moves=_moves(problem, outcome, given_devices, causes, texts),
        evictions=_evictions(problem, outcome, causes, texts),
        pending=pending_gangs(problem, outcome, is_late),
        admitted=tuple((problem.gangs[a.allocation_unit.gang].gang.key, a.action) for a in outcome.admissions),
        unmoved=tuple(_unmoved(problem, pod, why) for pod, why in sorted(outcome.unmoved.items())),
    )
    return named_claims(problem, plan)


def _given_devices(problem: Problem, outcome: Outcome) -> _GivenDevices:
    state, labels = outcome.state, _labels(problem, outcome)
    places = places_by_rank(problem, outcome)
    come = [pod for admission in outcome.admissions for pod in admission.allocation_unit.pods if pod in places]
    moved = [
        pod
        for pod in sorted(state.gone & state.places.keys())
        if not is_at_origin(problem, pod, places[pod], labels.get(places[pod].node, {}))
    ]

    graphs = known_graphs(problem, dict.fromkeys(places[pod].node for pod in (*come, *moved)))
    if not graphs:
        return _GivenDevices(places, moved, labels, {})

    def comers(pods: Sequence[int], *, may_start: bool) -> Iterator[Comer]:
        for pod in pods:
            place = places[pod]
            if place.node in graphs:
                yield Comer(pod, place.node, _labelled(place, labels), may_start and place.now)

    both = chain(comers(come, may_start=True), comers(moved, may_start=False))
    leaving = (state.gone - state.places.keys()).union(moved)
    return _GivenDevices(places, moved, labels, chosen_gpus(problem, graphs, both, leaving))


def _binds(problem: Problem, outcome: Outcome, given_devices: _GivenDevices) -> tuple[Bind, ...]:
    pods, nodes, gangs, places = problem.pods, problem.nodes, problem.gangs, given_devices.places
    binds: list[Bind] = []
    ranks: list[Sequence[int]] = []
    for admission in outcome.admissions:
        allocation_unit, action = admission.allocation_unit, admission.action
        gang = gangs[allocation_unit.gang].gang.key
        for number in allocation_unit.pods:
            place = places.get(number)
            if place is None:
                continue
            devices, link = given_devices.devices(problem, number, place)
            bind = Bind(pods[number].key, gang, nodes[place.node].name, devices, not place.now, action, link=link)
            if place.grants:
                bind = replace(bind, **_fields(problem, place))
            binds.append(bind)
            ranks.append(_rank(problem, place) if place.grants else ())
    return _in_order(binds, ranks) if any(ranks) else tuple(binds)


def _in_order(binds: list[Bind], ranks: Sequence[Sequence[int]]) -> tuple[Bind, ...]:
    """Binds that an optional rule ranks, among their own places, by that rank."""
    ranked = [at for at, rank in enumerate(ranks) if rank]
    ordered = list(binds)
    for at, source in zip(ranked, sorted(ranked, key=lambda at: list(ranks[at])), strict=True):
        ordered[at] = binds[source]
    return tuple(ordered)


def _rank(problem: Problem, place: Place) -> Sequence[int]:
    """When a bind is carried out, by the first optional rule that says so; empty where it does not matter."""
    granting = (rule for rule in problem.rules if rule.kind in place.grants)
    return next(filter(None, (rule.bind_order(place.grants[rule.kind]) for rule in granting)), ())


def _fields(problem: Problem, place: Place) -> dict[str, Any]:
    """Fields of a bind or move that show what optional rules grant."""
    granting = (rule for rule in problem.rules if rule.kind in place.grants)
    return {
        key: value for rule in granting for key, value in rule.plan_fields(place.node, place.grants[rule.kind]).items()
    }


def _labelled(place: Place, labels: Labels) -> tuple[int, ...]:
    label = labels.get(place.node)
    return place.devices if label is None else tuple([label.get(d, d) for d in place.devices])


def _devices(problem: Problem, pod: int, place: Place, labels: Labels) -> tuple[Device, ...]:
    if not place.devices:
        return ()
    node, taken = problem.nodes[place.node], _labelled(place, labels)
    uuids = node.gpu_uuids
    milli = MILLI if place.parts == WHOLE else problem.pods[pod].gpu.milli_on(node.gpu_memory_mib)
    if not uuids:
        return _nameless(taken, milli)
    return tuple([Device(d, milli, uuids[d] if d < len(uuids) else "") for d in sorted(taken)])


@lru_cache(maxsize=4096)
def _nameless(devices: tuple[int, ...], milli: int) -> tuple[Device, ...]:
    """Devices without a uuid are the same on every node."""
    return tuple([Device(d, milli) for d in sorted(devices)])


def _labels(problem: Problem, outcome: Outcome) -> Labels:
    """Devices of a node renamed so that every pod that stays keeps its own: whole devices are equal, so others swap."""
    state = outcome.state
    labels: Labels = {}
    for pod in sorted(state.gone & state.places.keys()):
        place = state.places[pod]
        if not place.devices or not is_at_origin(problem, pod, place):
            continue  # A shared device that stays in use may not be swapped.
        label = labels.setdefault(place.node, {d: d for d in range(problem.nodes[place.node].gpus)})
        own, given = set(problem.held_devices.get(pod, ())), {label[d] for d in place.devices}
        swap = dict(zip(sorted(given - own), sorted(own - given), strict=False))
        swap |= {new: old for old, new in swap.items()}
        labels[place.node] = {d: swap.get(now, now) for d, now in label.items()}
    return labels


def _causes(outcome: Outcome) -> dict[int, _Cause]:
    """By pod: why it leaves or moves. A unit first moved and later evicted is evicted for the later gang."""
    causes: dict[int, _Cause] = {}
    if outcome.pool is None:
        return causes
    for admission in outcome.admissions:
        for index in admission.units:
            for pod in outcome.pool.units[index].pods:
                cause = causes.get(pod)
                if cause is None or cause.action is not admission.action:
                    cause = causes[pod] = _Cause(admission.action)
                cause.gangs[admission.allocation_unit.gang] = None
    return causes


def _moves(
    problem: Problem,
    outcome: Outcome,
    given_devices: _GivenDevices,
    causes: dict[int, _Cause],
    texts: EvictionTexts,
) -> tuple[Move, ...]:
    moves = []
    for pod in given_devices.moved:
        why = outcome.moved_away.get(pod)
        place, cause = given_devices.places[pod], _Cause(Action.CONSOLIDATION) if why is not None else causes[pod]
        devices, link = given_devices.devices(problem, pod, place)
        moves.append(
            Move(
                problem.pods[pod].key,
                problem.gangs[problem.pod_gang[pod]].gang.key,
                problem.nodes[problem.pod_node[pod]].name,
                problem.nodes[place.node].name,
                devices,
                cause.helps(problem),
                cause.action,
                message=texts.text(pod, cause.action, tuple(cause.gangs)) if why is None else texts.moved(pod, why),
                link=link,
                cause="room" if why is None else "drain",
                **_fields(problem, place),
            )
        )
    return tuple(moves)


def _unmoved(problem: Problem, pod: int, why: str) -> Unmoved:
    gang = problem.gangs[problem.pod_gang[pod]].gang.key
    return Unmoved(problem.pods[pod].key, gang, problem.nodes[problem.pod_node[pod]].name, why)


def _evictions(
    problem: Problem, outcome: Outcome, causes: dict[int, _Cause], texts: EvictionTexts
) -> tuple[Eviction, ...]:
    state, stale = outcome.state, set(outcome.stale)
    drained = problem.drained.intersection(stale)
    evictions = []
    for pod in sorted(state.gone - state.places.keys()):
        gang = problem.gangs[problem.pod_gang[pod]]
        cause = _Cause(Action.STALE) if gang.index in stale else causes[pod]
        evictions.append(
            Eviction(
                problem.pods[pod].key,
                gang.gang.key,
                problem.nodes[problem.pod_node[pod]].name,
                "drain" if gang.index in drained else _REASONS[cause.action],
                cause.helps(problem),
                texts.text(pod, cause.action, tuple(cause.gangs)),
            )
        )
    return tuple(evictions)
