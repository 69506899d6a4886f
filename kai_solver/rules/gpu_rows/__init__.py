"""Whole GPUs in a row: some pods need, or prefer, GPUs whose indices follow each other (docs/devices.md)."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.blocking import ElementWords
from kai_solver.domain import Blocker, Snapshot
from kai_solver.links import row_wish
from kai_solver.model.decode import Decision, Values
from kai_solver.model.variables import Variables
from kai_solver.planstate.state import State
from kai_solver.problem import Problem, Shape
from kai_solver.problem.rules import Rule, RuleFacts
from kai_solver.rules.gpu_rows import rows, words
from kai_solver.rules.gpu_rows.ledger import RowLedger
from kai_solver.rules.gpu_rows.problem import (
    KIND,
    NAME,
    fitting_in_rows,
    known_where,
    needs_row,
    out_of_row,
    rows_in,
    unidentified_of,
)
from kai_solver.units.shares import WHOLE

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


class GpuRowsFacts(RuleFacts):
    """Pods with unidentified GPUs, and pods that need a row and do not have it, in this cycle."""

    name, kind = NAME, KIND
    ties = False
    limits_nodes = True

    def __init__(self, problem: Problem) -> None:
        self._out_of_row: frozenset[int] | None = None
        self.is_required = any(needs_row(shape.gpu) for shape in problem.shapes.shapes)
        self.unidentified = unidentified_of(problem) if self.is_required else frozenset()

    def exempt(self, problem: Problem, /) -> frozenset[int]:
        if self._out_of_row is None:
            self._out_of_row = out_of_row(problem)
        return self._out_of_row

    def ledger(self, state: State, /) -> RowLedger:
        return RowLedger(state.problem, state, self.unidentified, is_required=self.is_required)

    def limit(self, problem: Problem, shape: int, count: IntArray, device_free: IntArray, /) -> None:
        gpu = problem.shapes.shapes[shape].gpu
        if needs_row(gpu):
            known = known_where(problem, self.unidentified, device_free)
            np.minimum(count, fitting_in_rows(problem, device_free >= WHOLE, gpu, slice(None), known), out=count)

    def may_block(self, problem: Problem, needed: Mapping[int, int], /) -> bool:
        """Also rows of other gangs: these need their places."""
        return self.is_required

    def element(self, words_: ElementWords, /) -> Blocker:
        return words.element(words_, self.unidentified)

    # -- model -------------------------------------------------------------------------------------------------------

    def by_device(self, variables: Variables, /) -> BoolArray:
        return rows.nodes_of_rows(variables)

    def add_rows(self, variables: Variables, /) -> None:
        rows.add(variables, self.unidentified)

    def decode(self, variables: Variables, values: Values, decision: Decision, /) -> None:
        rows.decode(variables, values, decision)

    # -- explanations ------------------------------------------------------------------------------------------------

    def request_text(self, shape: Shape, /) -> str:
        return words.row_text(shape.gpu) if needs_row(shape.gpu) else ""

    def room(self, after: Problem, shape: Shape, node: int, most: int, /) -> int:
        wish = row_wish(shape.gpu)
        if wish is None or not wish.is_required:
            return most
        whole = after.device_free[[node]] >= WHOLE
        rows_there = int(rows_in(whole, shape.gpu.devices, wish.row)[0])
        return min(most, rows_there) if words.is_known(after, node) else 0

    def lack(self, after: Problem, shape: Shape, node: int, /) -> tuple[str, str]:
        text = words.lack(after, shape.gpu, node)
        return text, text

    def shortage(self, after: Problem, shape: Shape, node: int, /) -> str:
        return words.shortage(after, shape.gpu, node)


class GpuRowsRule(Rule):
    """Prepared where any pod asks for GPUs in a row."""

    name, kind = NAME, KIND
    cure = words.CURE

    def prepare(self, problem: Problem, /) -> GpuRowsFacts | None:
        wanted = any(row_wish(shape.gpu) is not None for shape in problem.shapes.shapes)
        return GpuRowsFacts(problem) if wanted else None

    def eased(self, snapshot: Snapshot, gang: str, blocker: Blocker, /) -> Snapshot:
        return words.without(snapshot, gang)


RULE = GpuRowsRule()
