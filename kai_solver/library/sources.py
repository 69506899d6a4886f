"""What files, folders and benchmark sets hold to be run: instances, generators and scenarios."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from kai_solver.instances_io.reader import read_documents
from kai_solver.instances_io.scenario_schema import SCENARIO_FORMAT
from kai_solver.lab.bench import find_instances, is_set, read_set, short_name, source_of
from kai_solver.lab.runs import Generated, InstanceFile, ScenarioFile, Source, content_hash

_HEAD = 4096
"""Bytes of a file in which a scenario says that it is one."""


def sources_of(paths: Iterable[Path]) -> tuple[Source, ...]:
    """Everything that ``paths`` name, each once: files, the files of folders, the entries of benchmark sets.

    An entry of a set is drawn with each of its seeds. Sources of the same name get that of their folder before it.

    Raises
    ------
    InputError
        A path does not exist, a folder has no instance, or a set cannot be read.
    """
    every = (source for path in find_instances(paths) for source in _sources_of_file(path))
    found = list({repr(source): source for source in every}.values())
    of_name = Counter(name for name, _ in {_place(source) for source in found})
    return tuple(
        replace(source, name=f"{source.path.parent.name}/{source.name}")
        if not isinstance(source, Generated) and of_name[source.name] > 1
        else source
        for source in found
    )


def _place(source: Source) -> tuple[str, str]:
    """Name and what has it: draws of one file are one."""
    return source.name, repr(source.generator) if isinstance(source, Generated) else str(source.path)


def _sources_of_file(path: Path) -> Iterator[Source]:
    if is_set(path):
        yield from _entries(path)
    elif _is_scenario(path):
        yield ScenarioFile(short_name(path.name), path.resolve(), content_hash(path))
    else:
        yield InstanceFile(short_name(path.name), path.resolve(), content_hash(path))


def _entries(path: Path) -> Iterator[Source]:
    bench_set = read_set(path.resolve())
    return (source_of(bench_set, entry, draw) for entry in bench_set.doc.entries for draw in entry.seeds)


def _is_scenario(path: Path) -> bool:
    """A scenario says so in its first document."""
    if not path.is_file() or path.suffix not in (".yaml", ".yml", ".json"):
        return False
    with path.open("rb") as file:
        if SCENARIO_FORMAT.encode() not in file.read(_HEAD):
            return False
    [(_, document), *_] = read_documents(path)
    return document.get("format") == SCENARIO_FORMAT
