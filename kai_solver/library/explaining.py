"""Explain: why a gang waits, and what a plan does to it."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kai_solver.domain.names import names_of
from kai_solver.engine import Engine
from kai_solver.errors import InputError, shown
from kai_solver.explaining import Explainer, Explanation
from kai_solver.library.solving import Solution
from kai_solver.library.tables import Listed, Table, page

if TYPE_CHECKING:
    import polars as pl


class Explanations(Listed[Explanation]):
    """Explanations of gangs, in the order of the plan. `explain` makes it. ``print`` shows them as text."""

    def __init__(self, explanations: Sequence[Explanation], names: dict[str, str]) -> None:
        super().__init__(explanations)
        self._names = names

    def document(self) -> list[dict[str, Any]]:
        """All that is known, plain JSON types: the member ``gangs`` of ``kai-solver explain --json``."""
        return [one.document() for one in self._found]

    def frame(self) -> "pl.DataFrame":
        """A row for each gang: state, queue, reason, whether it is proven, what blocks it, what would have to change.

        Raises
        ------
        InputError
            polars is not installed.
        """
        return self._table.frame()

    @property
    def _table(self) -> Table:
        rows = [
            (
                one.gang,
                one.state,
                one.queue,
                one.reason,
                one.proof is not None and one.proof.state == "proven",
                _blocking(one),
                " ".join(one.changes),
            )
            for one in self._found
        ]
        names = ("gang", "state", "queue", "reason")
        return Table(dict.fromkeys(names, str) | {"is_proven": bool, "blocked_by": str, "changes": str}, rows)

    def __repr__(self) -> str:
        return f"<Explanations of {len(self)} gangs>"

    def __str__(self) -> str:
        return "\n\n".join(_text(one, self._names.get(one.gang, one.gang)) for one in self._found) or "no gang waits"

    def _repr_html_(self) -> str:
        return page(f"{len(self)} gangs explained", ("Gangs", self._table))


def explain(solution: Solution, gang: str | None = None, *, try_out: bool = False) -> Explanations:
    """Explain why gangs wait: queues, nodes, proof, and what would have to change.

    Parameters
    ----------
    gang
        Name of a gang, pod or workload, or how it begins; of a gang that does not wait: what the plan does to it. None:
        all gangs that wait.
    try_out
        Of the named gang: ease each thing that blocks it in turn, and plan again, to see what makes it run. Each takes
        the budget of the model.

    Raises
    ------
    InputError
        There is no such gang, or several; names those that are like it. Or ``solution`` is something else.
    """
    if not isinstance(solution, Solution):
        raise InputError(f"{shown(solution)} is not a solution", field="solution", cure="Give what `solve` returned")
    snapshot = solution.instance.snapshot
    if gang is None or not try_out:
        explainer = Explainer(snapshot, solution.plan)
        return _explained(solution, explainer, gang)
    with Engine(solution._asked) as engine:  # noqa: SLF001
        engine.wait()
        replan = partial(engine.cycle, seed=solution.plan.seed)
        return _explained(solution, Explainer(snapshot, solution.plan, replan), gang)


def _explained(solution: Solution, explainer: Explainer, gang: str | None) -> Explanations:
    gangs = explainer.pending_gangs() if gang is None else (gang,)
    return Explanations([explainer.explain(name) for name in gangs], names_of(solution.instance.snapshot.gangs))


def _blocking(explanation: Explanation) -> str:
    blocking = explanation.proof.blocking if explanation.proof is not None else ()
    return "; ".join(f"{one.name}: needs {one.need}, has {one.have}" for one in blocking)


def _text(explanation: Explanation, name: str) -> str:
    head = f"{name} is {explanation.state} in queue {explanation.queue}"
    lines = [f"{head}: {explanation.reason}" if explanation.reason else head]
    if explanation.proof is not None and explanation.proof.state == "proven":
        lines.append("It is proven that no allowed plan runs it.")
    lines += [line.strip() for line in explanation.message.splitlines() if line.strip(" .")]
    lines += [effect.text for effect in explanation.effects]
    lines += explanation.changes
    lines += [f"{cure.text}: {'it runs' if cure.runs else 'it still waits'}" for cure in explanation.cures]
    return "\n  ".join(lines)
