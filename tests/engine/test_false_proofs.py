"""No plan is called impossible where one exists: what once fooled bounds, memories and greedy choices."""

from dataclasses import replace

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import (
    Action,
    Bind,
    Constraints,
    Device,
    Eviction,
    Gang,
    GpuRequest,
    Node,
    Plan,
    Pod,
    PodAffinityTerm,
    PodSet,
    Policy,
    Queue,
    Requirement,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
)
from kai_solver.engine import Engine, cycle
from kai_solver.modelfiles import load_model
from kai_solver.units import UNLIMITED, ResourceSchema
from tests.engine.conftest import Engines
from tests.support.builders import GIB, a_cluster, a_gang, a_node, a_pod, a_queue, only_on

ENDLESS = (UNLIMITED, UNLIMITED, UNLIMITED)
LADDERS = pytest.mark.parametrize("model", ["greedy-only", "default"])


def actions(plan: Plan) -> dict[str, Action]:
    return dict(plan.admitted)


def proofs(plan: Plan) -> dict[str, str]:
    return {entry.gang: entry.proof.state for entry in plan.pending}


@pytest.fixture
def puzzle() -> tuple[Gang, Gang]:
    """A gang that fills two nodes of 8 GPUs to the last, and one that must move away for it."""
    sizes = enumerate([4, 3, 3, 2, 2, 2])
    return a_gang("w", *(a_pod(f"w{i}", gpus, order=i) for i, gpus in sizes)), a_gang(
        "r", a_pod("r0", 1, "a", devices=(0,))
    )


@pytest.mark.parametrize("busy", [False, True])
def test_pods_on_a_cordoned_node_take_no_room_elsewhere(puzzle: tuple[Gang, Gang], engine: Engine, busy: bool) -> None:
    drained = a_gang("d", a_pod("d0", 8, "d", devices=tuple(range(8))))
    nodes = [a_node("a", 8), a_node("b", 8), a_node("c", 1), a_node("d", 8, schedulable=False)]
    plan = engine.cycle(a_cluster(nodes, [*puzzle, *([drained] if busy else [])]))
    assert actions(plan) == {"ns/w": Action.CONSOLIDATION}
    assert [move.pod for move in plan.moves] == ["ns/r0"]


@pytest.mark.parametrize("cpu", [4000, 6000])
def test_an_over_committed_node_takes_no_room_elsewhere(puzzle: tuple[Gang, Gang], engine: Engine, cpu: int) -> None:
    """Two pods of 3 cores on a node that was shrunk to 4."""
    heavy = [a_gang(f"o{i}", a_pod(f"o{i}", 0, "d", cpu=3000)) for i in range(2)]
    nodes = [a_node("a", 8, cpu=1000), a_node("b", 8, cpu=1000), a_node("c", 1, cpu=200), a_node("d", 0, cpu=cpu)]
    plan = engine.cycle(a_cluster(nodes, [*puzzle, *heavy]))
    assert actions(plan) == {"ns/w": Action.CONSOLIDATION}
    assert [move.pod for move in plan.moves] == ["ns/r0"]


EITHER = SubGroup(children=(PodSet("s0", 1), PodSet("s1", 1)), min_subgroups=1)


@LADDERS
@pytest.mark.parametrize(("tree", "podsets"), [(flat_gang(1), ("default", "default")), (EITHER, ("s0", "s1"))])
def test_that_the_first_pod_fits_nowhere_proves_nothing_of_the_second(
    engine: Engine, model: str, tree: SubGroup, podsets: tuple[str, str]
) -> None:
    large, small = (a_pod(f"w{i}", gpus, order=i, podset=podsets[i]) for i, gpus in enumerate((8, 1)))
    snapshot = a_cluster([a_node("a", 4)], [a_gang("w", large, small, root=tree)])
    bind = Bind("ns/w1", "ns/w", "a", (Device(0, 1000),))
    assert check_plan(snapshot, Plan(binds=(bind,), admitted=(("ns/w", Action.ALLOCATE),))) == (), "a plan exists"
    plan = cycle(snapshot, load_model(model), child=engine.child)
    assert actions(plan) or proofs(plan)["ns/w"] != "proven"


@LADDERS
def test_a_surplus_pod_with_a_missing_claim_does_not_hold_back_its_gang(engine: Engine, model: str) -> None:
    blocked = a_pod("w1", order=1, constraints=Constraints(blocked=("pvc missing",)))
    snapshot = a_cluster([a_node("a", 4)], [a_gang("w", a_pod("w0"), blocked, need=1)])
    plan = cycle(snapshot, load_model(model), child=engine.child)
    assert [bind.pod for bind in plan.binds] == ["ns/w0"]


