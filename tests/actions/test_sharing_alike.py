"""Victims are shared out in the same way by kernels on arrays, by the same functions on lists, and compiled."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kai_solver import compiled
from tests.actions.alike.compare import found

COMPARE = Path(__file__).parent / "alike" / "compare.py"


@pytest.mark.parametrize("seed", range(30))
def test_arrays_and_lists_say_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "is_loaded", lambda: False)
    on_lists = found(seed)
    monkeypatch.setattr(compiled, "is_loaded", lambda: True)
    assert found(seed) == on_lists


@pytest.mark.slow
def test_compiled_sweeps_say_the_same() -> None:
    run = subprocess.run([sys.executable, str(COMPARE), "60"], capture_output=True, text=True, check=True)
    said = json.loads(run.stdout)
    assert said["compiled"]
    assert said["different"] == []
    assert said["left"] > 100
    assert said["taken"] > 100
