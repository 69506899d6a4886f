"""Rules for whole domains in the fields of a Topology on a real API server: its schema judges them, the plan obeys."""

from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.resources import TOPOLOGIES
from tests.cluster.plane.cluster import Cluster
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import wait_for
from tests.cluster.plane.test_sharing import condition

RACK = "example.org/rack"
LEVELS = [{"nodeLabel": RACK, "alias": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
RULES = {"oneTenant": {"level": "rack"}, "spares": {"level": RACK, "nodes": 1}}


def topology(cluster: Cluster, **fields: Any) -> Object:
    body = {"apiVersion": TOPOLOGIES.api_version, "kind": "Topology", "metadata": {"name": "racks"}}
    return cluster.plane.api.create(TOPOLOGIES, "", body | {"spec": {"levels": LEVELS, **fields}})


def rack(cluster: Cluster, name: str) -> str:
    (found,) = cluster.bound(name)
    return str(found["spec"]["nodeName"])[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"oneTenant": {"level": "shelf"}}, "oneTenant.level must be the nodeLabel or alias of a level"),
        ({"spares": {"level": "shelf"}}, "spares.level must be the nodeLabel or alias of a level"),
        ({"oneTenant": {"level": "rack", "tenant": "team"}}, "spec.oneTenant.tenant"),
        ({"spares": {"level": "rack", "nodes": 0}}, "spec.spares.nodes"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_by_the_schema(
    make_cluster: Make, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ApiError, match=message):
        topology(make_cluster(), **fields)


def test_racks_have_one_tenant_and_keep_a_node_as_the_fields_say(make_cluster: Make) -> None:
    cluster = make_cluster()
    assert topology(cluster, **RULES)["spec"] == {"levels": LEVELS, **RULES}
    cluster.queues(research=32, product=32)
    for name in ("a-0", "a-1", "b-0", "b-1"):
        cluster.node(name, 8, **{RACK: name[0]})
    cluster.wait_nodes(4)
    cluster.controller()
    cluster.pod("research-0", "research", 8)
    cluster.wait_bound(1, "research-0")
    cluster.pod("product-0", "product", 8)
    cluster.wait_bound(1, "product-0")
    assert rack(cluster, "product-0") != rack(cluster, "research-0")
    cluster.pod("research-1", "research", 8)
    wait_for("it is told the spare", lambda: "were spares: " in condition(cluster, "research-1").get("message", ""))
    told = condition(cluster, "research-1")["message"]
    assert f"{rack(cluster, 'research-0')} keeps 1 free" in told
    assert "used by queue product" in told
    cluster.pod("research-2", "research", 8, annotations={"kai-solver/may-use-spares": "true"})
    cluster.wait_bound(1, "research-2")
    assert rack(cluster, "research-2") == rack(cluster, "research-0")
    assert cluster.stays_pending("research-1")
