"""Fuzzing that is led by coverage, where atheris is installed: ``python -m tests.fuzz.guided instance``.

Targets: ``instance`` (bytes of a file), ``answer`` (bytes of an API server), ``values`` (strings of annotations,
quantities, expressions, times). Other words go to libFuzzer: ``-max_total_time=60 -seed=7``, a folder for what is new.
"""

import copy
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]

with atheris.instrument_imports(include=["kai_solver"]):
    from kai_solver.claims import lower
    from kai_solver.cluster.answers import parsed
    from kai_solver.errors import InputError
    from kai_solver.instances_io import Limits, load_instance
    from kai_solver.kubeobjects import KubeSettings, objects_from_documents, snapshot_from_objects

from tests.fuzz.hostile import Object, places, seeds

SMALL = Limits(max_bytes=1 << 20, max_objects=5_000, max_json_objects=5_000)
NOW_S = 1_790_000_000.0


def instance(data: bytes) -> None:
    """An instance, or an `InputError`."""
    with tempfile.NamedTemporaryFile() as file, suppress(InputError):
        file.write(data)
        file.flush()
        load_instance(file.name, limits=SMALL)


def answer(data: bytes) -> None:
    """JSON, or a `ValueError`; and what it lists is read."""
    with suppress(ValueError):
        found = parsed(data)
        listed = found.get("items") if isinstance(found, dict) else None
        values = listed if isinstance(listed, list) else [found]
        _read([value for value in values if isinstance(value, dict)])


def values(data: bytes) -> None:
    """A seed with one of its strings replaced."""
    drawn = atheris.FuzzedDataProvider(data)
    seed = seeds()[drawn.ConsumeIntInRange(0, len(seeds()) - 1)]
    known = [place for place in places(seed) if isinstance(_at(seed, place), str)]
    place = known[drawn.ConsumeIntInRange(0, len(known) - 1)]
    found = copy.deepcopy(seed)
    above: Any = found
    for key in place[:-1]:
        above = above[key]
    above[place[-1]] = drawn.ConsumeUnicodeNoSurrogates(400)
    _read([found])


def _read(found: list[Object]) -> None:
    raw = objects_from_documents([("a.yaml", value) for value in found])
    lower(snapshot_from_objects(raw, now_s=NOW_S, settings=KubeSettings(numa=True)))


def _at(value: Any, place: tuple[str | int, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


TARGETS: dict[str, Callable[[bytes], None]] = {"instance": instance, "answer": answer, "values": values}


def main() -> None:
    """Fuzz the target that is named first."""
    name, *words = sys.argv[1:]
    atheris.Setup([sys.argv[0], *words], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
