"""Rule ``spares``: nodes that a topology keeps free in every domain."""

from collections.abc import Iterable, Iterator

from kai_solver.check.capacity import stays
from kai_solver.check.domains import Atlas, Domain
from kai_solver.check.having import Having
from kai_solver.check.scene import Scene, destination
from kai_solver.check.violation import Violation
from kai_solver.domain import SpareNodes


def judge_spares(scene: Scene) -> Iterator[Violation]:
    """Of the nodes with GPUs that take work, every domain has as many free as it keeps, or as without the plan.

    A node is in use by pods of gangs, and by others with GPUs. Pods that come and may use spares count nowhere.
    """
    rules = [topology for topology in scene.snapshot.topologies if topology.spares is not None]
    if not rules or not scene.come:
        return
    leaving, atlas, having = scene.leaving(), Atlas(scene), Having.of(scene.snapshot)
    users = [h for h in scene.everywhere() if h.key not in scene.foreign or having.holds(h.pod)]
    before = {h.pod.node for h in users if stays(h, set())}
    after = {h.pod.node for h in users if stays(h, leaving)}
    after |= {bind.node for bind in scene.plan.binds if not scene.owners[bind.pod].uses_spares}
    after |= {destination(move) for move in scene.plan.moves}
    counted = {node.name for node in scene.snapshot.nodes if node.schedulable and node.gpus}
    for topology in rules:
        rule = topology.spares
        domains = atlas.domains(topology.name, rule.level) if rule is not None else None
        if rule is not None and domains is not None:
            inside = {node: domain for node, domain in domains.items() if node in counted}
            yield from _judge(rule, inside.items(), before, after)


def _judge(
    rule: SpareNodes, nodes: Iterable[tuple[str, Domain]], before: set[str], after: set[str]
) -> Iterator[Violation]:
    free: dict[Domain, list[int]] = {}
    for node, domain in nodes:
        counts = free.setdefault(domain, [0, 0])
        counts[0] += node not in before
        counts[1] += node not in after
    for domain, (was, left) in sorted(free.items()):
        if left < min(was, rule.nodes):
            title = "/".join(domain)
            text = f"{rule.level} {title}: {left} nodes would be free, at least {min(was, rule.nodes)} are kept"
            yield Violation("spares", title, text)
