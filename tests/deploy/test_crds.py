"""Schemas of the kinds: what KAI's users write is accepted, what cannot be meant is not.

The API server's own judgement, CEL rules among it, is tested where one runs (tests/cluster).
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client

from kai_solver.cluster import resources
from kai_solver.cluster.resources import Resource
from tests.deploy.conftest import CHART
from tests.support import manifests
from tests.support.schemas import violations

FILES = sorted((CHART / "crds").glob("*.yaml"))
OURS = (resources.QUEUES, resources.POD_GROUPS, resources.TOPOLOGIES, resources.BIND_REQUESTS)


def crd(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "crds" / f"{name}.yaml").read_text())
    return found


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = crd(name)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def test_there_is_one_for_each_kind_of_ours() -> None:
    assert {path.stem for path in FILES} == {kind.name for kind in OURS}


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.name)
def test_it_is_the_kind_that_the_controller_watches(kind: Resource) -> None:
    spec = crd(kind.name)["spec"]
    (version,) = spec["versions"]
    assert (spec["group"], spec["names"]["plural"], spec["names"]["kind"]) == (kind.group, kind.plural, kind.kind)
    assert (spec["scope"] == "Namespaced", version["name"]) == (kind.namespaced, kind.version)
    assert version["subresources"] == {"status": {}}
    assert version["additionalPrinterColumns"]
    client.V1CustomResourceDefinition.model_validate(crd(kind.name))


def parts(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and all within it."""
    yield value
    for below in value.get("properties", {}).values():
        yield from parts(below)
    for name in ("items", "additionalProperties"):
        if isinstance(value.get(name), dict):
            yield from parts(value[name])


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.name)
def test_it_is_structural(kind: Resource) -> None:
    """As apiextensions asks: every part has a type, lists have items, and a part with rules has a message for each."""
    for part in parts(schema(kind.name)):
        assert "type" in part or part.get("x-kubernetes-int-or-string"), part
        assert part.get("type") != "array" or "items" in part
        assert all(rule["message"] for rule in part.get("x-kubernetes-validations", ()))
        if "pattern" in part:
            re.compile(part["pattern"])


RACKS = [{"nodeLabel": "example.org/rack", "alias": "rack"}]
AMOUNTS = {"quota": 2.5, "limit": -1, "overQuotaWeight": 0}
GOOD: list[tuple[str, dict[str, Any]]] = [
    ("queues.scheduling.run.ai", {"spec": {}}),
    ("queues.scheduling.run.ai", {"spec": {"priority": 5, "resources": {"gpu": AMOUNTS, "cpu": {}}}}),
    ("podgroups.scheduling.run.ai", {"spec": {"minMember": 0, "queue": "a", "preemptibility": ""}}),
    ("podgroups.scheduling.run.ai", {"spec": {"stalenessGracePeriod": "-1s", "schedulingBackoff": -1}}),
    (
        "podgroups.scheduling.run.ai",
        {"spec": {"minSubGroup": 1, "subGroups": [{"name": "a"}, {"name": "b", "parent": "a", "minMember": 2}]}},
    ),
    ("topologies.kai.scheduler", {"spec": {"levels": [{"nodeLabel": "example.org/rack", "alias": "rack"}]}}),
    (
        "topologies.kai.scheduler",
        {"spec": {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}},
    ),
    (
        "topologies.kai.scheduler",
        {"spec": {"levels": RACKS, "oneTenant": {"level": "rack"}, "spares": {"level": "rack"}}},
    ),
    (
        "topologies.kai.scheduler",
        {"spec": {"levels": RACKS, "oneTenant": {"level": "rack", "tenant": "label:example.com/team"}}},
    ),
    ("topologies.kai.scheduler", {"spec": {"levels": RACKS, "spares": {"level": "rack", "nodes": 2}}}),
    (
        "bindrequests.scheduling.run.ai",
        {"spec": {"podName": "p", "selectedNode": "n", "receivedGPU": {"count": 1, "portion": "0.50"}}},
    ),
]
BAD: list[tuple[str, dict[str, Any]]] = [
    ("queues.scheduling.run.ai", {"spec": {"resources": {"gpu": {"quota": "8"}}}}),
    ("queues.scheduling.run.ai", {"spec": {"resources": {"gpu": {"limit": -2}}}}),
    ("queues.scheduling.run.ai", {"spec": {"priority": 1.5}}),
    ("podgroups.scheduling.run.ai", {"spec": {"minMember": -1}}),
    ("podgroups.scheduling.run.ai", {"spec": {"preemptibility": "semi-preemptible"}}),
    ("podgroups.scheduling.run.ai", {"spec": {"schedulingBackoff": 2}}),
    ("podgroups.scheduling.run.ai", {"spec": {"subGroups": [{"minMember": 1}]}}),
    ("podgroups.scheduling.run.ai", {"spec": {"subGroups": [{"name": "Upper"}]}}),
    ("topologies.kai.scheduler", {"spec": {"levels": []}}),
    ("topologies.kai.scheduler", {"spec": {"levels": [{"nodeLabel": f"l{i}"} for i in range(17)]}}),
    ("topologies.kai.scheduler", {"spec": {"levels": [{"nodeLabel": "no label"}]}}),
    ("topologies.kai.scheduler", {}),
    *(
        ("topologies.kai.scheduler", {"spec": {"levels": RACKS, rule: stated}})
        for rule, stated in (
            ("oneTenant", {}),
            ("oneTenant", {"level": ""}),
            ("oneTenant", {"level": "rack", "tenant": "team"}),
            ("oneTenant", {"level": "rack", "tenant": "label:"}),
            ("spares", {"nodes": 1}),
            ("spares", {"level": "rack", "nodes": 0}),
            ("spares", {"level": "rack", "nodes": 1.5}),
            ("spares", {"level": "rack", "nodes": 10_000_001}),
        )
    ),
    ("bindrequests.scheduling.run.ai", {"spec": {"podName": "p"}}),
    ("bindrequests.scheduling.run.ai", {"status": {"phase": "Lost"}}),
]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_what_may_be_written_is_accepted(name: str, value: dict[str, Any]) -> None:
    assert violations(value, schema(name)) == []


@pytest.mark.parametrize(("name", "value"), BAD)
def test_what_cannot_be_meant_is_refused(name: str, value: dict[str, Any]) -> None:
    assert violations(value, schema(name))


def test_the_plain_file_has_them_all() -> None:
    assert (manifests.FOLDER / "crds.yaml").read_text() == manifests.crds(), (
        "python -m tests.support.manifests writes them anew"
    )
