"""Optional rules by name: which are installed, and what a queue's setting for one of them says.

What a setting means is the rule's business; here it is a text, by the name of its rule.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from kai_solver.domain.model import RULE_GROUP, RULES
from kai_solver.domain.snapshot import Snapshot
from kai_solver.errors import nearest
from kai_solver.errors.barrier import in_words
from kai_solver.errors.extensions import CURE, entry_points, loaded, unusable


@cache
def rule_names() -> tuple[str, ...]:
    """Rules that ship, then those of other packages, by name."""
    return (*RULES, *sorted({point.name for point in entry_points(group=RULE_GROUP)}.difference(RULES)))


@cache
def loaded_rule(name: str) -> Any:
    """The object ``RULE`` of a rule that ships, or that of the entry point.

    Raises
    ------
    KeyError
        There is none of that name.
    InputError
        That of a package cannot be loaded, or another rule has its name.
    """
    points = list(entry_points(group=RULE_GROUP, name=name))
    if points[1:] or (points and name in RULES):
        raise unusable(points[-1], "has the name of another rule")
    if name in RULES:
        return import_module(f"kai_solver.rules.{RULES[name]}").RULE
    for point in points:
        rule = loaded(point)
        if getattr(rule, "name", None) != name:
            raise unusable(point, "is not a Rule of that name")
        return rule
    raise KeyError(name)


def setting_fault(name: str, text: str) -> str:
    """What is wrong with the setting ``text`` for rule ``name``, with the cure; empty where nothing is."""
    if name not in rule_names():
        close = nearest(name, rule_names())
        return f"unknown rule {name!r}. {f'Did you mean {close!r}?' if close else 'Correct or remove it'}"
    rule = loaded_rule(name)
    try:
        fault: str = rule.setting_fault(text)
    except Exception as error:
        return f"the rule cannot read it ({in_words(error)}). {CURE} that brings the rule"
    return fault


def pairs_of(text: str) -> Iterator[tuple[str, str]]:
    """Key and value of each part of a setting like ``label=user gpus=8``; the value is empty where ``=`` is missing."""
    for part in text.split():
        key, _, value = part.partition("=")
        yield key, value


def without_setting(snapshot: Snapshot, rule: str, title: str) -> Snapshot:
    """The cluster without what the queue of that title says for a rule; an empty title stands for all queues."""
    queues = (
        replace(queue, rules=tuple(pair for pair in queue.rules if pair[0] != rule))
        if title in (queue.title, "")
        else queue
        for queue in snapshot.queues
    )
    return replace(snapshot, queues=tuple(queues))
