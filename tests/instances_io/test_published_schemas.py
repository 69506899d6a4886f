"""The published JSON Schemas are those of the code, and accept what the code writes."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from kai_solver.instances_io import load_instance, native_from_snapshot
from kai_solver.instances_io.schemas import published_schemas, write_schemas
from tests.support.schemas import check_schema, violations

INSTANCES = Path(__file__).parents[2] / "instances"


@pytest.mark.parametrize("name", published_schemas())
def test_published_schemas_are_current(name: str) -> None:
    published = orjson.loads((INSTANCES / "schema" / name).read_bytes())
    assert published == published_schemas()[name], "python -m kai_solver.instances_io.schemas instances/schema"


@pytest.mark.slow
@pytest.mark.parametrize("name", published_schemas())
def test_published_schemas_are_schemas(name: str) -> None:
    schema = published_schemas()[name]
    check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert violations({}, schema), "accepts an empty document"


def test_schemas_are_written_as_published(tmp_path: Path) -> None:
    write_schemas(tmp_path)
    for name in published_schemas():
        assert (tmp_path / name).read_bytes() == (INSTANCES / "schema" / name).read_bytes()


@pytest.mark.parametrize(
    "case", ["action_allocate/045_*.json", "action_reclaim/000_*.json", "integration_allocate/014_*"]
)
def test_what_is_written_follows_the_schema(case: str) -> None:
    [file] = (INSTANCES / "cases").glob(case)
    schema = published_schemas()["instance.schema.json"]
    written = native_from_snapshot(load_instance(file).snapshot)
    assert violations(written, schema) == []
    assert violations(written | {"nodes": [{"gpus": -1}]}, schema)


def test_shorthands_of_hand_writing_follow_the_schema() -> None:
    document: dict[str, Any] = {
        "format": "kai-solver/v1",
        "nodes": [{"name": "n-{i}", "count": 2, "gpus": 8, "memory": "1Ti", "cpu": "96", "gpuMemory": "80Gi"}],
        "queues": [{"name": "a", "quota": 8, "limit": "unlimited", "weight": 2, "created": "7h"}],
        "topologies": [{"name": "t", "levels": ["rack", {"label": "kubernetes.io/hostname", "alias": "host"}]}],
        "gangs": [{"name": "g", "queue": "a", "created": "5m", "pods": [{"gpus": 0.5, "replicas": 2}]}],
    }
    schema = published_schemas()["instance.schema.json"]
    assert violations(document, schema) == []
    assert violations(document | {"gngs": []}, schema)
