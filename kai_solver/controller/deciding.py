"""The engine, kept warm over all cycles; a model file that changes is read again without a restart."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

import structlog

from kai_solver.controller.compiling import Compiling
from kai_solver.domain import Plan, Snapshot, SolverModel
from kai_solver.engine import Engine
from kai_solver.engine.progress import Fault, OnSlow
from kai_solver.errors import ModelFileError
from kai_solver.modelfiles import load_model
from kai_solver.problem import Problem

LOOK_S = 10.0
"""How often the model's file is looked at."""

_LOG = structlog.get_logger(__name__)


class Decider:
    """Decides cycles by the newest good state of a model; a context manager.

    Parameters
    ----------
    model
        Name or path.
    budget_s
        None: the model's.
    on_fault
        Called with every failure of the solver.
    on_slow
        Receives gangs whose turns left others no time.
    compiling
        Loads kernels before a cycle, or begins to compile them; None: those that are there are used.

    Raises
    ------
    ModelFileError
        The model cannot be read at the start; later, the one before stays.
    """

    def __init__(
        self,
        model: str,
        budget_s: float | None = None,
        on_fault: Callable[[Fault], None] | None = None,
        on_slow: OnSlow | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        compiling: Compiling | None = None,
    ) -> None:
        self._name = model
        self._budget_s = budget_s
        self._on_fault = on_fault
        self._on_slow = on_slow
        self._monotonic = monotonic
        self._compiling = compiling
        self._stack = ExitStack()
        self._looked_s = monotonic()
        self.model: SolverModel = load_model(model)
        self._engine = self._stack.enter_context(Engine(self.model))

    def __enter__(self) -> Self:
        self._engine.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self._compiling is not None:
            self._compiling.close()

    @property
    def budget_s(self) -> float:
        """Seconds that a decision may take."""
        return self.model.budget_s if self._budget_s is None else self._budget_s

    @property
    def problem(self) -> Problem | None:
        """The cluster of the newest decision as the engine saw it; None before the first."""
        return self._engine.memo.problem

    def __call__(self, snapshot: Snapshot) -> Plan:
        """A checked plan."""
        self._refresh()
        if self._compiling is not None and self.model.search.chains:
            self._compiling(len(snapshot.nodes))
        return self._engine.cycle(snapshot, budget_s=self.budget_s, on_fault=self._on_fault, on_slow=self._on_slow)

    def _refresh(self) -> None:
        if self._monotonic() - self._looked_s < LOOK_S:
            return
        self._looked_s = self._monotonic()
        try:
            model = load_model(self._name)
        except ModelFileError as error:
            _LOG.error("the model cannot be read; the previous one stays", error=str(error))
            return
        if model.hash != self.model.hash:
            _LOG.info("the model changed", model=model.name, hash=model.hash)
            self._stack.close()
            self.model = model
            self._engine = self._stack.enter_context(Engine(model))
