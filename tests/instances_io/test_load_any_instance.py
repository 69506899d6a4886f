"""One way in: every kind is recognised, and a package can add one."""

import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.domain import Snapshot
from kai_solver.errors import InputError
from kai_solver.instances_io import Loaded, Source, importers, load_instance
from kai_solver.instances_io.complete import check_complete
from kai_solver.instances_io.reader import Document
from kai_solver.units import ResourceSchema

INSTANCES = Path(__file__).parents[2] / "instances"
KUBERNETES = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec: {resources: {gpu: {quota: 1, limit: -1, overQuotaWeight: 1}}}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "8", memory: 8Gi, nvidia.com/gpu: "2", pods: "110"}}
"""
POD = "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {kai.scheduler/queue: team}}, spec: {containers: [{}]}}"


class Tiny:
    """An importer of another package."""

    name = "tiny"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        return "tiny" in document

    def load(self, documents: Sequence[Document], source: Source) -> Loaded:
        if documents[0][1]["tiny"] == "boom":
            raise KeyError("boom")
        empty = Snapshot(source.now_s or 0.0, ResourceSchema(), (), (), ())
        return Loaded(empty, self.name, extra={"path": source.path.name})


@pytest.fixture
def with_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("tiny", "not.loaded:here", importers.IMPORTER_GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: Tiny)
    monkeypatch.setattr(importers, "entry_points", lambda group: [point] if group == importers.IMPORTER_GROUP else [])


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("openb/seed42-102.yaml", "openb"),
        ("cases/action_allocate/030_allocate_train_gang_job.json", "case"),
        ("bench/AllocateAction_SmallCluster.json.zst", "case"),
    ],
)
def test_shipped_files_are_recognised(path: str, kind: str) -> None:
    assert load_instance(INSTANCES / path).kind == kind


def test_a_native_file_is_recognised_with_its_description(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("format: kai-solver/v1\ndescription: small\nexpect: {placed: 0}\n")
    loaded = load_instance(tmp_path / "a.yaml")
    assert (loaded.kind, loaded.description) == ("native", "small")
    assert loaded.expect is not None
    assert loaded.expect.placed == 0


def test_kubernetes_yaml_is_read_from_a_file_and_from_a_directory(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(KUBERNETES)
    for path in (tmp_path / "all.yaml", tmp_path):
        loaded = load_instance(path)
        assert loaded.kind == "kubernetes"
        assert [node.name for node in loaded.snapshot.nodes] == ["n1"]
        assert [queue.name for queue in loaded.snapshot.queues] == ["team"]


def test_a_kai_snapshot_is_recognised_by_its_raw_objects(tmp_path: Path) -> None:
    (tmp_path / "snapshot.json").write_text('{"rawObjects": {"nodes": [], "pods": []}}')
    assert load_instance(tmp_path / "snapshot.json").kind == "kai-snapshot"


def test_a_malformed_kai_snapshot_is_refused_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "snapshot.json").write_text('{"rawObjects": []}')
    with pytest.raises(InputError, match=r"snapshot\.json: rawObjects"):
        load_instance(tmp_path / "snapshot.json")


@pytest.mark.parametrize(("file", "form"), [("snapshot.zip", "snapshot"), ("native.json", "native")])
def test_an_instance_beside_kubernetes_objects_is_named_with_what_converts_it(
    tmp_path: Path, file: str, form: str
) -> None:
    (tmp_path / "one.yaml").write_text(KUBERNETES)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "job.yaml").write_text(POD)
    assert CliRunner().invoke(app, ["convert", str(tmp_path / "one.yaml"), str(folder / file)]).exit_code == 0
    with pytest.raises(InputError) as caught:
        check_complete(str(folder), load_instance(folder))
    program, *command = shlex.split(re.sub(r".*(kai-solver convert )", r"\1", str(caught.value)).split(". ")[0])
    assert program == "kai-solver"
    assert CliRunner().invoke(app, command).exit_code == 0
    (folder / file).rename(tmp_path / file)
    loaded = load_instance(folder)
    assert [node.name for node in loaded.snapshot.nodes] == ["n1"]
    assert not [notice for notice in loaded.snapshot.notices if notice.kind == "set-aside"]


def test_a_native_instance_before_or_after_kubernetes_objects_is_named(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("format: kai-solver/v1\n")
    (tmp_path / "c.yaml").write_text(KUBERNETES)
    with pytest.raises(InputError, match=r"b\.yaml: is an instance of its own.*kai-solver convert"):
        load_instance(tmp_path)
    (tmp_path / "a.yaml").write_text(POD)
    (notice,) = (one for one in load_instance(tmp_path).snapshot.notices if one.kind == "set-aside")
    assert notice.object == f"File {tmp_path / 'b.yaml'}"
    assert "kai-solver convert" in notice.text


def test_a_folder_of_archives_alone_says_that_none_is_read(tmp_path: Path) -> None:
    (tmp_path / "snapshot.zip").write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match=r"snapshot\.zip: a snapshot \(\.zip\) in a folder is not read"):
        load_instance(tmp_path)


def test_the_only_node_that_is_set_aside_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(KUBERNETES.replace("8Gi", "64GB"))
    with pytest.raises(
        InputError, match=r"has no nodes, and Node n1 was set aside: .*memory: '64GB' is not a quantity"
    ):
        check_complete("one.yaml", load_instance(tmp_path / "one.yaml"))


@pytest.mark.parametrize("head", ["format: kai-solver/v1", "kind: openb-recipe", '{"schema": "kai-case/1"}'])
def test_kinds_of_one_instance_refuse_several_documents(tmp_path: Path, head: str) -> None:
    (tmp_path / "two.yaml").write_text(f"{head}\n---\nname: other\n")
    with pytest.raises(InputError, match="2 documents"):
        load_instance(tmp_path / "two.yaml")


def test_the_moment_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("format: kai-solver/v1\n")
    assert load_instance(tmp_path / "a.yaml", now_s=77.0).snapshot.now_s == 77.0


@pytest.mark.usefixtures("with_tiny")
def test_an_importer_of_another_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"tiny": 1}')
    loaded = load_instance(tmp_path / "x.json", now_s=9.0)
    assert (loaded.kind, loaded.extra["path"], loaded.snapshot.now_s) == ("tiny", "x.json", 9.0)


@pytest.mark.usefixtures("with_tiny")
def test_an_importer_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"tiny": "boom"}')
    with pytest.raises(InputError, match="the importer 'tiny' failed: KeyError"):
        load_instance(tmp_path / "x.json")


@pytest.mark.usefixtures("with_tiny")
def test_an_unknown_kind_lists_installed_importers_too(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"what": 1}')
    with pytest.raises(InputError, match="tiny"):
        load_instance(tmp_path / "x.json")


def test_an_importer_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("broken", "no.such.module:thing", importers.IMPORTER_GROUP)
    monkeypatch.setattr(importers, "entry_points", lambda group: [point])
    (tmp_path / "x.json").write_text('{"what": 1}')
    with pytest.raises(InputError, match="'broken' cannot be loaded"):
        load_instance(tmp_path / "x.json")
