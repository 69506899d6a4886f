"""Generated clusters as KAI snapshots: what is added says nothing to the scheduler."""

from dataclasses import replace
from pathlib import Path

from kai_solver.domain import Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io import load_instance
from kai_solver.instances_io.bench_schema import LoadedDoc
from kai_solver.kubeobjects import export_kai_snapshot, objects_from_snapshot
from kai_solver.lab.bench import kai_snapshot, loaded_snapshot
from kai_solver.modelfiles import load_model


def read(content: bytes, path: Path) -> Snapshot:
    path.write_bytes(content)
    return load_instance(path).snapshot


def test_what_is_added_is_not_read(tmp_path: Path) -> None:
    snapshot, _ = loaded_snapshot(LoadedDoc(kind="loaded", nodes=20, gangs=20, contested=0), 3)
    bare = read(export_kai_snapshot(objects_from_snapshot(snapshot)), tmp_path / "bare.zip")
    full = read(kai_snapshot(snapshot), tmp_path / "full.zip")
    assert full.notices == ()
    assert full.now_s == bare.now_s == snapshot.now_s
    assert sum(len(gang.pods) for gang in full.gangs) == sum(len(gang.pods) for gang in snapshot.gangs)
    model = load_model("greedy-only")
    plans = [replace(cycle(found, model), timing_s={}) for found in (bare, full)]
    assert plans[0] == plans[1]


def test_its_objects_are_as_large_as_those_of_clusters() -> None:
    snapshot, _ = loaded_snapshot(LoadedDoc(kind="loaded", nodes=20, gangs=20, contested=0), 3)
    bare = export_kai_snapshot(objects_from_snapshot(snapshot))
    assert len(kai_snapshot(snapshot)) > 2 * len(bare)
