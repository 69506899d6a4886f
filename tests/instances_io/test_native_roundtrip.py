"""Writing a snapshot and reading it again loses nothing; hashing its names keeps its structure."""

import dataclasses
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_solver.domain import (
    Action,
    Constraints,
    Container,
    Gang,
    GpuRequest,
    Node,
    Notice,
    NumaPolicy,
    NumaTopology,
    NumaZone,
    OneTenant,
    Placement,
    Pod,
    PodAffinityTerm,
    PodSet,
    PodStatus,
    Policy,
    Queue,
    Requirement,
    Snapshot,
    SpareNodes,
    SpreadConstraint,
    SubGroup,
    Taint,
    Toleration,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    ZoneShare,
    flat_gang,
)
from kai_solver.instances_io import native_from_snapshot, sanitize, snapshot_from_native
from kai_solver.instances_io.anonymize import anonymize
from kai_solver.units import MILLI, ResourceSchema

SCHEMA = ResourceSchema.with_extended(["nvidia.com/mig-1g.5gb", "rdma/hca"])
QUEUES, NODES = ("root", "left", "right"), ("node-a", "node-b")

names = st.sampled_from(["alpha", "beta", "gamma", "delta"])
labels = st.dictionaries(st.sampled_from(["rack", "zone", "kubernetes.io/arch"]), names, max_size=2)
amounts = st.integers(0, 2**50)
vectors = st.tuples(amounts, amounts, amounts, st.just(0), amounts, amounts)
roles = st.sampled_from(["app", "sidecar", "init"])
shares = st.builds(
    ZoneShare, names, st.sampled_from([(), (("cpu", 1500),), (("cpu", 2000), ("memory", 7), ("gpu", 1000))])
)
moments = st.none() | st.floats(0, 2e9)
levels = st.sampled_from(["", "rack", "zone", "r"])
one_tenants = st.none() | st.builds(OneTenant, st.sampled_from(["zone", "r"]), st.sampled_from(["queue", "label:team"]))
spares = st.none() | st.builds(SpareNodes, st.sampled_from(["zone", "r"]), st.integers(1, 9))
topology_constraints = st.none() | st.builds(TopologyConstraint, st.sampled_from(["t1", "t2"]), levels, levels)
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"])
requirements = st.builds(Requirement, st.sampled_from(["rack", "metadata.name"]), operators, st.tuples(names))
terms = st.lists(requirements, max_size=2).map(tuple)
affinity_terms = st.lists(st.builds(PodAffinityTerm, terms, names, st.just(()) | st.just(("*",))), max_size=1).map(
    tuple
)
spreads = st.builds(SpreadConstraint, terms, names, st.integers(1, 3), st.integers(1, 3), st.booleans(), st.booleans())
constraints = st.builds(
    Constraints,
    node_terms=st.lists(st.lists(terms, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple),
    preferred=st.lists(st.tuples(st.integers(1, 100), terms), max_size=1).map(tuple),
    tolerations=st.lists(st.builds(Toleration, names, st.sampled_from(["Equal", "Exists"]), names), max_size=1).map(
        tuple
    ),
    affinity=affinity_terms,
    anti_affinity=affinity_terms,
    spread=st.lists(spreads, max_size=1).map(tuple),
    preferred_pods=affinity_terms.map(lambda terms: tuple((-7, term) for term in terms)),
    preferred_spread=st.lists(spreads, max_size=1).map(tuple),
    host_ports=st.sampled_from([(), ("80/TCP",)]),
    blocked=st.sampled_from([(), ("a claim is missing",)]),
)
gpu_requests = (
    st.integers(0, 8).map(GpuRequest)
    | st.builds(GpuRequest, st.integers(1, 2), st.integers(1, MILLI - 1))
    | st.builds(GpuRequest, st.integers(1, 2), st.just(0), st.integers(1, 90_000))
)


@st.composite
def pods(draw: st.DrawFn, name: str, podsets: tuple[str, ...]) -> Pod:
    status = draw(st.sampled_from(PodStatus))
    holds = status.holds_resources
    cpu, memory, mig, hca = (draw(amounts) for _ in range(4))
    return Pod(
        namespace=draw(st.sampled_from(["default", "other"])),
        name=name,
        request=(cpu, memory, 0, draw(st.integers(0, 2)), mig, hca),
        gpu=draw(gpu_requests),
        status=status,
        podset=draw(st.sampled_from(podsets)),
        node=draw(st.sampled_from(NODES)) if holds else "",
        gpu_groups=draw(st.sampled_from([(), ("group-1",)])),
        run_time_s=draw(st.none() | st.floats(1e-3, 1e7)),
        nominated_node=draw(st.sampled_from(("", *NODES))),
        quota_gpu_milli=draw(st.integers(0, 9)) * MILLI,
        constraints=draw(constraints),
        labels=draw(labels),
        order=draw(st.tuples(st.integers(-9, 9), st.floats(0, 2e9), names)),
        guaranteed=draw(st.booleans()),
        containers=draw(st.lists(st.builds(Container, vectors, roles), max_size=2).map(tuple)),
        zones=draw(st.lists(shares, max_size=2).map(tuple)) if holds else (),
    )


strategies, counts = st.none() | st.sampled_from(["binpack", "spread"]), st.none() | st.integers(1, 9)
placements = st.builds(Placement, strategies, strategies, counts, counts, counts)


@st.composite
def trees(draw: st.DrawFn) -> SubGroup:
    if draw(st.booleans()):
        return flat_gang(draw(st.integers(0, 9)), draw(topology_constraints))
    leaf = PodSet("leaf", draw(st.integers(0, 9)), draw(topology_constraints))
    inner = SubGroup("inner", (leaf,), draw(st.none() | st.integers(0, 2)), draw(topology_constraints))
    children = (inner, PodSet("default", draw(st.integers(0, 9)), draw(topology_constraints)))
    return SubGroup("", children, draw(st.none() | st.integers(0, 2)), draw(topology_constraints))


@st.composite
def gangs(draw: st.DrawFn, name: str) -> Gang:
    root = draw(trees())
    podsets = tuple(leaf.name for leaf in root.podsets())
    return Gang(
        namespace=draw(st.sampled_from(["default", "other"])),
        name=name,
        queue=draw(st.sampled_from((*QUEUES, "nowhere"))),
        root=root,
        pods=tuple(draw(pods(f"{name}-{i}", podsets)) for i in range(draw(st.integers(0, 3)))),
        priority=draw(st.integers(-10, 200)),
        preemptible=draw(st.booleans()),
        never_preempts=draw(st.booleans()),
        created_s=draw(st.floats(0, 2e9)),
        last_start_s=draw(moments),
        last_eviction_s=draw(moments),
        stale_since_s=draw(moments),
        preemption_delay_s=draw(st.floats(0, 1e6)),
        staleness_grace_s=draw(st.none() | st.floats(-1, 1e6)),
        placement=draw(placements),
        workload=draw(st.sampled_from(["", "replicas"])),
        set_aside=draw(st.sampled_from(["", "two sizes in one job"])),
        uid=draw(st.sampled_from(["", "uid-1"])),
    )


@st.composite
def queues(draw: st.DrawFn, name: str) -> Queue:
    share = st.just(-1) | st.integers(0, 2**50)
    factor = st.floats(0, 1000)
    return Queue(
        name=name,
        parent="" if name == "root" else "root",
        priority=draw(st.integers(-5, 300)),
        created_s=draw(st.floats(0, 2e9)),
        quota=draw(st.tuples(share, share, share)),
        limit=draw(st.tuples(share, share, share)),
        weight=draw(st.tuples(factor, factor, factor)),
        reclaim_min_runtime_s=draw(st.none() | st.floats(0, 1e5)),
        preempt_min_runtime_s=draw(st.none() | st.floats(0, 1e5)),
        usage=draw(st.tuples(factor, factor, factor)),
        placement=draw(placements),
        display_name=draw(st.sampled_from(["", "Team"])),
        uid=draw(st.sampled_from(["", "uid-2"])),
    )


@st.composite
def topologies(draw: st.DrawFn) -> NumaTopology:
    counted = draw(st.sampled_from([(), (0,), (0, 1, 2, 5)]))
    reported = draw(st.booleans())

    def amounts_of_a_zone() -> tuple[int, ...]:
        return tuple(draw(amounts) if i in counted else 0 for i in range(SCHEMA.size))

    zones = tuple(
        NumaZone(name, amounts_of_a_zone(), amounts_of_a_zone() if reported else None) for name in ("node-0", "node-1")
    )
    policy: NumaPolicy = draw(st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]))
    return NumaTopology(policy, draw(st.sampled_from(["container", "pod"])), zones, counted)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    gpus = draw(st.integers(0, 16))
    whole = draw(st.sampled_from([0, gpus * MILLI]))
    return Node(
        name=name,
        allocatable=(draw(amounts), draw(amounts), whole, draw(st.integers(0, 250)), draw(amounts), draw(amounts)),
        gpus=gpus,
        gpu_memory_mib=draw(st.integers(0, 200_000)),
        labels=draw(labels),
        taints=draw(st.sampled_from([(), (Taint("gpu"),), (Taint("gpu", "yes", "NoExecute"),)])),
        schedulable=draw(st.booleans()),
        gpu_uuids=draw(st.sampled_from([(), ("GPU-1", "GPU-2")])),
        numa=draw(st.none() | topologies()),
        gpu_topology="dgx1-v100-8" if gpus == 8 else "",
        drain_at_s=draw(st.none() | st.floats(0, 4e9)),
    )