def test_a_gang_that_needs_its_blocked_pod_waits_and_is_told_why(engine: Engine) -> None:
    blocked = a_pod("w1", order=1, constraints=Constraints(blocked=("pvc missing",)))
    plan = engine.cycle(a_cluster([a_node("a", 4)], [a_gang("w", a_pod("w0"), blocked, need=2)]))
    assert actions(plan) == {}
    assert "pvc missing" in plan.pending[0].message


@LADDERS
def test_the_refusal_of_a_gang_that_never_preempts_is_its_own(engine: Engine, model: str) -> None:
    victim = a_gang("v", a_pod("v0", 4, "a", devices=(0, 1, 2, 3)), priority=40)
    meek = a_gang("n", a_pod("n0", 4), priority=60, created_s=1.0, never_preempts=True)
    bold = a_gang("p", a_pod("p0", 4), priority=60, created_s=2.0)
    plan = cycle(a_cluster([a_node("a", 4)], [victim, meek, bold]), load_model(model), child=engine.child)
    assert actions(plan) == {"ns/p": Action.PREEMPT}
    assert set(proofs(plan)) == {"ns/n"}


@pytest.fixture
def mixed_nodes() -> list[Node]:
    """16,000 MiB are a fifth of one GPU and all of the other."""
    return [a_node("big", 1, gpu_memory_mib=80_000), a_node("small", 1, gpu_memory_mib=16_000)]


BY_MEMORY = GpuRequest(1, 0, 16_000)


@LADDERS
def test_a_limit_counts_gpu_memory_by_the_node_that_is_taken(
    mixed_nodes: list[Node], engine: Engine, model: str
) -> None:
    snapshot = a_cluster(mixed_nodes, [a_gang("w", a_pod("w0", gpu=BY_MEMORY))], queues=[a_queue("q", limit=0.5)])
    plan = cycle(snapshot, load_model(model), child=engine.child)
    assert [bind.node for bind in plan.binds] == ["big"]


def test_a_limit_by_gpu_memory_still_holds(mixed_nodes: list[Node], engine: Engine) -> None:
    plan = engine.cycle(
        a_cluster(mixed_nodes, [a_gang("w", a_pod("w0", gpu=BY_MEMORY))], queues=[a_queue("q", limit=0.15)])
    )
    assert plan.binds == ()
    assert set(proofs(plan)) == {"ns/w"}


def test_the_least_victims_count_gpu_memory_by_the_node_that_is_taken(mixed_nodes: list[Node], engine: Engine) -> None:
    """On the small device half a GPU would not be enough to evict, and the bound of the evicted work too high."""
    runs = [
        a_gang("r0", a_pod("r0", on="small", devices=(0,)), priority=10),
        a_gang("r1", a_pod("r1", on="big", devices=(0,), gpu=GpuRequest(1, 500)), priority=10),
    ]
    wants = a_gang("w", a_pod("w0", gpu=BY_MEMORY), priority=60)
    plan = engine.cycle(a_cluster(mixed_nodes, [*runs, wants], queues=[a_queue("q", limit=1.5)]))
    assert [eviction.pod for eviction in plan.evictions] == ["ns/r1"]
    assert all(stage.optimal for stage in plan.stages)


@LADDERS
def test_victims_that_only_a_passed_limit_asks_for_stay_away(engine: Engine, model: str) -> None:
    """Three run where two may: for one more two have to go, though the node has room."""
    node = a_node("a", 8)
    runs = [a_gang(f"r{i}", a_pod(f"r{i}", on="a", devices=(i,)), priority=10) for i in range(3)]
    wants = a_gang("w", a_pod("w0"), priority=60)
    snapshot = a_cluster([node], [*runs, wants], queues=[a_queue("q", limit=2)])
    plan = cycle(snapshot, load_model(model), child=engine.child)
    assert check_plan(snapshot, plan) == ()
    assert len(plan.evictions) == 2


def test_a_move_helps_a_request_by_gpu_memory(mixed_nodes: list[Node], engine: Engine) -> None:
    origins = [("big", 600), ("big", 300), ("small", 200)]
    runs = [
        a_gang(f"r{i}", a_pod(f"r{i}", on=node, devices=(0,), gpu=GpuRequest(1, milli)))
        for i, (node, milli) in enumerate(origins)
    ]
    plan = engine.cycle(a_cluster(mixed_nodes, [*runs, a_gang("w", a_pod("w0", gpu=BY_MEMORY))]))
    assert actions(plan) == {"ns/w": Action.CONSOLIDATION}
    assert [move.pod for move in plan.moves] == ["ns/r1"]


