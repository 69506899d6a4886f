"""Errors of usage: one line each, like all other errors."""

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from kai_solver.cli.exits import Exit, complain
from kai_solver.errors import InputError

_RENAMED = {"--limit": "--input-limit raises limits of the input"}
_LIKE = 0.75
"""How like an option a word is that was meant to be it; 1 is equal."""
_PHRASES = (
    (r"Input should be a valid integer.*", "must be a whole number"),
    (r"Input should be a (valid|finite) number.*", "must be a number"),
    (r"Input should be greater than or equal to (\S+)", r"must be \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"must be \1 or less"),
    (r"Value error, (.*) is not one of (.*)", r"there is no \1. Choose from \2"),
    (r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", r"too many arguments: \1"),
    (r"Option '(\S+)' does not take a value", r"\1 takes no value"),
    (r"Option '(\S+)' requires an argument", r"\1 needs a value"),
    (r"No such command '(.*)'\. Did you mean '(.*)'\?", r"there is no command \1. Did you mean \2?"),
    (r"No such command '(.*)'", r"there is no command \1"),
)


class Command(TyperCommand):
    """A command whose help names no types of Python beside its arguments."""

    def get_help(self, ctx: Any) -> str:
        """The help, with blanks in place of ``<list[Path]>``: columns stay where they are."""
        return re.sub(r"(?m)^(  [A-Z]+) <[^>]+>", lambda found: found[1].ljust(len(found[0])), super().get_help(ctx))


class Group(TyperGroup):
    """Commands whose errors of usage are one line on standard error, with exit code 2."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run as a program, which ends with an exit code, or as a function, which returns it."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except InputError as error:  # an option's value was looked at before the command began
            complain(str(error))
            code = Exit.INPUT
        except TyperException as error:
            _say(error)
            code = Exit.INPUT
        if standalone_mode:
            sys.exit(code)
        return code


def _say(error: Any) -> None:
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error.format_message()}\n")
        return
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "kai-solver"
    command = path.partition(" ")[2]
    problem = _problem(error, context)
    end = "" if problem.endswith("?") else "."
    complain(f"{command}{': ' if command else ''}{problem}{end} Try {path} --help")


def _problem(error: Any, context: Any) -> str:
    """What is wrong, and what was meant."""
    kind, param = type(error).__name__, getattr(error, "param", None)
    if kind == "NoSuchOption":
        name = error.option_name
        options = [option for known in context.command.params for option in known.opts] if context else []
        near = next(iter(get_close_matches(name, options, n=1, cutoff=_LIKE)), "")
        cure = _RENAMED.get(name) or (f"Did you mean {near}?" if near else "")
        return f"unknown option {name}" + (f". {cure}" if cure else "")
    if param is None:
        return _plain(error.format_message())
    name = param.opts[0] if param.param_type_name == "option" else param.display_name_raw
    return f"{name} is missing" if kind == "MissingParameter" else f"{name}: {_plain(error.message)}"


def _plain(text: str) -> str:
    """What the library says, in plain words."""
    text = text.strip().rstrip(".")
    for pattern, words in _PHRASES:
        if re.fullmatch(pattern, text):
            return re.sub(pattern, words, text)
    return text
