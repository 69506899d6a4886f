"""Fuzzing for a given time, with new seeds in every round: ``make fuzz``, or ``python -m tests.fuzz --minutes 10``.

A round draws hostile objects, files, plans and answers (hypothesis, which shrinks what it finds), random valid clusters
(`tests.fuzz.plans`), and, where atheris is installed, bytes that are led by which lines they reach
(`tests.fuzz.guided`). What fails is printed, with what repeats it, and the next round goes on.
"""

import argparse
import importlib.util
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

LARGER = "5"
"""How much more than in ``make test`` a round draws."""

CLUSTERS = 60
GUIDED_S = 60
LAST_S = 120.0
"""How long after its time a round may end."""


def commands(seed: int) -> Iterator[list[str]]:
    """What one round runs, each with our own interpreter."""
    files = ["objects", "controller", "files", "answers"]
    for name in files:
        yield ["-m", "pytest", f"tests/fuzz/test_hostile_{name}.py", "-q", "-n", "0", "-p", "no:cacheprovider"]
    yield ["-m", "tests.fuzz.plans", "--seeds", f"{seed}..{seed + CLUSTERS - 1}", "--out", "out/fuzz"]
    for room in ("engine", "controller"):  # errors thrown from all public functions
        yield ["-m", "pytest", f"tests/{room}/test_injection.py", "-q", "-n", "0", "-p", "no:cacheprovider"]
    if importlib.util.find_spec("atheris"):
        for target in ("instance", "answer", "values"):
            yield ["-m", "tests.fuzz.guided", target, f"-max_total_time={GUIDED_S}", f"-seed={seed}"]


def main() -> int:
    """Run rounds until the time is over; 1 where something failed."""
    parser = argparse.ArgumentParser(description="Fuzz for a given time.")
    parser.add_argument("--minutes", type=float, default=10.0)
    ends_s = time.monotonic() + parser.parse_args().minutes * 60
    if not importlib.util.find_spec("atheris"):
        print(
            "NOT FUZZED: atheris is not installed, so no bytes are led by coverage (requirements/fuzz.txt)", flush=True
        )
    failed: list[str] = []
    while time.monotonic() < ends_s:
        for words in commands(random.SystemRandom().randrange(1 << 31)):
            left_s = ends_s - time.monotonic()
            if left_s > 0 and not _is_well(words, left_s + LAST_S):
                failed.append(" ".join(words))
    for line in failed:
        print(f"failed: python {line}")
    return int(bool(failed))


def _is_well(words: list[str], limit_s: float) -> bool:
    """Whether a command went well; one that the end of the time cut off did."""
    print(f"--- python {' '.join(words)}", flush=True)
    seed = str(random.SystemRandom().randrange(1 << 31))
    env = os.environ | {"KAI_SOLVER_FUZZ": LARGER, "KAI_SOLVER_INJECTIONS": "all", "KAI_SOLVER_INJECTION_SEED": seed}
    try:
        return subprocess.run([sys.executable, *words], env=env, timeout=limit_s, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return True


if __name__ == "__main__":
    sys.exit(main())