policies = st.builds(
    Policy,
    gpu_placement=st.sampled_from(["binpack", "spread"]),
    max_consolidation_gangs=st.integers(-1, 20),
    consolidating_reclaim=st.booleans(),
    staleness_grace_s=st.floats(-1, 1e4),
    saturation_multiplier=st.floats(1, 5),
    k_value=st.floats(0, 5),
    non_preemptible_priority=st.integers(0, 200),
    reclaim_min_runtime_s=st.floats(0, 1e4),
    reclaim_resolve=st.sampled_from(["lca", "queue"]),
    full_hierarchy=st.booleans(),
    gpu_resources=st.sampled_from([("nvidia.com/gpu",), ("amd.com/gpu", "intel.com/gpu")]),
    shared_gpu_resources=st.sampled_from([(), ("nvidia.com/gpu.shared", "rdma/hca")]),
    stuck_in_releasing_s=st.floats(0, 1e4),
    disabled_actions=st.frozensets(st.sampled_from(Action)),
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    snapshot = Snapshot(
        now_s=draw(st.floats(0, 2e9)),
        schema=SCHEMA,
        nodes=tuple(draw(nodes(name)) for name in NODES),
        queues=tuple(draw(queues(name)) for name in QUEUES),
        gangs=tuple(draw(gangs(f"gang-{i}")) for i in range(draw(st.integers(0, 3)))),
        topologies=(
            Topology("t1", (TopologyLevel("zone"), TopologyLevel("rack", "r")), draw(one_tenants), draw(spares)),
        ),
        foreign=tuple(draw(pods(f"foreign-{i}", ("default",))) for i in range(draw(st.integers(0, 2)))),
        policy=draw(policies),
        notices=draw(st.sampled_from([(), (Notice("warning", "node n", "its devices are unknown"),)])),
        name=draw(st.sampled_from(["", "cluster"])),
    )
    return sanitize(snapshot)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(snapshots())
def test_what_is_written_is_read_again(snapshot: Snapshot) -> None:
    text = orjson.dumps(native_from_snapshot(snapshot))
    assert snapshot_from_native(orjson.loads(text)) == snapshot


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(snapshots())
def test_hashed_names_keep_the_structure_and_are_read_again(snapshot: Snapshot) -> None:
    hidden = anonymize(snapshot, b"salt")
    text = orjson.dumps(native_from_snapshot(hidden))
    again = snapshot_from_native(orjson.loads(text))
    assert shape_of(again) == shape_of(hidden) == shape_of(snapshot)
    for name in (b"alpha", b"node-a", b"gang-0", b"left", b"Team", b"foreign-0", b"group-1"):
        assert name not in text


def shape_of(snapshot: Snapshot) -> Any:
    """Everything but names, texts and labels."""
    plain = dataclasses.asdict(snapshot)
    plain.pop("notices")
    return numbers_in(plain)


def numbers_in(value: Any) -> Any:
    match value:
        case dict():
            return [numbers_in(item) for item in value.values()]
        case list() | tuple():
            return [numbers_in(item) for item in value]
        case str():
            return bool(value)
        case _:
            return value


def test_a_single_leaf_that_is_not_needed_is_no_flat_gang() -> None:
    root = SubGroup(children=(PodSet("default", 1),), min_subgroups=0)
    snapshot = Snapshot(1.0, ResourceSchema(), (), (Queue("q"),), (Gang("default", "g", "q", root),))
    assert snapshot_from_native(native_from_snapshot(snapshot)).gangs[0].root == root
