"""The image as it ships: built from the sources as they are, looked at, and started."""

import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from kai_solver import __version__
from tests.deploy.conftest import ROOT
from tests.support.gotools import ToolMissingError
from tests.support.image import BUILD, command, config, image, layers, manifest

pytestmark = pytest.mark.slow
START_S = 120.0


@pytest.fixture(scope="module")
def built() -> Path:
    try:
        return image()
    except ToolMissingError as error:
        pytest.skip(f"NOT TESTED: {error}")


def run(built: Path, *words: str, mounts: Mapping[Path, str] | None = None) -> "subprocess.CompletedProcess[str]":
    try:
        line = command(built, words, mounts=mounts)
    except ToolMissingError as error:
        pytest.skip(f"NOT TESTED: {error}")
    return subprocess.run(line, capture_output=True, text=True, timeout=START_S, check=False)


def python(built: Path, code: str) -> str:
    """What a program says that the image's Python runs in the image."""
    try:
        line = command(built, ("x",))
    except ToolMissingError as error:
        pytest.skip(f"NOT TESTED: {error}")
    line = [*line[: line.index("-P")], "-P", "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_layout_is_whole(built: Path) -> None:
    """Every blob is what its name says, and every layer unpacks to what the configuration says."""
    for blob in (built / "oci" / "blobs" / "sha256").iterdir():
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
    plain = [hashlib.sha256(gzip.decompress(layer.read_bytes())).hexdigest() for layer in layers(built)]
    assert [f"sha256:{one}" for one in plain] == config(built)["rootfs"]["diff_ids"]
    assert len(config(built)["history"]) == len(manifest(built)["layers"])
    with tarfile.open(built / "kai-solver.oci.tar") as archive:
        packed = {entry.name: archive.extractfile(entry) for entry in archive if entry.isfile()}
        assert {name: hashlib.sha256(data.read()).digest() for name, data in packed.items() if data} == {
            str(path.relative_to(built / "oci")): hashlib.sha256(path.read_bytes()).digest()
            for path in (built / "oci").rglob("*")
            if path.is_file()
        }


def test_another_program_unpacks_the_same(built: Path, tmp_path: Path) -> None:
    if shutil.which("umoci") is None:
        pytest.skip("NOT TESTED: umoci is not there (Debian: apt-get install umoci)")
    words = ["umoci", "unpack", "--rootless", "--image", f"{built / 'oci'}:{__version__}", str(tmp_path / "bundle")]
    subprocess.run(words, capture_output=True, check=True)
    theirs, ours = tmp_path / "bundle" / "rootfs", built / "root"
    found = {path.relative_to(theirs) for path in theirs.rglob("*")}
    assert found == {path.relative_to(ours) for path in ours.rglob("*")}
    process = json.loads((tmp_path / "bundle" / "config.json").read_text())["process"]
    assert process["user"] == {"uid": 65532, "gid": 65532}


def test_files_are_listed_and_are_for_anybody_to_read_and_nobody_to_run_as_root(built: Path) -> None:
    lines = (built / "files.txt").read_text().splitlines()
    listed = {line.split(" ", 3)[3].split(" /", 1)[-1].lstrip("/"): line for line in lines}
    there = {str(path.relative_to(built / "root")) for path in (built / "root").rglob("*")}
    assert set(listed) == there
    modes = {line.split()[0] for line in lines}
    assert modes <= {"0644", "0755", "0777", "1777"}
    assert not [path for path in there if path.endswith(("/sh", "/bash", "/apt", "/dpkg", "/pip")) and "bin/" in path]


def test_no_folder_of_this_machine_is_in_it(built: Path) -> None:
    """Neither of the sources nor of where it was built."""
    places = (str(ROOT).encode(), str(Path.home()).encode() + b"/", tempfile.gettempdir().encode() + b"/")
    folder = built / "root" / "opt"
    records = [*folder.rglob("RECORD"), *folder.rglob("direct_url.json"), *(folder / "kai-solver").rglob("*")]
    for path in (path for path in records if path.is_file()):
        assert not [place for place in places if place in path.read_bytes()], path


def test_what_ships_is_what_is_locked(built: Path) -> None:
    packages = json.loads((built / "packages.json").read_text())
    locked = (ROOT / "requirements" / "runtime.txt").read_text()
    for entry in packages["python"]:
        if entry["name"] == "kai-solver":
            assert entry["version"] == __version__
            continue
        name = re.sub(r"[-_.]+", "-", entry["name"]).lower()
        assert f"\n{name}=={entry['version']} " in f"\n{locked}".replace(";", " ;"), name
        assert f"sha256:{entry['sha256']}" in locked
    named = [line for line in (BUILD.parent / "debian.txt").read_text().splitlines() if not line.startswith("#")]
    assert sorted(entry["name"] for entry in packages["debian"]) == sorted(named)


def test_the_bill_of_materials_names_all_of_it(built: Path, tmp_path: Path) -> None:
    out = tmp_path / "image"
    out.mkdir()
    for name in ("oci", "packages.json"):
        (out / name).symlink_to(built / name)
    bill = _bill(out)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None
    found: dict[str, Any] = json.loads(bill)
    packages = json.loads((built / "packages.json").read_text())
    assert {(one["name"], one["version"]) for one in found["components"]} == {
        (one["name"], one["version"]) for kind in packages.values() for one in kind
    }
    digest = (built / "digest").read_text().strip()
    assert found["metadata"]["component"]["purl"].startswith(f"pkg:oci/kai-solver@{digest}")
    assert _bill(out) == bill


def _bill(out: Path) -> str:
    subprocess.run([sys.executable, "-W", "error", str(BUILD.with_name("sbom.py")), str(out)], check=True)
    return (out / "sbom.cdx.json").read_text()


# -- started -----------------------------------------------------------------------------------------------------------


def test_it_says_its_version(built: Path) -> None:
    assert run(built, "--version").stdout.strip() == f"kai-solver {__version__}"


def test_it_runs_as_nobody_and_can_write_nothing(built: Path) -> None:
    code = """
import os
print(os.getuid(), os.getgid(), os.access("/opt", os.W_OK))
for place in ("/", "/opt/kai-solver", "/usr/lib", "/etc"):
    try:
        open(os.path.join(place, "written"), "w")
    except OSError as error:
        print(error.errno)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(status["CapEff"].strip(), status["CapPrm"].strip())
"""
    assert python(built, code).split() == ["65532", "65532", "False", *["30"] * 4, "0" * 16, "0" * 16]


def test_its_kernels_are_compiled_and_can_be_read(built: Path) -> None:
    code = """
from kai_solver import compiled
print(compiled.folder(), compiled.is_cached(), compiled.load_kept(), compiled.is_loaded() == bool(compiled.MODULES))
"""
    assert python(built, code).split() == ["/opt/kernels", "True", "True", "True"]


def test_every_module_of_ours_can_be_imported(built: Path) -> None:
    """So nothing that it needs is missing; what is extra may be: the image cannot run studies on other machines."""
    code = """
import importlib, pkgutil, sys, kai_solver
extras = {"matplotlib", "polars", "distributed"}
for found in pkgutil.walk_packages(kai_solver.__path__, "kai_solver."):
    if found.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        if error.name not in extras:
            raise
import ssl, sqlite3, ctypes, hashlib, zlib, bz2, lzma, uuid, decimal, multiprocessing
print(len([name for name in sys.modules if name.startswith("kai_solver.")]), sys.version_info[:2])
"""
    count, version = python(built, code).strip().split(" ", 1)
    assert int(count) > 200
    assert version == "(3, 11)"


def test_it_schedules_a_cluster_in_memory_with_its_solver(built: Path) -> None:
    done = run(built, "controller", "--embedded", "--for", "10")
    assert done.returncode == 0, done.stderr
    assert re.search(r"[1-9]\d* pods bound", done.stdout + done.stderr)
    assert "solver failed" not in done.stderr
