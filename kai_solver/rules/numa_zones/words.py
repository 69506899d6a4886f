"""One pod against the NUMA zones of one node, in words."""

from kai_solver.problem import Problem
from kai_solver.rules.numa_zones.alignment import Alignment
from kai_solver.rules.numa_zones.table import ZoneTable
from kai_solver.units import format_amount

NOT_ALIGNED = "node cannot NUMA-align the pod's resources under its Topology Manager policy"
"""KAI's words, after any count of nodes."""

KUBERNETES = "cannot align pod"
"""The kubelet's words."""

ROWS = 2
"""Zones named where none serves."""


def shortage(after: Problem, zones: ZoneTable, alignment: Alignment, node: int) -> str:
    """What the emptiest zones have of what the pod needs in one place."""
    row = int(zones.row_of[node])
    unit = max(alignment.units(by_container=zones.by_container[row]), default=(), key=sum)
    asked = [(r, amount) for r, amount in enumerate(unit) if amount and zones.aware[row, r]]
    names = after.snapshot.schema.names
    have = []
    for zone, name in enumerate(zones.names[row]):
        free = zones.free[row, zone]
        share = min(int(free[r]) / amount for r, amount in asked) if asked else 0.0
        words = ", ".join(f"{format_amount(names[r], max(0, int(free[r])))}" for r, _ in asked)
        have.append((-share, zone, f"{name} has {words}"))
    needs = ", ".join(format_amount(names[r], amount) for r, amount in asked)
    found = "; ".join(text for _, _, text in sorted(have)[:ROWS])
    return f"has no NUMA zones for {needs} ({zones.policies[row]}): {found}"
