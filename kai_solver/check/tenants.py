"""Rule ``tenants``: domains that a topology gives to one tenant at a time."""

from collections.abc import Iterator

from kai_solver.check.capacity import stays
from kai_solver.check.domains import Atlas, DomainOf
from kai_solver.check.having import Having
from kai_solver.check.scene import Holder, Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import OneTenant, Pod


def judge_tenants(scene: Scene) -> Iterator[Violation]:
    """Where pods with GPUs come, pods with GPUs of no other tenant are in the end; nor now, if they start at once.

    Tenants that were beside each other before may stay so.
    """
    rules = [topology for topology in scene.snapshot.topologies if topology.one_tenant is not None]
    if not rules or not scene.come:
        return
    atlas, everywhere, having = Atlas(scene), scene.everywhere(), Having.of(scene.snapshot)
    owners = {pod.key: gang.queue for gang in scene.snapshot.gangs for pod in gang.pods}
    for topology in rules:
        rule = topology.one_tenant
        domains = atlas.domains(topology.name, rule.level) if rule is not None else None
        if rule is not None and domains is not None:
            yield from _judge(scene, rule, domains, everywhere, owners, having)


def _judge(
    scene: Scene,
    rule: OneTenant,
    domains: DomainOf,
    everywhere: list[Holder],
    owners: dict[str, str],
    having: Having,
) -> Iterator[Violation]:
    def tenant(pod: Pod) -> str:
        return rule.of(pod.namespace, pod.labels, owners.get(pod.key, ""))

    leaving, stand_ins = scene.leaving(), scene.snapshot.stand_ins
    users: dict[tuple[str, ...], dict[str, set[str]]] = {}
    goers: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for holder in everywhere:
        if holder.pod.node in domains and holder.key not in stand_ins and having.holds(holder.pod):
            book = users if stays(holder, leaving) else goers
            book.setdefault(domains[holder.pod.node], {}).setdefault(tenant(holder.pod), set()).add(holder.key)
    come = [arrival for arrival in scene.come if arrival.node.name in domains and having.gets(arrival)]
    for arrival in come:
        users.setdefault(domains[arrival.node.name], {}).setdefault(tenant(arrival.pod), set()).add(arrival.pod.key)
    for arrival in come:
        domain, own = domains[arrival.node.name], tenant(arrival.pod)
        others = set(users[domain]) - {own}
        if arrival.at_once:
            others |= set(goers.get(domain, ())) - {own}
        if others:
            where = f"{rule.level} {'/'.join(domain)} is used by {' and '.join(sorted(others))}"
            text = f"pod {arrival.pod.key} of {own}: may not be on node {arrival.node.name}: {where}"
            yield Violation("tenants", arrival.pod.key, text)
