"""Bundles: what the solver was asked when it failed can be read back whole."""

from pathlib import Path

import pytest

from kai_solver.domain import SolverModel
from kai_solver.errors import InputError
from kai_solver.instances_io import load_instance
from kai_solver.instances_io.bundle import Bundle, read_bundle, write_bundle
from kai_solver.modelfiles import available_models, load_model

CASE = Path(__file__).parents[2] / "instances" / "bench" / "AllocateAction_SmallCluster.json.zst"


def a_bundle(model: SolverModel) -> Bundle:
    return Bundle(load_instance(CASE).snapshot, model, 2.0, 42, "the child hung", {"ortools": "9.15"})


@pytest.mark.parametrize("name", available_models())
def test_a_bundle_is_written_and_read_without_loss(tmp_path: Path, name: str) -> None:
    bundle = a_bundle(load_model(name))
    write_bundle(bundle, tmp_path / "crash.zip")
    assert read_bundle(tmp_path / "crash.zip") == bundle


def test_the_same_bundle_gives_the_same_bytes(tmp_path: Path) -> None:
    bundle = a_bundle(load_model())
    write_bundle(bundle, tmp_path / "a.zip")
    write_bundle(bundle, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "b.zip"]


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(InputError, match="corrupt"):
        read_bundle(tmp_path / "x.zip")
    (tmp_path / "y.json").write_text("{}")
    with pytest.raises(InputError, match="not a bundle"):
        read_bundle(tmp_path / "y.json")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_bundle(a_bundle(load_model()), tmp_path / "missing" / "crash.zip")
