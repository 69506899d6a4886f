"""NUMA zones that cases assert: those that a task is in, and what is left of those of a node."""

from collections.abc import Iterator, Mapping

from kai_solver.conformance.outcome import Outcome
from kai_solver.conformance.states import PLACED, TaskState
from kai_solver.domain import Node
from kai_solver.units import CPU, GPU, MILLI, parse_quantity


def zone_differences(name: str, state: TaskState, node: Node | None, expected: tuple[int, ...]) -> Iterator[str]:
    """The task's zones by index on its node, against those that the case names."""
    names = [zone.name for zone in node.numa.zones] if node is not None and node.numa is not None else []
    found = sorted(names.index(share.zone) for share in state.zones if share.zone in names)
    if found != sorted(expected):
        yield f"{name} is in NUMA zones {found}, expected {sorted(expected)}"


def available_differences(node: Node, outcome: Outcome, expected: Mapping[int, Mapping[str, str]]) -> Iterator[str]:
    """What tasks that run or are promised a place leave of each zone; who is leaving has left, as in KAI's ledger."""
    schema = outcome.before.schema
    zones = node.numa.zones if node.numa is not None else ()
    for index, amounts in expected.items():
        if not 0 <= index < len(zones):
            yield f"{node.name} has no NUMA zone {index}"
            continue
        zone = zones[index]
        held = [
            s
            for state in outcome.states.values()
            if state.node == node.name and state.status in PLACED
            for s in state.zones
            if s.zone == zone.name
        ]
        for name, text in amounts.items():
            resource = schema.names.index(name) if name in schema.names else GPU if name.endswith("/gpu") else None
            if resource is None:
                yield f"{node.name}: zone {index} has no {name}"
                continue
            taken = sum(dict(share.amounts).get(schema.names[resource], 0) for share in held)
            left = zone.allocatable[resource] - taken
            want = parse_quantity(text, MILLI if resource in (CPU, GPU) else 1)
            if left != want:
                yield f"{node.name}: zone {index} has {left} of {name} left, expected {want}"
