"""Where a run is measured, and with what."""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

import kai_solver

_CPU_INFO = Path("/proc/cpuinfo")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PACKAGES = ("ortools", "numpy")


def host() -> str:
    """The machine's name; ``KAI_SOLVER_HOST`` where that is set: in a pod the name of its node."""
    return os.environ.get("KAI_SOLVER_HOST") or platform.node()


@cache
def boot() -> str:
    """The same in all containers of a machine; empty where the system does not say."""
    return _BOOT.read_text().strip() if _BOOT.is_file() else ""


@cache
def cpu() -> str:
    """The processor's name."""
    if _CPU_INFO.is_file():
        lines = (line.partition(":") for line in _CPU_INFO.read_text().splitlines())
        for name, _, value in lines:
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def versions() -> str:
    """``kai-solver 0.1.0, ortools 9.15.6755, numpy 2.3.5, Python 3.11.7``."""
    others = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return f"kai-solver {kai_solver.__version__}, {others}, Python {platform.python_version()}"


@cache
def revision() -> str:
    """Of the repository that the package is in, with ``+changes`` where it was changed; empty where it is in none."""
    folder = Path(kai_solver.__file__).parent
    head = _git(folder, "rev-parse", "--short=12", "HEAD")
    if not head or _git(folder, "ls-files", "--error-unmatch", "__init__.py") == "":
        return ""
    return head + ("+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no", ".") else "")


def _git(folder: Path, *arguments: str) -> str:
    """What git prints; empty where it fails or is not installed."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip() if not done.returncode else ""
