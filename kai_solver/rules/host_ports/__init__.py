"""Host ports: no two pods of a node ask for the same one (kube-scheduler's plugin NodePorts).

A rule of its own beside affinity and spread: it looks at the pods of the same node alone, with no selectors or domains,
so it shares no count with them.
"""

from collections.abc import Mapping

from kai_solver.model.variables import Variables
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.problem.rules import Rule, RuleFacts
from kai_solver.rules.host_ports import rows
from kai_solver.rules.host_ports.ledger import PortLedger
from kai_solver.rules.host_ports.problem import NAME, TAKEN, HostPorts, host_ports_of


class HostPortsFacts(RuleFacts):
    """Which running pods have which host ports."""

    name = kind = NAME
    ties = False  # Pods concern each other on one node alone.

    def __init__(self, ports: HostPorts) -> None:
        self.ports = ports

    def ledger(self, state: State, /) -> PortLedger:
        return PortLedger(state.problem, self.ports)

    def is_crossed(self, problem: Problem, /) -> bool:
        return self.ports.are_crossed()

    def add_rows(self, variables: Variables, /) -> None:
        rows.add(variables)

    def may_block(self, problem: Problem, needed: Mapping[int, int], /) -> bool:
        return False  # No blocking set names them: no count knows of ports.

    def refusals(self, after: Problem, pod: int, /) -> Mapping[int, str]:
        return dict.fromkeys(self.ports.taken(after.pod_shape[pod]), TAKEN)


class HostPortsRule(Rule):
    """Prepared where a pod that may get a place, or lose it, has host ports."""

    name = kind = NAME

    def prepare(self, problem: Problem, /) -> HostPortsFacts | None:
        ports = host_ports_of(problem)
        return None if ports is None else HostPortsFacts(ports)


RULE = HostPortsRule()
