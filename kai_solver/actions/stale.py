"""Gangs that run below their minimum for longer than their grace (docs/kai-behaviour.md#stale-gangs).

Gangs that an optional rule drains leave in the same way: whole, and for no other gang.
"""

from collections.abc import Iterator

from kai_solver.actions.context import Context
from kai_solver.domain import PodStatus
from kai_solver.errors import GangError
from kai_solver.planstate.allocation_units import AllocationUnits, GangUnits
from kai_solver.planstate.state import State
from kai_solver.problem import GangShape, Leaf, TreeNode


def evict_stale_gangs(context: Context) -> None:
    """Evict every stale or drained gang, with the pods that it was to get in this cycle.

    A gang stays where admitted pods count on it, which are not asked any more once they run, or where an optional
    rule holds it.
    """
    state = context.state
    for gang in stale_gangs(state, context.gang_units):
        mark = state.mark()
        for pod in [pod for leaf in state.gangs[gang].active for pod in leaf]:
            if pod in state.places:
                state.lift(pod)
            else:
                state.evict(pod)
        if state.keeps_rules() and state.may_be_gone():
            context.outcome.stale.append(gang)
        else:
            state.rollback(mark)


def stale_gangs(state: State, gang_units: GangUnits) -> Iterator[int]:
    """Indices of gangs to evict.

    Raises
    ------
    GangError
        An unexpected error over one of them. No gang has its turn here, so that it would be blamed on another one.
    """
    drained = state.problem.drained
    for gang in map(state.problem.gangs.__getitem__, sorted(drained.union(state.problem.gang_columns.stale))):
        try:
            has_to_go = _has_to_go(state, gang, gang_units[gang.index], is_drained=gang.index in drained)
        except Exception as error:
            raise GangError(gang.gang.key, error) from error
        if has_to_go:
            yield gang.index


def _has_to_go(state: State, gang: GangShape, units_of_gang: AllocationUnits, *, is_drained: bool) -> bool:
    """A gang that validly runs K of N subgroups is not stale (KAI's flaw, 4.5 item 2)."""
    if not gang.active or any(pod in state.gone for pod in gang.active):
        return False
    return is_drained or (
        all(pod.status is not PodStatus.SUCCEEDED for pod in gang.gang.pods)
        and not _holds_minimum(state, gang, gang.root)
        and not units_of_gang.is_satisfied(gang.root)
        and _is_over(state, gang)
    )


def _is_over(state: State, gang: GangShape) -> bool:
    grace = state.problem.policy.staleness_grace_of(gang.gang)
    since = gang.gang.stale_since_s
    return grace >= 0 and since is not None and state.problem.snapshot.now_s - since >= grace


def _holds_minimum(state: State, gang: GangShape, node: TreeNode | Leaf) -> bool:
    """Counts pods that are leaving too: they still run."""
    if isinstance(node, Leaf):
        used = sum(p.podset == node.name and p.status.holds_resources for p in gang.gang.pods)
        return used >= node.min_member
    return sum(_holds_minimum(state, gang, child) for child in node.children) >= node.needed
