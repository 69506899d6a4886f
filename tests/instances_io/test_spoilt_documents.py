"""Documents with a value replaced, removed or repeated: read or refused, and what is read survives a round trip."""

import copy
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from kai_solver.errors import InputError
from kai_solver.instances_io import Source, load_instance, native_from_snapshot, read_documents, snapshot_from_native
from kai_solver.instances_io.anonymize import anonymize
from kai_solver.instances_io.importers import importers
from kai_solver.instances_io.lints import lints

INSTANCES = Path(__file__).parents[2] / "instances"
CASES = (
    "cases/action_allocate/114_pod_affinity_and_anti_affinity_scheduling_makes_job_stay_pending.json",
    "cases/action_allocate/089_allocate_job_with_minsubgroup_elastic_phase_allocates_one_extra_member.json",
    "cases/integration_allocate/014_pending_pod_can_use_shared_dra_device.json",
)
SPOILT: tuple[Any, ...] = (
    None,
    -1,
    0,
    2**62,
    2**70,
    1e308,
    True,
    "",
    "x",
    [],
    {},
    [[]],
    {"a": 1},
    "-5",
    "1e999",
    "9Ei",
    [None],
)
REMOVED, REPEATED = object(), object()


def documents() -> list[dict[str, Any]]:
    found = []
    for name in CASES:
        [(_, case)] = read_documents(INSTANCES / name)
        found += [case, native_from_snapshot(load_instance(INSTANCES / name).snapshot)]
    for file in sorted((INSTANCES / "kai-snapshots").glob("*.zip"))[:1]:
        found.append(read_documents(file)[0][1])
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything inside ``value``."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in children for place in [(*path, key), *places(child, (*path, key))]]


def spoil(document: Any, place: tuple[Any, ...], by: object) -> None:
    for key in place[:-1]:
        document = document[key]
    if by is REMOVED:
        del document[place[-1]]
    elif by is REPEATED and isinstance(document, list):
        document.append(document[place[-1]])
    else:
        document[place[-1]] = None if by is REPEATED else by


@pytest.mark.slow
@pytest.mark.parametrize("index", range(len(documents())))
def test_a_spoilt_document_is_read_or_refused(index: int) -> None:
    whole = documents()[index]
    every, chance = places(whole), random.Random(index)
    for _ in range(150 if len(every) < 2000 else 30):
        document = copy.deepcopy(whole)
        spoil(document, chance.choice(every), chance.choice((*SPOILT, REMOVED, REPEATED)))
        importer = next((known for known in importers() if known.recognises(document)), None)
        if importer is None:
            continue
        try:
            snapshot = importer.load([("spoilt.json", document)], Source(Path("spoilt.json"))).snapshot
        except InputError:
            continue
        lints(snapshot)
        anonymize(snapshot)
        text = orjson.dumps(native_from_snapshot(snapshot))
        assert snapshot_from_native(orjson.loads(text)) == snapshot
