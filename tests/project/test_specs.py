"""Every end-to-end spec of KAI has a test on our control plane, or a reason why it cannot have one."""

from importlib import import_module
from pathlib import Path

PLANE = Path(__file__).parents[1] / "cluster" / "plane"


def test_every_spec_has_a_test_or_a_reason() -> None:
    for module in sorted(PLANE.glob("test_specs_*.py")):
        import_module(f"tests.cluster.plane.{module.stem}")
    specs = import_module("tests.cluster.plane.specs")
    lines = (PLANE / "specs.txt").read_text().splitlines()
    titles = {line for line in lines if not line.startswith("#")}
    assert len(titles) == 148
    shown, excused = set(specs.TITLES), set(specs.NOT_APPLYING)
    assert {"shown and excused": shown & excused, "unknown": (shown | excused) - titles} == {
        "shown and excused": set(),
        "unknown": set(),
    }
    assert titles - shown - excused == set()
