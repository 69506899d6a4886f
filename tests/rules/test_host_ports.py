"""Host ports: no two pods of a node have the same one, and pods that leave have theirs until they are gone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Constraints, Gang, Plan, Pod, PodAffinityTerm, PodStatus, Requirement, Snapshot
from kai_solver.engine import cycle
from kai_solver.explaining.node_fit import NodeFit
from kai_solver.modelfiles import load_model
from kai_solver.planstate.state import State
from kai_solver.predicates import ports_clash
from kai_solver.problem import build_problem
from kai_solver.problem.rules import Ledger
from kai_solver.rules.host_ports.problem import NAME, TAKEN
from tests.support.builders import a_cluster, a_gang, a_node, a_pod

GREEDY = load_model("greedy-only")
NODES = (a_node("n0"), a_node("n1"))
HTTP = ("80/TCP",)


def with_ports(name: str, ports: tuple[str, ...] = HTTP, on: str = "", **more: Any) -> Pod:
    return a_pod(name, 1, on, constraints=Constraints(host_ports=ports), **more)


def gangs_of(*pods: Pod) -> list[Gang]:
    return [a_gang(pod.name, pod) for pod in pods]


def state_of(*pods: Pod, foreign: tuple[Pod, ...] = ()) -> State:
    return State(build_problem(a_cluster(NODES, gangs_of(*pods), foreign=foreign)))


def plan_of(snapshot: Snapshot) -> Plan:
    plan = cycle(snapshot, GREEDY)
    assert check_plan(snapshot, plan) == ()
    return plan


def ledger_of(state: State) -> Ledger | None:
    return next((rule for rule in state.rules if rule.kind == NAME), None)


def open_to(state: State, name: str) -> list[bool]:
    number = next(number for number, pod in enumerate(state.problem.pods) if pod.name == name)
    allowed = state.admitting(number, None)
    return [True] * len(NODES) if allowed is None else allowed.tolist()


@pytest.mark.parametrize("is_required", [True, False])
def test_where_pods_with_ports_are_is_counted_only_where_rules_look_at_labels(is_required: bool) -> None:
    term = PodAffinityTerm((Requirement("app", "In", ("x",)),), "metadata.name")
    wish = {"affinity": (term,)} if is_required else {"preferred_pods": ((1, term),)}
    wishing = a_pod("w", 1, constraints=Constraints(**wish))
    wished = a_pod("x", 1, "n1", labels={"app": "x"})
    problem = build_problem(a_cluster(NODES, gangs_of(with_ports("p", on="n0"), wishing, wished)))
    names = [{problem.pods[pod].name for pod in pods} for pods in (problem.ruled, problem.related, problem.counted)]
    assert names[1] == {"p", "w", "x"}
    assert names[0] == ({"p", "w", "x"} if is_required else {"p"})
    assert names[2] == ({"p", "w", "x"} if is_required else {"w", "x"})


def test_nodes_with_a_pod_that_has_the_port_are_closed() -> None:
    state = state_of(with_ports("r", ("80/TCP", "53/UDP"), "n0"), with_ports("w"), with_ports("u", ("53/TCP",)))
    assert open_to(state, "w") == [False, True]
    assert open_to(state, "u") == [True, True]


def test_pods_of_other_schedulers_have_ports_too() -> None:
    assert open_to(state_of(with_ports("w"), foreign=(with_ports("f", on="n1"),)), "w") == [True, False]


def test_where_no_pod_of_a_gang_has_ports_nothing_is_counted() -> None:
    assert ledger_of(state_of(a_pod("w"), foreign=(with_ports("f", on="n0"), with_ports("g", on="n1")))) is None


def test_the_port_of_a_pod_that_leaves_is_promised_and_not_used_before_it_is_gone() -> None:
    state = state_of(with_ports("r", on="n0"), with_ports("w"))
    state.evict(0)
    assert open_to(state, "w") == [True, True]
    assert not state.put(1, 0, now=True).now
    assert open_to(state, "w") == [False, True]
    assert not state.returns_to_origin([0])
    state.lift(1)
    assert state.put(1, 1, now=True).now
    assert state.returns_to_origin([0])


def test_a_pod_that_is_being_deleted_has_its_port_until_it_is_gone() -> None:
    state = state_of(with_ports("r", on="n0", status=PodStatus.RELEASING), with_ports("w"))
    assert open_to(state, "w") == [True, True]
    assert not state.put(1, 0, now=True).now


def test_a_crossing_is_seen_where_running_pods_share_a_port_and_nowhere_else() -> None:
    assert state_of(with_ports("r", on="n0"), with_ports("s", on="n0"), with_ports("w")).is_crossed
    assert not state_of(with_ports("r", on="n0"), with_ports("s", on="n1"), with_ports("w")).is_crossed
    both = ("80/TCP", "80/TCP/10.0.0.1")  # A pod does not clash with itself.
    assert not state_of(with_ports("r", both, "n0"), with_ports("w")).is_crossed


def test_the_reason_comes_before_that_of_affinity() -> None:
    term = PodAffinityTerm((Requirement("app", "In", ("web",)),), "host")
    nodes = [a_node("n0", labels={"host": "n0"})]
    lone = a_pod("w", 1, constraints=Constraints(host_ports=HTTP, anti_affinity=(term,)))
    snapshot = a_cluster(nodes, gangs_of(with_ports("r", on="n0", labels={"app": "web"}), lone))
    plan = plan_of(snapshot)
    assert f"1 {TAKEN}" in plan.pending[0].message
    assert "anti-affinity" not in plan.pending[0].message


def test_what_fits_a_node_says_so_for_leaving_pods_too() -> None:
    problem = build_problem(
        a_cluster(NODES, gangs_of(with_ports("r", on="n0", status=PodStatus.RELEASING), with_ports("w")))
    )
    fit = NodeFit(problem).gang(next(gang for gang in problem.gangs if gang.pending))[0]
    assert [(reason.nodes, reason.kubernetes) for reason in fit.reasons] == [(1, TAKEN)]


PORTS = st.lists(st.sampled_from(["80/TCP", "80/TCP/10.0.0.1", "80/TCP/10.0.0.2", "80/UDP"]), max_size=2, unique=True)


@given(st.lists(st.tuples(PORTS, st.sampled_from(["n0", "n1"])), max_size=4), PORTS)
def test_a_node_is_closed_exactly_where_two_ports_clash(running: list[tuple[list[str], str]], own: list[str]) -> None:
    there = [with_ports(f"r{i}", tuple(ports), node) for i, (ports, node) in enumerate(running)]
    expected = [
        not any(
            ports_clash(one, other) for ports, home in running if home == node.name for one in ports for other in own
        )
        for node in NODES
    ]
    assert open_to(state_of(*there, with_ports("w", tuple(own))), "w") == expected


@pytest.mark.parametrize("ports", [HTTP, ("80/TCP/10.0.0.1",)])
def test_two_gangs_with_the_port_go_to_different_nodes(ports: tuple[str, ...]) -> None:
    plan = plan_of(a_cluster(NODES, gangs_of(with_ports("v"), with_ports("w", ports), with_ports("x"))))
    assert {bind.node for bind in plan.binds} == {"n0", "n1"}
