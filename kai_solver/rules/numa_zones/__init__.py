"""NUMA zones: what pods take of them on nodes whose Topology Manager aligns pods (docs/kai-behaviour.md#numa)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Node
from kai_solver.model.decode import Decision, Values
from kai_solver.model.variables import Variables
from kai_solver.planstate.state import State
from kai_solver.problem import Problem, Shape
from kai_solver.problem.rules import Rule, RuleFacts
from kai_solver.rules.numa_zones import rows, words
from kai_solver.rules.numa_zones.alignment import NAME, alignment_in
from kai_solver.rules.numa_zones.ledger import ZoneLedger
from kai_solver.rules.numa_zones.table import ZoneTable, ZoneTake, zone_table
from kai_solver.units import ResourceSchema

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


class NumaFacts(RuleFacts):
    """The zones of this cycle's nodes. What they forbid is never named as what blocks: ``may_block`` is False."""

    name = kind = NAME
    ties = False
    is_monotone = False

    def __init__(self, zones: ZoneTable) -> None:
        self.zones = zones

    def ledger(self, state: State, /) -> ZoneLedger:
        return ZoneLedger(state.problem, self.zones)

    def may_block(self, problem: Problem, needed: Mapping[int, int], /) -> bool:
        return False

    def overcommitted(self, problem: Problem, /) -> BoolArray:
        zones, over = self.zones, np.zeros(len(problem.nodes), dtype=np.bool_)
        over[zones.nodes] = np.any(zones.free + zones.releasing < 0, axis=(1, 2)) & zones.binding
        return over

    def uncounted(self, problem: Problem, /) -> BoolArray:
        return self.zones.row_of >= 0

    # -- what pods get of a node -------------------------------------------------------------------------------------

    def held(self, pod: int, /) -> ZoneTake | None:
        return self.zones.held.get(pod)

    def keeps(self, pod: int, grant: ZoneTake | None, /) -> bool:
        """Where it is not known what the pod holds, it keeps that."""
        held = self.held(pod)
        return not held or not grant or held == grant

    def free(self, problem: Problem, lifted: Iterable[int], /) -> IntArray:
        """(M, Z, R)."""
        zones = self.zones
        free: IntArray = zones.free + zones.releasing
        for pod in lifted:
            for zone, amounts in zones.held.get(pod, ()):
                free[zones.row_of[problem.pod_node[pod]], zone] += np.array(amounts, dtype=np.int64)
        return free

    def plan_fields(self, node: int, grant: ZoneTake, /) -> dict[str, Any]:
        return {"zones": self.zones.shares(int(self.zones.row_of[node]), grant)}

    def bind_order(self, grant: ZoneTake, /) -> list[int]:
        """By the last zone that the pod takes.

        The kubelet gives every pod that arrives the first zones that fit. In this order it fills them as planned: a pod
        that is planned for a zone finds it no fuller than planned, or finds room in one before it.
        """
        return [zone for zone, _ in reversed(grant)]

    # -- model -------------------------------------------------------------------------------------------------------

    def add_rows(self, variables: Variables, /) -> None:
        rows.add(variables, self.zones)

    def decode(self, variables: Variables, values: Values, decision: Decision, /) -> None:
        rows.decode(variables, values, decision)

    # -- explanations ------------------------------------------------------------------------------------------------

    def room(self, after: Problem, shape: Shape, node: int, most: int, /) -> int:
        zones, alignment = self.zones, alignment_in(shape)
        row = int(zones.row_of[node])
        if row < 0 or alignment is None:
            return most
        return zones.count(alignment, row, zones.free[row], most)

    def lack(self, after: Problem, shape: Shape, node: int, /) -> tuple[str, str]:
        return words.NOT_ALIGNED, words.KUBERNETES

    def shortage(self, after: Problem, shape: Shape, node: int, /) -> str:
        alignment = alignment_in(shape)
        return "" if alignment is None else words.shortage(after, self.zones, alignment, node)


class NumaRule(Rule):
    """Prepared where some node's policy is concerned with its zones."""

    name = kind = NAME

    def looks_into_pods(self, nodes: Sequence[Node], /) -> bool:
        return any(node.numa is not None for node in nodes)

    def survey(self, nodes: Sequence[Node], schema: ResourceSchema, /) -> ZoneTable | None:
        return zone_table(nodes, schema)

    def prepare(self, problem: Problem, /) -> NumaFacts | None:
        zones = problem.shapes.surveys.get(NAME)
        if not isinstance(zones, ZoneTable):
            return None
        zones.occupy(problem.pods, problem.columns.node)
        return NumaFacts(zones)


RULE = NumaRule()
