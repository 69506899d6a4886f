"""Every instance by hand loads, is clean, is small, and says what it is about."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kai_solver.instances_io.importers import Loaded
from kai_solver.instances_io.lints import lints

INSTANCES = Path(__file__).parents[2] / "instances"
SOLVER, FEATURES = (sorted((INSTANCES / folder).glob("*.yaml")) for folder in ("solver", "features"))
LAB = INSTANCES / "ai-lab-100-gpus.yaml"
FAMILIES = (
    "gang",
    "subgroup",
    "capacity",
    "limit",
    "quota",
    "entitlement",
    "priority",
    "topology",
    "units",
    "moves",
    "affinity",
    "spread",
    "ports",
    "placement",
)

every_instance = pytest.mark.parametrize("path", [LAB, *SOLVER, *FEATURES], ids=lambda path: path.stem)


@every_instance
def test_loads_whole_and_lints_clean(path: Path, read: Callable[[Path], Loaded]) -> None:
    """But for what is told of gangs that are expected to wait, and of their queues, or is for information alone."""
    loaded = read(path)
    waiting = waiting_of(loaded)
    found = {lint.object for lint in lints(loaded.snapshot) if lint.severity != "info"}
    assert {notice.object for notice in loaded.snapshot.notices} | found <= waiting


def waiting_of(loaded: Loaded) -> set[str]:
    """Gangs that are expected to wait and their queues, as notices and lints call them."""
    pending = loaded.expect.pending if loaded.expect is not None else None
    names = set(pending) if isinstance(pending, tuple) else set()
    gangs = [gang for gang in loaded.snapshot.gangs if gang.name in names]
    return {f"gang {gang.key}" for gang in gangs} | {f"queue {gang.queue}" for gang in gangs}


@every_instance
def test_is_called_like_its_file_and_states_an_expectation(path: Path, read: Callable[[Path], Loaded]) -> None:
    loaded = read(path)
    assert loaded.snapshot.name == path.stem
    assert loaded.expect is not None
    assert loaded.expect.placed is not None


@every_instance
def test_every_expected_gang_exists(path: Path, read: Callable[[Path], Loaded]) -> None:
    loaded = read(path)
    assert loaded.expect is not None
    gangs = {name for gang in loaded.snapshot.gangs for name in (gang.name, gang.key)}
    for named in (loaded.expect.placed, loaded.expect.pending, loaded.expect.proven):
        assert not isinstance(named, tuple) or set(named) <= gangs


@pytest.mark.parametrize("path", SOLVER, ids=lambda path: path.stem)
def test_solver_instances_are_small_and_explained(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 60
    assert lines[0].startswith("# ")


@pytest.mark.parametrize("path", FEATURES, ids=lambda path: path.stem)
def test_feature_instances_are_tiny_and_say_what_they_are_about(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 40
    assert lines[0].startswith("# ")
    family = path.stem.partition("-")[0]
    assert family not in FAMILIES or lines[0].startswith(f"# {family}: ")


def test_every_family_has_a_pair() -> None:
    families = [path.stem.partition("-")[0] for path in FEATURES]
    assert [family for family in FAMILIES if families.count(family) < 2] == []
