"""Debian's Chromium, in which reports are looked at. ``python -m tests.support.browser`` installs it where it can."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CHROMIUM = Path("/usr/bin/chromium")
WHY_NOT = f"{CHROMIUM} is missing: apt-get install chromium (make test does it where it runs as root)"


def install() -> None:
    """Install it by apt, where it is missing, apt is there, and this process may."""
    if CHROMIUM.exists():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.stderr.write(f"reports are not looked at in a browser: {WHY_NOT}\n")
        return
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    without_questions = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "install", "-y", "-qq", "chromium"], check=True, env=without_questions)


if __name__ == "__main__":
    install()
