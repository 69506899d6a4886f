"""The last look at the victims, pod by pod: what could stay after all stays.

Search and stages move units: surplus one by one, a core whole. But a minimum is held by any pods that stay, so where
surplus pods keep their places the pods of the core need not all go.
"""

from collections.abc import Sequence

from kai_solver.actions.accelerators.returning import could_return
from kai_solver.actions.caps import within_limits
from kai_solver.actions.reclaim_replay import reclaims_hold
from kai_solver.placement.placing import Placer
from kai_solver.planstate.allocation_units import AllocationUnits
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.problem import GangShape


def spare(outcome: Outcome) -> None:
    """Let evicted pods stay that are not in the way and leave their gang whole; stale gangs go as they are.

    Then moved ones, and evicted ones once more where some of these left their new places.
    """
    placer = Placer(outcome.state)
    _spare_evicted(outcome, placer)
    before = len(outcome.state.places)
    _spare_moves(outcome, placer)
    if len(outcome.state.places) < before:
        _spare_evicted(outcome, placer)


def _spare_evicted(outcome: Outcome, placer: Placer) -> None:
    """Let evicted pods stay; all that can where reclaims are not allowed without that either."""
    state = outcome.state
    stale = set(outcome.stale)
    gone: dict[int, list[int]] = {}
    left = sorted(state.gone - state.places.keys())
    could = could_return(state, left)
    able = {state.problem.pod_gang[pod] for pod, is_able in zip(left, could, strict=True) if is_able}
    for pod in left:
        gone.setdefault(state.problem.pod_gang[pod], []).append(pod)
    concerned = [(gang, pods) for gang, pods in gone.items() if gang in able and gang not in stale]
    mark = state.mark()
    for gang, pods in concerned:
        _spare_gang(state, placer, state.problem.gangs[gang], pods)
    if state.mark() != mark and not reclaims_hold(outcome):
        done = state.steps_since(mark)
        state.rollback(mark)
        if reclaims_hold(outcome):
            _spare_fewer(outcome, placer, concerned)
        else:
            state.replay(done)


def _spare_fewer(outcome: Outcome, placer: Placer, gangs: Sequence[tuple[int, list[int]]]) -> None:
    """Let pods of each half of ``gangs`` stay as far as all reclaims stay allowed, which they are now.

    One may be allowed only because its own queue lost work to others.
    """
    state, half = outcome.state, len(gangs) // 2
    for part in (gangs[:half], gangs[half:]) if half else ():
        mark = state.mark()
        for gang, pods in part:
            _spare_gang(state, placer, state.problem.gangs[gang], pods)
        if state.mark() != mark and not reclaims_hold(outcome):
            state.rollback(mark)
            _spare_fewer(outcome, placer, part)


def _spare_moves(outcome: Outcome, placer: Placer) -> None:
    """Let moved pods stay that could after all: whole gangs, since search and stages may end before they have seen it,
    and single pods, since those move a core as a whole.

    Tried are pods of which sums say that they might fit where they ran, or where some pod that moved leaves room.
    """
    state, origin = outcome.state, outcome.state.problem.pod_node
    newcomers = {admission.allocation_unit.gang for admission in outcome.admissions}
    moved: dict[int, list[int]] = {}
    gone = sorted(state.gone & state.places.keys())
    could = dict(zip(gone, could_return(state, gone), strict=True))
    for pod in gone:
        moved.setdefault(state.problem.pod_gang[pod], []).append(pod)
    freed: set[int] = set()
    for gang, pods in moved.items():
        shape, nodes = state.problem.gangs[gang], {state.places[pod].node for pod in pods}
        tried = [pod for pod in pods if could[pod] or origin[pod] in freed or origin[pod] in nodes]
        if gang in newcomers or not tried:
            continue
        if len(tried) == len(pods) and _stay(state, placer, shape, pods):
            freed |= nodes
        elif len(pods) > 1:
            stayed = [_stay(state, placer, shape, [pod]) for pod in tried]
            freed |= nodes if any(stayed) else set()


def _stay(state: State, placer: Placer, gang: GangShape, pods: list[int]) -> bool:
    mark = state.mark()
    for pod in pods:
        state.lift(pod)
    returns = state.returns_to_origin(pods) or (len(pods) == 1 and _others_make_way(state, placer, pods[0]))
    can_stay = returns and within_limits(state, gang.queue) and state.keeps_spacing(gang.index)
    if can_stay and placer.keeps_domains(gang, gang.root):
        return True
    state.rollback(mark)
    return False


def _spare_gang(state: State, placer: Placer, gang: GangShape, pods: list[int]) -> None:
    mark = state.mark()
    origin = [
        pod for pod in sorted(pods, key=lambda p: state.problem.pods[p].order) if _returns(state, placer, gang, pod)
    ]
    is_whole = AllocationUnits(gang, state.gangs[gang.index]).is_whole()
    if origin and not (is_whole and placer.keeps_domains(gang, gang.root)):
        state.rollback(mark)


def _returns(state: State, placer: Placer, gang: GangShape, pod: int) -> bool:
    mark = state.mark()
    returns = state.returns_to_origin([pod]) or _others_make_way(state, placer, pod)
    if returns and within_limits(state, gang.queue):
        return True
    state.rollback(mark)
    return False


def _others_make_way(state: State, placer: Placer, pod: int) -> bool:
    """Whether ``pod`` returns once pods that got its devices take others that are free there; if not, nothing changes.

    Places are counted by node, and devices chosen once a pod has a place: they may be those of a victim that counted
    as needed, while others of the node stay free.
    """
    problem, mark = state.problem, state.mark()
    node, held = problem.pod_node[pod], set(problem.held_devices.get(pod, ()))
    if not held or state.whole_later[node] < len(held):
        return False
    others = [(p, place) for p, place in state.places.items() if place.node == node and held & set(place.devices)]
    if not all(problem.pods[other].gpu.is_whole for other, _ in others):
        return False
    for other, _ in others:
        state.lift(other)
    done = state.returns_to_origin([pod])
    for other, place in others if done else ():
        now, later = placer.fits.counts(problem.pod_shape[other])
        starts = place.now and bool(now[node] > 0)
        done = done and bool(later[node] > 0) and state.put(other, node, now=starts).now == place.now
    if done and state.keeps_rules():
        return True
    state.rollback(mark)
    return False
