"""A solution of the model, put into effect on the state: exact devices, or back to where it was."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kai_solver.actions.caps import passed_cap, within_limits
from kai_solver.domain import Action
from kai_solver.errors import InternalError
from kai_solver.model.decode import Decision
from kai_solver.model.joint import Joint
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import is_relying, start_together
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.units import GPU
from kai_solver.units.shares import WHOLE


def apply(
    state: State,
    pool: VictimPool | None,
    joint: Joint,
    decision: Decision,
    allocation_units: Sequence[tuple[AllocationUnit, Action]],
) -> bool:
    """Put ``decision`` into effect; False with the state unchanged where it cannot be (devices, affinity).

    Counts per node are exact for whole GPUs; shares are decided here, and may refute: first on the devices that the
    policy would choose, packed or spread, then on those of the solution, to which whole devices leave room. Rules
    between pods are judged when all have their places: it does not matter which came first.
    """
    by_policy = [replace(decision, devices={})] if decision.devices else []
    return any(_try(state, pool, joint, seated, allocation_units) for seated in (*by_policy, decision))


def _try(
    state: State,
    pool: VictimPool | None,
    joint: Joint,
    decision: Decision,
    allocation_units: Sequence[tuple[AllocationUnit, Action]],
) -> bool:
    mark = state.mark()
    try:
        _clear(state, joint, decision)
        decision = _on_free_devices(state, decision)
        _place(state, pool, joint, decision, allocation_units)
        _keep_spacing(state, joint)
        _keep_limits(state, joint)
        done = state.keeps_rules() and state.may_be_gone()
    except InternalError:
        done = False
    if not done:
        state.rollback(mark)
    return done


def _clear(state: State, joint: Joint, decision: Decision) -> None:
    """Lift all arrivals; movers leave or come home as decided."""
    for arrival in joint.arrivals:
        for piece in arrival.pieces:
            for pod in piece.pods:
                if pod in state.places:
                    state.lift(pod)
    leaving = {*decision.moved, *decision.reclaimed, *decision.preempted}
    for mover in joint.movers:
        _leave(state, [p for piece in mover.pieces for p in piece.pods], goes=mover.unit in leaving)
    for mover in joint.movers:
        if mover.unit not in leaving:
            pods = [p for piece in mover.pieces for p in piece.pods if p in state.gone]
            if not state.returns_to_origin(pods, rules=False):
                raise InternalError("a unit that should stay has no room at home")


def _leave(state: State, pods: list[int], *, goes: bool) -> None:
    """Lift what an earlier move gave; pods of a unit that goes are evicted if they are not yet."""
    for pod in pods:
        if pod in state.places:
            state.lift(pod)
        if goes and pod not in state.gone:
            state.evict(pod)


def _place(
    state: State,
    pool: VictimPool | None,
    joint: Joint,
    decision: Decision,
    allocation_units: Sequence[tuple[AllocationUnit, Action]],
) -> None:
    fits = FitTable(state)
    moving = set(decision.moved)
    movers = sorted((m for m in joint.movers if m.unit in moving), key=lambda m: -m.charge[2])
    coming = sorted(allocation_units, key=lambda c: -max(state.problem.charges[p][2] for p in c[0].pods))
    steps = [(pod, True) for mover in movers for piece in mover.pieces for pod in piece.pods]
    steps += [(pod, False) for allocation_unit, _ in coming for pod in allocation_unit.pods]
    for rule in reversed(state.rules):
        steps.sort(key=lambda step: rule.precedence(state.problem.pod_shape[step[0]]))
    for pod, later in steps:
        _put(state, fits, pod, decision, later=later)
    if pool is not None:
        for mover in movers:
            pool.note_places(mover.unit)
    units = [allocation_unit for allocation_unit, _ in allocation_units]
    for unit in units:
        start_together(state, unit)
    _start_in_company(state, fits, units)


def _start_in_company(state: State, fits: FitTable, units: Sequence[AllocationUnit]) -> None:
    """Let units start that wait only for each other: a rule requires their pods beside one another.

    Nothing else would ever start them. All are bound in one cycle.
    """
    waiting = [unit for unit in units if not state.places[unit.pods[0]].now and is_relying(state, unit)]
    while waiting:
        late = _started(state, fits, [pod for unit in waiting for pod in unit.pods])
        if not late:
            break
        waiting = [unit for unit in waiting if late.isdisjoint(unit.pods)]
    for unit in waiting:
        start_together(state, unit)


def _started(state: State, fits: FitTable, pods: Sequence[int]) -> set[int]:
    """Let ``pods`` start if each may, given that all others do; else which may not, and all is as it was."""
    mark, places, expected = state.mark(), {pod: state.places[pod] for pod in pods}, dict[int, int]()
    late = set[int]()
    try:
        for pod, place in places.items():
            state.lift(pod)
            _expect(state, pod, place.node, +1)
            expected[pod] = place.node
        for pod, place in places.items():
            _expect(state, pod, expected.pop(pod), -1)
            has_room = fits.counts(state.problem.pod_shape[pod])[0][place.node] > 0
            late = {pod}
            state.put(pod, place.node, now=bool(has_room), wanted=place.devices, wanted_grants=place.grants)
        late = {pod for pod in pods if not state.places[pod].now}
    except InternalError:  # What is free now is not enough for this one beside the others, though it is later.
        pass
    finally:
        for pod, node in expected.items():
            _expect(state, pod, node, -1)
    if late:
        state.rollback(mark)
    return late


def _expect(state: State, pod: int, node: int, sign: int) -> None:
    for rule in state.rules:
        rule.expect(pod, node, sign)


def _keep_spacing(state: State, joint: Joint) -> None:
    gangs = {arrival.gang for arrival in joint.arrivals} | {mover.gang for mover in joint.movers}
    if not all(state.keeps_spacing(gang) for gang in gangs):
        raise InternalError("pods of a gang are not placed as a rule requires")


def _on_free_devices(state: State, decision: Decision) -> Decision:
    """The model counts whole devices and does not say which: where one stays in use that it names for shares, swap."""
    labels: dict[int, dict[int, int]] = {}
    for node, wanted in _named_by_node(decision).items():
        free = state.device_future[node, : state.problem.nodes[node].gpus]
        spare = [d for d in range(len(free)) if free[d] == WHOLE and d not in wanted]
        in_use = [d for d in sorted(wanted) if free[d] == 0 and state.sharers_later[node, d] == 0]
        labels[node] = dict(zip(in_use, spare, strict=False))
    swapped = {
        pod: tuple(sorted(labels[decision.places[pod]].get(d, d) for d in devices))
        for pod, devices in decision.devices.items()
    }
    return replace(decision, devices=swapped)


def _named_by_node(decision: Decision) -> dict[int, set[int]]:
    """Devices that the solution names for shares and by rules."""
    named: dict[int, set[int]] = {}
    for pod, devices in decision.devices.items():
        named.setdefault(decision.places[pod], set()).update(devices)
    return named


def _own_devices(state: State, pod: int, node: int, decision: Decision, *, now: bool) -> tuple[int, ...]:
    """The devices that the solution left for the pod: those named for shares and by rules, or whole ones that are free.

    Empty if too few of them are free, at once (``now``) or finally.
    """
    gpu = state.problem.pods[pod].gpu
    parts = int(state.problem.shapes.parts(state.problem.pod_shape[pod])[node])
    future, idle = state.device_future[node], state.device_idle[node]
    room = np.minimum(idle, future) if now else future
    free = [d for d in range(state.problem.nodes[node].gpus) if room[d] >= parts]
    if gpu.is_shared or pod in decision.devices:
        wanted = decision.devices.get(pod, ())
        return wanted if set(wanted) <= set(free) else ()
    named = _named_by_node(decision).get(node, set())
    own = [d for d in free if d not in named][: gpu.devices]
    return tuple(own) if len(own) == gpu.devices else ()


def _keep_limits(state: State, joint: Joint) -> None:
    """Requests by GPU memory cost more on smaller devices: neither moves nor arrivals may pass their queues' caps."""
    gangs = state.problem.gangs
    queues = {gangs[mover.gang].queue for mover in joint.movers}
    if not all(within_limits(state, queue) for queue in queues | {arrival.queue for arrival in joint.arrivals}):
        raise InternalError("a queue would pass its limit")
    dear = {arrival.gang for arrival in joint.arrivals if arrival.charge != arrival.least}
    dear &= {state.problem.pod_gang[pod] for pod in state.places}
    if any(passed_cap(state, gangs[gang], (GPU,)) is not None for gang in sorted(dear)):
        raise InternalError("a queue would pass its quota on the nodes chosen")


