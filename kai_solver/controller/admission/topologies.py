"""Topologies: levels and aliases (docs/kai-behaviour.md#topology-object), and rules for their domains."""

from collections import Counter
from collections.abc import Iterator

from kai_solver.controller.admission.annotations import own_annotations
from kai_solver.controller.admission.verdict import Verdict, refuse
from kai_solver.domain import Topology
from kai_solver.errors import InputError
from kai_solver.kubeobjects.domains import read_rules
from kai_solver.kubeobjects.queues import read_topology
from kai_solver.kubeobjects.raw import Raw

MOST_LEVELS = 16
HOSTNAME = "kubernetes.io/hostname"


def topology_verdict(topology: Raw, before: Raw | None = None) -> Verdict:
    """All rules on a topology that is made, or changed from what it was ``before``."""
    try:
        read = read_topology(topology)
    except InputError as error:
        return refuse(str(error))
    levels = read.levels
    labels = [level.node_label for level in levels]
    if len(labels) > MOST_LEVELS:
        return refuse(f"spec.levels: there are {len(labels)} levels. Use at most {MOST_LEVELS}")
    if HOSTNAME in labels[:-1]:
        return refuse(f"spec.levels: {HOSTNAME} can only be the last level. Move it to the end")
    if before is not None and [level.text("nodeLabel") for level in before.items("spec.levels")] != labels:
        return refuse("nodeLabel structure is immutable; only aliases may be edited. Make another topology")
    problems = list(_alias_problems([level.alias for level in levels if level.alias], labels))
    if problems:
        return refuse(f"invalid topology aliases: {'; '.join(problems)}")
    return _domains(read, topology) + own_annotations(topology, "Topology")


def _domains(topology: Topology, raw: Raw) -> Verdict:
    """Rules for domains: one that cannot be honoured is refused, as the schema refuses its field."""
    rules = read_rules(topology, raw)
    return Verdict(rules.wrong, rules.idle)


def _alias_problems(aliases: list[str], labels: list[str]) -> Iterator[str]:
    doubled = sorted(alias for alias, count in Counter(aliases).items() if count > 1)
    if doubled:
        yield f"aliases must be unique within the topology; duplicated: [{' '.join(doubled)}]"
    conflicting = sorted(set(aliases) & set(labels))
    if conflicting:
        yield f"an alias must not equal a nodeLabel; conflicting: [{' '.join(conflicting)}]"
