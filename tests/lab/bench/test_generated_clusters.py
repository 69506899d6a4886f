"""Generated clusters are what their specification says, and everything that runs in them runs by the rules."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from kai_solver.domain import Gang, PodStatus, Snapshot
from kai_solver.errors import InputError
from kai_solver.instances_io import load_instance, native_from_snapshot, snapshot_from_native
from kai_solver.instances_io.bench_schema import CliquesDoc, EmptyDoc, LoadedDoc, QuietDoc, ReclaimDoc
from kai_solver.lab.bench import generated, loaded_snapshot, read_set
from kai_solver.lab.generate.cliques import CLIQUE, INDEX
from kai_solver.lab.generate.load_report import gpus_of
from kai_solver.lab.generate.parts import RACK
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS

BENCH = Path(__file__).parents[3] / "instances" / "bench"
SMALL = LoadedDoc(kind="loaded", nodes=200, gangs=80)


@pytest.fixture(scope="module", params=[1, 2, 77])
def loaded(request: pytest.FixtureRequest) -> Snapshot:
    return generated(SMALL, request.param)


def running(snapshot: Snapshot) -> list[Gang]:
    return [gang for gang in snapshot.gangs if gang.pods[0].status is PodStatus.RUNNING]


def held_by_queue(snapshot: Snapshot, gangs: list[Gang]) -> Counter[str]:
    parents = {queue.name: queue.parent for queue in snapshot.queues}
    held: Counter[str] = Counter()
    for gang in gangs:
        queue = gang.queue
        while queue:
            held[queue] += gpus_of(gang) * MILLI
            queue = parents[queue]
    return held


def test_a_seed_makes_one_cluster() -> None:
    assert generated(SMALL, 5) == generated(SMALL, 5)
    assert generated(SMALL, 5) != generated(SMALL, 6)


def test_nothing_runs_beyond_what_a_node_has(loaded: Snapshot) -> None:
    used: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for gang in running(loaded):
        for pod in gang.pods:
            for resource in (CPU, MEMORY, PODS):
                used[pod.node][resource] += pod.request[resource]
            used[pod.node][GPU] += pod.gpu.devices * MILLI
    assert all(
        amount <= has for node in loaded.nodes for amount, has in zip(used[node.name], node.allocatable, strict=True)
    )


def test_what_is_bound_to_a_rack_runs_in_one(loaded: Snapshot) -> None:
    rack = {node.name: node.labels[RACK] for node in loaded.nodes}
    bound = [gang for gang in running(loaded) if gang.root.topology is not None]
    assert bound
    assert all(len({rack[pod.node] for pod in gang.pods}) == 1 for gang in bound)


def test_limits_and_quotas_hold(loaded: Snapshot) -> None:
    held = held_by_queue(loaded, running(loaded))
    fixed = held_by_queue(loaded, [gang for gang in running(loaded) if not gang.preemptible])
    assert any(queue.limit[GPU] >= 0 for queue in loaded.queues)
    assert fixed
    for queue in loaded.queues:
        assert queue.limit[GPU] < 0 or held[queue.name] <= queue.limit[GPU]
        assert fixed[queue.name] <= queue.quota[GPU]


def test_quotas_add_up_on_every_level(loaded: Snapshot) -> None:
    below: Counter[str] = Counter()
    for queue in loaded.queues:
        below[queue.parent] += queue.quota[GPU]
    assert below[""] == sum(node.allocatable[GPU] for node in loaded.nodes)
    assert all(below[queue.name] == queue.quota[GPU] for queue in loaded.queues if queue.name in below)


@pytest.mark.parametrize(("nodes", "gangs"), [(500, 200), (1000, 400)])
@pytest.mark.parametrize("seed", [1, 4711])
def test_loaded_means_the_same_at_every_size(nodes: int, gangs: int, seed: int) -> None:
    report = loaded_snapshot(LoadedDoc(kind="loaded", nodes=nodes, gangs=gangs), seed)[1]
    assert (report.nodes, report.pending_gangs, report.running_pods) == (nodes, gangs, 6 * nodes)
    assert report.used == pytest.approx(0.97, abs=1e-9)
    assert report.over_quota == pytest.approx(0.5, abs=0.05)
    for mix in (report.mix_running, report.mix_pending):
        assert mix == pytest.approx({1: 0.5, 2: 0.15, 4: 0.15, 8: 0.2}, abs=0.02)
    assert report.bound_running == pytest.approx(0.4, abs=0.03)
    assert report.bound_pending == pytest.approx(0.4, abs=0.01)
    assert 32 < report.largest_gang <= 64
    assert report.contested >= 0.3
    assert report.pending_gpus / (8 * nodes) == pytest.approx(0.437, abs=0.01)


def test_too_little_contention_is_refused() -> None:
    with pytest.raises(InputError, match="is contested"):
        generated(LoadedDoc(kind="loaded", nodes=100, gangs=40, contested=0.99), 1)


def test_the_native_format_keeps_a_generated_cluster(loaded: Snapshot) -> None:
    assert snapshot_from_native(native_from_snapshot(loaded)) == loaded


def outline(snapshot: Snapshot) -> tuple[object, ...]:
    """What the rules see of it: quotas, and gangs by queue with the GPUs of their pods on every node."""
    number = {node.name: i for i, node in enumerate(snapshot.nodes)}
    return (
        [node.gpus for node in snapshot.nodes],
        [(queue.name, queue.parent, queue.quota) for queue in snapshot.queues],
        sorted(
            (gang.queue, [(pod.gpu.devices, number.get(pod.node, -1)) for pod in gang.pods]) for gang in snapshot.gangs
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "doc"),
    [
        ("b50_reclaim_10_gangs_50_nodes_half_fragmented", ReclaimDoc(kind="reclaim", nodes=50, gangs=10)),
        ("b_reclaim_100_gangs_500_nodes_half_fragmented", ReclaimDoc(kind="reclaim", nodes=500, gangs=100)),
        ("a_allocate_4000_single_gpu_empty_500_nodes", EmptyDoc(kind="empty", nodes=500)),
    ],
)
def test_stored_instances_come_out_of_their_generators(name: str, doc: ReclaimDoc | EmptyDoc) -> None:
    stored = load_instance(BENCH / f"{name}.json.zst").snapshot
    assert outline(generated(doc)) == outline(stored)


def test_a_quiet_cluster_has_room() -> None:
    snapshot = generated(QuietDoc(kind="quiet"))
    idle = sum(node.gpus for node in snapshot.nodes) - sum(map(gpus_of, running(snapshot)))
    [waiting] = [gang for gang in snapshot.gangs if gang not in running(snapshot)]
    assert sum(node.gpus for node in snapshot.nodes) == 100
    assert (len(waiting.pods), gpus_of(waiting)) == (4, 16)
    assert gpus_of(waiting) <= idle


@pytest.mark.parametrize("path", sorted((BENCH / "sets").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_entry_of_every_set_can_be_had(path: Path) -> None:
    bench_set = read_set(path)
    assert len({entry.name for entry in bench_set.doc.entries}) == len(bench_set.doc.entries)
    for entry in bench_set.doc.entries:
        assert entry.generate is not None or (bench_set.path.parent / entry.file).is_file()


def test_an_entry_that_is_missing_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match="loaded-500"):
        read_set(BENCH / "sets" / "scale.yaml").entry("nothing", "--only")


@pytest.fixture(scope="module", params=[1, 2, 77])
def cliques(request: pytest.FixtureRequest) -> Snapshot:
    return generated(CliquesDoc(kind="cliques", running=0.6, asked=0.3, clique_pods=16), request.param)


def test_racks_of_one_nvlink_domain_are_in_use_as_far_as_asked(cliques: Snapshot) -> None:
    trays = sum(len(gang.pods) for gang in running(cliques))
    waiting = sum(len(gang.pods) for gang in cliques.gangs) - trays - 16
    assert (len(cliques.nodes), sum(node.gpus for node in cliques.nodes)) == (648, 2592)
    assert trays / 648 == pytest.approx(0.6, abs=0.03)
    assert waiting / 648 == pytest.approx(0.3, abs=0.02)
    assert len({pod.node for gang in running(cliques) for pod in gang.pods}) == trays


def test_segments_run_in_one_clique_each_and_ranks_follow_them(cliques: Snapshot) -> None:
    clique = {node.name: node.labels[CLIQUE] for node in cliques.nodes}
    for gang in cliques.gangs:
        segments = defaultdict(list)
        for rank, pod in enumerate(gang.pods):
            assert pod.labels[INDEX] == str(rank)
            segments[pod.podset].append(pod)
        assert len({len(pods) for pods in segments.values()}) == 1
        assert list(segments) == [leaf.name for leaf in gang.root.podsets()]
        assert all(leaf.topology is not None and leaf.topology.required == CLIQUE for leaf in gang.root.podsets())
        for pods in segments.values() if gang in running(cliques) else ():
            assert len({clique[pod.node] for pod in pods}) == 1
