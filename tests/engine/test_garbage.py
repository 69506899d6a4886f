"""Cycles leave nothing to the garbage collector: it hardly ever looks at what they made."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kai_solver.engine import Engine
from kai_solver.instances_io import load_instance
from kai_solver.lab.bench.steady import next_moment
from kai_solver.modelfiles import load_model
from tests.support.garbage import left_to_the_collector, ours

INSTANCES = Path(__file__).parents[2] / "instances"
FILES = (
    "ai-lab-100-gpus.yaml",
    "features/affinity-a-rack-for-each-replica.yaml",
    "features/claims-shared-devices-are-freed-together.yaml",
    "features/gpus-a-move-makes-a-row.yaml",
    "features/numa-a-move-frees-a-zone.yaml",
    "behaviour/victims/one-victim-serves-two.json",
)


@pytest.fixture
def collected_by_hand() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("model", ["greedy-only", "default"])
def test_a_cycle_leaves_no_object_of_ours_to_the_collector(file: str, model: str) -> None:
    snapshot = load_instance(INSTANCES / file).snapshot
    with Engine(load_model(model)) as engine:
        engine.wait()
        engine.cycle(snapshot, budget_s=1.0)  # What is made once, and kept, is made here.
        with left_to_the_collector() as found:
            engine.cycle(snapshot, budget_s=1.0)
    assert ours(found) == set()


@pytest.mark.usefixtures("collected_by_hand")
def test_memory_does_not_grow_with_the_cycles_while_the_collector_rests() -> None:
    snapshot = load_instance(INSTANCES / "ai-lab-100-gpus.yaml").snapshot
    sizes = []
    with Engine(load_model("greedy-only")) as engine:
        for seed in range(30):
            plan = engine.cycle(snapshot)
            snapshot = next_moment(snapshot, plan, seed)
            sizes.append(len(gc.get_objects()))
    assert max(sizes[20:]) <= 1.05 * max(sizes[5:15])


def test_the_collector_is_on_again_after_a_cycle_and_has_nothing_frozen() -> None:
    with Engine(load_model("greedy-only")) as engine:
        engine.cycle(load_instance(INSTANCES / FILES[0]).snapshot)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
