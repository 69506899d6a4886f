"""The pods that usually arrive, from a CSV file beside a model: columns as in openb's pod lists."""

import csv
from collections import Counter
from pathlib import Path

from kai_solver.errors import ModelFileError

SNAPSHOT = "snapshot"
"""In place of a file: the pods of the snapshot itself."""

COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")
PODS = "pods"
"""Optional column: how many pods a row stands for."""
_LARGEST_BYTES = 64 << 20


def read_usual(path: Path, model: str) -> list[dict[str, object]]:
    """Kinds of pods, most frequent first, at most a thousand of them.

    Raises
    ------
    ModelFileError
        The file of ``model`` cannot be read, lacks a column, or has a cell that is no number.
    """

    def refuse(problem: str, cure: str) -> ModelFileError:
        return ModelFileError(f"{path.name}: {problem}", file=model, field="leftover.usual", cure=cure)

    counts: Counter[tuple[str, ...]] = Counter()
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise refuse("is too large", "Give a CSV file of pods")
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            lacking = [name for name in COLUMNS[:4] if name not in (reader.fieldnames or ())]
            if lacking:
                raise refuse(f"has no column {lacking[0]}", f"Columns: {', '.join(COLUMNS)}, and {PODS} if you like")
            for row in reader:
                counts[tuple(row.get(name) or "" for name in COLUMNS)] += int(row.get(PODS) or "1")
            rows: list[dict[str, object]] = []
            for kind, pods in counts.most_common(1000):
                numbers = {name: int(text) for name, text in zip(COLUMNS[:4], kind, strict=False)}
                rows.append({**numbers, "gpu_spec": kind[4], PODS: float(pods)})
            return rows
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror}", f"Give a CSV file, or {SNAPSHOT!r}") from None
    except (ValueError, csv.Error) as error:
        raise refuse(str(error), "Give whole numbers") from None
