"""Compiled chains do what the same functions do as Python."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMPARE = Path(__file__).parent / "alike" / "compare.py"


@pytest.mark.slow
def test_compiled_and_uncompiled_chains_find_the_same() -> None:
    process = subprocess.run([sys.executable, str(COMPARE), "200"], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert found["compiled"]
    assert found["moves"] > 10
    assert found["different"] == []
