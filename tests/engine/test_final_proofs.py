"""Proofs asked of the final state, beside all that the plan admits: against an exhaustive search there is no false one.

Every question is asked of the end, also those that an action answered in its turn, so that many are.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from unittest.mock import patch

import pytest
from hypothesis import given

from kai_solver.actions import Actions
from kai_solver.domain import Action, AtMost, Gang, Pending, Plan, Proof, Reason, Snapshot
from kai_solver.engine import Engine
from kai_solver.engine.asking import Asking
from kai_solver.engine.deciding import Decider
from kai_solver.engine.stages import admission_stage
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import build_problem
from kai_solver.reasons.pending import pending_gangs, pending_text
from kai_solver.reasons.refusals import BUDGET_ENDED
from kai_solver.reasons.untold import tell
from kai_solver.search.open_questions import OpenQuestions
from kai_solver.search.oracle import SolverActions
from kai_solver.search.waiting_together import WaitingTogether
from tests.engine.conftest import Engines
from tests.engine.test_proofs import RUNGS, Rules, small_clusters
from tests.support.builders import a_cluster, a_gang, a_node, a_pod
from tests.support.clusters import some


def outcomes(engine: Engine, cluster: Snapshot) -> Iterator[Outcome]:
    """What the engine decided for ``cluster``, before proofs are asked of it, as if no action had answered in time."""
    found: list[Outcome] = []

    def note(_: Decider, outcome: Outcome, __: Asking) -> None:
        found.append(outcome)

    with patch.object(Decider, "_prove", note):
        engine.cycle(cluster)
    for outcome in found[:1]:
        outcome.refusals = {gang: dict.fromkeys(RUNGS, BUDGET_ENDED) for gang in outcome.waiting}
        yield outcome


class End:
    """The final state in terms of the exhaustive search: who runs, who was evicted, who may be anywhere."""

    def __init__(self, cluster: Snapshot, outcome: Outcome) -> None:
        self.cluster = cluster
        state, self.gangs = outcome.state, outcome.state.problem.gangs
        owner = outcome.state.problem.pod_gang
        left = {owner[pod] for pod in state.gone if pod not in state.places}
        moved = {owner[pod] for pod in state.gone if pod in state.places} - left
        self.by_key = {gang.key: gang for gang in cluster.gangs}
        self.admitted, self.gone, self.moved = (
            [self.gang(index) for index in sorted(indices)] for indices in (outcome.has_admitted(), left, moved)
        )

    def gang(self, index: int) -> Gang:
        return self.by_key[self.gangs[index].gang.key]

    def can(self, gang: int, action: Action) -> bool:
        return Rules(self.cluster, self.gang(gang), self.admitted, self.gone, self.moved).can(action)

    def most(self, waiting: Sequence[int]) -> int:
        """How many of the gangs ``waiting`` can run together: in any order, with any victims, action by action."""
        return self._most([self.gang(index) for index in waiting], self.admitted, self.gone, self.moved, RUNGS)

    def _most(
        self,
        waiting: Sequence[Gang],
        admitted: Sequence[Gang],
        gone: Sequence[Gang],
        moved: Sequence[Gang],
        actions: Sequence[Action],
    ) -> int:
        best = 0
        for gang in waiting:
            rules = Rules(self.cluster, gang, admitted, gone, moved)
            rest = [other for other in waiting if other is not gang]
            for at, action in enumerate(actions):
                loose = [g for g in rules.running if g.preemptible] if action is Action.CONSOLIDATION else moved
                for victims in rules.ways(action):
                    more = self._most(rest, [*admitted, gang], [*gone, *victims], loose, actions[at:])
                    best = max(best, 1 + more)
                    if best == len(waiting):
                        return best
        return best


@pytest.mark.parametrize("model", ["default", "deterministic"])
@given(cluster=small_clusters(most_waiting=4))
@some(60, campaign=2000)
def test_no_false_proof_of_the_final_state(engines: Engines, model: str, cluster: Snapshot) -> None:
    check_alone(engines[model], cluster)


def check_alone(engine: Engine, cluster: Snapshot) -> None:
    """What is proven of one gang and one action in the final state, no search finds."""
    for outcome in outcomes(engine, cluster):
        OpenQuestions(outcome, RUNGS).run(lambda: False, beside="plan")
        end = End(cluster, outcome)
        for gang in outcome.waiting:
            for action, refusal in outcome.refusals[gang].items():
                assert refusal.proof.state != "proven" or not end.can(gang, action), (gang, action)


@given(cluster=small_clusters(most_waiting=4))
@some(40, campaign=2000)
def test_no_false_proof_after_chains(engines: Engines, cluster: Snapshot) -> None:
    """Chains move single pods of those that run: what they leave is not what the actions left."""
    with patch("kai_solver.engine.deciding.is_for_chains", return_value=True):
        check_alone(engines["default"], tight(cluster))
        check_together(engines["default"], tight(cluster))


def check_together(engine: Engine, cluster: Snapshot) -> int:
    """Of those that wait together no more can run than is said; returns how many must wait."""
    must_wait = 0
    for outcome in outcomes(engine, cluster):
        WaitingTogether(OpenQuestions(outcome, RUNGS)).run(lambda: inf)
        end, counted = End(cluster, outcome), Counter[tuple[int, int]]()
        proofs = {gang: [refusal.proof for refusal in outcome.refusals[gang].values()] for gang in outcome.waiting}
        alone = [gang for gang, found in proofs.items() if all(proof.state == "proven" for proof in found)]
        said = {found[0].at_most for found in proofs.values() if found[0].at_most is not None}
        assert len(said) <= 1, counted
        for at_most in said:
            members = [gang for gang, found in proofs.items() if found[0].at_most is not None]
            assert len(members) == at_most.gangs > at_most.most
            assert end.most(members) <= at_most.most, members
            must_wait += at_most.gangs - at_most.most
        assert end.most(alone) == 0, alone
        must_wait += len(alone)
    return must_wait


def tight(cluster: Snapshot) -> Snapshot:
    """With only the nodes on which pods run, and one more: those that wait stand in each other's way."""
    used = {pod.node for gang in cluster.gangs for pod in gang.pods}
    return replace(cluster, nodes=tuple(n for n in cluster.nodes if n.name in used or n is cluster.nodes[-1]))


