"""Settings of optional rules on a Queue: one annotation a rule, ``kai-solver/rule-<name>``."""

from collections.abc import Mapping

from kai_solver.domain import setting_fault
from kai_solver.errors import printable, shown
from kai_solver.kubeobjects.names import RULE_SETTING
from kai_solver.kubeobjects.notices import Notices

_SHOWN = 400
"""Most characters of a key, and of what its rule says, that a notice has: annotations may be of 256 KiB."""


def read_rule_settings(annotations: Mapping[str, str], name: str, notices: Notices) -> tuple[tuple[str, str], ...]:
    """What the annotations of queue ``name`` set; what its rule does not understand is reported and not used."""
    found = {}
    for key in sorted(key for key in annotations if key.startswith(RULE_SETTING)):
        rule, text = key.removeprefix(RULE_SETTING), annotations[key]
        fault = setting_fault(rule, text)
        if fault:
            notices.warn(name, printable(f"{key[:_SHOWN]} {shown(text)} is not honoured: {fault[:_SHOWN]}"))
        else:
            found[rule] = text
    return tuple(found.items())


def write_rule_settings(rules: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The annotations from which `read_rule_settings` reads the same again."""
    return {f"{RULE_SETTING}{rule}": text for rule, text in rules}
