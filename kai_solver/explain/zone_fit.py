"""One pod against the NUMA zones of one node."""

from kai_solver.problem import Problem, Shape
from kai_solver.problem.zones import NOT_ALIGNED
from kai_solver.units import format_amount

ROWS = 2
"""Zones named where none serves."""


def zone_room(after: Problem, shape: Shape, node: int, most: int) -> int:
    """Pods of the shape that find zones on the node, counted up to ``most``."""
    zones = after.zones
    row = int(zones.row_of[node]) if zones is not None else -1
    if zones is None or row < 0 or shape.alignment is None:
        return most
    return zones.count(shape.alignment, row, zones.free[row], most)


def zone_lack(after: Problem, shape: Shape, node: int) -> tuple[str, str] | None:
    """KAI's and Kubernetes' words where the node's Topology Manager would turn the pod away; None where not."""
    return None if zone_room(after, shape, node, 1) else (NOT_ALIGNED, "cannot align pod")


def zone_shortage(after: Problem, shape: Shape, node: int) -> str:
    """What the emptiest zones have of what the pod needs in one place; empty where zones are not what is short."""
    zones, alignment = after.zones, shape.alignment
    if zones is None or alignment is None or zone_room(after, shape, node, 1):
        return ""
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
