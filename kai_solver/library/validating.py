"""Validate: an instance by what its import found and by the lints, a plan by the rules."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kai_solver.check import check_plan
from kai_solver.domain import ACTIONS, Plan, Snapshot
from kai_solver.instances_io.lints import lints
from kai_solver.instances_io.plans import read_plan_of
from kai_solver.library.instances import Instance, as_instance
from kai_solver.library.solving import Solution, actions_of
from kai_solver.library.tables import Listed, Table, page

if TYPE_CHECKING:
    import polars as pl

Level = Literal["set-aside", "error", "warning", "info"]
SERIOUS: tuple[Level, ...] = ("set-aside", "error")
"""Levels of what has to be corrected."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or looks so.

    Attributes
    ----------
    level
        ``set-aside``: the object takes no part. ``error``: it can never run as it is written, or the plan breaks a
        rule. ``warning``, ``info``: it looks like a mistake, or is good to know.
    object
        What it is about.
    rule
        Of a plan: the rule that it breaks; else empty.
    """

    level: Level
    object: str
    text: str
    cure: str = ""
    rule: str = ""


class Findings(Listed[Finding]):
    """What `validate` found; empty: nothing. ``print`` shows a line for each."""

    def __init__(self, subject: str, findings: Sequence[Finding]) -> None:
        super().__init__(findings)
        self._subject = subject

    @property
    def is_fine(self) -> bool:
        """Whether nothing has to be corrected: no object was set aside, and there is no error."""
        return all(one.level not in SERIOUS for one in self._found)

    def document(self) -> list[dict[str, str]]:
        """Plain JSON types, a member for each field of `Finding`."""
        return [asdict(one) for one in self._found]

    def frame(self) -> "pl.DataFrame":
        """A row for each finding.

        Raises
        ------
        InputError
            polars is not installed.
        """
        return self._table.frame()

    @property
    def _table(self) -> Table:
        rows = [(one.level, one.rule, one.object, one.text, one.cure) for one in self._found]
        return Table(dict.fromkeys(("level", "rule", "object", "text", "cure"), str), rows)

    def __repr__(self) -> str:
        return f"<Findings of {self._subject}: {len(self)}>"

    def __str__(self) -> str:
        lines = [
            f"{one.rule or one.level}: {one.object}: {one.text}" + (f". {one.cure}" if one.cure else "")
            for one in self._found
        ]
        return "\n".join(lines) or f"{self._subject}: fine"

    def _repr_html_(self) -> str:
        head = f"{self._subject}: {len(self)} findings" if self else f"{self._subject}: fine"
        return page(head, ("Findings", self._table))


def validate(
    instance: Instance | str | PathLike[str] | Mapping[str, Any],
    plan: Solution | Plan | str | PathLike[str] | None = None,
    *,
    actions: Sequence[str] | None = None,
) -> Findings:
    """Judge a plan by every rule, or an instance alone: what was set aside, and what looks like a mistake.

    The checker shares no code with what decides.

    Parameters
    ----------
    plan
        A solution or its plan, or a plan file. None: the instance itself is judged.
    actions
        That the plan may use. None: those that a behaviour case names, else all.

    Raises
    ------
    InputError
        The instance or the plan cannot be read, or the plan is of another instance.
    """
    known = as_instance(instance)
    if plan is None:
        return Findings(known.name, findings_of(known.snapshot))
    case = known._loaded.case  # noqa: SLF001
    allowed = actions_of(actions) if actions is not None else case.actions if case is not None else ()
    judged = plan.plan if isinstance(plan, Solution) else plan
    if not isinstance(judged, Plan):
        judged = read_plan_of(known.snapshot, Path(judged))
    violations = check_plan(known.snapshot, judged, actions=allowed or ACTIONS)
    return Findings(f"plan of {known.name}", [Finding("error", v.object, v.text, rule=v.rule) for v in violations])


def findings_of(snapshot: Snapshot) -> list[Finding]:
    """What the import of an instance set aside or changed, and what its lints find."""
    found = [Finding(notice.kind, notice.object, notice.text) for notice in snapshot.notices]
    return found + [Finding(lint.severity, lint.object, lint.text, lint.cure) for lint in lints(snapshot)]
