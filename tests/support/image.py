"""The image, built once for the sources as they are, and commands that start it in a user namespace.

The cache is that of `tests.support.gotools`: ``image/HASH`` there has what ``deploy/image/build.py`` writes, and
``root``, its layers unpacked. ``python -m tests.support.image`` builds by hand; as root it installs the Debian packages
that are missing before.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.gotools import ToolMissingError, cache_folder, locked

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "deploy" / "image" / "build.py"
PARTS = ("deploy/image", "kai_solver", "models", "instances/schema", "instances/topologies", "requirements")
FILES = ("pyproject.toml", "README.md", "LICENSE")
BUILD_S = 1800.0
STATED = "KAI_SOLVER_IMAGE"
"""Environment variable: folder of an image that is there, to be tested in place of a new one."""

KEPT = 3
"""Images that stay in the cache."""

DEBIAN = {"bwrap": "bubblewrap", "umoci": "umoci"}
"""Programs of the tests, and the packages that they are in."""


def sources() -> Iterator[Path]:
    """Files that an image is made of."""
    yield from (ROOT / name for name in FILES)
    for part in PARTS:
        found = (path for path in (ROOT / part).rglob("*") if path.is_file())
        yield from sorted(path for path in found if "__pycache__" not in path.parts)


def image() -> Path:
    """Folder of the image of the sources as they are; built where it is not there yet, by one process at a time.

    Raises
    ------
    ToolMissingError
        It cannot be built here; says why.
    """
    if os.environ.get(STATED):
        return Path(os.environ[STATED])
    digest = hashlib.sha256()
    for path in sources():
        digest.update(f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    cache = cache_folder() / "image"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / digest.hexdigest()[:16]
    with locked(cache / ".lock"):
        if not folder.is_dir():
            _forget(cache)
            _make(folder)
    return folder


def _make(folder: Path) -> None:
    begun = folder.with_name(f"begun.{os.getpid()}")
    shutil.rmtree(begun, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, str(BUILD), str(begun), str(folder.parent / "layers")],
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if done.returncode:
        raise ToolMissingError(done.stderr.strip())
    for layer in layers(begun):
        with tarfile.open(layer) as archive:
            archive.extractall(begun / "root", filter="tar")
    begun.replace(folder)


def _forget(cache: Path) -> None:
    """Remove images of older sources."""
    found = sorted(
        (path for path in cache.iterdir() if (path / "digest").is_file()), key=lambda path: path.stat().st_mtime
    )
    for path in found[: -KEPT + 1]:
        shutil.rmtree(path)


def blob(folder: Path, digest: str) -> Path:
    """A file of the layout, by its digest."""
    return folder / "oci" / "blobs" / digest.replace(":", "/")


def manifest(folder: Path) -> dict[str, Any]:
    """The manifest of the only image of the layout."""
    index = json.loads((folder / "oci" / "index.json").read_text())
    (named,) = index["manifests"]
    found: dict[str, Any] = json.loads(blob(folder, named["digest"]).read_text())
    return found


def config(folder: Path) -> dict[str, Any]:
    """How the image is started."""
    found: dict[str, Any] = json.loads(blob(folder, manifest(folder)["config"]["digest"]).read_text())
    return found


def layers(folder: Path) -> list[Path]:
    """Its layers, the lowest first."""
    return [blob(folder, layer["digest"]) for layer in manifest(folder)["layers"]]


def command(
    folder: Path, words: tuple[str, ...], env: Mapping[str, str] | None = None, mounts: Mapping[Path, str] | None = None
) -> list[str]:
    """What starts the image as a container runtime would: its user, its environment, read-only, without capabilities.

    The network is this machine's. ``words`` take the place of the image's ``Cmd``; ``mounts``: files and folders of
    this machine, and where they are in the container.

    Raises
    ------
    ToolMissingError
        There is no bubblewrap, or it may make no user namespace.
    """
    if shutil.which("bwrap") is None:
        raise ToolMissingError("bwrap is not there (Debian: apt-get install bubblewrap)")
    tried = subprocess.run(
        ["bwrap", "--unshare-user", "--ro-bind", "/", "/", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        raise ToolMissingError(f"bubblewrap cannot make a user namespace: {tried.stderr.strip()}")
    stated = config(folder)["config"]
    user, _, group = stated["User"].partition(":")
    apart = ("user", "pid", "ipc", "uts", "cgroup-try")
    found = ["bwrap", *(f"--unshare-{name}" for name in apart), "--uid", user, "--gid", group, "--cap-drop", "ALL"]
    found += ["--die-with-parent", "--new-session", "--clearenv"]
    found += ["--ro-bind", str(folder / "root"), "/"]
    found += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", stated["WorkingDir"]]  # noqa: S108
    for here, there in (mounts or {}).items():
        found += ["--ro-bind", str(here), there]
    for name, value in (dict(line.split("=", 1) for line in stated["Env"]) | dict(env or {})).items():
        found += ["--setenv", name, value]
    return [*found, *stated["Entrypoint"], *(words or stated["Cmd"])]


def main() -> int:
    """Install what is missing, as root; build."""
    missing = [package for program, package in DEBIAN.items() if shutil.which(program) is None]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        for words in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
            subprocess.run(["apt-get", "--quiet=2", *words], stdout=subprocess.DEVNULL, check=False)
    try:
        print(image())
    except ToolMissingError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
