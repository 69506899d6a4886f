"""Rule ``tenants``: domains that a topology gives to one tenant at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kai_solver.check.columns import stays
from kai_solver.check.domains import Atlas, Domain, DomainOf
from kai_solver.check.having import Having
from kai_solver.check.scene import Arrival, Holder, Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import OneTenant, Pod

Users = dict[Domain, set[str]]
"""Tenants by domain."""


@dataclass(frozen=True, slots=True)
class Estate:
    """The domains of one rule, and the pods that arrive there.

    Attributes
    ----------
    queues
        Of gangs, by the keys of their pods.
    come
        Pods with GPUs that get a place in one of the domains.
    newcomers
        Their tenants, by domain.
    """

    rule: OneTenant
    domains: DomainOf
    queues: Mapping[str, str]
    come: list[Arrival] = field(default_factory=list)
    newcomers: Users = field(default_factory=dict)

    def tenant(self, pod: Pod) -> str:
        """The tenant of a pod."""
        return self.rule.of(pod.namespace, pod.labels, self.queues.get(pod.key, ""))

    def register(self, arrival: Arrival) -> None:
        """Note a pod with GPUs that gets a place."""
        if arrival.node.name in self.domains:
            self.come.append(arrival)
            self.newcomers.setdefault(self.domains[arrival.node.name], set()).add(self.tenant(arrival.pod))

    def admits(self, pod: Pod) -> bool:
        """Whether a pod with GPUs that leaves could stay: no pod of another tenant arrives in its domain."""
        domain = self.domains.get(pod.node)
        return domain is None or not self.newcomers.get(domain, set()) - {self.tenant(pod)}


@dataclass(frozen=True, slots=True)
class Tenants:
    """The rules of all topologies."""

    estates: tuple[Estate, ...]
    having: Having

    @classmethod
    def of(cls, scene: Scene) -> "Tenants":
        """With the plan's newcomers."""
        having, atlas = Having.of(scene.snapshot), Atlas(scene)
        queues = {pod.key: gang.queue for gang in scene.snapshot.gangs for pod in gang.pods}
        estates = []
        for topology in scene.snapshot.topologies:
            rule = topology.one_tenant
            domains = atlas.domains(topology.name, rule.level) if rule is not None else None
            if rule is not None and domains is not None:
                estates.append(Estate(rule, domains, queues))
        for arrival in scene.come if estates else ():
            if having.gets(arrival):
                for estate in estates:
                    estate.register(arrival)
        return cls(tuple(estates), having)

    def admits(self, pod: Pod) -> bool:
        """Whether a pod that leaves could stay on its node, as far as tenants go."""
        return not self.having.holds(pod) or all(estate.admits(pod) for estate in self.estates)


def has_tenants(scene: Scene) -> bool:
    """Whether any topology has a rule."""
    return any(topology.one_tenant is not None for topology in scene.snapshot.topologies)


def judge_tenants(scene: Scene) -> Iterator[Violation]:
    """Where pods with GPUs arrive, no other tenant finally has pods with GPUs; nor now, if they start at once.

    Tenants that were beside each other before may stay so.
    """
    if not has_tenants(scene) or not scene.come:
        return
    tenants, stand_ins = Tenants.of(scene), scene.snapshot.stand_ins
    holders = [h for h in scene.everywhere() if h.key not in stand_ins and tenants.having.holds(h.pod)]
    for estate in tenants.estates:
        yield from _judge(scene, estate, holders)


def _judge(scene: Scene, estate: Estate, holders: list[Holder]) -> Iterator[Violation]:
    leaving = scene.leaving
    users: Users = {domain: set(tenants) for domain, tenants in estate.newcomers.items()}
    goers: Users = {}
    for holder in holders:
        domain = estate.domains.get(holder.pod.node)
        if domain is not None:
            book = users if stays(holder.pod, leaving) else goers
            book.setdefault(domain, set()).add(estate.tenant(holder.pod))
    for arrival in estate.come:
        domain, own = estate.domains[arrival.node.name], estate.tenant(arrival.pod)
        others = users[domain] - {own}
        if arrival.at_once:
            others |= goers.get(domain, set()) - {own}
        if others:
            where = f"{estate.rule.level} {'/'.join(domain)} is used by {' and '.join(sorted(others))}"
            text = f"pod {arrival.pod.key} of {own}: may not be on node {arrival.node.name}: {where}"
            yield Violation("tenants", arrival.pod.key, text)
