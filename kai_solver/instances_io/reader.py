"""Documents of a file or directory: JSON or YAML, packed or not, always under limits."""

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from kai_solver.errors import InputError, LimitExceededError
from kai_solver.errors.values import kind_of_value
from kai_solver.instances_io.json_text import parse_json
from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits
from kai_solver.instances_io.unpack import Member, read_members
from kai_solver.instances_io.yaml_text import parse_yaml

_SUFFIXES = {".json", ".yaml", ".yml", ".gz", ".zst"}
_ARCHIVE = ".zip"

Document = tuple[str, dict[str, Any]]
"""Where it was found (for messages), and the object."""


def read_documents(
    path: Path, limits: Limits = DEFAULT_LIMITS, *, faults: list[InputError] | None = None
) -> list[Document]:
    """Every object in ``path``; a directory is read with all below it, in the order of names.

    Parameters
    ----------
    faults
        Takes the errors of files of a directory that cannot be read; the others are read all the same. None: the
        first such file is an error. A directory of which no file can be read is one in any case.

    Raises
    ------
    InputError, LimitExceededError
        Named file, cure, and field where there is one; never another exception, whatever the bytes are. Limits hold
        for a directory as a whole: passing one is always an error.
    """
    if path.is_dir():
        return _read_directory(path, limits, faults)
    documents = [document for member in read_members(path, limits) for document in parse(member, limits)]
    if not documents:
        raise InputError(
            "is empty, or holds no objects", file=str(path), cure="Give an instance, a snapshot or Kubernetes objects"
        )
    return documents


def parse(member: Member, limits: Limits = DEFAULT_LIMITS) -> list[Document]:
    """Objects of one unpacked file.

    Raises
    ------
    InputError, LimitExceededError
        It is no JSON or YAML, exceeds a limit, or holds something else than objects.
    """
    bracketed = member.data.lstrip()[:1] in (b"{", b"[")
    values = _parse_bracketed(member, limits) if bracketed else parse_yaml(member.data, member.name, limits)
    objects = [item for value in values for item in (value if isinstance(value, list) else [value])]
    for item in objects:
        if not isinstance(item, dict):
            cure = "Give JSON or YAML with keys and values, as of kubectl get -o yaml"
            raise InputError(f"has {kind_of_value(item)} in place of an object", file=member.name, cure=cure)
    return [(member.name, item) for item in objects]


def _parse_bracketed(member: Member, limits: Limits) -> list[Any]:
    """JSON; or YAML in flow style, which starts with the same characters."""
    try:
        return [parse_json(member.data, member.name, limits)]
    except LimitExceededError:
        raise
    except InputError as error:
        if member.name.endswith((".yaml", ".yml")):
            return parse_yaml(member.data, member.name, limits)
        raise error from None


def _archive(file: Path) -> InputError:
    """Why an archive in a folder is not read: it is a cluster of its own."""
    return InputError("a snapshot (.zip) in a folder is not read", file=str(file), cure=as_kubernetes(str(file)))


def as_kubernetes(file: str) -> str:
    """How an instance becomes Kubernetes objects, which may lie beside others in a folder."""
    source = Path(file)
    target = source.with_name(f"{source.name.split('.')[0]}-objects.yaml")
    return f"Convert it: kai-solver convert {quote(file)} {quote(str(target))} --to kubernetes"


def _read_directory(path: Path, limits: Limits, faults: list[InputError] | None) -> list[Document]:
    every = sorted(file for file in path.rglob("*") if file.is_file())
    files = [file for file in every if file.suffix in _SUFFIXES]
    if faults is not None:
        faults.extend(_archive(file) for file in every if file.suffix == _ARCHIVE)
        if faults and not files:
            raise faults[0]
    if not files:
        raise InputError("holds no JSON or YAML file", file=str(path), cure="Give a directory of Kubernetes YAML")
    left, documents = limits.max_bytes, list[Document]()
    found: list[InputError] = []
    for file in files:
        try:
            members = read_members(file, replace(limits, max_bytes=left))
            left -= sum(len(member.data) for member in members)
            documents.extend([document for member in members for document in parse(member, limits)])
        except LimitExceededError:
            raise
        except InputError as error:
            found.append(error)
    if found and (faults is None or not documents):
        raise found[0]
    if faults is not None:
        faults.extend(found)
    return documents
