"""Domains of topologies in numbers: what each has, and how much of it is in use, before or after a plan."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kai_solver.domain import Snapshot
from kai_solver.problem import Problem, build_problem
from kai_solver.topology import ROOT, Domain, DomainTree
from kai_solver.units.shares import WHOLE

HOST = "kubernetes.io/hostname"
_NAMED = 3


@dataclass(frozen=True, slots=True)
class DomainLine:
    """One domain of a topology.

    Attributes
    ----------
    depth
        0 for the whole tree, 1 for its outermost level.
    level
        Label of the level; empty for the whole tree.
    nodes, idle_nodes
        Nodes of it, and those of them that take pods and none of whose GPUs is in use.
    gpus, used_gpus, free_gpus
        Of nodes in it. Those of nodes that take no pods (cordoned, not ready) are neither used, unless a pod still
        runs there, nor free. Parts of GPUs count as parts.
    gangs
        Keys of those that hold GPUs there, with how many, most first.
    """

    topology: str
    name: str
    depth: int
    level: str
    nodes: int
    idle_nodes: int
    gpus: float
    used_gpus: float
    free_gpus: float
    gangs: tuple[tuple[str, float], ...]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "topology": self.topology,
            "domain": self.name,
            "depth": self.depth,
            "level": self.level,
            "nodes": self.nodes,
            "idle_nodes": self.idle_nodes,
            "gpus": self.gpus,
            "used_gpus": self.used_gpus,
            "free_gpus": self.free_gpus,
            "gangs": [{"gang": key, "gpus": gpus} for key, gpus in self.gangs],
        }

    def tenants(self, names: Mapping[str, str]) -> str:
        """The largest gangs in words, by their ``names``."""
        named = [f"{names.get(key, key)} {gpus:g}" for key, gpus in self.gangs[:_NAMED]]
        more = len(self.gangs) - _NAMED
        return ", ".join([*named, f"{more} more"] if more > 0 else named)


def domain_lines(snapshot: Snapshot, topology: str = "") -> tuple[DomainLine, ...]:
    """Every domain of every topology (or of the one named), parents before children, siblings by name.

    Levels of single nodes (``kubernetes.io/hostname``) are left out: a node is no domain of many.
    """
    problem = build_problem(snapshot)
    per_node = _PerNode(problem)
    names = [topology] if topology else sorted(problem.domains)
    return tuple(
        _line(tree, domain, per_node)
        for tree in (problem.domains[name] for name in names)
        for domain in inner_domains(tree)
    )


class _PerNode:
    """(N,) figures by node."""

    def __init__(self, problem: Problem) -> None:
        takes = np.array([node.schedulable for node in problem.nodes], dtype=np.bool_)
        free = np.maximum(problem.device_free, 0).sum(axis=1) / WHOLE
        self.gpus = problem.gpus.astype(np.float64)
        self.used = self.gpus - free
        self.free = np.where(takes, free, 0.0)
        self.idle = takes & (self.gpus > 0) & (self.used <= 0)
        self.by_gang: list[Counter[str]] = [Counter() for _ in problem.nodes]
        for pod, devices in problem.held_devices.items():
            gang, node = problem.pod_gang[pod], problem.pod_node[pod]
            if gang >= 0 and node >= 0:
                parts = problem.pods[pod].gpu.parts_on(problem.nodes[node].gpu_memory_mib)
                self.by_gang[node][problem.gangs[gang].gang.key] += len(devices) * parts


def inner_domains(tree: DomainTree) -> Iterator[Domain]:
    """The whole tree, then every domain before those in it; without levels of single nodes."""
    yield ROOT
    yield from _below(tree, ROOT)


def _below(tree: DomainTree, above: Domain) -> Iterator[Domain]:
    level = above.level + 1
    if level == len(tree.names) or tree.topology.levels[level].node_label == HOST:
        return
    for position, parent in enumerate(tree.parents[level].tolist()):
        if parent == above.position:
            domain = Domain(level, position)
            yield domain
            yield from _below(tree, domain)


def _line(tree: DomainTree, domain: Domain, per_node: _PerNode) -> DomainLine:
    nodes = tree.nodes_of(domain)
    gangs: Counter[str] = Counter()
    for node in nodes.tolist():
        gangs.update(per_node.by_gang[node])
    return DomainLine(
        topology=tree.topology.name,
        name=tree.title(domain),
        depth=domain.level + 1,
        level="" if domain == ROOT else tree.topology.levels[domain.level].node_label,
        nodes=len(nodes),
        idle_nodes=int(per_node.idle[nodes].sum()),
        gpus=float(per_node.gpus[nodes].sum()),
        used_gpus=float(per_node.used[nodes].sum()),
        free_gpus=float(per_node.free[nodes].sum()),
        gangs=tuple((key, parts / WHOLE) for key, parts in sorted(gangs.items(), key=lambda g: (-g[1], g[0]))),
    )
