"""Plans of one snapshot side by side: what each does in numbers, and which gangs fare differently."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kai_solver.domain import Plan, Snapshot

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """A plan in numbers.

    Attributes
    ----------
    evicted_gpu_hours
        What the evicted pods hold, times the time since they started: the stages ``evicted-work`` of all priorities.
    proven_stages, stages
        Objective stages whose value is proven to be the least, of all that the plan has.
    """

    admitted: int
    pending: int
    proven_pending: int
    evicted_pods: int
    evicted_gpu_hours: float
    moved_pods: int
    proven_stages: int
    stages: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Gangs with the same fates, which differ between the plans: ``fates`` has a phrase for each plan."""

    fates: tuple[str, ...]
    gangs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placing:
    """A gang that gets other nodes: for each plan its nodes, with the number of pods on each."""

    gang: str
    nodes: tuple[Mapping[str, int], ...]


def plan_figures(plan: Plan) -> PlanFigures:
    """Count what ``plan`` does."""
    return PlanFigures(
        admitted=len({gang for gang, _ in plan.admitted}),
        pending=len(plan.pending),
        proven_pending=sum(entry.proof.state == "proven" for entry in plan.pending),
        evicted_pods=len(plan.evictions),
        evicted_gpu_hours=sum(s.value for s in plan.stages if s.name.partition("/")[0] == "evicted-work") / HOUR_S,
        moved_pods=len(plan.moves),
        proven_stages=sum(stage.optimal for stage in plan.stages),
        stages=len(plan.stages),
    )


def differences(snapshot: Snapshot, plans: Sequence[Plan]) -> tuple[Difference, ...]:
    """Groups of gangs that fare differently: those that wait in some plan first, then by size."""
    fates = [_fates(snapshot, plan) for plan in plans]
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for gang in snapshot.gangs:
        of_each = tuple(found.get(gang.key, "stays") for found in fates)
        if len(set(of_each)) > 1:
            groups[of_each].append(gang.key)
    found = [Difference(of_each, tuple(gangs)) for of_each, gangs in groups.items()]
    return tuple(sorted(found, key=lambda one: ("waits" not in one.fates, -len(one.gangs))))


def placings(snapshot: Snapshot, plans: Sequence[Plan]) -> tuple[Placing, ...]:
    """Gangs of which pods start or move in some plan, and not on the same nodes in all of them."""
    of_each = [_nodes(plan) for plan in plans]
    found = [
        Placing(gang.key, tuple(nodes.get(gang.key, {}) for nodes in of_each))
        for gang in snapshot.gangs
        if any(gang.key in nodes for nodes in of_each)
    ]
    return tuple(one for one in found if any(nodes != one.nodes[0] for nodes in one.nodes))


def _nodes(plan: Plan) -> Mapping[str, Mapping[str, int]]:
    """By gang the nodes that its pods get, by name."""
    given: dict[str, Counter[str]] = defaultdict(Counter)
    for gang, node in [(b.gang, b.node) for b in plan.binds] + [(m.gang, m.target) for m in plan.moves]:
        given[gang][node] += 1
    return {gang: dict(sorted(nodes.items())) for gang, nodes in given.items()}


def _fates(snapshot: Snapshot, plan: Plan) -> Mapping[str, str]:
    """What becomes of each gang that the plan mentions."""
    running = {g.key: sum(pod.status.is_active for pod in g.pods) for g in snapshot.gangs}
    evicted = Counter(entry.gang for entry in plan.evictions)
    parts: dict[str, list[str]] = defaultdict(list)
    for gang, _ in dict.fromkeys(plan.admitted):
        parts[gang].append("grows" if running.get(gang) else "starts")
    for entry in plan.pending:
        if not running.get(entry.gang):
            parts[entry.gang].append("waits")
    for gang, pods in evicted.items():
        parts[gang].append("is evicted" if pods == running.get(gang) else "shrinks")
    for gang in dict.fromkeys(move.gang for move in plan.moves):
        parts[gang].append("moves")
    return {gang: ", ".join(dict.fromkeys(words)) for gang, words in parts.items()}
