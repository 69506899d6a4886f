"""Benchmark sets read from their files."""

from dataclasses import dataclass
from pathlib import Path

from kai_solver.errors import InputError
from kai_solver.instances_io import read_documents
from kai_solver.instances_io.bench_schema import BENCH_FORMAT, BenchDoc, EntryDoc
from kai_solver.instances_io.fields import validate


@dataclass(frozen=True, slots=True)
class BenchSet:
    """A set, and the folder that its files are relative to."""

    doc: BenchDoc
    folder: Path

    def entry(self, name: str) -> EntryDoc:
        """The entry of that name.

        Raises
        ------
        InputError
            There is none.
        """
        found = next((entry for entry in self.doc.entries if entry.name == name), None)
        if found is None:
            names = ", ".join(entry.name for entry in self.doc.entries)
            raise InputError(f"the set has no entry {name!r}", field="--generate", cure=f"It has {names}")
        return found


def read_set(path: Path) -> BenchSet:
    """Read a set.

    Raises
    ------
    InputError
        It is none; names file, field and cure.
    """
    if not path.is_file():
        raise InputError("is no file", file=str(path), cure="Give a benchmark set: docs/benchmarks.md shows one")
    [(name, document), *more] = read_documents(path)
    if more or document.get("format") != BENCH_FORMAT:
        raise InputError("is no benchmark set", file=name, field="format", cure=f"Write format: {BENCH_FORMAT}")
    return BenchSet(validate(BenchDoc, document, name), path.parent)
