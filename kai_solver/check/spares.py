"""Rule ``spares``: nodes that a topology keeps free in every domain."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kai_solver.check.columns import stays
from kai_solver.check.domains import Atlas, Domain, DomainOf
from kai_solver.check.having import Having
from kai_solver.check.scene import Scene, destination
from kai_solver.check.violation import Violation
from kai_solver.domain import PodStatus, SpareNodes


@dataclass(frozen=True, slots=True)
class Kept:
    """Free nodes of the domains of one rule.

    Attributes
    ----------
    domains
        Of the nodes that count: those with GPUs that take work.
    free
        By domain: how many are free before the plan, once victims have left that may use spares, and after the plan.
    """

    rule: SpareNodes
    domains: DomainOf
    free: dict[Domain, tuple[int, int, int]]

    def least(self, domain: Domain) -> int:
        """How many nodes have to stay free: gangs that may use spares leave none to gangs that may not."""
        before, left, _ = self.free[domain]
        return min(max(before, left), self.rule.nodes)


@dataclass(frozen=True, slots=True)
class Spares:
    """What all rules keep, and the nodes in use after the plan."""

    kept: tuple[Kept, ...]
    in_use: frozenset[str]

    @classmethod
    def of(cls, scene: Scene) -> "Spares":
        """A node is in use by pods of gangs, or promised to them, and by others with GPUs.

        A new pod that may use spares counts nowhere.
        """
        rules = [topology for topology in scene.snapshot.topologies if topology.spares is not None]
        if not rules:
            return cls((), frozenset())
        leaving, atlas, having = scene.leaving, Atlas(scene), Having.of(scene.snapshot)
        users = [h for h in scene.everywhere() if h.key not in scene.foreign or having.holds(h.pod)]
        promised = set(_promised(scene))
        before = promised | {h.pod.node for h in users if stays(h.pod, set())}
        after = promised | {h.pod.node for h in users if stays(h.pod, leaving)}
        come = [bind for bind in scene.plan.binds if not scene.owners[bind.pod].uses_spares]
        lent = {key for key in leaving if key in scene.owners and scene.owners[key].may_use_spares}
        left = promised | {h.pod.node for h in users if stays(h.pod, lent)}
        left |= {bind.node for bind in come if not bind.nominated}
        after |= {bind.node for bind in come}
        after |= {destination(move) for move in scene.plan.moves}
        counted = {node.name for node in scene.snapshot.nodes if node.schedulable and node.gpus}
        kept = []
        for topology in rules:
            rule = topology.spares
            domains = atlas.domains(topology.name, rule.level) if rule is not None else None
            if rule is not None and domains is not None:
                inside = {node: domain for node, domain in domains.items() if node in counted}
                kept.append(Kept(rule, inside, _free(inside, before, left, after)))
        return cls(tuple(kept), frozenset(after))

    def admits(self, nodes: Iterable[str]) -> bool:
        """Whether these ``nodes`` may be in use after the plan as well."""
        more = [node for node in nodes if node not in self.in_use]
        for kept in self.kept:
            taken = Counter(kept.domains[node] for node in more if node in kept.domains)
            if any(kept.free[domain][2] - count < kept.least(domain) for domain, count in taken.items()):
                return False
        return True


def judge_spares(scene: Scene) -> Iterator[Violation]:
    """Of the nodes with GPUs that take work, every domain has as many free as it keeps, or as without the plan."""
    if not scene.come:
        return
    for kept in Spares.of(scene).kept:
        for domain, (_, _, left) in sorted(kept.free.items()):
            if left < kept.least(domain):
                title = "/".join(domain)
                text = f"{kept.rule.level} {title}: {left} nodes would be free, at least {kept.least(domain)} are kept"
                yield Violation("spares", title, text)


def _free(domains: DomainOf, *in_use: set[str]) -> dict[Domain, tuple[int, int, int]]:
    """By domain, how many nodes are free each time."""
    found: dict[Domain, tuple[int, int, int]] = {}
    for node, domain in domains.items():
        first, second, third = found.get(domain, (0, 0, 0))
        one, two, three = (node not in users for users in in_use)
        found[domain] = first + one, second + two, third + three
    return found


def _promised(scene: Scene) -> Iterator[str]:
    """Nodes that an earlier cycle promised to pods that wait, and may not use spares."""
    for gang in scene.snapshot.gangs:
        nodes = [pod.nominated_node for pod in gang.pods if pod.status is PodStatus.PENDING and pod.nominated_node]
        if nodes and not gang.uses_spares:
            yield from nodes
