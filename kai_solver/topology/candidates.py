"""Which domains a gang or subgroup may take, and in which order to try them (reference 3.12)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import TopologyConstraint
from kai_solver.topology.tree import ROOT, Domain, DomainTree

WITHOUT_CAPACITY = 1000.0
"""Ratio that stands for a demanded resource of which a domain has nothing free (KAI's number)."""


@dataclass(frozen=True, slots=True)
class LevelRange:
    """Levels to try: from ``deepest`` up to ``highest``; the latter is -1 (the whole tree) where none is required."""

    deepest: int
    highest: int


def level_range(constraint: TopologyConstraint, trees: Mapping[str, DomainTree]) -> LevelRange | str:
    """Levels that ``constraint`` allows, or a sentence that says what is missing.

    From the preferred level (or the required one) up to the required level (or the whole tree). A preferred level
    outside the required one asks for less and is answered by the required level.
    """
    tree = trees.get(constraint.topology)
    if tree is None:
        return f"Requested topology {constraint.topology} does not exist"
    for level in (constraint.required, constraint.preferred):
        if level and tree.level_index(level) is None:
            known = ", ".join(known.node_label for known in tree.topology.levels)
            return f"Requested topology {constraint.topology} has no level {level}; its levels are {known}"
    required = tree.level_index(constraint.required) if constraint.required else None
    preferred = tree.level_index(constraint.preferred) if constraint.preferred else None
    highest = -1 if required is None else required
    return LevelRange(deepest=highest if preferred is None else max(preferred, highest), highest=highest)


def candidate_domains(
    tree: DomainTree,
    levels: LevelRange,
    demand: NDArray[np.int64],
    free: NDArray[np.int64],
    *,
    pods: int = 0,
    slots: NDArray[np.int64] | None = None,
) -> list[Domain]:
    """Domains worth trying: deepest level first, and within a level the tightest first.

    Parameters
    ----------
    demand
        (R,) all that the pods request together.
    free
        (N, R) what each node can still give.
    pods, slots
        For pods that are all alike: how many there are, and how many of them each node could take, (N,). Domains with
        fewer slots are left out. Without ``slots``, domains whose free sum is below the demand are.

    Notes
    -----
    Tightest: the largest ratio of demand to free over the demanded resources; ties by name.
    """
    found: list[Domain] = []
    for level in range(levels.deepest, levels.highest - 1, -1):
        ratio = _ratios(tree, level, demand, free)
        fits = ratio <= 1.0 if slots is None else _sums(tree, level, slots) >= pods
        order = np.lexsort((np.arange(len(ratio)), -ratio))
        found.extend(Domain(level, int(index)) if level >= 0 else ROOT for index in order if fits[index])
    return found


def _ratios(tree: DomainTree, level: int, demand: NDArray[np.int64], free: NDArray[np.int64]) -> NDArray[np.float64]:
    """(D,) dominant ratio of ``demand`` to what is free in each domain of ``level``."""
    ratios = np.zeros(len(tree.names[level]) if level >= 0 else 1)
    for resource in np.flatnonzero(demand > 0):
        room = _sums(tree, level, np.maximum(free[:, resource], 0))
        with_room = np.divide(demand[resource], room, out=np.full(len(room), WITHOUT_CAPACITY), where=room > 0)
        ratios = np.maximum(ratios, with_room)
    return ratios


def _sums(tree: DomainTree, level: int, amounts: NDArray[np.int64]) -> NDArray[np.int64]:
    """(D,) sums of the nodes' ``amounts`` over each domain of ``level``."""
    if level < 0:
        return np.array([amounts[tree.members].sum()], dtype=np.int64)
    sums = np.zeros(len(tree.names[level]), dtype=np.int64)
    np.add.at(sums, tree.domain_of[level, tree.members], amounts[tree.members])
    return sums
