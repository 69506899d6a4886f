"""Cycles with a memo: the plans are those of cycles without, whatever was planned before."""

from dataclasses import replace
from pathlib import Path

import pytest

from kai_solver.domain import Plan, Snapshot
from kai_solver.engine import Engine, cycle
from kai_solver.instances_io import load_instance
from kai_solver.modelfiles import load_model

INSTANCES = Path(__file__).parents[2] / "instances"
GREEDY = load_model("greedy-only")


def timeless(plan: Plan) -> Plan:
    return replace(plan, timing_s={})


def moments(folder: str) -> list[Snapshot]:
    """Every instance of a folder, then without its first gang, then as before."""
    found = [load_instance(path).snapshot for path in sorted((INSTANCES / folder).rglob("*.*")) if path.suffix != ".md"]
    return [
        moment for snapshot in found for moment in (snapshot, replace(snapshot, gangs=snapshot.gangs[1:]), snapshot)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["features", "behaviour"])
def test_one_memo_for_many_clusters(folder: str) -> None:
    snapshots = moments(folder)
    with Engine(GREEDY) as engine:
        for snapshot in snapshots:
            assert timeless(engine.cycle(snapshot, budget_s=60.0)) == timeless(cycle(snapshot, GREEDY, budget_s=60.0))
    assert len(snapshots) > 20


def test_the_memo_is_the_callers_to_choose() -> None:
    snapshot = load_instance(INSTANCES / "ai-lab-100-gpus.yaml").snapshot
    with Engine(GREEDY) as engine:
        alone = engine.cycle(snapshot, budget_s=60.0, memo=None)
        assert timeless(engine.cycle(snapshot, budget_s=60.0)) == timeless(alone)
