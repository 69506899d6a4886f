"""What commands have in common before they decide: instance, model, ladder, budget."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from kai_solver.cli.exits import complain
from kai_solver.domain import Action, Snapshot, SolverModel
from kai_solver.domain.names import names_of, titled
from kai_solver.errors import InputError, nearest
from kai_solver.units import parse_duration_s, parse_quantity

if TYPE_CHECKING:
    from kai_solver.instances_io import Limits, Loaded
    from kai_solver.instances_io.cases import CaseFile

LEAST_SPAN_S = 0.1
"""The shortest time that a command runs for."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be solved, and how; ``ladder_from`` says what named the actions if they are not the model's."""

    instance: Path
    loaded: "Loaded"
    model: SolverModel
    budget_s: float
    actions_from: str = ""


def read_request(
    instance: Path,
    model: SolverModel,
    budget: str | None,
    actions: str | None,
    input_limit: list[str] | None = None,
    *,
    is_own_first: bool,
) -> Request:
    """Read an instance and settle model, ladder and budget.

    ``is_own_first``: the model that a bundle brings goes before ``model``.

    Raises
    ------
    InputError
        One of them cannot be used.
    """
    from kai_solver.instances_io import load_instance
    from kai_solver.instances_io.complete import check_complete

    loaded = load_instance(instance, limits=parse_limits(input_limit))
    check_complete(str(instance), loaded)
    bundle = loaded.extra.get("bundle")
    chosen = bundle.model if bundle is not None and is_own_first else model
    budget_s = parse_budget_s(budget) if budget is not None else chosen.budget_s
    chosen_actions, actions_from = choose_actions(loaded, actions)
    return Request(
        instance, loaded, replace(chosen, actions=chosen_actions) if chosen_actions else chosen, budget_s, actions_from
    )


def _meant(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    return f"Did you mean {near}?" if near else f"Choose from {', '.join(known)}"


def chosen_name(name: str, known: Iterable[str], noun: str, option: str) -> str:
    """The one of ``known`` that ``name`` is, or is the beginning of.

    Raises
    ------
    InputError
        There is none, or there are several.
    """
    every = sorted(known)
    if name in every:
        return name
    begun = [each for each in every if each.startswith(name)]
    if len(begun) == 1:
        return begun[0]
    like = begun or get_close_matches(name, every, n=_LISTED) or every
    more = f" and {len(like) - _LISTED:,} more" if len(like) > _LISTED else ""
    listed = ", ".join(map(repr, like[:_LISTED])) + more
    problem = f"several begin with {name!r}" if begun else f"the instance has no {noun} {name!r}"
    cure = f"Choose one: {listed}" if begun else f"It has {listed}" if every else "It has none"
    raise InputError(problem, field=option, cure=cure)


_LISTED = 5


def tell_notices(snapshot: Snapshot, *, quiet: bool) -> None:
    """Say on standard error what was set aside, or not read as it is written."""
    notices = () if quiet else snapshot.notices
    names = names_of(snapshot.gangs) if notices else {}
    for notice in notices:
        complain(f"{notice.kind}: {titled(notice.object, names)}: {notice.text}")


def choose_actions(loaded: "Loaded", actions: str | None) -> tuple[tuple[Action, ...], str]:
    """Actions and what named them: ``--actions``, else the actions that the case names, else empty: the model's.

    Raises
    ------
    InputError
        ``--actions`` names one that does not exist, or that the policy of the instance disables.
    """
    if actions is not None:
        chosen = parse_actions(actions)
        loaded.snapshot.policy.refuse_disabled(chosen, "--actions")
        return chosen, "--actions"
    named = case_actions(loaded.case)
    return (named, "the instance's own actions") if named else ((), "")


def case_actions(case: "CaseFile | None") -> tuple[Action, ...]:
    """Actions that a behaviour case or benchmark file names (``run.actions``); empty for other instances."""
    return case.actions if case is not None else ()


def parse_actions(text: str) -> tuple[Action, ...]:
    """Actions of ``allocate,reclaim``.

    Raises
    ------
    InputError
        An action does not exist.
    """
    known = [action.value for action in Action]
    actions = []
    for name in (part.strip() for part in text.split(",")):
        try:
            actions.append(Action(name))
        except ValueError:
            raise InputError(f"unknown action {name!r}", field="--actions", cure=_meant(name, known)) from None
    return tuple(actions)


def parse_limits(texts: list[str] | None) -> "Limits":
    """Limits of ``["bytes=4Gi", "depth=100"]``; what is not named keeps its default.

    Raises
    ------
    InputError
        A limit does not exist, or is no number above zero.
    """
    from kai_solver.instances_io import DEFAULT_LIMITS

    found = {}
    for text in texts or ():
        name, _, amount = text.partition("=")
        try:
            most = parse_quantity(amount) if name in ("bytes", "objects", "depth") else 0
        except InputError:
            most = 0
        if not most:
            cure = "Write bytes=4Gi, objects=5000000 or depth=100"
            raise InputError(f"{text!r} is not a limit", field="--input-limit", cure=cure)
        found[f"max_{name}"] = most
    if "max_objects" in found:
        found["max_json_objects"] = found["max_objects"]
    return replace(DEFAULT_LIMITS, **found)


def parse_span_s(text: str) -> float:
    """Seconds of ``--for``: how long a command runs.

    Raises
    ------
    InputError
        Not a duration, or shorter than 0.1 s.
    """
    seconds = _seconds_of(text, "--for")
    if not LEAST_SPAN_S <= seconds <= threading.TIMEOUT_MAX:
        cure = "Give a time of 0.1 s or more, like 90, 10m or 8h"
        raise InputError(f"{text!r} is not a time to run for", field="--for", cure=cure)
    return seconds


def _seconds_of(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        try:
            return parse_duration_s(text)
        except InputError as error:
            raise InputError(error.problem, field=option, cure=error.cure) from error


def parse_budget_s(text: str) -> float:
    """Seconds of ``2s``, ``500ms``, ``1m`` or a bare number.

    Raises
    ------
    InputError
        Not a duration, or not above zero.
    """
    seconds = _seconds_of(text, "--budget")
    if not 0 < seconds <= 86_400:
        raise InputError(f"{text!r} is not a budget", field="--budget", cure="Give more than zero, and a day at most")
    return seconds
