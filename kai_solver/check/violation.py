"""What the checker says."""

from dataclasses import dataclass

OPTIONAL = ("usercaps", "stop", "maintenance")
"""Rules that are found by name, each in a module of this room (`check/optional.py`)."""

RULES = (
    "form",
    "foreign",
    "capacity",
    "devices",
    "numa",
    "claims",
    "predicates",
    "readiness",
    "gang",
    "subgroup",
    "nomination",
    "limit",
    "quota",
    "topology",
    "spacing",
    "order",
    "moves",
    "delay",
    "runtime",
    "units",
    "priority",
    "entitlement",
    "stale",
    "needless",
    "budgets",
    "ranks",
    "tenants",
    "spares",
    *OPTIONAL,
)
"""Every rule's name. Published: add, never rename."""

WASTE = frozenset({"needless", "ranks"})
"""Rules whose breach does no harm beyond a victim too many or a slower gang: such a plan may be carried out, and the
breach is reported."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes
    ----------
    rule
        A name of ``RULES``, or that of a check of another package.
    object
        The node, queue, gang or pod that breaks it.
    text
        One sentence for people.
    """

    rule: str
    object: str
    text: str
