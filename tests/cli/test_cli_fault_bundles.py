"""A solver that fails leaves a bundle that can be solved again."""

from pathlib import Path

import pytest

from kai_solver.cli.solve import keep_fault
from kai_solver.domain import SolverModel
from kai_solver.engine import Fault
from kai_solver.instances_io import load_instance

INSTANCE = """
format: kai-solver/v1
nodes:
  - {name: n, gpus: 8, cpu: 64, memory: 512Gi}
queues:
  - {name: q}
gangs:
  - {name: four, queue: q, pods: [{gpus: 4, cpu: 1}]}
"""


@pytest.fixture
def fault(tmp_path: Path) -> Fault:
    path = tmp_path / "instance.yaml"
    path.write_text(INSTANCE)
    return Fault("the child crashed", load_instance(path).snapshot, SolverModel("tried", budget_s=3.0), 1.5, 7)


def test_a_fault_is_kept_with_its_model_budget_and_error(
    fault: Fault, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_fault(tmp_path / "kept", fault)
    (path,) = (tmp_path / "kept").iterdir()
    loaded = load_instance(path)
    bundle = loaded.extra["bundle"]
    assert loaded.kind == "bundle"
    assert loaded.description == "the child crashed"
    assert (bundle.model.name, bundle.budget_s, bundle.seed) == ("tried", 1.5, 7)
    assert loaded.snapshot.gangs == fault.snapshot.gangs
    assert str(path) in capsys.readouterr().err


def test_a_bundle_that_cannot_be_written_is_said_and_does_not_stop_the_cycle(
    fault: Fault, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    keep_fault(tmp_path / "file", fault)
    assert "could not be kept" in capsys.readouterr().err
