"""Raw Kubernetes objects to a `Snapshot` and back: pure functions, for both files and the cluster."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kai_solver.kubeobjects.assemble import snapshot_from_objects
    from kai_solver.kubeobjects.export import objects_from_snapshot
    from kai_solver.kubeobjects.kaisnapshot import export_kai_snapshot, load_kai_snapshot
    from kai_solver.kubeobjects.objects import KINDS, RawObjects, objects_from_documents, with_objects
    from kai_solver.kubeobjects.recall import Recall
    from kai_solver.kubeobjects.settings import KubeSettings
    from kai_solver.kubeobjects.shards import settings_from_objects
else:
    from kai_solver.errors.on_demand import exports_on_demand

    __getattr__ = exports_on_demand(
        __name__,
        {
            "assemble": ("snapshot_from_objects",),
            "export": ("objects_from_snapshot",),
            "kaisnapshot": ("export_kai_snapshot", "load_kai_snapshot"),
            "objects": ("KINDS", "RawObjects", "objects_from_documents", "with_objects"),
            "recall": ("Recall",),
            "settings": ("KubeSettings",),
            "shards": ("settings_from_objects",),
        },
    )

__all__ = [
    "KINDS",
    "KubeSettings",
    "RawObjects",
    "Recall",
    "export_kai_snapshot",
    "load_kai_snapshot",
    "objects_from_documents",
    "objects_from_snapshot",
    "settings_from_objects",
    "snapshot_from_objects",
    "with_objects",
]
