"""Topologies: levels and aliases (reference 2.4)."""

from collections import Counter
from collections.abc import Iterator

from kai_solver.controller.admission.verdict import FINE, Verdict, refuse
from kai_solver.errors import InputError
from kai_solver.kubeobjects.queues import read_topology
from kai_solver.kubeobjects.raw import Raw

MOST_LEVELS = 16
HOSTNAME = "kubernetes.io/hostname"


def topology_verdict(topology: Raw, before: Raw | None = None) -> Verdict:
    """All rules on a topology that is made, or changed from what it was ``before``."""
    try:
        levels = read_topology(topology).levels
    except InputError as error:
        return refuse(str(error))
    labels = [level.node_label for level in levels]
    if len(labels) > MOST_LEVELS:
        return refuse(f"spec.levels: there are {len(labels)} levels. Use at most {MOST_LEVELS}")
    if HOSTNAME in labels[:-1]:
        return refuse(f"spec.levels: {HOSTNAME} can only be the last level. Move it to the end")
    if before is not None and [level.text("nodeLabel") for level in before.items("spec.levels")] != labels:
        return refuse("nodeLabel structure is immutable; only aliases may be edited. Make another topology")
    problems = list(_alias_problems([level.alias for level in levels if level.alias], labels))
    return refuse(f"invalid topology aliases: {'; '.join(problems)}") if problems else FINE


def _alias_problems(aliases: list[str], labels: list[str]) -> Iterator[str]:
    doubled = sorted(alias for alias, count in Counter(aliases).items() if count > 1)
    if doubled:
        yield f"aliases must be unique within the topology; duplicated: [{' '.join(doubled)}]"
    conflicting = sorted(set(aliases) & set(labels))
    if conflicting:
        yield f"an alias must not equal a nodeLabel; conflicting: [{' '.join(conflicting)}]"
