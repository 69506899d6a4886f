"""What CP-SAT's log says of one question: its size after presolve, when the search began, and what found what.

Written for the log of OR-tools 9.15. What it does not say, or says in other words, stays unknown: nothing is decided
by it.
"""

import re
from dataclasses import dataclass

_PRESOLVED = "Presolved optimization model", "Presolved satisfaction model"
_NUMBER = r"(-?[\d']+)"
_VARIABLES = re.compile(rf"#Variables: {_NUMBER}")
_CONSTRAINTS = re.compile(rf"#k\w+: {_NUMBER}")
_SEARCH = re.compile(r"Starting (?:sequential )?search at ([\d.]+)\s?s")
_WALL_TIME = re.compile(r"walltime: ([\d.e+-]+)")
_FOUND = re.compile(r"#(?:\d+|Bound|Done)\s+[\d.]+s\s+(?:best:\S+\s+next:\[[^]]*\]\s+)?(\w[\w./]*)")


@dataclass(frozen=True, slots=True)
class AskedModel:
    """Of one question to CP-SAT.

    Attributes
    ----------
    variables, constraints
        Of the model as it was asked.
    presolved_variables, presolved_constraints
        Of what presolve left of it; 0 where presolve answered the question, or did not end.
    presolve_s
        Wall seconds from the beginning until the search began, or until the end where it never did.
    """

    variables: int
    constraints: int
    presolved_variables: int
    presolved_constraints: int
    presolve_s: float


class LogReader:
    """Reads the log of one question as it comes, in whole lines.

    Attributes
    ----------
    has_begun
        Whether a word of it has come.
    presolved_variables, presolved_constraints
        Size of the presolved model; 0 while it is not known.
    search_began_s
        Seconds of the solver at which its search began; None: not yet.
    ended_s
        Seconds that it took in all; None: it has not ended.
    found_by
        Subsolver that found the newest solution or bound; empty where there is none.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self.presolved_variables = self.presolved_constraints = 0
        self.search_began_s: float | None = None
        self.ended_s: float | None = None
        self.found_by = ""
        self._is_in_presolved = False

    def feed(self, text: str, at_s: float | None = None) -> None:
        """Read lines that follow those before, the last of them written ``at_s`` seconds after the beginning.

        None: only the log says when, in hundredths of a second.
        """
        self.has_begun = True
        began_s = self.search_began_s
        for line in text.splitlines():
            self._line(line)
        if at_s is not None and self.search_began_s != began_s:
            self.search_began_s = at_s

    def asked_model(self, variables: int, constraints: int, taken_s: float) -> AskedModel:
        """What is known of the model; ``taken_s``: seconds that the question took, for a log that breaks off."""
        presolve_s = next((s for s in (self.search_began_s, self.ended_s) if s is not None), taken_s)
        return AskedModel(
            variables, constraints, self.presolved_variables, self.presolved_constraints, min(presolve_s, taken_s)
        )

    def _line(self, line: str) -> None:
        if line.startswith(_PRESOLVED):
            self._is_in_presolved = True
            self.presolved_variables = self.presolved_constraints = 0
        elif not line.strip():
            self._is_in_presolved = False
        elif self._is_in_presolved and (found := _VARIABLES.match(line)):
            self.presolved_variables = _whole(found[1])
        elif self._is_in_presolved and (found := _CONSTRAINTS.match(line)):
            self.presolved_constraints += _whole(found[1])
        elif found := _FOUND.match(line):
            self.found_by = found[1]
        elif found := _SEARCH.match(line):
            self.search_began_s = float(found[1])
        elif found := _WALL_TIME.match(line):
            self.ended_s = float(found[1])


def _whole(text: str) -> int:
    """A number with ' between thousands."""
    return int(text.replace("'", ""))
