"""What is deployed fits the code: rights, settings, metrics. Who changes one is told here what else to change."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from kai_solver.cluster import resources
from kai_solver.cluster.resources import Resource
from kai_solver.cluster.view import WATCHED
from kai_solver.controller.settings import ControllerSettings
from kai_solver.kubeobjects.owners import OWNER_KINDS
from tests.support import reference

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "kai-solver"
RULES = sorted((CHART / "files" / "rbac").glob("*.yaml"))
VERBS = {"page": "list", "watch": "watch", "get": "get", "create": "create", "patch": "patch", "delete": "delete"}
BESIDE = {"memory.py", "rest.py", "timing.py", "fenced.py", "embedded.py", "api.py"}
"""Implementations of the API, and the cluster in memory: they ask no API server for anything of their own accord."""

Right = tuple[str, str, str]
"""API group, resource with subresource, verb."""

# -- rights ------------------------------------------------------------------------------------------------------------


def watched() -> set[Right]:
    """What reflectors list and watch. Owners are known by kind alone: their plural is regular."""
    kinds = {(kind.group, kind.plural) for kind in WATCHED} | {
        (group, f"{kind.lower()}s") for group, kind in OWNER_KINDS
    }
    return {(group, plural, verb) for group, plural in kinds for verb in ("list", "watch")}


WEBHOOKS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
KAI = "scheduling.run.ai"
TOLD: set[Right] = {("", "pods/status", "patch"), (KAI, "podgroups", "patch")}
TOLD |= {(KAI, "podgroups/status", "patch"), (KAI, "queues/status", "patch")}

ANY_KIND: dict[tuple[str, str], set[Right]] = {
    ("reflector.py", "page"): watched(),
    ("reflector.py", "watch"): watched(),
    ("owner_resolver.py", "page"): set(),  # of kinds that are watched
    ("owner_resolver.py", "get"): set(),  # what the chart's value rbac.owners names: tests/deploy
    ("statuses.py", "patch"): TOLD,
    ("statuses.py", "get"): {("", "pods", "get"), (KAI, "podgroups", "get"), (KAI, "queues", "get")},
    ("statuses.py", "create"): {(KAI, "podgroups", "create")},
    ("keeping.py", "get"): {("admissionregistration.k8s.io", kind, "get") for kind in WEBHOOKS},
    ("keeping.py", "patch"): {("admissionregistration.k8s.io", kind, "patch") for kind in WEBHOOKS},
}
"""Calls whose kind is a variable, by module and method: what it may be."""


ASKED_TOO: dict[Right, Right] = {
    ("resource.k8s.io", "resourceclaims/status", "patch"): ("resource.k8s.io", "resourceclaims/binding", "patch")
}
"""What the API server asks for besides: where an allocation changes, a subresource that is none (Kubernetes 1.36)."""


BY_NAME: set[Right] = {("coordination.k8s.io", "leases", "list")}
"""Granted for names that follow from the values, and so not in files/rbac: tests/deploy."""


def called() -> set[Right]:
    """What the code asks the API server for."""
    found = {right for module in modules() for call in calls(module) for right in rights_of(module, call)}
    return found | {more for right, more in ASKED_TOO.items() if right in found}


def modules() -> list[Path]:
    found = [path for room in ("cluster", "controller") for path in (ROOT / "kai_solver" / room).rglob("*.py")]
    return [path for path in found if path.name not in BESIDE]


def calls(module: Path) -> Iterator[ast.Call]:
    """Calls of methods of whatever is named ``api``."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VERBS:
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if name.lstrip("_") == "api":
                yield node


