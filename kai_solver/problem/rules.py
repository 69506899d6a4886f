"""What an optional rule is to the rest of the program, and which rules there are.

A rule is a package of its own (`kai_solver/rules/<rule>/`, or one that a user installs). Hosts (the working state, the
model, the bounds, the explanations) iterate over `Problem.rules` and name no rule; what they ask is written here, with
defaults that ask for nothing. So a rule overrides only what it has an opinion about, and a cycle in which no object
uses a rule has an empty list: what that costs is one check of a tuple.

Three objects, by how long they live:

- `Rule`: installed, without state. It prepares its facts from the problem of a cycle, and knows how the cluster looks
  without the rule ("what if").
- `RuleFacts`: of one cycle, never changed. They add rows to the model, bound what a count may still use, and word the
  element of a blocking set.
- `Ledger`: of one working state, changed step by step. It works on shapes, nodes and counts, and every step is undone
  by the same call with the sign turned, so that compiled code can take it over.

The rules that ship are named in `domain.RULES` and loaded by name, as those of users are: so this room, and every host,
imports none of them. What belongs to rooms above is passed as `Any`; a rule, which is above them, names the type.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import RULE_GROUP, RULES, Blocker, Reason, Snapshot
from kai_solver.errors import InternalError

if TYPE_CHECKING:
    from kai_solver.problem.problem import Problem

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


class Refused(NamedTuple):
    """Why pods may not be added: the reason that is published, a sentence, and the element of a blocking set."""

    reason: Reason
    message: str
    blocker: Blocker


class Ledger:
    """What one rule counts while a plan is made: of N nodes, by shape of pod. The defaults forbid nothing.

    ``pod`` is one pod of the shape, for rules that ask about its gang; ``count`` pods like it are meant. ``kind``: that
    of its facts.
    """

    kind: str = ""

    def is_plain(self, shape: int, /) -> bool:
        """True where the ledger neither masks nor counts pods of ``shape``: they are then placed without asking it."""
        return False

    def mask(self, shape: int, pod: int, /) -> BoolArray | None:
        """(N,) nodes that one more pod of ``shape`` may take; None: all."""
        return None

    def place(self, shape: int, pod: int, node: int, count: int, sign: int, *, now: bool) -> None:
        """``count`` pods are to run on ``node`` (+1), or no longer (-1). ``now``: they start there at once."""

    def leave(self, shape: int, pod: int, node: int, count: int, sign: int, /) -> None:
        """``count`` pods that ran on ``node`` before the cycle leave it (+1), or stay after all (-1)."""

    def join(self, gang: int, pods: Sequence[int], sign: int, /) -> None:
        """``pods`` of ``gang`` are to run, wherever (+1), or no longer (-1); those that run already are counted."""

    def refuses(self, gang: int, pods: Sequence[int], /) -> Refused | None:
        """What forbids that ``pods`` of ``gang`` join, wherever they go; None where nothing does."""
        return None

    def keeps_caps(self) -> bool:
        """False where pods have joined that the rule would refuse, with all that left since taken into account."""
        return True

    def so_far(self) -> Any:
        """What `RuleFacts.lacks` has to know of the plan so far; it is kept, so it must be a copy."""
        return None

    def may_return(self, pod: int, /) -> bool:
        """True where an evicted ``pod`` may stay where it ran, whatever was placed since; else ``holds`` is asked."""
        return False

    def holds(self) -> bool:
        """Whether the plan so far keeps the rule."""
        return True

    def room(self, room: IntArray, shape: int, domain_of: IntArray, /) -> Iterator[IntArray]:
        """(N,) ``room`` for pods of ``shape`` on each node, lowered to what the rule lets them use of several nodes.

        Each must be an upper bound by which no sum over the nodes of one of ``domain_of`` (N,) comes out too small.
        """
        return iter(())

    def reasons(self, shape: int, pod: int, nodes: BoolArray, /) -> Mapping[str, int]:
        """For ``nodes`` (N,), all of them outside of ``mask``: how many by reason, for people."""
        return {}


class RuleBound:
    """What a count may still use by one rule, with some of the pods that run out of the way.

    ``spans``: ``most`` is less than the sum over single nodes.
    """

    kind: str = ""
    spans: bool = False

    def closed(self, shape: int, /) -> BoolArray | None:
        """(N,) nodes that take no pod of ``shape``; None: none is closed."""
        return None

    def most(self, shape: int, fit: IntArray, /) -> int:
        """Most pods of ``shape`` together, where each node takes ``fit`` (N,) alone."""
        return int(fit.sum())


class RuleFacts:
    """What one rule is in one cycle.

    Attributes
    ----------
    name
        Of the rule, and of its family of rows in the model.
    kind
        Of its element in a blocking set, and what a bound or the model is told to drop.
    ties
        Whether gangs that share no node, queue or gang may concern each other by this rule; then the model is not
        solved in parts.
    """

    name: str = ""
    kind: str = ""
    ties: bool = True

    def ledger(self, problem: "Problem", /) -> Ledger | None:
        """What it counts in a working state; None where rows and bounds alone keep it."""
        return None

    def add_rows(self, variables: Any, /) -> None:
        """Add its rows to the joint model; ``variables``: `kai_solver.model.variables.Variables`."""

    def bound(self, problem: "Problem", gone: IntArray, /) -> RuleBound | None:
        """What counts may use once the pods ``gone`` have left; None where that is everything."""
        return None

    def tells_apart(self, pod: int, /) -> Hashable:
        """What makes ``pod`` different for this rule from others of its shape; None where nothing does.

        Only pods with the same answer may stand for each other: in the model, and where one gang's "no" is another's.
        """
        return None

    def lacks(
        self, problem: "Problem", pods: Sequence[int], so_far: Any, gone: Callable[[int], bool], /
    ) -> Blocker | None:
        """Proof that the rule forbids ``pods``, of one gang, wherever they go; None where it proves nothing.

        ``so_far``: of the ledger; None for an empty cluster. ``gone``: whether all pods of a gang may be out of the
        way.
        """
        return None

    def may_block(self, problem: "Problem", needed: Mapping[int, int], /) -> bool:
        """Whether the rule may keep pods ``needed`` (by shape) from running."""
        return True

    def element(self, words: Any, /) -> Blocker:
        """The rule as an element of a blocking set; ``words``: `kai_solver.bounds.blocking.ElementWords`."""
        return Blocker(self.kind, self.name, "", "")


class Rule:
    """One installed rule.

    Attributes
    ----------
    name, kind
        As of its facts.
    cure
        What ``eased`` changes, for people; ``{name}`` is the element's. Empty: nothing is proposed.
    """

    name: str = ""
    kind: str = ""
    cure: str = ""

    def prepare(self, problem: "Problem", /) -> RuleFacts | None:
        """The facts of this cycle; None where no object uses the rule. ``problem.rules`` is not filled yet."""
        return None

    def eased(self, snapshot: Snapshot, gang: str, blocker: Blocker, /) -> Snapshot | None:
        """``snapshot`` without the rule in the way of ``gang`` (its key); None where that cannot be said."""
        return None


@cache
def installed_rules() -> tuple[Rule, ...]:
    """Rules that ship, then those of other packages by name; each is the object ``RULE``, or the entry point's.

    Raises `InternalError` where what a package names is no rule.
    """
    found: list[Rule] = [import_module(f"kai_solver.rules.{name}").RULE for name in RULES]
    for point in sorted(entry_points(group=RULE_GROUP), key=lambda point: point.name):
        rule = point.load()
        if not isinstance(rule, Rule) or rule.name != point.name:
            raise InternalError(f"entry point {point.name} of {RULE_GROUP} is not a Rule of that name")
        found.append(rule)
    return tuple(found)


def prepared(problem: "Problem") -> tuple[RuleFacts, ...]:
    """Facts of the rules that some object of ``problem`` uses."""
    every = (rule.prepare(problem) for rule in installed_rules())
    return tuple(facts for facts in every if facts is not None)


def rule_of_kind(kind: str) -> Rule | None:
    """The installed rule whose element in a blocking set is of ``kind``; None where there is none."""
    return next((rule for rule in installed_rules() if rule.kind == kind), None)
