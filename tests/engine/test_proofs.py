"""Every ``proven`` against an exhaustive search that knows only the rules: on small clusters there is no false one.

The search enumerates who is evicted, then backtracks over nodes and devices for everybody who needs or may change a
place. It shares nothing with the solver but the snapshot's integers and the queues' numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, permutations
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import (
    Action,
    Gang,
    GpuRequest,
    Node,
    Pod,
    PodSet,
    PodStatus,
    Policy,
    Queue,
    Snapshot,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
)
from kai_solver.engine import Engine
from kai_solver.fairness import ReclaimLedger, ReclaimRight
from kai_solver.modelfiles import load_model
from kai_solver.problem import Problem, build_problem
from kai_solver.units import CPU, MILLI, UNLIMITED, ResourceSchema
from tests.support.clusters import some

GIB = 2**30
RACKS = Topology("dc", (TopologyLevel("rack"),))
RACK = TopologyConstraint("dc", "rack")
REQUESTS = (
    GpuRequest(1),
    GpuRequest(1),
    GpuRequest(2),
    GpuRequest(3),
    GpuRequest(1, 500),
    GpuRequest(2, 500),
    GpuRequest(0),
)
RUNGS = (Action.ALLOCATE, Action.CONSOLIDATION, Action.RECLAIM, Action.PREEMPT)


class Engines(Protocol):
    def __getitem__(self, model: str) -> Engine: ...


# -- small clusters ------------------------------------------------------------------------------------------------


@st.composite
def small_clusters(draw: st.DrawFn, most_waiting: int = 1, cores: Sequence[int] = (4,)) -> Snapshot:
    nodes = [
        Node(
            f"n{i}",
            (draw(st.sampled_from(cores)) * 1000, 64 * GIB, g * MILLI, 20),
            gpus=g,
            gpu_memory_mib=100,
            labels={"rack": f"r{i % 2}"},
        )
        for i, g in enumerate(draw(st.lists(st.sampled_from([1, 1, 2, 2, 3]), min_size=1, max_size=6)))
    ]
    queues = [
        Queue(
            name,
            parent,
            created_s=float(index),
            quota=(UNLIMITED, UNLIMITED, draw(st.sampled_from([0, 1, 2, UNLIMITED])) * MILLI),
            limit=(UNLIMITED, UNLIMITED, draw(st.sampled_from([UNLIMITED, UNLIMITED, UNLIMITED, 3])) * MILLI),
            weight=(0.0, 0.0, float(draw(st.integers(0, 2)))),
        )
        for index, (name, parent) in enumerate(draw(st.sampled_from(SHAPES_OF_TREES)))
    ]
    queues = [
        replace(
            queue,
            quota=tuple(max(q, UNLIMITED) for q in queue.quota),  # type: ignore[arg-type]
            limit=tuple(max(q, UNLIMITED) for q in queue.limit),  # type: ignore[arg-type]
        )
        for queue in queues
    ]
    parents = {queue.parent for queue in queues}
    leaves = [queue.name for queue in queues if queue.name not in parents]
    free = {node.name: [node.allocatable[CPU], *[MILLI] * node.gpus] for node in nodes}
    gangs: list[Gang] = []
    for index in range(draw(st.integers(2, 5))):
        gang = _run(draw(small_gangs(f"r{index}", leaves)), nodes, free, draw(st.integers(0, 5)))
        if gang is not None and sum(len(g.pods) for g in (*gangs, gang)) <= 5:
            gangs.append(gang)
    waiting = [draw(small_gangs(f"w{i}", leaves)) for i in range(draw(st.integers(1, most_waiting)))]
    policy = Policy(consolidating_reclaim=draw(st.sampled_from([True, True, False])))
    return Snapshot(1000.0, ResourceSchema(), tuple(nodes), tuple(queues), (*gangs, *waiting), (RACKS,), policy=policy)


SHAPES_OF_TREES = (
    (("a", ""),),
    (("a", ""), ("b", "")),
    (("a", ""), ("aa", "a"), ("b", "")),
    (("a", ""), ("aa", "a"), ("ab", "a"), ("b", ""), ("ba", "b")),
)


@st.composite
def small_gangs(draw: st.DrawFn, name: str, leaves: Sequence[str]) -> Gang:
    """One to three pods, all needed (elastic gangs have questions of their own)."""
    size = draw(st.integers(1, 3))
    gpu = draw(st.sampled_from(REQUESTS))
    priority = draw(st.sampled_from([50, 50, 60, 100]))
    cpu = draw(st.sampled_from([500, 500, 3000]))
    top = draw(st.sampled_from([None, None, RACK]))
    if size > 1 and draw(st.integers(0, 2)) == 0:
        inner = draw(st.sampled_from([None, RACK]))
        root = SubGroup(children=(PodSet("s0", 1, inner), PodSet("s1", size - 1, inner)), topology=top)
        names = ["s0"] + ["s1"] * (size - 1)
    else:
        root, names = flat_gang(size, top), ["default"] * size
    pods = tuple(
        Pod("ns", f"{name}-{i}", (cpu, GIB, 0, 1), gpu, podset=podset, order=(0, float(i), ""))
        for i, podset in enumerate(names)
    )
    queue = draw(st.sampled_from(leaves))
    return Gang("ns", name, queue, root, pods, priority=priority, preemptible=priority < 100, last_start_s=100.0)


def _run(gang: Gang, nodes: Sequence[Node], free: dict[str, list[int]], start: int) -> Gang | None:
    """The gang running, its pods node after node from ``start`` on, inside one rack where it asks for that."""
    is_bound = gang.root.topology is not None or any(podset.topology for podset in gang.root.podsets())
    order = [nodes[(start + i) % len(nodes)] for i in range(len(nodes))]
    if is_bound:
        order = [node for node in order if node.labels["rack"] == order[0].labels["rack"]]
    trial = {name: list(amounts) for name, amounts in free.items()}
    pods = []
    for pod in gang.pods:
        for node in order:
            have = trial[node.name]
            devices = [d for d in range(node.gpus) if have[1 + d] >= pod.gpu.milli][: pod.gpu.devices]
            if have[0] >= pod.request[CPU] and len(devices) == pod.gpu.devices:
                have[0] -= pod.request[CPU]
                for device in devices:
                    have[1 + device] -= pod.gpu.milli
                pods.append(replace(pod, status=PodStatus.RUNNING, node=node.name, devices=tuple(devices)))
                break
        else:
            return None
    free.update(trial)
    return replace(gang, pods=tuple(pods))


# -- the exhaustive search -----------------------------------------------------------------------------------------


class Puzzle:
    """Places for pods on nodes, by backtracking over everything."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = snapshot.nodes
        self.racks = [node.labels["rack"] for node in self.nodes]

    def fits(self, fixed: Sequence[Gang], loose: Sequence[Gang]) -> bool:
        """Is there a place for every pod of ``loose`` beside ``fixed``, who stay on their devices?"""
        free = [[node.allocatable[CPU], *[MILLI] * node.gpus] for node in self.nodes]
        index = {node.name: i for i, node in enumerate(self.nodes)}
        for pod in (pod for gang in fixed for pod in gang.pods):
            row = free[index[pod.node]]
            row[0] -= pod.request[CPU]
            for device in pod.devices:
                row[1 + device] -= pod.gpu.milli
        jobs = [(gang, pod) for gang in loose for pod in gang.pods]
        jobs.sort(key=lambda job: (job[0].root.topology is None, -job[1].gpu.devices * job[1].gpu.milli))
        return self._place(jobs, tuple((row[0], *sorted(row[1:])) for row in free), {}, set())

    def _place(
        self,
        jobs: Sequence[tuple[Gang, Pod]],
        free: tuple[tuple[int, ...], ...],
        domains: dict[tuple[str, str], str],
        dead: set[tuple[object, ...]],
    ) -> bool:
        if not jobs:
            return True
        key = (len(jobs), free, tuple(sorted(domains.items())))
        if key in dead:
            return False
        gang, pod = jobs[0]
        for node, rack in enumerate(self.racks):
            bound = dict.fromkeys(_scopes(gang, pod), rack)
            if any(domains.get(name, rack) != rack for name in bound):
                continue
            for row in _seatings(free[node], pod):
                rest = (*free[:node], row, *free[node + 1 :])
                if self._place(jobs[1:], rest, {**domains, **bound}, dead):
                    return True
        dead.add(key)
        return False


