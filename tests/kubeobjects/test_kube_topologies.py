"""Topologies: their levels, and rules for their domains in fields and annotations."""

from typing import Any

import pytest

from kai_solver.domain import OneTenant, SpareNodes, TopologyLevel
from kai_solver.instances_io.anonymize import anonymize
from kai_solver.kubeobjects import objects_from_snapshot, snapshot_from_objects


def topology(*levels: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": "t"}
    return {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": metadata,
        "spec": {"levels": levels},
    }


def test_topology_levels_keep_order_and_alias(build: Any) -> None:
    written = topology({"nodeLabel": "block"}, {"nodeLabel": "rack", "alias": "r"})
    assert build.read(written).topologies[0].levels == (TopologyLevel("block"), TopologyLevel("rack", "r"))


@pytest.mark.parametrize(
    "written", [topology(), topology({"nodeLabel": "a"}, {"nodeLabel": "a"}), topology({"alias": "x"})]
)
def test_broken_topologies_are_set_aside(build: Any, written: dict[str, Any]) -> None:
    found = build.read(written)
    assert found.topologies == ()
    assert any(text.startswith("Topology t: ") for text in build.texts(found, "set-aside"))


LEVELS = ({"nodeLabel": "block"}, {"nodeLabel": "rack", "alias": "r"})


def ruled(**annotations: str) -> dict[str, Any]:
    written = topology(*LEVELS)
    written["metadata"]["annotations"] = {f"kai-solver/{key.replace('_', '-')}": v for key, v in annotations.items()}
    return written


@pytest.mark.parametrize(
    ("annotations", "rule"),
    [
        ({}, None),
        ({"one_tenant_at": "r"}, OneTenant("r", "queue")),
        ({"one_tenant_at": "block", "tenant": "namespace"}, OneTenant("block", "namespace")),
        ({"one_tenant_at": "rack", "tenant": "label:example.com/team"}, OneTenant("rack", "label:example.com/team")),
    ],
)
def test_a_topology_says_where_one_tenant_is_alone(
    build: Any, annotations: dict[str, str], rule: OneTenant | None
) -> None:
    found = build.read(ruled(**annotations))
    assert found.topologies[0].one_tenant == rule
    assert not build.texts(found, "warning")


NO_LEVEL = "kai-solver/one-tenant-at 'shelf' is not honoured: no level of it. Write one of block, r"
NO_KEY = (
    "kai-solver/tenant 'label:' is not honoured. Write queue, namespace, or label: and the key of a pod label; until "
    "then every queue is one"
)
NOWHERE = (
    "kai-solver/tenant says nothing without kai-solver/one-tenant-at. "
    "Write there the level whose domains have one tenant"
)


@pytest.mark.parametrize(
    ("annotations", "rule", "text"),
    [
        ({"one_tenant_at": "shelf"}, None, NO_LEVEL),
        ({"one_tenant_at": "r", "tenant": "label:"}, OneTenant("r"), NO_KEY),
        ({"tenant": "queue"}, None, NOWHERE),
    ],
)
def test_rules_of_topologies_that_cannot_be_are_told_and_the_rest_is_read(
    build: Any, annotations: dict[str, str], rule: OneTenant | None, text: str
) -> None:
    found = build.read(ruled(**annotations))
    assert [level.node_label for level in found.topologies[0].levels] == ["block", "rack"]
    assert found.topologies[0].one_tenant == rule
    assert f"Topology t: {text}" in list(build.texts(found, "warning"))


def test_a_topology_says_how_many_nodes_stay_free(build: Any) -> None:
    found = build.read(ruled(spare_nodes="r=2"))
    assert found.topologies[0].spares == SpareNodes("r", 2)
    assert not build.texts(found, "warning")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((value, f"{value!r} is not honoured. Write a level and how many nodes, as in rack=1")
          for value in ("", "r", "r=", "=2", "r=0", "r=-1", "r=two", "r=10000001")),
        ("shelf=1", "'shelf' is not honoured: no level of it. Write one of block, r"),
    ],
)  # fmt: skip
def test_spare_nodes_that_cannot_be_are_told(build: Any, value: str, text: str) -> None:
    found = build.read(ruled(spare_nodes=value))
    assert found.topologies[0].spares is None
    assert f"Topology t: kai-solver/spare-nodes {text}" in list(build.texts(found, "warning"))


