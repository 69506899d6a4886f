"""Files: instances of every kind into snapshots, and snapshots and plans into files."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kai_solver.instances_io.cases import CASE_NOW_S, CaseFile, load_case
    from kai_solver.instances_io.importers import Importer, Loaded, Source
    from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits
    from kai_solver.instances_io.load import load_instance
    from kai_solver.instances_io.native import NativeInstance, load_native, snapshot_from_native
    from kai_solver.instances_io.native_write import native_from_snapshot
    from kai_solver.instances_io.reader import read_documents
    from kai_solver.instances_io.validate import sanitize
else:
    from kai_solver.errors.on_demand import exports_on_demand

    __getattr__ = exports_on_demand(
        __name__,
        {
            "cases": ("CASE_NOW_S", "CaseFile", "load_case"),
            "importers": ("Importer", "Loaded", "Source"),
            "limits": ("DEFAULT_LIMITS", "Limits"),
            "load": ("load_instance",),
            "native": ("NativeInstance", "load_native", "snapshot_from_native"),
            "native_write": ("native_from_snapshot",),
            "reader": ("read_documents",),
            "validate": ("sanitize",),
        },
    )

__all__ = [
    "CASE_NOW_S",
    "DEFAULT_LIMITS",
    "CaseFile",
    "Importer",
    "Limits",
    "Loaded",
    "NativeInstance",
    "Source",
    "load_case",
    "load_instance",
    "load_native",
    "native_from_snapshot",
    "read_documents",
    "sanitize",
    "snapshot_from_native",
]