def _is_named(state: State, pod: int, node: int, decision: Decision) -> bool:
    """False if the policy may choose the devices, or a pod that stays on its node keeps its own."""
    gpu = state.problem.pods[pod].gpu
    if not decision.devices or not gpu.devices or (state.by_device and node == state.problem.pod_node[pod]):
        return False
    shape = state.problem.pod_shape[pod]
    return pod in decision.devices or not any(rule.chooses_devices(shape) for rule in state.rules)


def _put(state: State, fits: FitTable, pod: int, decision: Decision, *, later: bool) -> None:
    node = decision.places.get(pod)
    if node is None:
        raise InternalError("a pod has no place")
    shape = state.problem.pod_shape[pod]
    now, ever = fits.counts(shape)
    if ever[node] <= 0 or not state.keeps_devices(pod, node):
        raise InternalError("a pod does not fit its place")
    wanted: tuple[int, ...] = ()
    grants = decision.grants.get(pod, {})
    starts = bool(now[node] > 0) and not later
    if _is_named(state, pod, node, decision):
        wanted = _own_devices(state, pod, node, decision, now=starts)
        starts = starts and bool(wanted)
        wanted = wanted or _own_devices(state, pod, node, decision, now=False)
    starts = starts and all(state.granting[name].is_free(node, grant) for name, grant in grants.items())
    state.put(pod, node, now=starts, wanted=wanted, wanted_grants=grants)
