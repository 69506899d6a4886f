"""What the process gives back; each test in a process of its own."""

import subprocess
import sys

import pytest

SCRIPT = r"""
import re, sys
from pathlib import Path
from llvmlite import binding
from kai_solver.controller.process import give_code_back

RIGHTS = f" {sys.argv[1]} "

def resident_kib():
    parts = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.M)
    code = [part for part in parts if "libllvmlite" in part and RIGHTS in part]
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
@pytest.mark.parametrize(("rights", "times"), [("r-xp", 4), ("r--p", 1.5)])
def test_code_and_constants_that_were_needed_once_are_given_back_and_it_still_runs(rights: str, times: float) -> None:
    """Constants less: those stay that the loader has changed, and what the second use reads again."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, rights], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before > times * after


HEAP = r"""
from pathlib import Path
from kai_solver.controller.process import give_heap_back

def resident_kib():
    return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmRSS"))

kept = [[bytes(2000) for _ in range(20_000)], bytes(2000)]
before = resident_kib()
del kept[0]
give_heap_back()
print(before, resident_kib())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_freed_memory_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", HEAP], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before - after > 30_000