def fielded(one_tenant: Any = None, spares: Any = None, **annotations: str) -> dict[str, Any]:
    """The same with fields of the spec."""
    written = ruled(**annotations)
    written["spec"] |= {"oneTenant": one_tenant, "spares": spares}
    return written


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({"one_tenant": {"level": "r"}}, (OneTenant("r"), None)),
        ({"one_tenant": {"level": "block", "tenant": "namespace"}}, (OneTenant("block", "namespace"), None)),
        ({"spares": {"level": "rack"}}, (None, SpareNodes("rack", 1))),
        ({"spares": {"level": "r", "nodes": 2}}, (None, SpareNodes("r", 2))),
        ({"one_tenant": {"level": "r"}, "one_tenant_at": "rack"}, (OneTenant("r"), None)),
        ({"spares": {"level": "r", "nodes": 2}, "spare_nodes": "rack=2"}, (None, SpareNodes("r", 2))),
        ({"spares": {"level": "r"}, "one_tenant_at": "block"}, (OneTenant("block"), SpareNodes("r", 1))),
    ],
)
def test_fields_of_a_topology_say_the_same_as_its_annotations(
    build: Any, fields: dict[str, Any], rules: tuple[OneTenant | None, SpareNodes | None]
) -> None:
    found = build.read(fielded(**fields))
    assert (found.topologies[0].one_tenant, found.topologies[0].spares) == rules
    assert not build.texts(found, "warning")


@pytest.mark.parametrize(
    ("fields", "rules", "text"),
    [
        (
            {"one_tenant": {"level": "r"}, "one_tenant_at": "block"},
            (OneTenant("r"), None),
            "spec.oneTenant and the annotation kai-solver/one-tenant-at differ, and the field counts. Remove the",
        ),
        (
            {"one_tenant": {"level": "r"}, "one_tenant_at": "r", "tenant": "namespace"},
            (OneTenant("r"), None),
            "spec.oneTenant and the annotation kai-solver/one-tenant-at differ",
        ),
        (
            {"spares": {"level": "r"}, "spare_nodes": "r=2"},
            (None, SpareNodes("r", 1)),
            "spec.spares and the annotation kai-solver/spare-nodes differ",
        ),
        ({"one_tenant": {"level": "shelf"}}, (None, None), "spec.oneTenant.level 'shelf' is not honoured: no level"),
        ({"one_tenant": {"level": "r", "tenant": "team"}}, (OneTenant("r"), None), "spec.oneTenant.tenant 'team' is"),
        ({"one_tenant": {"tenant": "queue"}}, (None, None), "spec.oneTenant.level: is missing"),
        ({"one_tenant": "r", "one_tenant_at": "r"}, (OneTenant("r"), None), "spec.oneTenant: 'r' is not an object"),
        ({"spares": {"level": "shelf"}}, (None, None), "spec.spares.level 'shelf' is not honoured: no level of it"),
        ({"spares": {"level": "r", "nodes": 0}}, (None, None), "spec.spares.nodes: keeps no node"),
        ({"spares": {"level": "r", "nodes": "2"}}, (None, None), "spec.spares.nodes: '2' is not a whole number"),
        ({"spares": {"level": "r", "nodes": -1}}, (None, None), "spec.spares.nodes: -1 is out of range"),
    ],
)
def test_fields_of_a_topology_win_and_what_cannot_be_is_told(
    build: Any, fields: dict[str, Any], rules: tuple[OneTenant | None, SpareNodes | None], text: str
) -> None:
    found = build.read(fielded(**fields))
    assert (found.topologies[0].one_tenant, found.topologies[0].spares) == rules
    (told,) = build.texts(found, "warning")
    assert told.startswith(f"Topology t: {text}")


def test_an_empty_level_is_not_one_without_an_alias(build: Any) -> None:
    found = build.read(ruled(one_tenant_at=""))
    assert found.topologies[0].one_tenant is None
    assert any("'' is not honoured: no level of it" in text for text in build.texts(found, "warning"))


def test_rules_in_fields_survive_an_export(build: Any) -> None:
    found = build.read(fielded({"level": "r", "tenant": "namespace"}, {"level": "r", "nodes": 2}))
    again = snapshot_from_objects(objects_from_snapshot(found), now_s=0.0)
    assert again.topologies == found.topologies != ()
    hidden = anonymize(found, b"salt").topologies[0]
    assert hidden.one_tenant is not None
    assert hidden.spares is not None
    assert (hidden.one_tenant.tenant, hidden.spares.nodes) == ("namespace", 2)
    assert hidden.level_index(hidden.one_tenant.level) == hidden.level_index(hidden.spares.level) == 1
