"""The twins `-real` of benchmarks have what clusters have, and as much of the work finds room as without it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kai_solver.domain import GpuRequest, PodStatus, Snapshot
from kai_solver.engine import Engine
from kai_solver.errors import InputError
from kai_solver.instances_io import native_from_snapshot, snapshot_from_native
from kai_solver.instances_io.bench_schema import EmptyDoc, GeneratorDoc, LoadedDoc, RealDoc, ReclaimDoc
from kai_solver.lab.bench import generated, jobs_of, made_real, read_set
from kai_solver.lab.bench.measure import PLACED, measure_here
from kai_solver.lab.generate.real import APP, JOB, KIND, SYSTEM
from kai_solver.modelfiles import load_model
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS

SCALE = Path(__file__).parents[3] / "instances" / "bench" / "sets" / "scale.yaml"
DOCS: list[GeneratorDoc] = [
    EmptyDoc(kind="empty", nodes=60),
    ReclaimDoc(kind="reclaim", nodes=60, gangs=12),
    LoadedDoc(kind="loaded", nodes=100, gangs=40, contested=0),
]


@pytest.fixture(scope="module", params=[(doc, seed) for doc in DOCS for seed in (1, 5)], ids=lambda p: p[0].kind)
def twins(request: pytest.FixtureRequest) -> tuple[Snapshot, Snapshot]:
    doc, seed = request.param
    plain = generated(doc, seed)
    return plain, made_real(plain, RealDoc(), seed)


def test_a_seed_makes_one_twin() -> None:
    plain = generated(DOCS[0])
    assert made_real(plain, RealDoc(), 1) == made_real(plain, RealDoc(), 1)
    assert made_real(plain, RealDoc(), 1) != made_real(plain, RealDoc(), 2)


def test_every_node_has_pods_with_host_ports_and_two_pods_of_dns_prefer_different_nodes(
    twins: tuple[Snapshot, Snapshot],
) -> None:
    real = twins[1]
    on = Counter(pod.node for pod in real.foreign if pod.constraints.host_ports)
    dns = [pod for pod in real.foreign if pod.constraints.preferred_pods]
    assert on == {node.name: 2 for node in real.nodes}
    assert {pod.namespace for pod in real.foreign} == {SYSTEM}
    assert len({pod.node for pod in dns}) == len(dns) == 2
    assert all(weight < 0 for pod in dns for weight, _ in pod.constraints.preferred_pods)


def test_there_are_three_kinds_of_nodes_taints_cordoned_nodes_and_a_pool_with_zones(
    twins: tuple[Snapshot, Snapshot],
) -> None:
    plain, real = twins
    count = len(plain.nodes)
    work = [node for node in real.nodes if node.gpus and node.schedulable]
    kinds = Counter(node.labels[KIND] for node in work)
    assert kinds["gpu-c"] == round(0.1 * count)
    assert kinds["gpu-b"] == (count - kinds["gpu-c"]) // 3
    assert kinds.total() == count
    assert {node.labels[KIND] for node in work if node.taints} == {"gpu-b"}
    assert {node.labels[KIND] for node in work if node.numa is not None} == {"gpu-c"}
    assert sum(not node.schedulable for node in real.nodes) == max(1, round(0.02 * count))
    assert sum(node.allocatable[GPU] for node in work) == sum(node.allocatable[GPU] for node in plain.nodes)


def test_so_many_gangs_have_wishes_and_shares_and_every_pod_is_labelled(twins: tuple[Snapshot, Snapshot]) -> None:
    plain, real = twins
    wishing = [gang for gang in real.gangs if any(pod.constraints.preferred_pods for pod in gang.pods)]
    sharing = [gang for gang in real.gangs if any(pod.gpu == GpuRequest(1, MILLI // 2) for pod in gang.pods)]
    assert len(real.gangs) == len(plain.gangs)
    assert len(wishing) == round(0.1 * len(real.gangs))
    assert len(sharing) == round(0.05 * len(real.gangs))
    for gang in real.gangs:
        for pod in gang.pods:
            assert {APP, JOB} <= pod.labels.keys()
            for _, term in pod.constraints.preferred_pods:
                assert all(pod.labels[r.key] in r.values for r in term.selector)


def test_nothing_runs_beyond_what_a_node_or_a_zone_has(twins: tuple[Snapshot, Snapshot]) -> None:
    real = twins[1]
    pods = [*(pod for gang in real.gangs for pod in gang.pods if pod.status is PodStatus.RUNNING), *real.foreign]
    used = {node.name: [0, 0, 0, 0] for node in real.nodes}
    zones: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        for resource in (CPU, MEMORY, PODS):
            used[pod.node][resource] += pod.request[resource]
        used[pod.node][GPU] += pod.gpu.devices * MILLI
        for share in pod.zones:
            zones[pod.node, share.zone] += dict(share.amounts)["gpu"]
        assert sum(dict(share.amounts)["gpu"] for share in pod.zones) in (0, pod.gpu.devices * MILLI)
    for node in real.nodes:
        assert all(amount <= has for amount, has in zip(used[node.name], node.allocatable, strict=True))
        for zone in node.numa.zones if node.numa is not None else ():
            assert zones[node.name, zone.name] <= zone.allocatable[GPU]


def test_the_native_format_keeps_a_twin(twins: tuple[Snapshot, Snapshot]) -> None:
    assert snapshot_from_native(native_from_snapshot(twins[1])) == twins[1]


@pytest.mark.parametrize("doc", DOCS[:2], ids=lambda doc: doc.kind)
def test_the_checker_passes_the_plan_and_as_much_finds_room(doc: GeneratorDoc) -> None:
    plain = generated(doc)
    with Engine(load_model("greedy-only")) as engine:
        pending = [engine.cycle(s).pending for s in (plain, made_real(plain, RealDoc()))]
    assert len(pending[1]) <= len(pending[0])


def test_a_cluster_without_nodes_has_no_twin() -> None:
    with pytest.raises(InputError, match="no nodes"):
        made_real(replace(generated(DOCS[0]), nodes=()), RealDoc())


def test_each_entry_of_the_set_at_scale_has_a_twin() -> None:
    entries = {entry.name: entry for entry in read_set(SCALE).doc.entries}
    plain = [entry for entry in entries.values() if entry.real is None]
    assert len(entries) == 2 * len(plain)
    for entry in plain:
        twin = entries[f"{entry.name}-real"]
        assert (twin.file, twin.generate, twin.seeds) == (entry.file, entry.generate, entry.seeds)


@pytest.mark.slow
def test_a_twin_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(
        "format: kai-bench/v1\nname: tiny\ncycles: 1\nentries:\n"
        "  - {name: quiet-real, generate: {kind: quiet}, real: {cordoned: 0.5},"
        " checks: [{figure: pending, limit: 0, model: greedy-only}]}\n"
    )
    [job] = jobs_of(read_set(path))
    [run] = measure_here(job)
    assert (run.record.nodes, run.record.pending, run.measure(PLACED)) == (25 + 12 + 3, 0, 1)
