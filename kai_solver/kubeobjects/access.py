"""Rights to use queues, and nodes that are kept spare: rules of the administrator, none by default, as in KAI."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kai_solver.kubeobjects import names


@dataclass(frozen=True, slots=True)
class Allowance:
    """A right to use queues or spare nodes; all fields allow patterns like ``team-*``.

    ``queues``: the queues that it applies to; empty if it applies to spare nodes. ``users`` and ``groups`` are those of
    the API server, known only at admission.
    """

    queues: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def names_people(self) -> bool:
        """Whether it depends on the author of an object."""
        return bool(self.users or self.groups)

    def is_for(self, namespace: str, user: str = "", groups: Iterable[str] = ()) -> bool:
        """Whether it allows objects of this namespace, or of this author."""
        by_author = bool(user) and _matches(user, self.users)
        return _matches(namespace, self.namespaces) or by_author or any(_matches(name, self.groups) for name in groups)


@dataclass(frozen=True, slots=True)
class Access:
    """The rules. Queues and spare nodes without a rule are open to all; without rules that is everything."""

    queues: tuple[Allowance, ...] = ()
    spares: tuple[Allowance, ...] = ()

    def of_queue(self, queue: str) -> tuple[Allowance, ...]:
        """Rules about a queue."""
        return tuple(rule for rule in self.queues if _matches(queue, rule.queues))

    def keeps_from_queue(self, queue: str, namespace: str, *, is_judged: bool = True) -> str:
        """Why work of a namespace may not use a queue, by any author; empty where it may, or authors decide.

        ``is_judged``: admission sees where the queue is named, and judged the author. Else the namespace alone counts.
        """
        text = f"namespace {namespace} may not use queue {queue}"
        if _keeps(self.of_queue(queue), namespace):
            return text
        unjudged = not is_judged and self.asks_for_author(queue, namespace)
        return f"{text}, which an owner names and no pod" if unjudged else ""

    def asks_for_author(self, queue: str, namespace: str) -> bool:
        """Whether work of a namespace may use a queue only if a rule names its author."""
        return _asks_for_author(self.of_queue(queue), namespace)

    def keeps_from_spares(self, namespace: str) -> bool:
        """Whether work of a namespace may not use spare nodes, by any author."""
        return _keeps(self.spares, namespace)

    def spares_ask_for_author(self, namespace: str) -> bool:
        """As `asks_for_author`, of spare nodes."""
        return _asks_for_author(self.spares, namespace)


OPEN = Access()


def no_spares_text(namespace: str) -> str:
    """What is said where work of a namespace asks for spare nodes, and may not use them."""
    return f"namespace {namespace} may not use spare nodes: {names.OWN_MAY_USE_SPARES} is ignored"


def _keeps(rules: tuple[Allowance, ...], namespace: str) -> bool:
    return bool(rules) and not any(rule.names_people or rule.is_for(namespace) for rule in rules)


def _asks_for_author(rules: tuple[Allowance, ...], namespace: str) -> bool:
    return any(rule.names_people for rule in rules) and not any(rule.is_for(namespace) for rule in rules)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
