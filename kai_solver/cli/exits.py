"""Exit codes, and the one place where errors become lines for people."""

import errno
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from typing import ParamSpec

import typer

from kai_solver.errors import InputError, KaiSolverError, printable

P = ParamSpec("P")


class Exit(IntEnum):
    """Exit codes of every command."""

    FINE = 0
    FINDINGS = 1
    INPUT = 2
    FAILURE = 3
    INTERRUPTED = 130


EXIT_CODES_HELP = """\b
Exit codes:
  0    fine
  1    the plan or the instance has violations; conformance has differences; bench --check-peers finds a peer better;
       compare --study has failed runs
  2    bad input or usage
  3    kai-solver failed: please report it with the instance
  130  interrupted (solve writes the best plan so far, simulate what it has)

Errors are one line; KAI_SOLVER_DEBUG=1 shows the traceback as well."""


_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the machine has no room for is no error of ours, wherever it is noticed."""


def guarded(command: Callable[P, Exit]) -> Callable[P, None]:
    """Turn a command's result and its errors into an exit code; never a traceback unless asked for."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        raise typer.Exit(_outcome(command, *args, **kwargs))

    return run


def _outcome(command: Callable[P, Exit], *args: P.args, **kwargs: P.kwargs) -> Exit:
    try:
        return command(*args, **kwargs)
    except KeyboardInterrupt:
        complain("interrupted")
        return Exit.INTERRUPTED
    except (typer.Exit, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as error:
        if os.environ.get("KAI_SOLVER_DEBUG", "") not in ("", "0"):
            raise
        return _explain_error(error)


def _explain_error(error: Exception) -> Exit:
    if isinstance(error, InputError):
        complain(str(error))
        return Exit.INPUT
    if isinstance(error, KaiSolverError):
        complain(str(error))
        return Exit.FAILURE
    if isinstance(error, OSError) and error.errno in _FULL:
        place = error.filename or "standard output or a folder"
        complain(f"{place}: cannot be written: {error.strerror}. Make room, or name another place")
        return Exit.INPUT
    complain(
        f"internal error: {type(error).__name__}: {error}. Please report it with the instance; "
        "KAI_SOLVER_DEBUG=1 shows where it happened"
    )
    return Exit.FAILURE


def complain(text: str) -> None:
    """Write one line to standard error; control characters of foreign files are not passed on to the terminal."""
    line = " ".join(text.split())
    sys.stderr.write(f"kai-solver: {printable(line)}\n")
