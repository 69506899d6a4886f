"""GPUs by resource claim: the devices that an allocation names are those with the best links."""

from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import GpuLink, Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.links import product_named
from kai_solver.modelfiles import load_model

DRIVER = "gpu.nvidia.com"
V100 = "Tesla V100-SXM2-32GB"


def device(gpu: int, product: str = V100) -> dict[str, Any]:
    """Named against the order of the driver, which is that of PCI addresses."""
    place = {"pcieBusID": f"0000:{gpu:02x}:00.0", "type": "gpu"}
    return {"name": f"gpu-{7 - gpu}", "attributes": place | {"productName": product}}


def cluster(*asked: int, product: str = V100, **more: Any) -> Snapshot:
    """A node of 8 GPUs; every pod asks for so many, each in a claim of its own."""
    document = {
        "format": "kai-solver/v1",
        "nodes": [{"name": "n0"}],
        "queues": [{"name": "q", "quota": 8}],
        "deviceClasses": [{"name": DRIVER, "selectors": [f'device.driver == "{DRIVER}"']}],
        "resourceSlices": [{"driver": DRIVER, "node": "n0", "devices": [device(gpu, product) for gpu in range(8)]}],
        "resourceClaimTemplates": [
            {"name": f"of-{count}", "requests": [{"name": "r", "deviceClass": DRIVER, "count": count}]}
            for count in range(1, 9)
        ],
        "gangs": [
            {"name": f"g{index}", "queue": "q", "pods": [{"claimTemplates": [f"of-{count}"]}]}
            for index, count in enumerate(asked)
        ],
    }
    return snapshot_from_native(document | more)


def planned(snapshot: Snapshot) -> Plan:
    plan = cycle(snapshot, load_model("greedy-only"), budget_s=5.0)
    assert check_plan(snapshot, plan) == ()
    return plan


def granted(plan: Plan) -> list[set[int]]:
    """GPUs of each pod as the driver counts them."""
    return [{7 - int(d.device[4:]) for grant in bind.claims for d in grant.devices} for bind in plan.binds]


def test_a_pair_is_allocated_the_double_link() -> None:
    plan = planned(cluster(2))
    assert plan.binds[0].link == GpuLink("NV2", 50)
    (pair,) = granted(plan)
    assert product_named("dgx1-v100-8").graph.kind(*pair) == "NV2"


@pytest.mark.parametrize("asked", [(2, 2, 2, 2), (4, 4), (1, 4, 2)])
def test_all_pods_of_a_node_get_good_sets(asked: tuple[int, ...]) -> None:
    plan = planned(cluster(*asked))
    links = {len(bind.devices): bind.link for bind in plan.binds}
    expected = {1: GpuLink(), 2: GpuLink("NV2", 50), 4: GpuLink("NV1", 25)}
    assert links == {count: expected[count] for count in asked}
    assert len(set.union(*granted(plan))) == sum(asked)


def test_gpus_of_an_unknown_product_are_given_as_they_come() -> None:
    plan = planned(cluster(2, product="GPU of tomorrow"))
    assert plan.binds[0].link is None
    assert len(granted(plan)[0]) == 2


def test_what_may_have_only_certain_gpus_keeps_them() -> None:
    """One pod may have GPU 3 alone: the other one does not get it, however good its links are."""
    only = {"deviceClass": DRIVER, "selectors": [f'device.attributes["{DRIVER}"].pcieBusID == "0000:03:00.0"']}
    templates = [
        {"name": "of-1", "requests": [{"name": "r", **only}]},
        {"name": "of-7", "requests": [{"name": "r", "deviceClass": DRIVER, "count": 7}]},
    ]
    plan = planned(cluster(7, 1, resourceClaimTemplates=templates))
    assert sorted(granted(plan), key=len) == [{3}, {0, 1, 2, 4, 5, 6, 7}]


def test_of_two_nodes_that_is_taken_whose_free_gpus_have_the_better_link() -> None:
    """n0 has two GPUs left that are far from each other, n1 three with a double link among them."""
    left = {"n0": {0, 5}, "n1": {0, 1, 5}}
    held = [
        {
            "name": f"c-{node}",
            "requests": [{"name": "r", "deviceClass": DRIVER, "count": 8 - len(free)}],
            "reservedFor": ["somebody"],
            "allocation": [
                {"request": "r", "driver": DRIVER, "pool": node, "device": f"gpu-{7 - gpu}"}
                for gpu in set(range(8)) - free
            ],
        }
        for node, free in left.items()
    ]
    slices = [{"driver": DRIVER, "node": node, "devices": [device(gpu) for gpu in range(8)]} for node in left]
    nodes = [{"name": node} for node in left]
    plan = planned(cluster(2, nodes=nodes, resourceSlices=slices, resourceClaims=held))
    assert [bind.node for bind in plan.binds] == ["n1"]
    assert plan.binds[0].link == GpuLink("NV2", 50)
