"""NUMA zones that cases assert: those that a task is in, and what is left of those of a node."""

from collections.abc import Iterable, Iterator, Mapping

from kai_solver.domain import Node, NumaZone, ZoneShare
from kai_solver.lab.conformance.outcome import Outcome
from kai_solver.lab.conformance.states import PLACED, TaskState
from kai_solver.units import GPU, GPU_RESOURCES, MILLI, parse_quantity


def zone_differences(name: str, state: TaskState, node: Node | None, expected: tuple[int, ...]) -> Iterator[str]:
    """The task's zones by index on its node, against those that the case names."""
    names = [zone.name for zone in node.numa.zones] if node is not None and node.numa is not None else []
    found = sorted(names.index(share.zone) for share in state.zones if share.zone in names)
    if found != sorted(expected):
        yield f"{name} is in NUMA zones {found}, expected {sorted(expected)}"


def available_differences(node: Node, outcome: Outcome, expected: Mapping[int, Mapping[str, str]]) -> Iterator[str]:
    """What tasks that run or are promised a place leave of each zone; leaving ones have left, as in KAI's ledger."""
    zones = node.numa.zones if node.numa is not None else ()
    for index, amounts in expected.items():
        if not 0 <= index < len(zones):
            yield f"{node.name} has no NUMA zone {index}"
            continue
        for name, text in amounts.items():
            left = _left(node.name, zones[index], name, outcome)
            if left is None:
                yield f"{node.name}: zone {index} has no {name}"
            elif left != (want := _thousandths(text, name)):
                yield f"{node.name}: zone {index} has {left} of {name} left, expected {want}"


def _left(node: str, zone: NumaZone, name: str, outcome: Outcome) -> int | None:
    """What is left of a resource, from what was reported free where that counts; None where the cluster has none."""
    names = outcome.before.schema.names
    resource = GPU if name in GPU_RESOURCES else names.index(name) if name in names else None
    if resource is None:
        return None

    def held(shares: Iterable[ZoneShare]) -> int:
        return sum(dict(share.amounts).get(names[resource], 0) for share in shares if share.zone == zone.name)

    taken = sum(held(s.zones) for s in outcome.states.values() if s.node == node and s.status in PLACED)
    if zone.available is None:
        return zone.allocatable[resource] - taken
    pods = (pod for gang in outcome.before.gangs for pod in gang.pods if pod.node == node)
    return zone.available[resource] + sum(held(pod.zones) for pod in pods) - taken


def _thousandths(text: str, name: str) -> int:
    """The quantity in the schema's units; a zone may be over-full, so it may be below zero."""
    scale = MILLI if name == "cpu" or name in GPU_RESOURCES else 1
    return -parse_quantity(text[1:], scale) if text.startswith("-") else parse_quantity(text, scale)
