"""An importer: a lab's own way to write down its benches of GPUs and who wants how many."""

from collections.abc import Mapping, Sequence
from typing import Any

from kai_solver.errors import InputError
from kai_solver.instances_io import Loaded, Source, load_native


class BenchImporter:
    """Reads ``{"benches": {"left": 8}, "wishes": {"alice": 4}}``."""

    name = "lab-benches"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        """Whether it is one of ours."""
        return "benches" in document and "wishes" in document

    def load(self, documents: Sequence[tuple[str, dict[str, Any]]], source: Source) -> Loaded:
        """Write the benches as a native instance and read that."""
        file, document = documents[0]
        if not isinstance(document["benches"], dict):
            raise InputError("is no mapping", file=file, field="benches", cure="Write bench: GPUs")
        native = {
            "format": "kai-solver/v1",
            "nodes": [{"name": name, "gpus": gpus} for name, gpus in document["benches"].items()],
            "queues": [{"name": "lab", "quota": -1}],
            "gangs": [
                {"name": name, "queue": "lab", "pods": [{"gpus": gpus}]} for name, gpus in document["wishes"].items()
            ],
        }
        return Loaded(load_native(native, file, now_s=source.now_s).snapshot, self.name)
