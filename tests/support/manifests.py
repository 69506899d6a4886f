"""Plain manifests for those without helm: what the chart renders with its own values.

``python -m tests.support.manifests`` writes them anew.
"""

import subprocess
from pathlib import Path

from tests.support.gotools import HELM, go_tool

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "manifests" / "kai-solver.yaml"
HEAD = """\
# Written by `python -m tests.support.manifests` from the chart in deploy/helm/kai-solver. Make the namespace first:
#
#   kubectl create namespace kai-solver
#   kubectl create -f deploy/manifests/crds.yaml      # refuses, object by object, to touch what is there
#   kubectl apply -f deploy/manifests/kai-solver.yaml
"""
CRDS = FILE.with_name("crds.yaml")


def rendered(helm: Path) -> str:
    """All objects of the chart but the CRDs."""
    chart = ROOT / "deploy" / "helm" / "kai-solver"
    command = [str(helm), "template", "kai-solver", str(chart), "--namespace", "kai-solver"]
    return HEAD + subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def crds() -> str:
    """The chart's CRDs in one file."""
    files = sorted((ROOT / "deploy" / "helm" / "kai-solver" / "crds").glob("*.yaml"))
    return "---\n".join(path.read_text() for path in files)


if __name__ == "__main__":
    FILE.write_text(rendered(go_tool(HELM)))
    CRDS.write_text(crds())