@pytest.fixture
def half_and_half() -> list[Node]:
    """30,000 MiB are three quarters of the one GPU, and three eighths of the other."""
    return [a_node("small", 1, gpu_memory_mib=40_000), a_node("big", 1, gpu_memory_mib=80_000)]


def test_a_move_to_a_larger_device_frees_what_nothing_had(half_and_half: list[Node], engine: Engine) -> None:
    """A quarter and a half of a GPU are free, and yet a whole one comes of it."""
    by_memory = GpuRequest(1, 0, 30_000)
    runs = [
        a_gang("r0", a_pod("r0", on="small", devices=(0,), gpu=by_memory)),
        a_gang("r1", a_pod("r1", on="big", devices=(0,), gpu=GpuRequest(1, 500))),
    ]
    plan = engine.cycle(a_cluster(half_and_half, [*runs, a_gang("w", a_pod("w0"))]))
    assert actions(plan) == {"ns/w": Action.CONSOLIDATION}
    assert [(move.pod, move.target) for move in plan.moves] == [("ns/r0", "big")]


@LADDERS
def test_a_limit_proves_nothing_where_others_could_cost_less(
    half_and_half: list[Node], engine: Engine, model: str
) -> None:
    """Moved to the large device, r0 takes three eighths of a GPU of the limit in place of three quarters."""
    r0 = a_gang("r0", a_pod("r0", on="small", devices=(0,), gpu=GpuRequest(1, 0, 30_000)))
    snapshot = a_cluster(
        [*half_and_half, a_node("other", 1)], [r0, a_gang("w", a_pod("w0"))], queues=[a_queue("q", limit=1.4)]
    )
    plan = cycle(snapshot, load_model(model), child=engine.child)
    assert actions(plan) or proofs(plan)["ns/w"] != "proven"


