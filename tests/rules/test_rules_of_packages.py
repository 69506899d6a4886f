"""Rules and checks of packages that cannot be used: the error names the package and the cure, and nothing goes on."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from types import SimpleNamespace
from typing import Any

import pytest

from kai_solver.check.optional import GROUP, Check, installed_checks
from kai_solver.domain import RULE_GROUP, loaded_rule, rule_names, setting_fault
from kai_solver.engine import cycle
from kai_solver.errors import InputError
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model
from kai_solver.problem.rules import Rule, installed_rules
from tests.conftest import Caught


class Mistaken(Rule):
    """A rule that fails on every setting."""

    name = kind = "mistaken"

    def setting_fault(self, text: str, /) -> str:
        raise LookupError(text)


MISTAKEN = Mistaken()
NAMELESS = Check()

CACHES = (rule_names, loaded_rule, installed_rules, installed_checks)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Installs a package ``lab`` with entry points of a group, by name."""

    def installed(group: str, **points: str) -> None:
        found = EntryPoints(
            EntryPoint(name, value, group)._for(SimpleNamespace(name="lab"))  # type: ignore[attr-defined]
            for name, value in points.items()
        )
        for module in ("kai_solver.domain.rules", "kai_solver.check.optional"):
            monkeypatch.setattr(f"{module}.entry_points", found.select)
        for cached in CACHES:
            cached.cache_clear()

    yield installed
    monkeypatch.undo()
    for cached in CACHES:
        cached.cache_clear()


HERE = "tests.rules.test_rules_of_packages"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("lab-rule", "no_such_module:RULE", "cannot be loaded: ModuleNotFoundError"),
        ("lab-rule", f"{HERE}:MISTAKEN", "is not a Rule of that name"),
        ("spares", f"{HERE}:MISTAKEN", "has the name of another rule"),
    ],
)
def test_a_rule_that_cannot_be_used_names_its_package(install: Any, name: str, value: str, why: str) -> None:
    install(RULE_GROUP, **{name: value})
    with pytest.raises(InputError, match=f"'{name}' in {RULE_GROUP} of package lab {why}.*Mend or remove the package"):
        installed_rules()


@pytest.mark.parametrize(
    ("value", "why"), [("no_such_module:CHECK", "cannot be loaded"), (f"{HERE}:NAMELESS", "is not")]
)
def test_a_check_that_cannot_be_used_names_its_package(install: Any, value: str, why: str) -> None:
    install(GROUP, lab=value)
    with pytest.raises(InputError, match=f"'lab' in {GROUP} of package lab {why}.*Mend or remove the package"):
        installed_checks()


@pytest.mark.parametrize("group", [RULE_GROUP, GROUP])
def test_a_cycle_with_a_broken_package_does_nothing_and_says_why(
    install: Any, faults: list[Caught], group: str
) -> None:
    install(group, lab="no_such_module:RULE")
    gang = {"name": "g", "queue": "q", "pods": [{"gpus": 1}]}
    nodes, queues = [{"name": "n", "gpus": 1}], [{"name": "q", "quota": 1}]
    snapshot = snapshot_from_native({"format": "kai-solver/v1", "nodes": nodes, "queues": queues, "gangs": [gang]})
    plan = cycle(snapshot, load_model("greedy-only"))
    assert (plan.binds, len(plan.pending)) == ((), 1)
    assert "of package lab cannot be loaded" in plan.pending[0].message
    assert {(caught.where, caught.what) for caught in faults} == {("deciding", "the cycle")}


def test_a_rule_that_fails_on_a_setting_is_reported_with_it(install: Any) -> None:
    install(RULE_GROUP, mistaken=f"{HERE}:MISTAKEN")
    assert "the rule cannot read it (LookupError: 8)" in setting_fault("mistaken", "8")
