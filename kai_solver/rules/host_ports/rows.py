"""ports: no two pods of a node ask for the same host port.

For every node and every pair of host ports that clash, at most one pod has either of them. Source: kube-scheduler's
plugin NodePorts; docs/kai-behaviour.md#predicates.
"""

from itertools import combinations_with_replacement

import numpy as np

from kai_solver.model.placement_terms import Member, PlacementTerms, part
from kai_solver.model.variables import Variables
from kai_solver.predicates import ports_clash
from kai_solver.rules.host_ports.problem import NAME


def add(v: Variables) -> None:
    """Add the rows."""
    bearers: dict[str, list[Member]] = {}
    for member in PlacementTerms(v).members:
        for port in sorted(set(member.pod.constraints.host_ports)):
            bearers.setdefault(port, []).append(member)
    nodes = np.arange(len(v.joint.problem.nodes))
    for one, other in combinations_with_replacement(sorted(bearers), 2):
        if ports_clash(one, other):
            part(v, bearers[one], bearers[other], nodes, NAME)
