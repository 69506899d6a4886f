"""What came of a case."""

from dataclasses import dataclass, field

from kai_solver.domain import Plan, Snapshot
from kai_solver.lab.conformance.states import TaskState


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case.

    Attributes
    ----------
    before
        The snapshot of the first round, every device named.
    states
        What the expectation is held against, by pod key.
    plans
        One a round, up to the match.
    violations
        The checker's findings in any round, in words.
    single_session
        States are raw, as they stand at the end of one cycle; else they are settled.
    pending_messages
        By gang: everything that the last plan says about why it waits, in each form that cases may quote.
    waits_because
        By gang: reason and message of the last plan, for cases that assert some words of it.
    unstable
        What changed in the further rounds, in words; empty when nothing did.
    """

    before: Snapshot
    states: dict[str, TaskState]
    plans: tuple[Plan, ...]
    violations: tuple[str, ...] = ()
    unstable: tuple[str, ...] = ()
    single_session: bool = True
    pending_messages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    waits_because: dict[str, str] = field(default_factory=dict)
