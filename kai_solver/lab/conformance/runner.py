"""Run a case: cycles on fresh snapshots, each plan judged by the checker."""

from collections.abc import Callable

from kai_solver.check import check_plan
from kai_solver.domain import Action, Plan, Snapshot
from kai_solver.lab.conformance.casefile import RunSpec
from kai_solver.lab.conformance.outcome import Outcome
from kai_solver.lab.conformance.rounds import settle
from kai_solver.lab.conformance.states import seat_devices, states_after, states_of
from kai_solver.reasons.pending import detailed_message

Decide = Callable[[Snapshot, tuple[Action, ...]], Plan]
"""One cycle: a snapshot and a ladder in, a plan out."""


def run_case(snapshot: Snapshot, run: RunSpec, decide: Decide, lasting: frozenset[str] = frozenset()) -> Outcome:
    """Run the rounds of a case.

    ``single_session``: one cycle, states as they stand after it. ``integration``: ``rounds`` cycles, then
    ``rounds_after_match`` more that must change nothing. ``lasting``: gangs whose evicted pods stay ``Releasing``.
    """
    before = seat_devices(snapshot)
    rounds = _Rounds(run, decide, lasting)
    if run.kind == "single_session":
        plan = rounds.decide(before)
        states = states_after(before, plan)
        return Outcome(before, states, (plan,), tuple(rounds.violations), (), True, _messages(plan), _reasons(plan))
    current = before
    plans = []
    for _ in range(run.rounds):
        plans.append(rounds.decide(current))
        current = rounds.settle(current, plans[-1])
    states = states_of(current)
    unstable = rounds.changes(current)
    last, found = plans[-1], tuple(rounds.violations)
    return Outcome(before, states, tuple(plans), found, unstable, False, _messages(last), _reasons(last))


class _Rounds:
    """The cycles of one case, with what the checker found in them."""

    def __init__(self, run: RunSpec, decide: Decide, lasting: frozenset[str]) -> None:
        self._run = run
        self._decide = decide
        self._lasting = lasting
        self.violations: list[str] = []

    def decide(self, snapshot: Snapshot) -> Plan:
        plan = self._decide(snapshot, self._run.actions)
        found = check_plan(snapshot, plan, actions=self._run.actions)
        self.violations += [f"{v.rule}: {v.object}: {v.text}" for v in found]
        return plan

    def settle(self, snapshot: Snapshot, plan: Plan) -> Snapshot:
        delay_s = self._run.delay_between_rounds_ms / 1000
        return seat_devices(settle(snapshot, plan, lasting=self._lasting, delay_s=delay_s))

    def changes(self, snapshot: Snapshot) -> tuple[str, ...]:
        """What the further rounds change; they end at the first change."""
        reached = states_of(snapshot)
        for number in range(1, self._run.rounds_after_match + 1):
            snapshot = self.settle(snapshot, self.decide(snapshot))
            now = states_of(snapshot)
            changed = [
                f"{pod} was {state} and is {now[pod]} {number} round(s) after the match"
                for pod, state in reached.items()
                if (now[pod].status, now[pod].node) != (state.status, state.node)
            ]
            if changed:
                return tuple(changed)
        return ()


def _messages(plan: Plan) -> dict[str, tuple[str, ...]]:
    """By gang: KAI's detailed fit error, which is what its tables assert."""
    texts: dict[str, tuple[str, ...]] = {}
    for pending in plan.pending:
        texts[pending.gang] = (*texts.get(pending.gang, ()), detailed_message(pending.fit_errors))
    return texts


def _reasons(plan: Plan) -> dict[str, str]:
    texts: dict[str, str] = {}
    for pending in plan.pending:
        texts[pending.gang] = f"{texts.get(pending.gang, '')}{pending.reason.value}: {pending.message}\n"
    return texts