def test_any_pods_may_be_the_minimum_of_a_protected_gang(engine: Engine) -> None:
    """Two pods of r share the one device; the third, with a neighbour who may not go, is minimum enough."""
    half = GpuRequest(1, 500)
    elastic = a_gang(
        "r",
        *(a_pod(f"r{i}", on="a", order=i, devices=(i // 2,), gpu=half) for i in range(3)),
        need=1,
        priority=10,
        last_start_s=900.0,
    )
    fixed = a_gang("f", a_pod("f0", on="a", devices=(1,), gpu=half), priority=100, preemptible=False)
    wants = a_gang("w", a_pod("w0"), priority=60)
    policy = Policy(preempt_min_runtime_s=600.0)
    plan = engine.cycle(a_cluster([a_node("a", 2)], [elastic, fixed, wants], policy=policy))
    assert actions(plan) or proofs(plan)["ns/w"] != "proven"


def test_what_an_elastic_gang_loses_is_not_called_least_where_it_could_lose_others(engine: Engine) -> None:
    """The small pod of s could go for the asker, and the large one be the minimum."""
    sizes = [("s", 1), ("s", 2), ("t", 1)]
    pods = [
        a_pod(f"r{i}", gpus, "a", order=i, podset=podset, devices=tuple(range(i, i + gpus)) if i < 2 else (3,))
        for i, (podset, gpus) in enumerate(sizes)
    ]
    elastic = a_gang("r", *pods, root=SubGroup(children=(PodSet("s", 1), PodSet("t", 1))), priority=10)
    plan = engine.cycle(a_cluster([a_node("a", 4)], [elastic, a_gang("w", a_pod("w0"), priority=60)]))
    assert actions(plan) == {"ns/w": Action.PREEMPT}
    lost = next(stage for stage in plan.stages if stage.name.startswith("evicted-work"))
    assert [eviction.pod for eviction in plan.evictions] == ["ns/r0"] or not lost.optimal


@LADDERS
def test_of_a_gang_that_moves_those_stay_that_can(engine: Engine, model: str) -> None:
    """CPU is what w lacks on b: for r1 to move one of r5 has to make room, and not both."""
    half = GpuRequest(1, 500)
    snapshot = a_cluster(
        [a_node("a", 1, cpu=4000), a_node("b", 4, cpu=4000)],
        [
            a_gang("r0", a_pod("r0", on="b", devices=(0,), gpu=half, cpu=500)),
            a_gang("r1", a_pod("r1", on="b", devices=(0,), gpu=half, cpu=3000)),
            a_gang("r2", a_pod("r2", on="b", devices=(1,), gpu=half, cpu=500)),
            a_gang("r5", *(a_pod(f"r5-{i}", on="a", order=i, devices=(0,), gpu=half, cpu=500) for i in range(2))),
            a_gang("w", a_pod("w0", 2, cpu=500)),
        ],
    )
    plan = cycle(snapshot, load_model(model), child=engine.child)
    moved = next(stage for stage in plan.stages if stage.name == "moved-pods")
    assert moved.value == len(plan.moves)
    assert moved.bound <= 2
    if plan.moves:
        assert {move.pod for move in plan.moves} in ({"ns/r1", "ns/r5-0"}, {"ns/r1", "ns/r5-1"})


@pytest.mark.parametrize("seed", [0, 4, 17, 20])
def test_pods_that_are_placed_once_more_stay_within_the_limit(engine: Engine, seed: int) -> None:
    """r2 has to move to the large devices of its zone, where it costs the queue less, and w may not be in its way."""
    near, far = {"zone": "near"}, {"zone": "far"}
    nodes = [
        a_node("n0", 3, gpu_memory_mib=80_000, labels=near),
        a_node("n1", 2, gpu_memory_mib=40_000, labels=near),
        a_node("n2", 3, gpu_memory_mib=80_000, labels=far),
    ]
    by_memory, half, third = GpuRequest(1, 0, 20_000), GpuRequest(1, 500), GpuRequest(1, 300)
    zone = flat_gang(1, TopologyConstraint("dc", "zone"))
    snapshot = a_cluster(
        nodes,
        [
            a_gang(
                "r1",
                a_pod("r1-0", 1, "n2", order=0, devices=(0,)),
                a_pod("r1-1", 2, "n2", order=1, devices=(1, 2)),
                priority=60,
            ),
            a_gang("r2", a_pod("r2-0", on="n1", devices=(0,), gpu=by_memory), root=zone, priority=60),
            a_gang("r3", a_pod("r3-0", on="n0", devices=(1, 2), gpu=GpuRequest(2, 500)), priority=60),
            a_gang("s0", a_pod("s0", on="n0", devices=(1,), gpu=half), priority=50, queue="other"),
            a_gang("s1", a_pod("s1", on="n0", devices=(0,)), priority=60, queue="other"),
            a_gang("w", *(a_pod(f"w{i}", order=i, gpu=third) for i in range(2)), priority=100, preemptible=False),
        ],
        queues=[a_queue("q", limit=2)],
        topologies=(Topology("dc", (TopologyLevel("zone"),)),),
    )
    other = replace(snapshot.queues[0], name="other", limit=ENDLESS, created_s=1.0)
    plan = engine.cycle(replace(snapshot, queues=(*snapshot.queues, other)), seed=seed)
    assert plan.notes == ()
    assert actions(plan) == {"ns/w": Action.PREEMPT}


def test_an_optimum_that_cannot_be_seated_proves_nothing(engines: Engines) -> None:
    """4 + 4 GPUs beat 5, but the model does not see that the two pods of y repel each other."""
    here, there = only_on("n", "here"), only_on("n", "there")
    apart = PodAffinityTerm((Requirement("app", "In", ("y",)),), "host")
    gangs = [a_gang(name, a_pod(name, gpus, constraints=here)) for name, gpus in (("g5", 5), ("g4", 4), ("h4", 4))]
    lonely = [
        a_pod(f"y{i}", 4, constraints=replace(there, anti_affinity=(apart,)), labels={"app": "y"}) for i in (0, 1)
    ]
    nodes = [a_node(name, 8, labels={"host": name, "n": name}) for name in ("here", "there")]
    engine = engines["max-utilization"]
    alone = engine.cycle(a_cluster(nodes, gangs))
    beside = engine.cycle(a_cluster(nodes, [*gangs, a_gang("y", *lonely)]))
    assert set(actions(alone)) == {"ns/g4", "ns/h4"}
    assert proofs(alone) == {"ns/g5": "proven"}
    left_out = {"ns/g4", "ns/h4"} & set(proofs(beside))
    assert all(proofs(beside)[gang] != "proven" for gang in left_out)
    assert len(left_out) < 2 or set(actions(beside)) == {"ns/g5"}


def test_a_remembered_refusal_names_the_gang_that_reads_it(engine: Engine) -> None:
    racks = Topology("dc", (TopologyLevel("rack"),))
    nodes = [a_node(name, 2, labels={"rack": name}) for name in "ab"]
    tree = flat_gang(4, TopologyConstraint("dc", "rack"))
    gangs = [a_gang(f"t{i}", *(a_pod(f"t{i}-{k}", order=k) for k in range(4)), root=tree) for i in range(2)]
    plan = engine.cycle(a_cluster(nodes, gangs, topologies=(racks,)))
    messages = {entry.gang: entry.message for entry in plan.pending}
    assert "<ns/t0>" in messages["ns/t0"]
    assert "<ns/t1>" in messages["ns/t1"]
    assert "t0" not in messages["ns/t1"]


def test_of_six_priorities_the_highest_stays() -> None:
    """Though it started last, and so has the least work to lose."""
    victims = [
        a_gang(f"v{i}", a_pod(f"v{i}", 1, "a", devices=(i,)), priority=10 * (i + 1), last_start_s=started)
        for i, started in enumerate([1.0, 1.0, 1.0, 1.0, 1.0, 900.0])
    ]
    victims = [replace(gang, created_s=gang.last_start_s or 0.0) for gang in victims]
    snapshot = a_cluster([a_node("a", 6)], [*victims, a_gang("w", a_pod("w0", 5), priority=90)])
    plan = cycle(snapshot, load_model("greedy-only"))
    assert actions(plan) == {"ns/w": Action.PREEMPT}
    assert {eviction.gang for eviction in plan.evictions} == {f"ns/v{i}" for i in range(5)}


@LADDERS
def test_room_that_earlier_victims_left_is_taken_without_any_more(engine: Engine, model: str) -> None:
    """A gang of four is evicted for two GPUs; the next may evict nobody, and need not."""
    victims = a_gang("v", *(a_pod(f"v{i}", 1, "a", devices=(i,), order=i) for i in range(4)), priority=40)
    claimants = [a_gang(f"h{i}", a_pod(f"h{i}", 2), priority=priority) for i, priority in enumerate((60, 30))]
    plan = cycle(a_cluster([a_node("a", 4)], [victims, *claimants]), load_model(model), child=engine.child)
    assert set(actions(plan)) == {"ns/h0", "ns/h1"}
    assert len(plan.evictions) == 4


@LADDERS
@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"])
def test_slices_are_moved_though_they_are_no_devices(engine: Engine, model: str, resource: str) -> None:
    """Their queue pays GPUs for them; that says nothing about how many devices are free."""
    schema = ResourceSchema.with_extended([resource])
    nodes = [Node(name, (64_000, 512 * GIB, 0, 110, 4)) for name in "ab"]

    def slices(name: str, count: int, node: str = "") -> Pod:
        pod = a_pod(name, on=node, gpu=GpuRequest(), quota_gpu_milli=1000 * count)
        return replace(pod, request=(100, GIB, 0, 1, count))

    small = [a_gang(name, slices(name, 2, name)) for name in "ab"]
    moved = replace(a_cluster(nodes, [*small, a_gang("large", slices("l", 4))]), schema=schema)
    plan = cycle(moved, load_model(model), child=engine.child)
    assert actions(plan) == {"ns/large": Action.CONSOLIDATION}
    assert check_plan(moved, plan) == ()


@LADDERS
@pytest.mark.parametrize(("pods", "expected"), [(1, {"ns/w": Action.RECLAIM}), (2, {})])
def test_rights_by_memory_are_asked_alike_by_bounds_and_checker(
    engine: Engine, model: str, pods: int, expected: dict[str, Action]
) -> None:
    """Two pods of 30 GB would take 0.76 of a large device; they are asked for 1.5, beside one of a share of two."""
    large, small = a_node("a", 4, gpu_memory_mib=80_000), a_node("b", 1, gpu_memory_mib=40_000)
    victims = [a_gang(f"v{i}", a_pod(f"v{i}", 1, "a", devices=(i,)), queue="v") for i in range(4)]
    held = a_gang("h", a_pod("h0", 1, "b", devices=(0,)))
    waiting = a_gang("w", *(a_pod(f"w{i}", gpu=GpuRequest(1, 0, 30_000), order=i) for i in range(pods)))
    queues = tuple(Queue(name, quota=(UNLIMITED, UNLIMITED, 2000)) for name in "qv")
    snapshot = replace(a_cluster([large, small], [*victims, held, waiting]), queues=queues)
    plan = cycle(snapshot, load_model(model), child=engine.child)
    assert actions(plan) == expected
    assert check_plan(snapshot, plan) == ()
    binds = tuple(Bind(f"ns/w{i}", "ns/w", "a", (Device(0, 380),), True, Action.RECLAIM) for i in range(pods))
    evicted = (Eviction("ns/v0", "ns/v0", "a", "reclaim", ("ns/w",)),)
    by_hand = Plan(binds=binds, evictions=evicted, admitted=(("ns/w", Action.RECLAIM),))
    assert (check_plan(snapshot, by_hand) == ()) == bool(expected)
