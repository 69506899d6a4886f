"""Which files of a folder are instances to be measured, and what they are called for short."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from kai_solver.errors import InputError
from kai_solver.lab.bench.peers import is_peer_file

SUFFIXES = (".json", ".json.zst", ".yaml", ".yml", ".yaml.zst", ".zip")


def find_instances(paths: Iterable[Path]) -> Iterator[Path]:
    """Instance files, in order; folders are read one level deep, recorded outcomes of peers are passed over.

    Raises
    ------
    InputError
        A path does not exist, or a folder holds no instance.
    """
    for path in paths:
        if not path.exists():
            raise InputError("no such file or directory", file=str(path), cure="Name instances or folders of them")
        found = sorted(p for p in path.iterdir() if _is_instance(p)) if path.is_dir() else [path]
        if not found:
            raise InputError(
                "no instance in this folder", file=str(path), cure=f"Instances end in {', '.join(SUFFIXES)}"
            )
        yield from found


def _is_instance(path: Path) -> bool:
    return path.is_file() and path.name.endswith(SUFFIXES) and not is_peer_file(path)


def short_name(instance: str) -> str:
    """File name without its endings."""
    name = Path(instance).name
    for ending in (".zst", ".json", ".yaml", ".yml", ".zip"):
        name = name.removesuffix(ending)
    return name