@pytest.mark.parametrize("model", ["default", "deterministic"])
@given(cluster=small_clusters(most_waiting=4))
@some(40, campaign=2000)
def test_no_false_count_of_those_that_wait_together(engines: Engines, model: str, cluster: Snapshot) -> None:
    check_together(engines[model], tight(cluster))


@given(cluster=small_clusters(most_waiting=4))
@some(40, campaign=2000)
def test_no_false_count_in_one_queue(engines: Engines, cluster: Snapshot) -> None:
    """Gangs of one queue take only from work below them: much more is counted than if they take from each other."""
    gangs = tuple(replace(gang, queue=cluster.gangs[-1].queue) for gang in cluster.gangs)
    check_together(engines["deterministic"], tight(replace(cluster, gangs=gangs)))


def crowded(kinds: int = 1) -> Snapshot:
    """6 gangs of 0.6 GPU that wait, in so many kinds, and two nodes: a full one of 4 GPUs, an idle one of 2."""
    held = [a_pod(f"r{i}", 1, "a", milli=600, devices=(i,)) for i in range(4)]
    running = [a_gang(pod.name, pod, preemptible=False) for pod in held]
    waiting = [a_gang(f"w{i}", a_pod(f"w{i}", milli=600, cpu=100 + i % kinds)) for i in range(6)]
    return a_cluster([a_node("a", 4), a_node("b", 2)], [*running, *waiting])


def counted(cluster: Snapshot) -> list[Proof]:
    """Proofs of those that wait after nothing was placed, and every question was left open."""
    outcome = Actions(build_problem(cluster), (), SolverActions(None)).run()
    outcome.refusals = {gang: dict.fromkeys(RUNGS, BUDGET_ENDED) for gang in outcome.waiting}
    WaitingTogether(OpenQuestions(outcome, RUNGS)).run(lambda: inf)
    return [outcome.refusals[gang][Action.ALLOCATE].proof for gang in outcome.waiting]


@pytest.mark.parametrize("kinds", [1, 2, 6])
def test_two_devices_take_two_of_six_large_shares(kinds: int) -> None:
    assert {proof.at_most for proof in counted(crowded(kinds))} == {AtMost(6, 2)}


def test_where_none_can_run_each_is_proven() -> None:
    cluster = crowded()
    proofs = counted(replace(cluster, nodes=cluster.nodes[:1]))
    assert [(proof.state, proof.beside, proof.at_most) for proof in proofs] == [("proven", "plan", None)] * 6


def test_nothing_is_counted_once_the_time_is_over() -> None:
    outcome = Actions(build_problem(crowded()), (), SolverActions(None)).run()
    outcome.refusals = {gang: dict.fromkeys(RUNGS, BUDGET_ENDED) for gang in outcome.waiting}
    final = OpenQuestions(outcome, RUNGS)
    final.run(lambda: True)
    WaitingTogether(final).run(lambda: 0.0)
    assert all(refusal is BUDGET_ENDED for gang in outcome.waiting for refusal in outcome.refusals[gang].values())


def test_the_stage_and_the_text_count_those_that_must_wait_together() -> None:
    pending = [
        Pending(f"ns/{name}", Reason.NOT_ENOUGH_RESOURCES, "", proof)
        for name, proof in (
            ("a", Proof("proven", "count", beside="plan")),
            ("b", Proof("unknown", "budget", at_most=AtMost(3, 1))),
            ("c", Proof("unknown", "budget", at_most=AtMost(3, 1))),
            ("d", Proof("unknown", "budget", at_most=AtMost(3, 1))),
        )
    ]
    stage = admission_stage(Plan(pending=tuple(pending)))
    assert (stage.value, stage.bound, stage.optimal) == (4, 3, False)
    assert pending_text(pending[0]) == "Proven: no allowed plan runs it beside all that this plan admits."
    assert pending_text(pending[1]) == (
        "Proven: of 3 workloads that wait, this one among them, at most 1 can run beside all that this plan admits; "
        "at least 2 have to wait."
    )


def test_a_gang_that_had_no_turn_is_told_what_lacks_in_the_end() -> None:
    cluster = crowded()
    outcome = Actions(build_problem(replace(cluster, nodes=cluster.nodes[:1])), (), SolverActions(None)).run()
    outcome.refusals = {gang: dict.fromkeys(RUNGS, BUDGET_ENDED) for gang in outcome.waiting}
    OpenQuestions(outcome, RUNGS).run(lambda: False, beside="plan")
    tell(outcome, lambda: False)
    entries = pending_gangs(outcome.state.problem, outcome, lambda: False)
    assert {(entry.proof.state, entry.proof.beside) for entry in entries} == {("proven", "plan")}
    assert all("0/1 nodes are available" in entry.message for entry in entries)
    assert all(entry.proof.blocking and entry.proof.minimal for entry in entries)
