"""Each constraint family alone: what it allows, what it forbids, and that the checker misses it when it is off."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import (
    FAMILIES,
    Action,
    Bind,
    Constraints,
    Device,
    DisruptionBudget,
    Eviction,
    Gang,
    GpuRequest,
    Move,
    Node,
    NumaTopology,
    NumaZone,
    OneTenant,
    Placement,
    Plan,
    Pod,
    PodAffinityTerm,
    PodSet,
    PodStatus,
    Queue,
    QueueVector,
    Requirement,
    Snapshot,
    SpareNodes,
    SpreadConstraint,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
)
from kai_solver.domain.plan import EvictionReason
from kai_solver.fairness import QueueSurplus
from kai_solver.model.build import Formulation, formulate
from kai_solver.model.decode import Decision, expand
from kai_solver.model.joint import Joint
from kai_solver.model.spec import SpecAnswer, Term
from kai_solver.planning import assemble
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits
from kai_solver.planstate.eligibility import Eligibility, Preemptor
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.search.apply import apply
from kai_solver.search.child import SolverChild
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.parameters import SolverParameters
from kai_solver.units import MILLI, ResourceSchema

GIB = 2**30
RACK = TopologyConstraint("dc", "rack")


@pytest.fixture(scope="module")
def child() -> Iterator[SolverChild]:
    with SolverChild() as child:
        yield child


# -- clusters ------------------------------------------------------------------------------------------------------


def a_node(name: str, gpus: int, rack: str = "r0", cpu: int = 8000) -> Node:
    return Node(name, (cpu, 64 * GIB, gpus * MILLI, 20), gpus=gpus, gpu_memory_mib=100, labels={"rack": rack})


def in_zones(node: Node, *gpus: int) -> Node:
    zones = tuple(NumaZone(f"node-{i}", (0, 0, count * MILLI, 0)) for i, count in enumerate(gpus))
    return replace(node, numa=NumaTopology("single-numa-node", "pod", zones, (2,)))


def a_queue(name: str, quota: int = -1, limit: int = -1) -> Queue:
    def gpus(amount: int) -> QueueVector:
        return (-1, -1, amount * MILLI if amount >= 0 else -1)

    return Queue(name, quota=gpus(quota), limit=gpus(limit))


def a_gang(name: str, *gpus: int, on: str = "", queue: str = "a", root: SubGroup | None = None, **more: object) -> Gang:
    """A gang with one pod for each number of GPUs; it runs where ``on`` names a node for each (``n0 n0 n1``)."""
    root = root or flat_gang(len(gpus))
    podsets = [podset.name for podset in root.podsets()]
    origins = on.split() if on else [""] * len(gpus)
    pods = tuple(
        Pod(
            "ns",
            f"{name}-{i}",
            (500, GIB, 0, 1),
            GpuRequest(count),
            status=PodStatus.RUNNING if origins[i] else PodStatus.PENDING,
            podset=podsets[min(i, len(podsets) - 1)],
            node=origins[i],
            order=(0, float(i), ""),
        )
        for i, count in enumerate(gpus)
    )
    gang = Gang("ns", name, queue, root, pods, last_start_s=0.0 if on else None)
    return replace(gang, **more)  # type: ignore[arg-type]


def web(*rules: str) -> dict[str, object]:
    """What makes pods of a gang ``web`` by label, with rules about other pods of that kind by rack."""
    near = (PodAffinityTerm((Requirement("app", "In", ("web",)),), "rack"),)
    constraints = Constraints(
        affinity=near if "near" in rules else (),
        anti_affinity=near if "far" in rules else (),
        spread=(SpreadConstraint(near[0].selector, "rack"),) if "even" in rules else (),
        host_ports=("80/TCP",) if "port" in rules else (),
    )
    return {"labels": {"app": "web"}, "constraints": constraints}


def dressed(gang: Gang, more: dict[str, object]) -> Gang:
    """``gang`` with ``more`` for every pod."""
    return replace(gang, pods=tuple(replace(pod, **more) for pod in gang.pods))  # type: ignore[arg-type]


def in_rows(gang: Gang, *rows: str) -> Gang:
    """``gang`` with a required row for each of its pods, ``contiguous`` or ``aligned``; any GPUs where it is empty."""
    kinds = [f"{row}-required" if row else "" for row in rows]
    pods = zip(gang.pods, kinds, strict=True)
    return replace(gang, pods=tuple(replace(pod, gpu=replace(pod.gpu, row=row)) for pod, row in pods))


def a_cluster(nodes: Sequence[Node], gangs: Sequence[Gang], *queues: Queue) -> Snapshot:
    """The last gang waits; devices of running pods are given in order."""
    taken = {node.name: iter(range(node.gpus)) for node in nodes}
    seated = [
        replace(
            gang,
            pods=tuple(
                replace(pod, devices=tuple(next(taken[pod.node]) for _ in range(pod.gpu.devices))) if pod.node else pod
                for pod in gang.pods
            ),
        )
        for gang in gangs
    ]
    topology = Topology("dc", (TopologyLevel("rack"),))
    return Snapshot(1000.0, ResourceSchema(), tuple(nodes), queues or (a_queue("a"),), tuple(seated), (topology,))


# -- from a snapshot to a plan -------------------------------------------------------------------------------------


@dataclass
class Case:
    """One question: the last gang of the snapshot by one action."""

    snapshot: Snapshot
    action: Action
    may_move: bool = True
    without: tuple[str, ...] = ()
    """Families that would forbid it too, and are left out beside the one that is tested."""

    def __post_init__(self) -> None:
        self.problem = build_problem(self.snapshot)
        self.outcome = Outcome(State(self.problem))
        self.pool = self.outcome.pool = VictimPool.of_running(self.outcome.state)
        shape = self.problem.gangs[-1]
        allocation_unit = AllocationUnits(shape, self.outcome.state.gangs[-1]).next()
        assert allocation_unit is not None
        self.allocation_unit: AllocationUnit = allocation_unit
        self.who = Preemptor.of(self.problem, allocation_unit)

    def joint(self) -> Joint:
        eligibility = Eligibility(self.outcome.state, self.pool)
        units = {action: eligibility.units(action, self.who) for action in (Action.RECLAIM, Action.PREEMPT)}
        everybody = (
            frozenset(unit.index for unit in self.pool.units) if self.action is not Action.ALLOCATE else frozenset()
        )
        nobody: frozenset[int] = frozenset()
        return JointModelInput(self.outcome).join(
            [(self.allocation_unit, self.action)],
            everybody,
            units[Action.RECLAIM] if self.action is Action.RECLAIM else nobody,
            units[Action.PREEMPT] if self.action is Action.PREEMPT else nobody,
            self._surplus(eligibility) if self.action is Action.RECLAIM else (),
            may_move=self.may_move,
        )

    def _surplus(self, eligibility: Eligibility) -> list[QueueSurplus]:
        right = self.problem.reclaim_right(self.outcome.state.allocated, self.who.queue, self.who.charge)
        found = map(right.surplus, eligibility.reclaim_queues(self.who))
        return list({surplus.queue: surplus for surplus in found}.values())

    def solve(self, child: SolverChild, *off: str) -> tuple[Formulation, SpecAnswer]:
        form = formulate(self.joint(), [name for name in FAMILIES if name not in (*off, *self.without)], ())
        form.spec.minimize(wish(form))
        return form, child.solve(form.spec, SolverParameters(workers=1, presolve="none"), math.inf)


def wish(form: Formulation) -> list[Term]:
    """As many places as possible, and as many who stay; evictions before moves, large units before small ones."""
    v = form.variables
    terms: list[Term] = [(-1, var) for places in v.place.values() for var in places.values()]
    terms += [(-1, var) for scoped in v.scoped for var in scoped.place.values()]
    terms += [(-1, var) for group in v.classes for var in group.stay.values()]
    for unit in v.units:
        pods = len(unit.mover.origin)
        terms += [(-1, unit.stay), (-3 * pods, unit.out_reclaim), (2 * pods, unit.moved)]
    return terms


def honest_plan(case: Case, form: Formulation, answer: SpecAnswer) -> Plan:
    """The solution put into effect device by device, as the engine does it."""
    assert answer.values is not None
    decision = expand(form.variables, answer.values)
    assert apply(case.outcome.state, case.pool, form.variables.joint, decision, [(case.allocation_unit, case.action)])
    units = tuple(u for u in range(len(case.pool.units)) if case.pool.has_left(u) or case.pool.is_moved(u))
    case.outcome.admissions.append(Admission(case.allocation_unit, case.action, units))
    return assemble(case.problem, case.outcome)


def literal_plan(case: Case, form: Formulation, answer: SpecAnswer) -> Plan:
    """The solution written down as it is, however wrong; who moves without a place is evicted."""
    assert answer.values is not None
    decision = expand(form.variables, answer.values)
    gang = case.snapshot.gangs[-1]
    free = _free_devices(case, decision)
    binds = tuple(
        Bind(
            case.problem.pods[pod].key,
            gang.key,
            case.problem.nodes[decision.places[pod]].name,
            _seat(case, free, pod, decision.places[pod]),
            nominated=case.action is not Action.ALLOCATE,
            action=case.action,
        )
        for pod in case.allocation_unit.pods
        if pod in decision.places
    )
    lost: list[tuple[int, EvictionReason]] = []
    for unit, reason in [(u, "preempt") for u in decision.preempted] + [(u, "reclaim") for u in decision.reclaimed]:
        lost += [(pod, reason) for pod in case.pool.units[unit].pods]  # type: ignore[misc]
    moving = [pod for unit in decision.moved for pod in case.pool.units[unit].pods]
    lost += [(pod, "reclaim") for pod in moving if pod not in decision.places]
    moves = tuple(_move(case, free, pod, decision) for pod in moving if pod in decision.places)
    evictions = tuple(
        Eviction(case.problem.pods[pod].key, _owner(case, pod), case.problem.pods[pod].node, reason, (gang.key,))
        for pod, reason in lost
    )
    return Plan(binds, moves, evictions, admitted=((gang.key, case.action),))


def _move(case: Case, free: dict[int, list[int]], pod: int, decision: Decision) -> Move:
    node = decision.places[pod]
    seats = _seat(case, free, pod, node)
    source, target = case.problem.pods[pod].node, case.problem.nodes[node].name
    helps = (case.snapshot.gangs[-1].key,)
    return Move(case.problem.pods[pod].key, _owner(case, pod), source, target, seats, helps, case.action)


def _owner(case: Case, pod: int) -> str:
    return case.problem.gangs[case.problem.pod_gang[pod]].gang.key


def _free_devices(case: Case, decision: Decision) -> dict[int, list[int]]:
    """Devices by node that nobody keeps."""
    leaving = {*decision.moved, *decision.reclaimed, *decision.preempted}
    gone = {pod for unit in leaving for pod in case.pool.units[unit].pods}
    kept = {
        (case.problem.pod_node[p], d) for p, seats in case.problem.held_devices.items() if p not in gone for d in seats
    }
    return {
        number: [d for d in range(node.gpus) if (number, d) not in kept]
        for number, node in enumerate(case.problem.nodes)
    }


def _seat(case: Case, free: dict[int, list[int]], pod: int, node: int) -> tuple[Device, ...]:
    count = case.problem.pods[pod].gpu.devices
    seats = [free[node].pop(0) if free[node] else 0 for _ in range(count)]
    return tuple(Device(seat, MILLI) for seat in seats)


# -- the families --------------------------------------------------------------------------------------------------

TWO_SETS = SubGroup(children=(PodSet("master", 1), PodSet("worker", 1)), topology=RACK)
LOOSE = Placement(max_pods_per_node=9)
ELASTIC = flat_gang(2)
TWO_RACKS = (a_node("n0", 4), a_node("n1", 4, "r1"))


def two_replicas(allowed: int) -> Snapshot:
    """Two pods under a budget fill a node that a gang of higher priority needs."""
    replicas = [a_gang(f"r{i}", 1, on="n0", priority=50) for i in range(2)]
    cluster = a_cluster([a_node("n0", 2)], [*replicas, a_gang("w", 1, 1, priority=60)])
    return replace(cluster, budgets=(DisruptionBudget("ns", "b", (), allowed),))


def two_tenants(nodes: Sequence[Node]) -> Snapshot:
    """One queue's pod runs in the first rack, and another queue waits; racks are one tenant's at a time."""
    running = a_gang("r", 1, on="n0", queue="b")
    cluster = a_cluster(nodes, [running, a_gang("w", 1, 1)], a_queue("a", quota=9), a_queue("b", quota=9))
    racks = Topology("racks", (TopologyLevel("rack"),), OneTenant("rack"))
    return replace(cluster, topologies=(*cluster.topologies, racks))


THREE_NODES = tuple(a_node(f"n{i}", 1) for i in range(3))


def keeping(cluster: Snapshot) -> Snapshot:
    """A node of each rack is kept free."""
    return replace(cluster, topologies=tuple(replace(t, spares=SpareNodes("rack", 1)) for t in cluster.topologies))


def capped(pods: int) -> Snapshot:
    """Each user has at most so many pods; one pod of the user runs, and may not leave."""
    queue = replace(a_queue("a"), rules=(("usercaps", f"label=user pods={pods}"),))
    snapshot = a_cluster(THREE_NODES, [a_gang("r", 1, on="n0", preemptible=False), a_gang("w", 1)], queue)
    gangs = (replace(g, pods=tuple(replace(p, labels={"user": "alice"}) for p in g.pods)) for g in snapshot.gangs)
    return replace(snapshot, gangs=tuple(gangs))


def stopping(setting: str) -> Snapshot:
    """One pod waits; its queue may be on hold."""
    queue = replace(a_queue("a"), rules=(("stop", setting),) if setting else ())
    other = replace(a_queue("b"), rules=() if setting else (("stop", "hold"),))
    return a_cluster(THREE_NODES, [a_gang("w", 1)], queue, other)


def in_maintenance(run_time_s: float) -> Snapshot:
    """One pod waits that runs so long; the only node is drained in an hour."""
    snapshot = a_cluster([replace(a_node("n0", 1), drain_at_s=1000.0 + 3600.0)], [a_gang("w", 1)])
    gangs = (replace(g, pods=tuple(replace(p, run_time_s=run_time_s) for p in g.pods)) for g in snapshot.gangs)
    return replace(snapshot, gangs=tuple(gangs))


def beside_one(gpus: int) -> Snapshot:
    """The first of so many GPUs is held; of five, no two in a row are left beside the two that are aligned."""
    waiting = in_rows(a_gang("w", 2, 2), "aligned", "contiguous")
    return a_cluster([a_node("n0", gpus)], [a_gang("r", 1, on="n0"), waiting])


ALLOWED: dict[str, Case] = {
    "gang": Case(a_cluster([a_node("n0", 2), a_node("n1", 1)], [a_gang("w", 1, 1, 1)]), Action.ALLOCATE),
    "subgroup": Case(
        a_cluster([a_node("n0", 2), a_node("n1", 1)], [a_gang("w", 2, 1, root=TWO_SETS, placement=LOOSE)]),
        Action.ALLOCATE,
    ),
    "capacity": Case(a_cluster([a_node("n0", 3)], [a_gang("w", 2, 1)]), Action.ALLOCATE),
    "numa": Case(a_cluster([in_zones(a_node("n0", 6), 3, 3)], [a_gang("w", 1, 2, 1, 2)]), Action.ALLOCATE),
    "limit": Case(a_cluster([a_node("n0", 2)], [a_gang("w", 1, 1)], a_queue("a", limit=2)), Action.ALLOCATE),
    "quota": Case(
        a_cluster([a_node("n0", 2)], [a_gang("w", 1, 1, preemptible=False)], a_queue("a", quota=2)), Action.ALLOCATE
    ),
    "entitlement": Case(
        a_cluster(
            [a_node("n0", 4)],
            [*(a_gang(f"r{i}", 1, on="n0", queue="b") for i in range(4)), a_gang("w", 1, 1)],
            a_queue("a", quota=2),
            a_queue("b", quota=2),
        ),
        Action.RECLAIM,
    ),
    "priority": Case(
        a_cluster([a_node("n0", 1)], [a_gang("r", 1, on="n0", priority=50), a_gang("w", 1, priority=60)]),
        Action.PREEMPT,
    ),
    "topology": Case(
        a_cluster(
            [a_node("n0", 1), a_node("n1", 1, "r1"), a_node("n2", 1, "r1")],
            [a_gang("w", 1, 1, root=flat_gang(2, RACK))],
        ),
        Action.ALLOCATE,
    ),
    "units": Case(
        a_cluster(
            [a_node("n0", 2), a_node("n1", 1)],
            [a_gang("r", 1, 1, 1, on="n0 n0 n1", queue="b", root=ELASTIC), a_gang("w", 2)],
            a_queue("a", quota=2),
            a_queue("b", quota=1),
        ),
        Action.RECLAIM,
    ),
    "moves": Case(
        a_cluster([a_node("n0", 2), a_node("n1", 1)], [a_gang("r", 1, on="n0"), a_gang("w", 2)]), Action.CONSOLIDATION
    ),
    "affinity": Case(
        a_cluster(TWO_RACKS, [dressed(a_gang("r", 1, on="n0"), web()), dressed(a_gang("w", 1), web("far"))]),
        Action.ALLOCATE,
    ),
    "spread": Case(a_cluster(TWO_RACKS, [dressed(a_gang("w", 1, 1, 1, 1), web("even"))]), Action.ALLOCATE),
    "ports": Case(a_cluster(TWO_RACKS, [dressed(a_gang("w", 1, 1), web("port"))]), Action.ALLOCATE),
    "placement": Case(
        a_cluster([a_node("n0", 2), a_node("n1", 1)], [a_gang("w", 1, 1, placement=Placement(min_nodes=2))]),
        Action.ALLOCATE,
    ),
    "budgets": Case(two_replicas(allowed=2), Action.PREEMPT),
    "tenants": Case(two_tenants(TWO_RACKS), Action.ALLOCATE),
    "spares": Case(keeping(a_cluster(THREE_NODES, [a_gang("w", 1, 1)])), Action.ALLOCATE),
    "usercaps": Case(capped(2), Action.ALLOCATE),
    "stop": Case(stopping(""), Action.ALLOCATE),
    "maintenance": Case(in_maintenance(3600.0), Action.ALLOCATE),
    "gpurows": Case(beside_one(6), Action.ALLOCATE),
}

FORBIDDEN: dict[str, Case] = {
    "gang": Case(a_cluster([a_node("n0", 1), a_node("n1", 1)], [a_gang("w", 1, 1, 1)]), Action.ALLOCATE),
    # In the chosen domain, topology's rows allow every piece at most its own pods; a rule gives it places of its own.
    "subgroup": Case(
        a_cluster([a_node("n0", 1), a_node("n1", 1)], [a_gang("w", 2, 1, root=TWO_SETS, placement=LOOSE)]),
        Action.ALLOCATE,
        without=("topology",),
    ),
    "capacity": Case(a_cluster([a_node("n0", 2)], [a_gang("w", 2, 1)]), Action.ALLOCATE),
    "numa": Case(a_cluster([in_zones(a_node("n0", 6), 3, 3)], [a_gang("w", 2, 2, 2)]), Action.ALLOCATE),
    "limit": Case(a_cluster([a_node("n0", 2)], [a_gang("w", 1, 1)], a_queue("a", limit=1)), Action.ALLOCATE),
    "quota": Case(
        a_cluster([a_node("n0", 2)], [a_gang("w", 1, 1, preemptible=False)], a_queue("a", quota=1)), Action.ALLOCATE
    ),
    "entitlement": Case(
        a_cluster(
            [a_node("n0", 4)],
            [*(a_gang(f"r{i}", 1, on="n0", queue="b") for i in range(4)), a_gang("w", 1, 1, 1)],
            a_queue("a", quota=3),
            a_queue("b", quota=2),
        ),
        Action.RECLAIM,
    ),
    "priority": Case(
        a_cluster([a_node("n0", 1)], [a_gang("r", 1, on="n0", priority=60), a_gang("w", 1, priority=60)]),
        Action.PREEMPT,
    ),
    "topology": Case(
        a_cluster([a_node("n0", 1), a_node("n1", 1, "r1")], [a_gang("w", 1, 1, root=flat_gang(2, RACK))]),
        Action.ALLOCATE,
    ),
    "units": Case(
        a_cluster(
            [a_node("n0", 2), a_node("n1", 1)],
            [a_gang("r", 1, 1, 1, on="n0 n0 n1", queue="b", root=ELASTIC), a_gang("w", 2)],
            a_queue("a", quota=2),
            a_queue("b", quota=2),
        ),
        Action.RECLAIM,
    ),
    "moves": Case(
        a_cluster([a_node("n0", 2), a_node("n1", 1)], [a_gang("r", 1, on="n0"), a_gang("w", 2)]),
        Action.CONSOLIDATION,
        may_move=False,
    ),
    "affinity": Case(
        a_cluster(TWO_RACKS, [dressed(a_gang("r", 1, on="n0"), web()), dressed(a_gang("w", 1, 1), web("far"))]),
        Action.ALLOCATE,
    ),
    "spread": Case(
        a_cluster([a_node("n0", 4), a_node("n1", 1, "r1")], [dressed(a_gang("w", 1, 1, 1, 1), web("even"))]),
        Action.ALLOCATE,
    ),
    "ports": Case(a_cluster(TWO_RACKS, [dressed(a_gang("w", 1, 1, 1), web("port"))]), Action.ALLOCATE),
    "placement": Case(
        a_cluster([a_node("n0", 2)], [a_gang("w", 1, 1, placement=Placement(max_gpus_per_node=1))]), Action.ALLOCATE
    ),
    "budgets": Case(two_replicas(allowed=1), Action.PREEMPT),
    "tenants": Case(two_tenants(TWO_RACKS[:1]), Action.ALLOCATE),
    "spares": Case(keeping(a_cluster(THREE_NODES[:2], [a_gang("w", 1, 1)])), Action.ALLOCATE),
    "usercaps": Case(capped(1), Action.ALLOCATE),
    "stop": Case(stopping("hold"), Action.ALLOCATE),
    "maintenance": Case(in_maintenance(3601.0), Action.ALLOCATE),
    "gpurows": Case(beside_one(5), Action.ALLOCATE),
}

RULE_OF = {
    "subgroup": {"subgroup", "gang"},
    "placement": {"spacing"},
    "gpurows": {"devices"},
    **dict.fromkeys(("affinity", "spread", "ports"), frozenset({"predicates"})),
}
"""What the checker calls it, where that is not the family's name."""


