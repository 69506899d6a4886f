"""Whose domains are closed and which are mixed, against a look at every pod."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.domain import (
    Gang,
    GpuRequest,
    Node,
    OneTenant,
    Pod,
    PodStatus,
    Queue,
    Snapshot,
    Topology,
    TopologyLevel,
    flat_gang,
)
from kai_solver.problem import Problem, build_problem
from kai_solver.rules.one_tenant.bound import Users
from kai_solver.rules.one_tenant.problem import Tenants
from kai_solver.units import MILLI, ResourceSchema

GIB = 2**30
RACKS = ("r0", "r0", "r1", "r1", "r2", "")
"""Of each node; the last is in none."""
TEAMS = ("a", "b", "c")


def a_pod(team: str, number: int, node: str, status: PodStatus, gpus: int = 1) -> Pod:
    return Pod(team, f"p{number}", (100, GIB, 0, 1), GpuRequest(gpus), status, node=node, order=(0, float(number), ""))


def a_problem(running: list[tuple[str, int, bool, int]], *, one_tenant: bool = True) -> Problem:
    """A gang of one pod for each (team, node, is leaving, GPUs), and one for each team that waits."""
    nodes = tuple(
        Node(f"n{i}", (32_000, 64 * GIB, 8 * MILLI, 99), gpus=8, gpu_memory_mib=100, labels={"rack": r} if r else {})
        for i, r in enumerate(RACKS)
    )
    pods = [
        a_pod(team, i, f"n{node}", PodStatus.RELEASING if leaving else PodStatus.RUNNING, gpus)
        for i, (team, node, leaving, gpus) in enumerate(running)
    ]
    pods += [a_pod(team, 100 + i, "", PodStatus.PENDING) for i, team in enumerate(TEAMS)]
    gangs = tuple(Gang(pod.namespace, pod.name, "q", flat_gang(1), (pod,)) for pod in pods)
    rule = OneTenant("rack", "namespace") if one_tenant else None
    topology = Topology("dc", (TopologyLevel("rack"),), one_tenant=rule)
    queue = Queue("q", quota=(-1, -1, -1))
    return build_problem(Snapshot(1000.0, ResourceSchema(), nodes, (queue,), gangs, topologies=(topology,)))


def users_by_rack(problem: Problem, gone: set[int]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for number, pod in enumerate(problem.pods):
        stays = problem.pod_node[number] >= 0 and pod.status is PodStatus.RUNNING and number not in gone
        if stays and pod.gpu.devices:
            found.setdefault(problem.nodes[problem.pod_node[number]].labels.get("rack", ""), set()).add(pod.namespace)
    return found


@settings(max_examples=60, deadline=None)
@given(
    running=st.lists(
        st.tuples(st.sampled_from(TEAMS), st.integers(0, 5), st.sampled_from([False, False, True]), st.integers(0, 1)),
        max_size=9,
    ),
    data=st.data(),
)
def test_a_domain_is_closed_to_those_of_other_tenants(
    running: list[tuple[str, int, bool, int]], data: st.DataObject
) -> None:
    problem = a_problem(running)
    gone = data.draw(st.sets(st.integers(0, len(problem.pods) - 1)))
    tenants = Tenants(problem)
    users = Users(tenants, np.array(sorted(gone), dtype=np.int64))
    by_rack = users_by_rack(problem, gone)
    racks = [node.labels.get("rack", "") for node in problem.nodes]
    for team in TEAMS:
        shape = next(
            problem.pod_shape[n] for n, p in enumerate(problem.pods) if p.namespace == team and p.name.startswith("p10")
        )
        closed = [bool(rack) and bool(by_rack.get(rack, set()) - {team}) for rack in racks]
        assert users.closed(shape).tolist() == closed
        assert bool(users.said(shape)) is any(closed)
    before = users_by_rack(problem, set())
    assert tenants.mixed().tolist() == [bool(rack) and len(before.get(rack, ())) > 1 for rack in racks]


@pytest.mark.parametrize(("one_tenant", "is_made"), [(True, True), (False, False)])
def test_the_rule_is_prepared_where_a_topology_has_it(one_tenant: bool, is_made: bool) -> None:
    problem = a_problem([("a", 0, False, 1)], one_tenant=one_tenant)
    assert [facts.name for facts in problem.rules] == ["tenants"] * is_made
