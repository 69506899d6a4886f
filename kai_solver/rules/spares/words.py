"""Nodes that domains keep free, in words: why a node is refused, what blocks, and the cluster without the rule."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Blocker, Snapshot
from kai_solver.rules.spares.problem import NAME, Spares

BoolArray = NDArray[np.bool_]

_MOST_NAMED = 8
"""Domains that are named one by one where they keep nodes free."""

CURE = "no node kept free in any {name}"


def reasons(spares: Spares, nodes: BoolArray) -> dict[str, int]:
    """For ``nodes`` (N,) that are kept free: how many for which domain, or in all where these are many."""
    found: dict[str, int] = {}
    for rule in spares.rules:
        for domain, count in zip(*np.unique(rule.domain_of[nodes], return_counts=True), strict=True):
            if domain >= 0:
                kept = int(rule.kept[domain])
                text = f"node(s) were spares: {rule.level} {rule.names[domain]} keeps {kept} free"
                found[text] = found.get(text, 0) + int(count)
    return found if len(found) <= _MOST_NAMED else {"node(s) were spares of their domains": int(nodes.sum())}


def element(spares: Spares) -> Blocker:
    """What blocks: nodes that the first rule keeps free."""
    rule = spares.rules[0]
    have = f"{int(rule.kept.sum())} nodes are kept free, in {int((rule.kept > 0).sum())} domains"
    return Blocker(NAME, rule.level, "nodes beyond those that are kept free", have)


def without(snapshot: Snapshot) -> Snapshot:
    """The cluster with no node kept free."""
    return replace(snapshot, topologies=tuple(replace(t, spares=None) for t in snapshot.topologies))
