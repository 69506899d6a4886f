"""Programs that tests run and Go builds: pinned, built once into a cache that the next run finds again.

The cache is ``$KAI_SOLVER_CACHE``, else ``~/.cache/kai-solver``; each program is in ``tools/NAME/VERSION/NAME`` there.
``python -m tests.support.gotools helm kubernetes`` builds by hand, without names all of them.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BUILD_S = 1800.0
GO_LANGUAGE = "1.22"
"""Of our throwaway module; from 1.17 on modules that nothing is built from are not asked for."""


@dataclass(frozen=True, slots=True)
class GoTool:
    """A program.

    Attributes
    ----------
    module, version
        What is asked of the Go module proxy; the version is exact.
    package
        The ``main`` package within it, as it is imported.
    replaces
        (module, version) pairs that the program's own ``go.mod`` replaces: another module's does not count for us, so a
        staging module must be named with the version that is published.
    ldflags
        For the linker, for example ``-X`` with the version that the program should report.
    """

    name: str
    module: str
    version: str
    package: str
    replaces: tuple[tuple[str, str], ...] = ()
    ldflags: str = ""


@dataclass(frozen=True, slots=True)
class GoModule:
    """Programs that are built together from a module of ours, whose ``go.mod`` and ``go.sum`` pin everything.

    Attributes
    ----------
    folder
        Where ``go.mod``, ``go.sum`` and the files that import what is pinned are.
    programs
        Name of each program, and the ``main`` package that it is built from.
    tests_of
        A module that is pinned so: the programs are tests of its packages, by its own ``go.mod`` and ``go.sum``.
    """

    name: str
    version: str
    folder: Path
    programs: Mapping[str, str]
    ldflags: str = ""
    tests_of: str = ""


class ToolMissingError(Exception):
    """The program is not there and cannot be built; says why."""


HELM = GoTool("helm", "helm.sh/helm/v3", "v3.22.0", "helm.sh/helm/v3/cmd/helm")
KUBECONFORM = GoTool(
    "kubeconform", "github.com/yannh/kubeconform", "v0.8.0", "github.com/yannh/kubeconform/cmd/kubeconform"
)
_PLANE = Path(__file__).parents[1] / "cluster" / "plane"
_STAMP = "k8s.io/component-base/version.git"
KUBERNETES = GoModule(
    "kubernetes",
    "v1.34.4",
    _PLANE / "kubernetes",
    {
        "etcd": "go.etcd.io/etcd/server/v3",
        **{
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        },
    },
    f"-X {_STAMP}Version=v1.34.4 -X {_STAMP}Major=1 -X {_STAMP}Minor=34",
)
KWOK = GoModule("kwok", "v0.8.0", _PLANE / "kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"})
_DECIDES = Path(__file__).parents[1] / "kai" / "decides"
_WRITTEN = hashlib.sha256(
    b"".join((_DECIDES / name).read_bytes() for name in ("main.go", "tools.go", "go.mod", "go.sum"))
).hexdigest()[:8]
_KAIS = ("binder", "podgroupcontroller", "podgrouper", "queuecontroller", "scheduler")
KAI = GoModule(
    "kai",
    f"v0.12.0-{_WRITTEN}",
    _DECIDES,
    {"kai-decides": ".", **{f"kai-{name}": f"github.com/NVIDIA/KAI-scheduler/cmd/{name}" for name in _KAIS}},
)
KAI_SPECS = GoModule(
    "kai-specs",
    "v0.12.0",
    _DECIDES,
    {
        suite.rpartition("/")[2]: f"./test/e2e/suites/{suite}"
        for suite in (
            "allocate/applying_options",
            "allocate/elastic",
            "allocate/node_order",
            "allocate/predicates",
            "allocate/priority",
            "allocate/quota",
            "allocate/resources",
            "allocate/subgroups",
            "allocate/topology",
            "api/crds/podgroup",
            "api/events",
            "consolidation",
            "integrations/k8s_native",
            "integrations/third_party/generic_integration",
            "preempt",
            "reclaim",
        )
    },
    tests_of="github.com/NVIDIA/KAI-scheduler",
)
"""KAI's end-to-end specs, without those of workloads that need an operator (Kubeflow, Ray, Knative, Spark)."""

TOOLS: Mapping[str, GoTool | GoModule] = {
    tool.name: tool for tool in (HELM, KUBECONFORM, KUBERNETES, KWOK, KAI, KAI_SPECS)
}


