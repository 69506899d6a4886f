"""Builds the image, without a container engine: an OCI image in a folder and as an archive, with a list of its files.

::

    python deploy/image/build.py OUT [CACHE]

What it holds: the packages of Debian 12 that ``debian.txt`` names, as apt fetches and verifies them, and what
``install.sh`` installs. OUT gets ``oci`` (an OCI image layout), ``kai-solver.oci.tar`` (the same as one file),
``files.txt`` (mode, size, SHA-256 and path of every file), ``packages.json`` (of Debian and of Python), and ``digest``.
It needs Debian 12 with apt and Python 3.11, and no rights. The same packages give the same digest: times are
``SOURCE_DATE_EPOCH``, by itself the newest commit's. Layers of Debian and of Python's packages are kept in CACHE, where
one is named, and are taken from there while nothing of them changed.
"""

import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RELEASE, PYTHON = "bookworm", "3.11"
USER = 65532

CONFIG: dict[str, Any] = {
    "User": f"{USER}:{USER}",
    "ExposedPorts": {"8080/tcp": {}, "8081/tcp": {}, "9443/tcp": {}},
    "Env": [
        "PATH=/usr/bin",
        "PYTHONPATH=/opt/kai-solver:/opt/packages",
        "PYTHONUNBUFFERED=1",
        "PYTHONDONTWRITEBYTECODE=1",
        "OMP_NUM_THREADS=1",
        "KAI_SOLVER_KERNELS=/opt/kernels",
    ],
    "Entrypoint": ["/usr/bin/python3", "-P", "-m", "kai_solver"],
    "Cmd": ["controller", "--config", "/etc/kai-solver/settings.yaml"],
    "WorkingDir": "/",
}
"""How it is started. ``-P``: the folder that it is started in is none that modules come from."""