def rights_of(module: Path, call: ast.Call) -> set[Right]:
    assert isinstance(call.func, ast.Attribute)
    first = call.args[0]
    name = first.id if isinstance(first, ast.Name) else first.attr if isinstance(first, ast.Attribute) else ""
    kind = getattr(resources, name, None) if name.isupper() else None
    if not isinstance(kind, Resource):
        known = ANY_KIND.get((module.name, call.func.attr))
        assert known is not None, f"{module.name}:{call.lineno}: which kinds? Name a Resource, or tell ANY_KIND here"
        return known
    (sub,) = [word.value for word in call.keywords if word.arg == "subresource"] or [ast.Constant("")]
    where = f"{module.name}:{call.lineno}: name the subresource where it is called"
    assert isinstance(sub, ast.Constant), where
    assert isinstance(sub.value, str), where
    return {(kind.group, f"{kind.plural}/{sub.value}".rstrip("/"), VERBS[call.func.attr])}


def granted() -> set[Right]:
    return {
        (group, resource, verb)
        for file in RULES
        for rule in yaml.safe_load(file.read_text())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.slow
def test_the_chart_grants_what_the_code_asks_for_and_no_more() -> None:
    assert {"more than needed": granted() - called(), "missing in files/rbac": called() - granted() - BY_NAME} == {
        "more than needed": set(),
        "missing in files/rbac": set(),
    }


def test_nothing_is_granted_by_a_star() -> None:
    assert not [right for right in granted() if "*" in right]


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.stem)
def test_every_right_to_change_something_says_what_for(file: Path) -> None:
    rules = re.split(r"^(?=- apiGroups)", file.read_text(), flags=re.MULTILINE)
    assert rules[0].startswith("#")
    silent = [rule for rule in rules[1:] if not re.search(r"verbs: \[list, watch\]", rule) and "#" not in rule]
    assert silent == []


# -- settings ----------------------------------------------------------------------------------------------------------

FROM_THE_RELEASE = {"namespace", "node_pool", "admission.service", "admission.secret", "admission.configuration"}
NOT_IN_A_POD = {"kubeconfig", "context"}


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def test_the_chart_has_every_setting_with_its_default() -> None:
    """But for admission, which needs the Service and the configurations that only the chart makes."""
    defaults = ControllerSettings(admission={"enabled": True}).model_dump(mode="json")  # type: ignore[arg-type]
    for name in FROM_THE_RELEASE | NOT_IN_A_POD:
        *parts, last = name.split(".")
        part = defaults
        for step in parts:
            part = part[step]
        del part[last]
    assert values()["settings"] == defaults


def test_the_schema_of_the_values_knows_every_setting_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["definitions"]["settings"]
    known = set(key_paths(schema))
    stated = {key for key in setting_keys(ControllerSettings()) if key not in FROM_THE_RELEASE | NOT_IN_A_POD}
    assert known == stated


def key_paths(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    assert schema["additionalProperties"] is False
    for name, below in schema["properties"].items():
        if below.get("type") == "object":
            yield from key_paths(below, f"{prefix}{name}.")
        else:
            yield prefix + name


def setting_keys(part: BaseModel, prefix: str = "") -> Iterator[str]:
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, BaseModel):
            yield from setting_keys(value, f"{prefix}{name}.")
        else:
            yield prefix + name


# -- metrics and tables ------------------------------------------------------------------------------------------------

METRIC = re.compile(r"\bkai_[a-z0-9_]+\b(?![./(])")
NAMING = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
        *(CHART / "files").glob("*.*"),
        *(CHART / "templates").glob("*"),
    ]
)


def metric_names() -> set[str]:
    exact = {name for metric in reference.metrics().values() for name in reference.scraped_names(metric)}
    families = {metric.describe()[0].name for metric in reference.metrics().values()}
    return exact | families


@pytest.mark.parametrize("file", NAMING, ids=lambda file: str(file.relative_to(ROOT)))
def test_metrics_that_are_named_exist(file: Path) -> None:
    named = set(METRIC.findall(file.read_text())) - {"kai_solver", "kai_scheduler"}
    assert {name for name in named if not name.endswith("_")} - metric_names() == set()


@pytest.mark.parametrize("name", sorted(reference.TABLES))
def test_tables_in_the_documentation_are_those_of_the_code(name: str) -> None:
    _, table, _ = reference.between(reference.page(name).read_text(), name)
    assert table == reference.TABLES[name](), "python -m tests.support.reference writes it anew"