def cache_folder() -> Path:
    """Where what was built once is found again."""
    stated = os.environ.get("KAI_SOLVER_CACHE")
    return Path(stated) if stated else Path.home() / ".cache" / "kai-solver"


def go_tool(tool: GoTool, cache: Path | None = None) -> Path:
    """Path of the program; it is built where it is not in the cache yet, by one process at a time.

    Raises
    ------
    ToolMissingError
        There is no Go, or the build failed.
    """
    folder = (cache or cache_folder()) / "tools" / tool.name / tool.version
    program = folder / tool.name
    if program.is_file():
        return program
    if not shutil.which("go"):
        raise ToolMissingError(f"{tool.name} {tool.version} is not in {folder} and there is no Go to build it")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        if not program.is_file():
            _build(tool, program)
    return program


def go_module(module: GoModule, cache: Path | None = None) -> Path:
    """Folder of the module's programs; those that are not in the cache yet are built, by one process at a time.

    Raises
    ------
    ToolMissingError
        There is no Go, or a build failed.
    """
    folder = (cache or cache_folder()) / "tools" / module.name / module.version
    if all((folder / name).is_file() for name in module.programs):
        return folder
    if not shutil.which("go"):
        raise ToolMissingError(f"{module.name} {module.version} is not in {folder} and there is no Go to build it")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        _build_module(module, folder)
    return folder


def _build_module(module: GoModule, folder: Path) -> None:
    """Build in a copy, so that Go can never change what is pinned."""
    with tempfile.TemporaryDirectory(prefix=f"build-{module.name}-") as work:
        for file in (module.folder / "go.mod", module.folder / "go.sum", *module.folder.glob("*.go")):
            shutil.copy(file, work)
        inside, verb = work, ["build"]
        if module.tests_of:
            _go(module, work, "mod", "download", module.tests_of, mode="readonly")
            inside = _go(module, work, "list", "-m", "-f", "{{.Dir}}", module.tests_of, mode="readonly").strip()
            verb = ["test", "-c"]
        for name, package in module.programs.items():
            if not (folder / name).is_file():
                built = folder / f".{name}.{os.getpid()}"
                _go(module, inside, *verb, *_build_words(module.ldflags, built, package), mode="readonly")
                built.replace(folder / name)


def _build_words(ldflags: str, target: Path, package: str) -> tuple[str, ...]:
    return "-trimpath", "-ldflags", f"-s -w {ldflags}".strip(), "-o", str(target), package


def _build(tool: GoTool, program: Path) -> None:
    """Build in a module of our own (``go install`` refuses programs with replacements), and move into place at once."""
    with tempfile.TemporaryDirectory(prefix=f"build-{tool.name}-") as work:
        (Path(work) / "go.mod").write_text(_module_file(tool))
        built = program.with_name(f".{tool.name}.{os.getpid()}")
        _go(tool, work, "get", f"{tool.package}@{tool.version}")
        _go(tool, work, "build", *_build_words(tool.ldflags, built, tool.package))
        built.replace(program)


def _module_file(tool: GoTool) -> str:
    replaces = "".join(f"replace {module} => {module} {version}\n" for module, version in tool.replaces)
    return f"module tools\n\ngo {GO_LANGUAGE}\n\nrequire {tool.module} {tool.version}\n\n{replaces}"


def _go(tool: GoTool | GoModule, work: str, *words: str, mode: str = "mod") -> str:
    """Run it; returns what it prints."""
    command = ["nice", "-n", "19", "go", *words] if shutil.which("nice") else ["go", *words]
    env = os.environ | {"GOWORK": "off", "CGO_ENABLED": "0", "GOFLAGS": f"-mod={mode} -buildvcs=false"}
    try:
        done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=BUILD_S, check=False)
    except subprocess.TimeoutExpired:
        raise ToolMissingError(f"{tool.name}: go {words[0]} took more than {BUILD_S:.0f} s") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise ToolMissingError(f"{tool.name}: go {words[0]} failed: {' / '.join(last)}")
    return done.stdout


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process builds this program; a process that dies gives its lock back."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(names: list[str]) -> int:
    """Build what is named, all where nothing is."""
    for name in names or TOOLS:
        try:
            tool = TOOLS[name]
            print(go_tool(tool) if isinstance(tool, GoTool) else go_module(tool))
        except ToolMissingError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
