"""The published JSON Schemas; ``python -m kai_solver.instances_io.schemas instances/schema`` writes them."""

import sys
from pathlib import Path
from typing import Any

import orjson

from kai_solver.instances_io.bench_schema import bench_schema
from kai_solver.instances_io.history_schema import history_schema
from kai_solver.instances_io.native_schema import json_schema
from kai_solver.instances_io.planfile import plan_schema
from kai_solver.instances_io.scenario_schema import scenario_schema


def published_schemas() -> dict[str, dict[str, Any]]:
    """Schemas by file name."""
    return {
        "bench.schema.json": bench_schema(),
        "history.schema.json": history_schema(),
        "instance.schema.json": json_schema(),
        "plan.schema.json": plan_schema(),
        "scenario.schema.json": scenario_schema(),
    }


def write_schemas(folder: Path) -> None:
    """Write every schema into ``folder``."""
    for name, schema in published_schemas().items():
        (folder / name).write_bytes(orjson.dumps(schema, option=orjson.OPT_INDENT_2) + b"\n")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
