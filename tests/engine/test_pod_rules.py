"""Rules between pods, through whole cycles: against every possible plan of a small cluster, with honest proofs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import (
    Action,
    Constraints,
    Gang,
    Node,
    Plan,
    Pod,
    PodAffinityTerm,
    PodStatus,
    Queue,
    Requirement,
    Snapshot,
    SpreadConstraint,
    flat_gang,
)
from kai_solver.engine import Engine
from kai_solver.modelfiles import load_model
from kai_solver.predicates import Placed, clashes_with_pods, kept_off
from kai_solver.units import ResourceSchema
from tests.support.clusters import some

ROOM = 2
"""Pods that a node takes."""
NODES = tuple(
    Node(f"n{i}", (8000, 2**34, 0, ROOM), labels={"host": f"n{i}"} | ({"zone": zone} if zone else {}))
    for i, zone in enumerate(("a", "a", "b"))
)
UNZONED = (*NODES[:2], replace(NODES[2], labels={"host": "n2"}))


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Engine]]:
    base = load_model("deterministic")
    with (
        Engine(replace(base, actions=(Action.ALLOCATE,))) as still,
        Engine(replace(base, actions=(Action.ALLOCATE, Action.CONSOLIDATION))) as moving,
        Engine(base) as everything,
    ):
        yield {"still": still, "moving": moving, "all": everything}


def selects(*apps: str) -> tuple[Requirement, ...]:
    return (Requirement("app", "In", apps),)


def near(*apps: str, key: str = "zone") -> Constraints:
    return Constraints(affinity=(PodAffinityTerm(selects(*apps), key),))


def far(*apps: str, key: str = "zone") -> Constraints:
    return Constraints(anti_affinity=(PodAffinityTerm(selects(*apps), key),))


def a_pod(name: str, app: str = "web", constraints: Constraints | None = None, node: str = "", **more: object) -> Pod:
    status = PodStatus.RUNNING if node else PodStatus.PENDING
    pod = Pod("ns", name, (100, 2**20, 0, 1), status=status, node=node, constraints=constraints or Constraints())
    return replace(pod, labels={"app": app}, order=(0, 0.0, name), **more)  # type: ignore[arg-type]


def a_cluster(arriving: Sequence[Pod], running: Sequence[Pod] = (), nodes: Sequence[Node] = NODES) -> Snapshot:
    gangs = [Gang("ns", f"r-{pod.name}", "q", flat_gang(1), (pod,), last_start_s=0.0) for pod in running]
    gangs.append(Gang("ns", "w", "q", flat_gang(len(arriving)), tuple(arriving)))
    return Snapshot(1000.0, ResourceSchema(), tuple(nodes), (Queue("q", quota=(-1, -1, -1)),), tuple(gangs))


def is_possible(snapshot: Snapshot, *, may_move: bool) -> bool:
    """Whether any assignment at all places the waiting gang, each rule asked pod by pod."""
    nodes = snapshot.nodes
    running = [pod for gang in snapshot.gangs[:-1] for pod in gang.pods]
    arriving = list(snapshot.gangs[-1].pods)
    origins = [next(i for i, node in enumerate(nodes) if node.name == pod.node) for pod in running]
    options = [range(len(nodes)) if may_move else [origin] for origin in origins]
    for choice in product(*options, *([range(len(nodes))] * len(arriving))):
        if any(choice.count(node) > ROOM for node in set(choice)):
            continue
        placed = [Placed(pod, nodes[at]) for pod, at in zip([*running, *arriving], choice, strict=True)]
        new = [at >= len(running) or choice[at] != origins[at] for at in range(len(placed))]
        if all(clashes_with_pods(p.pod, p.node, placed, nodes) is None for p, n in zip(placed, new, strict=True) if n):
            return True
    return False


def decide(engine: Engine, snapshot: Snapshot, *, may_move: bool) -> Plan:
    """The plan; fails where it breaks a rule, misses a plan that exists, or proves what is not so."""
    plan = engine.cycle(snapshot)
    assert check_plan(snapshot, plan) == ()
    assert not any("refused" in note for note in plan.notes), plan.notes
    if plan.pending:
        assert not is_possible(snapshot, may_move=may_move)
        assert plan.pending[0].proof.state == "proven"
    else:
        assert is_possible(snapshot, may_move=may_move)
    return plan


SELECTORS = st.sampled_from([selects("web"), selects("db"), selects("web", "db")])
KEYS = st.sampled_from(["zone", "host"])
TERMS = st.lists(st.builds(PodAffinityTerm, SELECTORS, KEYS), max_size=1).map(tuple)
RULES = st.one_of(
    st.builds(Constraints, anti_affinity=TERMS, affinity=TERMS),
    st.builds(
        Constraints,
        spread=st.lists(
            st.builds(SpreadConstraint, SELECTORS, KEYS, st.integers(1, 2), st.integers(1, 3)), max_size=2
        ).map(tuple),
        anti_affinity=TERMS,
    ),
    st.builds(Constraints, host_ports=st.sampled_from([("80/TCP",), ("80/TCP/10.0.0.1",), ("80/TCP/10.0.0.2",)])),
)


@st.composite
def clusters(draw: st.DrawFn, running: int) -> Snapshot:
    nodes = draw(st.sampled_from([NODES, UNZONED]))
    apps = st.sampled_from(["web", "db", "other"])
    kinds = [(draw(apps), draw(RULES)) for _ in range(2)]
    arriving = [
        a_pod(f"w{i}", *draw(st.sampled_from(kinds))) for i in range(draw(st.integers(1, 4 if not running else 3)))
    ]
    rules = st.one_of(st.just(Constraints()), RULES)
    there: list[Pod] = []
    for i in range(draw(st.integers(0, running))):
        node = draw(st.sampled_from(nodes)).name
        if sum(pod.node == node for pod in there) < ROOM:
            there.append(a_pod(f"r{i}", draw(apps), draw(rules), node))
    return a_cluster(arriving, there, nodes)


def is_crossed(snapshot: Snapshot) -> bool:
    """Whether running pods are beside each other that may not be: then a "no" is no proof."""
    by_name = {node.name: node for node in snapshot.nodes}
    there = [Placed(pod, by_name[pod.node]) for gang in snapshot.gangs[:-1] for pod in gang.pods]
    return any(kept_off(placed.pod, placed.node, there) for placed in there)


@pytest.mark.slow
@some(120)
@given(clusters(running=2))
def test_what_can_be_placed_is_placed_and_what_waits_is_proven_to(
    engines: dict[str, Engine], snapshot: Snapshot
) -> None:
    if is_crossed(snapshot):
        assert check_plan(snapshot, engines["still"].cycle(snapshot)) == ()
    else:
        decide(engines["still"], snapshot, may_move=False)


@pytest.mark.slow
@some(80)
@given(clusters(running=3))
def test_moves_that_help_are_found(engines: dict[str, Engine], snapshot: Snapshot) -> None:
    if is_crossed(snapshot):
        assert check_plan(snapshot, engines["moving"].cycle(snapshot)) == ()
    else:
        decide(engines["moving"], snapshot, may_move=True)


@pytest.mark.slow
@some(80)
@given(clusters(running=4), st.lists(st.sampled_from([40, 60]), min_size=6, max_size=6))
def test_rules_hold_whatever_is_evicted(engines: dict[str, Engine], snapshot: Snapshot, priorities: list[int]) -> None:
    """The checker asks the rules pod by pod; a refused plan would be told in the notes."""
    gangs = tuple(replace(gang, priority=priorities[i]) for i, gang in enumerate(snapshot.gangs))
    contested = replace(snapshot, gangs=gangs)
    plan = engines["all"].cycle(contested)
    assert check_plan(contested, plan) == ()
    assert not any("refused" in note or "realised" in note for note in plan.notes), plan.notes


@pytest.mark.slow
@some(80)
@given(clusters(running=3), st.lists(st.sampled_from([40, 60]), min_size=6, max_size=6))
def test_rules_hold_for_gangs_that_come_one_after_the_other(
    engines: dict[str, Engine], snapshot: Snapshot, priorities: list[int]
) -> None:
    *there, waiting = snapshot.gangs
    apart = [replace(waiting, name=pod.name, root=flat_gang(1), pods=(pod,)) for pod in waiting.pods]
    gangs = tuple(replace(gang, priority=priorities[i]) for i, gang in enumerate([*there, *apart]))
    several = replace(snapshot, gangs=gangs)
    plan = engines["all"].cycle(several)
    assert check_plan(several, plan) == ()
    assert not any("refused" in note or "realised" in note for note in plan.notes), plan.notes


def test_the_first_pod_of_those_that_require_each_other_is_not_left_alone(engines: dict[str, Engine]) -> None:
    """The first repels the very friends that he needs, so only he alone could run."""
    term = PodAffinityTerm(selects("web"), "host")
    torn = Constraints(affinity=(term,), anti_affinity=(term,))
    decide(engines["still"], a_cluster([a_pod("w0", constraints=torn), a_pod("w1")]), may_move=False)
    alone = decide(engines["still"], a_cluster([a_pod("w0", constraints=torn)]), may_move=False)
    assert [bind.pod for bind in alone.binds] == ["ns/w0"]


def test_a_pod_that_moved_beside_a_newcomer_that_requires_it_stays_there(engines: dict[str, Engine]) -> None:
    """He could go home again but for the newcomer, who may be nowhere without him and had no room there."""
    running = [a_pod(f"r{i}", node="n2") for i in range(ROOM)]
    arriving = [a_pod("w0", "db", near("web"))]
    plan = decide(engines["moving"], a_cluster(arriving, running, UNZONED), may_move=True)
    assert len(plan.moves) == 1
