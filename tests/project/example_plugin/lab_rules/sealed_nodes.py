"""A whole rule: nodes with the label ``lab.example/sealed`` take nothing new; what runs there may stay.

The working state, the model, the bounds and the words of kai-solver keep it through `RULE`; `CHECK` judges plans by the
objects alone, and shares no code with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kai_solver.check import Check, Violation
from kai_solver.check.scene import Scene
from kai_solver.domain import Blocker, Gang, Snapshot
from kai_solver.model.variables import Variables
from kai_solver.problem import Problem
from kai_solver.problem.rules import Ledger, Rule, RuleBound, RuleFacts

NAME, LABEL = "sealed", "lab.example/sealed"
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


class SealedLedger(Ledger):
    """``sealed``: (N,) nodes that take nothing new."""

    kind = NAME

    def __init__(self, sealed: BoolArray) -> None:
        self._open = ~sealed

    def mask(self, shape: int, pod: int, /) -> BoolArray:
        return self._open

    def may_return(self, pod: int, /) -> bool:
        return True

    def reasons(self, shape: int, pod: int, nodes: BoolArray, /) -> Mapping[str, int]:
        return {"node(s) were sealed": int(nodes.sum())} if nodes.any() else {}


class SealedBound(RuleBound):
    kind = NAME

    def __init__(self, sealed: BoolArray) -> None:
        self._sealed = sealed

    def closed(self, shape: int, /) -> BoolArray:
        return self._sealed


class SealedFacts(RuleFacts):
    name = kind = NAME
    ties = False  # It is about one node at a time.

    def __init__(self, sealed: BoolArray) -> None:
        self._sealed = sealed

    def ledger(self, state: object, /) -> SealedLedger:
        return SealedLedger(self._sealed)

    def add_rows(self, variables: Variables, /) -> None:
        """``place[s, n] <= 0`` for every sealed node n."""
        for places in [*variables.place.values(), *(scoped.place for scoped in variables.scoped)]:
            for node, var in places.items():
                if self._sealed[node]:
                    variables.spec.add_le([(1, var)], 0, family=NAME)

    def bound(self, problem: Problem, gone: IntArray, /) -> SealedBound:
        return SealedBound(self._sealed)

    def element(self, words: object, /) -> Blocker:
        return Blocker(NAME, NAME, "nodes that are not sealed", f"{int(self._sealed.sum())} nodes are sealed")


class SealedRule(Rule):
    name = kind = NAME
    cure = "no node sealed"

    def prepare(self, problem: Problem, /) -> SealedFacts | None:
        sealed = np.array([LABEL in node.labels for node in problem.nodes], dtype=np.bool_)
        return SealedFacts(sealed) if sealed.any() else None

    def eased(self, snapshot: Snapshot, gang: str, blocker: Blocker, /) -> Snapshot:
        def unsealed(labels: Mapping[str, str]) -> dict[str, str]:
            return {key: value for key, value in labels.items() if key != LABEL}

        return replace(snapshot, nodes=tuple(replace(node, labels=unsealed(node.labels)) for node in snapshot.nodes))


class SealedCheck(Check):
    name = NAME

    def judge(self, scene: Scene, /) -> Iterator[Violation]:
        for arrival in scene.come:
            if LABEL in arrival.node.labels:
                text = f"pod {arrival.pod.key} gets a place on {arrival.node.name}, which is sealed"
                yield Violation(NAME, arrival.pod.key, text)

    def may_need_gone(self, scene: Scene, gangs: Sequence[Gang], /) -> frozenset[str]:
        return frozenset()  # What runs may stay, sealed or not.


RULE, CHECK = SealedRule(), SealedCheck()