def _scopes(gang: Gang, pod: Pod) -> Iterator[tuple[str, str]]:
    if gang.root.topology is not None:
        yield gang.name, ""
    podset = next(podset for podset in gang.root.podsets() if podset.name == pod.podset)
    if podset.topology is not None:
        yield gang.name, podset.name


def _seatings(row: tuple[int, ...], pod: Pod) -> Iterator[tuple[int, ...]]:
    """Rows of (free CPU, free milli of devices in order) after the pod took devices, each way once."""
    if row[0] < pod.request[CPU]:
        return
    seen = set()
    for devices in combinations(range(1, len(row)), pod.gpu.devices):
        if all(row[d] >= pod.gpu.milli for d in devices):
            left = sorted(free - pod.gpu.milli * (d in devices) for d, free in enumerate(row[1:], 1))
            if tuple(left) not in seen:
                seen.add(tuple(left))
                yield (row[0] - pod.request[CPU], *left)


class Rules:
    """What each action may do for one pending gang, by the rules alone.

    ``gone``: those that were evicted for ``admitted``; ``moved``: those that run, and may be anywhere.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        gang: Gang,
        admitted: Sequence[Gang] = (),
        gone: Sequence[Gang] = (),
        moved: Sequence[Gang] = (),
    ) -> None:
        self.snapshot = snapshot
        self.gang = gang
        self.admitted = admitted
        self.moved = moved
        self.problem: Problem = build_problem(snapshot)
        self.puzzle = Puzzle(snapshot)
        self.running = [g for g in snapshot.gangs if any(pod.node for pod in g.pods) and g not in gone]
        self.allocated = [list(row) for row in self.problem.allocated]
        self.fixed = [list(row) for row in self.problem.allocated_fixed]
        for other in admitted:
            self._add(other, +1)
        for other in gone:
            self._add(other, -1)

    def _charge(self, gang: Gang) -> tuple[int, int, int]:
        return (
            sum(pod.request[0] for pod in gang.pods),
            sum(pod.request[1] for pod in gang.pods),
            sum(pod.gpu.devices * pod.gpu.milli for pod in gang.pods),
        )

    def _path(self, gang: Gang) -> tuple[int, ...]:
        tree = self.problem.queues
        return tuple(tree.path[tree.index[gang.queue]])

    def _add(self, gang: Gang, sign: int) -> None:
        for queue in self._path(gang):
            for r, amount in enumerate(self._charge(gang)):
                self.allocated[queue][r] += sign * amount
                if not gang.preemptible:
                    self.fixed[queue][r] += sign * amount

    def can(self, action: Action) -> bool:
        """Is there any allowed way to run the gang on this action?"""
        return any(True for _ in self.ways(action))

    def ways(self, action: Action) -> Iterator[Sequence[Gang]]:
        """Victims of every allowed way to run the gang on this action; nobody where it needs none."""
        if action is Action.ALLOCATE:
            if self._within_caps(()) and self._fits(self.running, [*self.admitted, self.gang]):
                yield ()
        elif action is Action.CONSOLIDATION:
            if self._can_consolidate():
                yield ()
        elif action is not Action.RECLAIM or not self._may_not_reclaim():
            eligible = [g for g in self.running if g.preemptible and self._is_eligible(action, g)]
            fewest = 0 if self.snapshot.policy.consolidating_reclaim else 1
            sets = chain.from_iterable(combinations(eligible, n) for n in range(fewest, len(eligible) + 1))
            yield from (victims for victims in sets if self._can_evict(action, eligible, victims))

    def _can_consolidate(self) -> bool:
        free = sum(node.gpus * MILLI for node in self.snapshot.nodes) - sum(
            self._charge(gang)[2] for gang in (*self.running, *self.admitted)
        )
        if not self.gang.preemptible or self._charge(self.gang)[2] > free:
            return False
        stay = [g for g in self.running if not g.preemptible]
        move = [g for g in self.running if g.preemptible]
        return self._within_caps(()) and self._fits(stay, [*move, *self.admitted, self.gang])

    def _fits(self, stay: Sequence[Gang], loose: Sequence[Gang]) -> bool:
        moved = [gang for gang in stay if gang in self.moved]
        return self.puzzle.fits([gang for gang in stay if gang not in moved], [*moved, *loose])

    def _may_not_reclaim(self) -> bool:
        return self._right().refusal(self.fixed, preemptible=self.gang.preemptible) is not None

    def _right(self) -> ReclaimRight:
        leaf = self.problem.queues.index[self.gang.queue]
        return self.problem.reclaim_right(self.allocated, leaf, self._charge(self.gang))

    def _is_eligible(self, action: Action, victim: Gang) -> bool:
        if action is Action.PREEMPT:
            return victim.queue == self.gang.queue and victim.priority < self.gang.priority
        theirs = self.problem.queues.index[victim.queue]
        return self.gang.queue != victim.queue and self._right().may_look_at(theirs)

    def _can_evict(self, action: Action, eligible: Sequence[Gang], victims: Sequence[Gang]) -> bool:
        if not self._within_caps(victims) or (action is Action.RECLAIM and not self._is_fair(victims)):
            return False
        rest = [g for g in eligible if g not in victims]
        may_move = self.snapshot.policy.consolidating_reclaim
        stay = [g for g in self.running if g not in victims and not (may_move and g in rest)]
        return self._fits(stay, [*(rest if may_move else []), *self.admitted, self.gang])

    def _is_fair(self, victims: Sequence[Gang]) -> bool:
        return any(self._is_fair_in(order) for order in permutations(victims))

    def _is_fair_in(self, order: Sequence[Gang]) -> bool:
        index, ledger = self.problem.queues.index, ReclaimLedger(self._right())
        for victim in order:
            if not ledger.allows(index[victim.queue]):
                return False
            ledger.take(index[victim.queue], self._charge(victim))
        return ledger.saturation_ok()

    def _within_caps(self, victims: Sequence[Gang]) -> bool:
        """Limits with the victims gone; quotas of non-preemptible work; only what the gang asks for counts."""
        for victim in victims:
            self._add(victim, -1)
        try:
            tree = self.problem.queues
            charge = self._charge(self.gang)
            for queue in self._path(self.gang):
                for r in range(3):
                    limit, quota = tree.limits[queue][r], tree.quotas[queue][r]
                    if charge[r] and limit != UNLIMITED and self.allocated[queue][r] + charge[r] > limit:
                        return False
                    over = quota != UNLIMITED and self.fixed[queue][r] + charge[r] > quota
                    if charge[r] and over and not self.gang.preemptible:
                        return False
            return True
        finally:
            for victim in victims:
                self._add(victim, +1)


# -- tests ---------------------------------------------------------------------------------------------------------


def check_lone_gang(engine: Engine, cluster: Snapshot) -> None:
    """One gang waits: what is pending and proven cannot run by any action; what was admitted, the search finds too."""
    plan = engine.cycle(cluster)
    assert not any("refused" in note for note in plan.notes), plan.notes
    rules = Rules(cluster, cluster.gangs[-1])
    possible = {action for action in RUNGS if rules.can(action)}
    for pending in plan.pending:
        assert pending.proof.state != "proven" or not possible, (pending, possible)
    for _, action in plan.admitted:
        assert action in possible


@pytest.mark.parametrize("model", ["default", "deterministic"])
@given(cluster=small_clusters())
@some(60, campaign=1000)
def test_no_false_proof_for_a_lone_gang(engines: Engines, model: str, cluster: Snapshot) -> None:
    check_lone_gang(engines[model], cluster)


def check_beside_admitted(engine: Engine, cluster: Snapshot) -> None:
    """Several gangs wait and nobody may be evicted: a proof stands against all that was admitted in the end."""
    plan = engine.cycle(cluster)
    assert not any("refused" in note for note in plan.notes), plan.notes
    gangs = {gang.key: gang for gang in cluster.gangs}
    admitted = [gangs[key] for key, _ in plan.admitted]
    for pending in plan.pending:
        rules = Rules(cluster, gangs[pending.gang], admitted)
        possible = [action for action in engine.model.actions if rules.can(action)]
        assert pending.proof.state != "proven" or not possible, (pending, possible)


@pytest.fixture(scope="session")
def gentle() -> Iterator[Engine]:
    """An engine that may place and move, and evict nobody."""
    model = replace(load_model("deterministic"), name="gentle", actions=(Action.ALLOCATE, Action.CONSOLIDATION))
    with Engine(model) as engine:
        yield engine


@given(cluster=small_clusters(most_waiting=4))
@some(40, campaign=1000)
def test_no_false_proof_beside_those_admitted(gentle: Engine, cluster: Snapshot) -> None:
    check_beside_admitted(gentle, cluster)
