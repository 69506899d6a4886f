"""Plain manifests for those without helm: what the chart renders with its own values.

``python -m tests.support.manifests`` writes them anew.
"""

import subprocess
from pathlib import Path

from tests.support.gotools import HELM, go_tool

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "manifests"
HEAD = """\
# Written by `python -m tests.support.manifests` from the chart in deploy/helm/kai-solver. In this order;
# create refuses, object by object, to touch what is there:
#
#   kubectl create namespace kai-solver
#   kubectl create -f deploy/manifests/crds.yaml
#   kubectl create -f deploy/manifests/defaults.yaml
#   kubectl apply -f deploy/manifests/kai-solver.yaml
"""
DEFAULTS = ("priorityclasses.yaml", "queues.yaml")
"""Templates of what may be there already, and belong to somebody else."""

KUBERNETES = "1.34.0"
"""helm as Go builds it believes in Kubernetes 1.20; its own release builds are told better."""


IMAGE = "REGISTRY/kai-solver"
"""No registry has it: people name theirs."""

ALL_OF_IT = ("--set", "queues.create=true,priorityClasses.create=true", "--no-hooks")


def template(helm: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The chart as helm renders it."""
    chart = ROOT / "deploy" / "helm" / "kai-solver"
    command = [str(helm), "template", "kai-solver", str(chart), "--namespace", "kai-solver"]
    command += ["--kube-version", KUBERNETES, "--set-json", f'image.repository="{IMAGE}"', *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def rendered(helm: Path) -> dict[str, str]:
    """All objects of the chart but the CRDs, by file."""
    done = template(helm, *ALL_OF_IT)
    done.check_returncode()
    objects = ["---\n" + text for text in done.stdout.split("---\n") if text.strip()]
    defaults = [text for text in objects if text.splitlines()[1].endswith(DEFAULTS)]
    rest = [text for text in objects if text not in defaults]
    return {"defaults.yaml": HEAD + "".join(defaults), "kai-solver.yaml": HEAD + "".join(rest)}


def crds() -> str:
    """The chart's CRDs in one file."""
    files = sorted((ROOT / "deploy" / "helm" / "kai-solver" / "crds").glob("*.yaml"))
    return HEAD + "".join("---\n" + path.read_text() for path in files)


if __name__ == "__main__":
    for name, text in (rendered(go_tool(HELM)) | {"crds.yaml": crds()}).items():
        (FOLDER / name).write_text(text)