ACCOUNTS = {
    "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:{USER}:{USER}:nonroot:/tmp:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nnonroot:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
MOUNTED = (
    "etc/kai-solver",
    "etc/kai-solver-models",
    "etc/kai-solver-certificate",
    "run/lock",
    "run/secrets/kubernetes.io",
)
"""Where the chart, and the kubelet, mount something; not every runtime makes what is missing on a read-only system."""

LEFT_OUT = (
    "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian", "usr/share/python3", "usr/share/menu",
    "usr/lib/*-linux-gnu/gconv", "usr/lib/*-linux-gnu/perl*", "etc/update-motd.d", "etc/apt",
)  # fmt: skip
"""Of Debian's packages; of their documents, licences stay."""

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"


class CannotBuildError(Exception):
    """The image cannot be built here; says why, and the cure."""


def main(words: list[str]) -> int:
    """Build into the folder that is named."""
    if len(words) not in (1, 2):
        print("usage: build.py OUT [CACHE]", file=sys.stderr)
        return 2
    try:
        digest = build(*map(Path, words))
    except CannotBuildError as error:
        print(f"the image cannot be built: {error}", file=sys.stderr)
        return 1
    print(digest)
    return 0


def build(out: Path, cache: Path | None = None) -> str:
    """Build the image; its digest.

    Raises
    ------
    CannotBuildError
        This is not Debian 12, or something cannot be fetched.
    """
    _check()
    epoch = _epoch()
    shutil.rmtree(out, ignore_errors=True)
    about = {"compiled by": sys.version, "build.py": Path(__file__).read_text()}
    debian = {"uris": _apt("--print-uris"), **about}
    parts = [HERE / "install.sh", ROOT / "requirements" / "runtime.txt"]
    python = {part.name: part.read_text() for part in parts} | about
    layers = [  # the first two are alike in many releases, as their files have no times
        _layer(_debian, 0, cache, debian),
        _layer(partial(_python, "packages"), 0, cache, python),
        _layer(partial(_python, "kai-solver"), epoch, None, {}),
    ]
    layers.append(_layer(partial(_kernels, layers[1:]), epoch, None, {}))
    packages = {"debian": layers[0].packages, "python": layers[1].packages + layers[2].packages}
    _write(out / "packages.json", _json(packages))
    plain = [gzip.decompress(layer.packed) for layer in layers]
    _write(out / "files.txt", "".join(line for layer in plain for line in _listed(layer)).encode())
    digest = _layout(out / "oci", layers, plain, epoch)
    _write(out / "digest", f"{digest}\n".encode())
    _write(out / "kai-solver.oci.tar", _tar(out / "oci", epoch))
    return digest


@dataclass(frozen=True)
class Layer:
    """A packed layer, and the packages in it."""

    packed: bytes
    packages: list[dict[str, str]]


def _layer(
    fill: Callable[[Path, int], list[dict[str, str]]], epoch: int, cache: Path | None, depends: dict[str, str]
) -> Layer:
    """A layer of what ``fill`` puts into a folder, or the one that was made of the same before."""
    key = hashlib.sha256(_json(depends)).hexdigest()[:16]
    file = cache / f"{key}.tar.gz" if cache else None
    if file and file.is_file():
        return Layer(file.read_bytes(), json.loads(file.with_suffix(".json").read_text()))
    with tempfile.TemporaryDirectory(prefix="image-") as work:
        root = Path(work) / "root"
        root.mkdir()
        packages = fill(root, epoch)
        packed = gzip.compress(_tar(root, epoch), 6, mtime=0)
    if file:
        _write(file.with_suffix(".json"), _json(packages))
        _write(file, packed)
    return Layer(packed, packages)


def _check() -> None:
    release = Path("/etc/os-release")
    if not release.is_file() or f"VERSION_CODENAME={RELEASE}" not in release.read_text():
        raise CannotBuildError(f"this is not Debian 12 ({RELEASE}). Run it in a container or a machine of that")
    if platform.python_version_tuple()[:2] != tuple(PYTHON.split(".")):
        raise CannotBuildError(
            f"this is Python {platform.python_version()}, and the image has {PYTHON}. Run it with that"
        )
    missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    if missing or platform.machine() not in ARCHITECTURES:
        raise CannotBuildError(f"{', '.join(missing) or platform.machine()}: not there, or not known")


def _epoch() -> int:
    """Seconds of all times in the image."""
    stated = os.environ.get("SOURCE_DATE_EPOCH")
    if stated is None:
        done = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        stated = done.stdout.strip() or "0"
    return int(stated)


# -- Debian ------------------------------------------------------------------------------------------------------------


def _apt(option: str, folder: Path = HERE) -> str:
    names = [line for line in (HERE / "debian.txt").read_text().split("\n") if line and not line.startswith("#")]
    return _run(["apt-get", "download", "--quiet", option, *names], folder, cure="Run apt-get update, as root")


def _debian(root: Path, _epoch: int) -> list[dict[str, str]]:
    """Unpack Debian's packages; name, version and so on of each."""
    found = []
    with tempfile.TemporaryDirectory(prefix="debs-") as folder:
        Path(folder).chmod(0o755)  # apt fetches as a user of its own
        _apt("--yes", Path(folder))
        for file in sorted(Path(folder).glob("*.deb")):
            _run(["dpkg-deb", "--extract", str(file), str(root)], root)
            control = _run(["dpkg-deb", "--field", str(file)], root)
            fields = dict(line.split(": ", 1) for line in control.splitlines() if ": " in line and line[0] != " ")
            _write(root / "var/lib/dpkg/status.d" / fields["Package"], control.encode())  # where scanners look
            kept = {"name": "Package", "version": "Version", "architecture": "Architecture", "source": "Source"}
            entry = {key: fields[name] for key, name in kept.items() if name in fields}
            found.append(entry | {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()})
    _strip(root)
    return found


def _strip(root: Path) -> None:
    for pattern in LEFT_OUT:
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in sorted((root / "usr/share/doc").rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.name != "copyright":
            path.unlink()
    (root / "usr/bin/python3").symlink_to(f"python{PYTHON}")
    for name in ("run", "lock"):  # as Debian's own installation does
        (root / "var" / name).rmdir()
        (root / "var" / name).symlink_to("/run" if name == "run" else "/run/lock")
    for name in MOUNTED:
        (root / name).mkdir(parents=True)
    for name, text in ACCOUNTS.items():
        _write(root / name, text.encode())
    _compile(root / f"usr/lib/python{PYTHON}", f"/usr/lib/python{PYTHON}")


# -- Python ------------------------------------------------------------------------------------------------------------


def _python(part: str, root: Path, epoch: int) -> list[dict[str, str]]:
    """Install the locked packages, or kai-solver; name and version of each."""
    folder = root / "opt" / part
    folder.parent.mkdir()
    env = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    words = ["sh", str(HERE / "install.sh"), part, str(folder), sys.executable]
    _run(words, ROOT, env=env, cure="Is a package index reachable?")
    _compile(folder, f"/opt/{part}")
    report = folder.with_name(f"{part}.json")
    hashes: dict[str, str] = {}
    if report.is_file():
        for one in json.loads(report.read_text())["install"]:
            hashes[one["metadata"]["name"]] = one["download_info"]["archive_info"]["hashes"]["sha256"]
        report.unlink()
    found = []
    for package in distributions(path=[str(folder)]):
        name, about = package.metadata["Name"], package.metadata.json
        licence = str(about.get("license_expression") or next(iter(str(about.get("license", "")).splitlines()), ""))
        found.append({"name": name, "version": package.version, "license": licence, "sha256": hashes.get(name, "")})
    return sorted(found, key=lambda entry: entry["name"].lower())


def _kernels(layers: list[Layer], root: Path, _epoch: int) -> list[dict[str, str]]:
    """Compile kai-solver's kernels with the packages that the image has; no package is added."""
    with tempfile.TemporaryDirectory(prefix="packages-") as work:
        for layer in layers:
            with tarfile.open(fileobj=io.BytesIO(layer.packed)) as archive:
                archive.extractall(work, filter="data")
        paths = [str(Path(work) / "opt" / part) for part in ("kai-solver", "packages")]
        places = {"PYTHONPATH": os.pathsep.join(paths), "KAI_SOLVER_KERNELS": str(root / "opt" / "kernels")}
        env = {"PATH": os.environ.get("PATH", ""), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        _run([sys.executable, "-P", "-m", "kai_solver.compiled"], root, env=env | places)
    return []


def _compile(folder: Path, shown: str) -> None:
    """Compile modules, so that no start of a container has to; what is compiled depends on the source alone."""
    words = ["-q", "-j", "1", "--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", shown, str(folder)]
    env = {"PYTHONHASHSEED": "0", "PATH": os.environ.get("PATH", "")}
    subprocess.run([sys.executable, "-I", "-m", "compileall", *words], env=env, capture_output=True, check=False)


# -- layers and layout -------------------------------------------------------------------------------------------------


def _tar(folder: Path, epoch: int) -> bytes:
    """The folder as an archive that depends on names, modes and contents alone; everything is root's."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.mtime = epoch
            if path.is_symlink():
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
                archive.addfile(entry)
            elif path.is_dir():
                entry.type = tarfile.DIRTYPE
                entry.mode = 0o1777 if path.stat().st_mode & stat.S_ISVTX else 0o755
                archive.addfile(entry)
            else:
                data = path.read_bytes()
                entry.size, entry.mode = len(data), 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
                archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def _listed(layer: bytes) -> Iterator[str]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        for entry in archive:
            data = archive.extractfile(entry) if entry.isfile() else None
            shown = (
                hashlib.sha256(data.read()).hexdigest() if data else f"-> {entry.linkname}" if entry.issym() else "/"
            )
            yield f"{entry.mode:04o} {entry.size} {shown} /{entry.name}\n"


def _layout(folder: Path, layers: Iterable[Layer], plain: Iterable[bytes], epoch: int) -> str:
    """An OCI image layout of one image; the digest of its manifest."""
    architecture = ARCHITECTURES[platform.machine()]
    created = f"{_run(['date', '-u', '-d', f'@{epoch}', '+%Y-%m-%dT%H:%M:%SZ'], ROOT).strip()}"
    config = {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": CONFIG | {"Labels": {"org.opencontainers.image.version": _version()}},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in plain]},
        "history": [
            {"created": created, "created_by": name} for name in ("debian.txt", "install.sh", "kai-solver", "kernels")
        ],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _blob(folder, _json(config), _CONFIG),
        "layers": [_blob(folder, layer.packed, _LAYER) for layer in layers],
    }
    named = _blob(folder, _json(manifest), _MANIFEST) | {
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": {"org.opencontainers.image.ref.name": _version()},
    }
    _write(folder / "index.json", _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [named]}))
    _write(folder / "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    return str(named["digest"])


def _blob(folder: Path, data: bytes, media_type: str) -> dict[str, Any]:
    digest = _digest(data)
    _write(folder / "blobs" / digest.replace(":", "/"), data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _version() -> str:
    lines = (ROOT / "kai_solver" / "__init__.py").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("__version__"))


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _run(command: list[str], folder: Path, *, env: dict[str, str] | None = None, cure: str = "") -> str:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuildError(f"{' '.join(command[:2])}: {(done.stderr or done.stdout).strip()[-2000:]}. {cure}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
