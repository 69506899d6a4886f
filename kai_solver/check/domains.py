"""Rule ``topology``: required levels of gangs, subgroups and podsets (docs/kai-behaviour.md#topology)."""

from collections.abc import Iterator, Sequence
from operator import itemgetter

from kai_solver.check.scene import Change, Scene, destination
from kai_solver.check.violation import Violation
from kai_solver.domain import PodSet, SubGroup, Topology, TopologyConstraint

Domain = tuple[str, ...]
DomainOf = dict[str, Domain]
"""Domain of each node of one level; nodes outside the tree, for want of any label of it, are missing."""


class Atlas:
    """Domains by topology and level, drawn when first asked for."""

    def __init__(self, scene: Scene) -> None:
        self._nodes = scene.snapshot.nodes
        self._topologies = {topology.name: topology for topology in scene.snapshot.topologies}
        self._drawn: dict[tuple[str, str], DomainOf | None] = {}
        self._deepest: dict[str, DomainOf] = {}

    def domains(self, topology: str, level: str) -> DomainOf | None:
        """Domain of each node; None where the topology or its level does not exist."""
        key = topology, level
        if key not in self._drawn:
            known = self._topologies.get(topology)
            depth = known.level_index(level) if known is not None else None
            self._drawn[key] = None if known is None or depth is None else self._draw(known, depth)
        return self._drawn[key]

    def _draw(self, topology: Topology, depth: int) -> DomainOf:
        if topology.name not in self._deepest:
            self._deepest[topology.name] = self._draw_deepest([level.node_label for level in topology.levels])
        deepest = self._deepest[topology.name]
        return {name: domain[: depth + 1] for name, domain in deepest.items()}

    def _draw_deepest(self, labels: Sequence[str]) -> DomainOf:
        """Values of all ``labels`` of each node that has them."""
        values = itemgetter(*labels) if len(labels) > 1 else lambda known: (known[labels[0]],)
        found: DomainOf = {}
        for node in self._nodes:
            try:
                found[node.name] = values(node.labels)
            except KeyError:
                continue
        return found


def judge_topology(scene: Scene) -> Iterator[Violation]:
    """All pods of a constrained part of a gang sit in one domain of its required level.

    Where running pods break this already, new pods may go only to domains in which some of them run.
    """
    atlas = Atlas(scene)
    trees = {id(change.gang.root): change.gang.root for change in scene.changes.values()}
    constrained = {key for key, tree in trees.items() if _is_constrained(tree)}
    for change in scene.changes.values() if constrained else ():
        if (change.binds or change.moves) and id(change.gang.root) in constrained:
            yield from _judge_part(scene, atlas, change, change.gang.root)


def _is_constrained(part: SubGroup | PodSet) -> bool:
    if part.topology is not None:
        return True
    return isinstance(part, SubGroup) and any(_is_constrained(child) for child in part.children)


def _judge_part(scene: Scene, atlas: Atlas, change: Change, part: SubGroup | PodSet) -> Iterator[Violation]:
    if part.topology is not None and part.topology.required:
        text = _fault(scene, atlas, change, part, part.topology)
        if text:
            what = f", subgroup {part.name}" if part is not change.gang.root and part.name else ""
            yield Violation("topology", change.gang.key, f"gang {change.gang.key}{what}: {text}")
    if isinstance(part, SubGroup):
        for child in part.children:
            yield from _judge_part(scene, atlas, change, child)


def _fault(scene: Scene, atlas: Atlas, change: Change, part: SubGroup | PodSet, constraint: TopologyConstraint) -> str:
    podsets = {part.name} if isinstance(part, PodSet) else {podset.name for podset in part.podsets()}
    targets = {destination(entry) for entry in change.arrivals if scene.pods[entry.pod].podset in podsets}
    if not targets:
        return ""
    domains = atlas.domains(constraint.topology, constraint.required)
    if domains is None:
        return f"topology {constraint.topology!r} with level {constraint.required!r} does not exist"
    outside = sorted(node for node in targets if node not in domains)
    if outside:
        return f"node {outside[0]} is outside of topology {constraint.topology}"
    left = change.left if change.before else frozenset()
    stay = {
        domains[pod.node]
        for key, pod in change.before.items()
        if key not in left and pod.podset in podsets and pod.node in domains
    }
    come = {domains[node] for node in targets}
    if (come <= stay) if stay else (len(come) == 1):
        return ""
    names = sorted("/".join(domain) for domain in come | stay)
    return f"its pods would be in {len(names)} domains of {constraint.required}: {', '.join(names[:4])}"
