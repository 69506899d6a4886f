"""Of which pods rules and wishes between pods speak, against asking about each pod by itself."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.domain import Constraints, Pod, PodAffinityTerm, Requirement, Snapshot, SpreadConstraint
from kai_solver.predicates import SelectorIndex, selectors_of, wished_selectors_of
from kai_solver.problem import Memo, Problem, build_problem
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

APPS = ("web", "db", "job")
SELECTORS = (
    (Requirement("app", "In", ("web",)),),
    (Requirement("app", "In", ("db", "job")),),
    (Requirement("tier", "Exists", ()),),
    (Requirement("app", "NotIn", ("web", "db")),),
)


def constraints_of(draw: Random) -> Constraints:
    term = PodAffinityTerm(draw.choice(SELECTORS), "host")
    spread = SpreadConstraint(draw.choice(SELECTORS), "host")
    return draw.choice(
        (
            Constraints(),
            Constraints(),
            Constraints(anti_affinity=(term,)),
            Constraints(preferred_pods=((1, term),)),
            Constraints(preferred_spread=(spread,)),
            Constraints(host_ports=("80/TCP",)),
        )
    )


def labels_of(draw: Random) -> dict[str, str]:
    return {"app": draw.choice(APPS)} | ({"tier": "front"} if draw.random() < 0.2 else {})


def a_crowd(draw: Random, kinds: int) -> Snapshot:
    """Gangs of which some have pods that are not alike; ``kinds``: of constraints, few of which say anything."""
    said = [constraints_of(draw) for _ in range(kinds)]
    gangs = []
    for number in range(draw.randrange(1, 6)):
        gang = a_gang(f"g{number}", pods=draw.randrange(1, 5), on=draw.choice(("", "n0", "n1")))
        own, labels = draw.choice(said), labels_of(draw)
        mixed = draw.random() < 0.5
        pods = [
            replace(pod, constraints=draw.choice(said) if mixed else own, labels=labels_of(draw) if mixed else labels)
            for pod in gang.pods
        ]
        gangs.append(replace(gang, pods=tuple(pods)))
    return a_cluster([a_node("n0", 8), a_node("n1", 8)], gangs, [a_queue("q", 8)])


def expected(problem: Problem) -> dict[str, set[int]]:
    """Pods that carry rules, or that these are about; and the same of wishes, each pod compared with each selector."""
    rules = {s for pod in problem.pods for s in selectors_of(pod.constraints, pod.namespace)}
    is_borne = any(pod.constraints.binds_pods for pod in problem.pods)
    ruled = {
        number
        for number, pod in enumerate(problem.pods)
        if is_borne and (pod.constraints.binds_pods or any(rule.matches(pod) for rule in rules))
    }
    wished = {number for number, pod in enumerate(problem.pods) if pod.constraints.preferred_spread}
    wishes = {s for pod in problem.pods for s in wished_selectors_of(pod.constraints, pod.namespace)}
    for wish in wishes:
        matched = {number for number, pod in enumerate(problem.pods) if wish.matches(pod)}
        bearers = {
            number
            for number, pod in enumerate(problem.pods)
            if wish in wished_selectors_of(pod.constraints, pod.namespace)
        }
        if matched and (len(matched) > 1 or matched != bearers):
            wished |= matched | bearers
    return {"ruled": ruled, "related": ruled | wished}


@given(seed=st.integers(0, 2**32), kinds=st.integers(1, 4))
@settings(max_examples=200)
def test_rules_speak_of_the_pods_that_they_match(seed: int, kinds: int) -> None:
    draw, memo = Random(seed), Memo()
    for _ in range(3):
        problem = build_problem(a_crowd(draw, kinds), memo)
        found = {"ruled": set(problem.ruled), "related": set(problem.related)}
        assert found == expected(problem)


@given(seed=st.integers(0, 2**32))
def test_what_selectors_match_they_may_match(seed: int) -> None:
    draw = Random(seed)
    chosen = [s for _ in range(3) for s in selectors_of(constraints_of(draw), "ns")]
    index, pod = SelectorIndex(chosen), Pod("ns", "p", (1, 1, 0, 1), labels=labels_of(draw))
    assert index.may_match(frozenset(pod.labels.items())) or not index.speaks_of(pod)


@pytest.mark.parametrize("apps", [("web", "web"), ("web", "db"), ("db", "web")])
def test_one_pod_of_a_gang_that_a_rule_is_about(apps: tuple[str, str]) -> None:
    gang = a_gang("pair", pods=2)
    pods = [replace(pod, labels={"app": app}) for pod, app in zip(gang.pods, apps, strict=True)]
    term = PodAffinityTerm(SELECTORS[0], "host")
    other = a_gang("asks")
    asks = replace(other.pods[0], constraints=Constraints(anti_affinity=(term,)), labels={"app": "job"})
    gangs = [replace(gang, pods=tuple(pods)), replace(other, pods=(asks,))]
    problem = build_problem(a_cluster([a_node("n0", 8)], gangs, [a_queue("q", 8)]))
    named = {problem.pods[number].name for number in problem.ruled}
    assert named == {"asks-0", *(f"pair-{i}" for i, app in enumerate(apps) if app == "web")}