def test_every_family_is_tested() -> None:
    assert set(ALLOWED) == set(FORBIDDEN) == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_family_allows_is_found_and_holds(child: SolverChild, family: str) -> None:
    case = ALLOWED[family]
    form, answer = Case(case.snapshot, case.action, case.may_move).solve(child)
    assert answer.status in ("optimal", "feasible")
    fresh = Case(case.snapshot, case.action, case.may_move)
    assert check_plan(case.snapshot, honest_plan(fresh, form, answer)) == ()


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_family_forbids_is_infeasible(child: SolverChild, family: str) -> None:
    _, answer = FORBIDDEN[family].solve(child)
    assert answer.status == "infeasible"


@pytest.mark.parametrize("family", FAMILIES)
def test_without_the_family_the_checker_refuses_the_plan(child: SolverChild, family: str) -> None:
    case = FORBIDDEN[family]
    form, answer = case.solve(child, family)
    assert answer.values is not None, answer
    rules = {violation.rule for violation in check_plan(case.snapshot, literal_plan(case, form, answer))}
    assert rules & RULE_OF.get(family, {family}), rules


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_adds_rows_of_its_own_name_only(family: str) -> None:
    for case in (ALLOWED[family], FORBIDDEN[family]):
        joint = case.joint()
        with_it, without = formulate(joint, (family,), ()).spec, formulate(joint, (), ()).spec
        assert without.families == {}
        assert set(with_it.families) <= {family}
    assert formulate(FORBIDDEN[family].joint(), (family,), ()).spec.count(family) > 0
