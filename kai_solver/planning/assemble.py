"""An outcome of the search as a plan: binds, moves, evictions, and what stays pending, each with its reason."""

from dataclasses import dataclass, field

from kai_solver.domain import Bind, Device, Eviction, Move, Plan, Rung
from kai_solver.domain.plan import EvictionReason
from kai_solver.greedy import Outcome, Place
from kai_solver.planning.messages import eviction_message
from kai_solver.planning.pending import pending_gangs
from kai_solver.reduction import Problem

_REASONS: dict[Rung, EvictionReason] = {Rung.RECLAIM: "reclaim", Rung.PREEMPT: "preempt", Rung.STALE: "stale"}


@dataclass(slots=True)
class _Cause:
    """Why a unit was disturbed: the last rung that did it, and the gangs it helps."""

    rung: Rung
    gangs: dict[str, None] = field(default_factory=dict)


def assemble(problem: Problem, outcome: Outcome) -> Plan:
    """Plan of ``outcome``; order is that of admission, then of names. Stages, timing and source are the caller's."""
    causes = _causes(problem, outcome)
    return Plan(
        binds=_binds(problem, outcome),
        moves=_moves(problem, outcome, causes),
        evictions=_evictions(problem, outcome, causes),
        pending=pending_gangs(problem, outcome),
        admitted=tuple((problem.gangs[a.chunk.gang].gang.key, a.rung) for a in outcome.admissions),
    )


def _binds(problem: Problem, outcome: Outcome) -> tuple[Bind, ...]:
    places = outcome.state.places
    binds: list[Bind] = []
    for admission in outcome.admissions:
        gang = problem.gangs[admission.chunk.gang].gang.key
        for pod in admission.chunk.pods:
            place = places.get(pod)
            if place is not None:
                node = problem.nodes[place.node].name
                devices = _devices(problem, place)
                binds.append(Bind(problem.pods[pod].key, gang, node, devices, not place.now, admission.rung))
    return tuple(binds)


def _devices(problem: Problem, place: Place) -> tuple[Device, ...]:
    uuids = problem.nodes[place.node].gpu_uuids
    return tuple(Device(d, place.milli, uuids[d] if d < len(uuids) else "") for d in place.devices)


def _causes(problem: Problem, outcome: Outcome) -> dict[int, _Cause]:
    """By pod: why it leaves or moves. A unit first moved and later evicted is evicted for the later gang."""
    causes: dict[int, _Cause] = {}
    if outcome.pool is None:
        return causes
    for admission in outcome.admissions:
        gang = problem.gangs[admission.chunk.gang].gang.key
        for index in admission.units:
            for pod in outcome.pool.units[index].pods:
                cause = causes.get(pod)
                if cause is None or cause.rung is not admission.rung:
                    cause = causes[pod] = _Cause(admission.rung)
                cause.gangs[gang] = None
    return causes


def _moves(problem: Problem, outcome: Outcome, causes: dict[int, _Cause]) -> tuple[Move, ...]:
    state = outcome.state
    moves = []
    for pod in sorted(state.gone & state.places.keys()):
        place, cause = state.places[pod], causes[pod]
        if place.node == problem.pod_node[pod] and not problem.pods[pod].gpu.is_shared:
            continue  # Its unit moves, but this pod finds its place where it is: it stays (as in KAI).
        moves.append(
            Move(
                problem.pods[pod].key,
                problem.gangs[problem.pod_gang[pod]].gang.key,
                problem.nodes[problem.pod_node[pod]].name,
                problem.nodes[place.node].name,
                _devices(problem, place),
                tuple(cause.gangs),
                cause.rung,
            )
        )
    return tuple(moves)


def _evictions(problem: Problem, outcome: Outcome, causes: dict[int, _Cause]) -> tuple[Eviction, ...]:
    state, stale = outcome.state, set(outcome.stale)
    evictions = []
    for pod in sorted(state.gone - state.places.keys()):
        gang = problem.gangs[problem.pod_gang[pod]]
        cause = _Cause(Rung.STALE) if gang.index in stale else causes[pod]
        evictions.append(
            Eviction(
                problem.pods[pod].key,
                gang.gang.key,
                problem.nodes[problem.pod_node[pod]].name,
                _REASONS[cause.rung],
                tuple(cause.gangs),
                eviction_message(problem, pod, cause.rung, tuple(cause.gangs)),
            )
        )
    return tuple(evictions)
