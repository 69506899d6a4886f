"""Preemption: work of lower priority leaves for a gang of the same queue.

Source: docs/kai-behaviour.md#preempt. The queue takes from itself, so no queue's right is asked for.

- **Which gangs may preempt**: all but those whose priority class never preempts; those have no candidates.
- **Which work may be taken**: preemptible gangs of the same leaf queue with a strictly lower priority that have run for
  the queue's minimum runtime (`Eligibility`).
- **In what order**: one set of candidates; within it the node that costs the least work first (`actions.room`).
- **What is checked**: limits and optional rules, with the victims gone (`VictimSearch.is_allowed`).
"""

from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.planstate.outcome import Refusal


class Preempt(VictimSearch):
    """Preemption in one cycle: the shared search as it is."""

    action = Action.PREEMPT

    def refusal(self, preemptor: Preemptor) -> Refusal | None:  # noqa: ARG002 - no rule but that there are victims
        """None: where no victim may be taken, the search says so."""
        return None
