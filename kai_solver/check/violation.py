"""What the checker says."""

from dataclasses import dataclass

RULES = (
    "form",
    "foreign",
    "capacity",
    "devices",
    "predicates",
    "readiness",
    "gang",
    "subgroup",
    "nomination",
    "limit",
    "quota",
    "topology",
    "order",
    "moves",
    "delay",
    "runtime",
    "units",
    "priority",
    "entitlement",
    "stale",
)
"""Every rule's name, in the order in which they are judged. Published: add, never rename."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes
    ----------
    rule
        A name of ``RULES``.
    object
        The node, queue, gang or pod that breaks it.
    text
        One sentence for people.
    """

    rule: str
    object: str
    text: str
