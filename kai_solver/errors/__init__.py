"""Every exception that kai-solver raises on purpose, and what a misspelt name was meant to be.

::

    KaiSolverError                 anything of ours; the command line prints it and exits 2
    ├── InputError                 a file or object that cannot be used: names file, field and cure
    │   ├── LimitExceededError     larger or deeper than the limits allow (zip bombs, YAML bombs)
    │   └── ModelFileError         a solver model file with a wrong key or value
    ├── SolverError                the solver child crashed, hung, or answered nonsense
    └── InternalError              a broken promise inside kai-solver: a bug
        └── GangError              an unexpected error while a gang was decided about
"""

import difflib
import reprlib
from collections.abc import Iterable

_LONGEST_NAME = 253
_LONGEST_PROBLEM = 1000


class KaiSolverError(Exception):
    """Base of all errors raised on purpose."""


class InputError(KaiSolverError):
    """Input that cannot be used.

    Parameters
    ----------
    problem
        What is wrong, in one sentence.
    file, field
        Where: a path, and a dotted path inside it (``queues[3].parent``). Empty when unknown.
    cure
        What the user can do about it.
    """

    def __init__(self, problem: str, *, file: str = "", field: str = "", cure: str = "") -> None:
        self.problem = printable(problem if len(problem) <= _LONGEST_PROBLEM else f"{problem[:_LONGEST_PROBLEM]}...")
        self.file = printable(file)
        self.field = printable(field)
        self.cure = printable(cure)
        where = ": ".join(part for part in (self.file, self.field) if part)
        text = f"{where}: {self.problem}" if where else self.problem
        super().__init__(f"{text}. {self.cure}" if cure else text)

    def in_file(self, file: str) -> "InputError":
        """Return the same error, naming ``file`` where no file was named yet."""
        if self.file:
            return self
        return type(self)(self.problem, file=file, field=self.field, cure=self.cure)


class LimitExceededError(InputError):
    """The input is larger, deeper or more numerous than the limits allow."""


class ModelFileError(InputError):
    """A solver model file has an unknown key or a value out of range."""


class SolverError(KaiSolverError):
    """The solver child crashed, hung, or answered nonsense; the cycle goes on without it."""


class InternalError(KaiSolverError):
    """A promise inside kai-solver was broken; please report it with the instance."""


class GangError(InternalError):
    """An unexpected error while one gang had its turn. ``gang``: its key; ``cause``: the error."""

    def __init__(self, gang: str, cause: Exception) -> None:
        self.gang = gang
        self.cause = cause
        super().__init__(f"gang {gang}: {type(cause).__name__}: {cause}")


def printable(text: str) -> str:
    """``text`` in one line that is safe for a terminal: all but visible characters and spaces is escaped.

    Line ends could forge lines of the output, ANSI sequences colours and the cursor, and bidirectional overrides the
    order of words. Names of objects that Kubernetes accepts contain none of them.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown(value: object) -> str:
    """``value`` as a message shows it: in quotes if it is a text, and shortened."""
    try:
        return reprlib.repr(value)
    except ValueError:  # Python writes no numbers of more than 4,300 digits
        return "a number of thousands of digits"


def nearest(name: str, known: Iterable[str]) -> str:
    """The name that ``name`` was probably meant to be; empty where none is like it."""
    close = difflib.get_close_matches(name, known, n=1) if len(name) <= _LONGEST_NAME else []
    return close[0] if close else ""
