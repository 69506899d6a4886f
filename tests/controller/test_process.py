"""What the process gives back; each test in a process of its own."""

import subprocess
import sys

import pytest

SCRIPT = r"""
import re
from pathlib import Path
from llvmlite import binding
from kai_solver.controller.process import give_code_back

def resident_kib():
    parts = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.M)
    code = [part for part in parts if "libllvmlite" in part and " r-xp " in part]
    return sum(int(re.search(r"^Rss: +(\d+)", part, re.M)[1]) for part in code)

def parse():
    return str(binding.parse_assembly("define i32 @f() {\n  ret i32 7\n}"))

said, before = parse(), resident_kib()
give_code_back("libllvmlite")
after = resident_kib()
assert parse() == said
print(before, after)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_code_that_was_needed_once_is_given_back_and_still_runs() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before > 4 * after
