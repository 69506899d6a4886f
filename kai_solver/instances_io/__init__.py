"""Files: instances of every kind into snapshots, and snapshots and plans into files."""

from kai_solver.instances_io.cases import CASE_NOW_S, CaseFile, is_case, load_case
from kai_solver.instances_io.importers import Importer, Loaded, Source
from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits
from kai_solver.instances_io.load import load_instance
from kai_solver.instances_io.native import NativeInstance, load_native, snapshot_from_native
from kai_solver.instances_io.native_write import native_from_snapshot
from kai_solver.instances_io.reader import read_documents
from kai_solver.instances_io.validate import sanitize

__all__ = [
    "CASE_NOW_S",
    "DEFAULT_LIMITS",
    "CaseFile",
    "Importer",
    "Limits",
    "Loaded",
    "NativeInstance",
    "Source",
    "is_case",
    "load_case",
    "load_instance",
    "load_native",
    "native_from_snapshot",
    "read_documents",
    "sanitize",
    "snapshot_from_native",
]
