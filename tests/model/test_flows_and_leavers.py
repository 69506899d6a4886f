"""Counting rack-bound pods in the pool of their shape loses nothing; leaving nodes out only allows more."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.actions import Actions
from kai_solver.domain import (
    FAMILIES,
    Action,
    Gang,
    GpuRequest,
    Node,
    Pod,
    PodSet,
    PodStatus,
    Queue,
    Snapshot,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
)
from kai_solver.fairness import QueueSurplus
from kai_solver.model import variables
from kai_solver.model.build import Formulation, formulate
from kai_solver.model.decode import expand, hint_values
from kai_solver.model.flows import Flows
from kai_solver.model.joint import Joint
from kai_solver.model.spec import ModelSpec, SpecAnswer
from kai_solver.model.stages import Objective
from kai_solver.model.victim_model import LARGEST, VictimModel, add_rows, coarse, formulate_victim_model, pin, sparing
from kai_solver.modelfiles import load_model
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.search.apply import apply
from kai_solver.search.child import SolverChild
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.oracle import SolverActions
from kai_solver.search.parameters import SolverParameters
from kai_solver.search.refine import joint_of
from kai_solver.search.rights import rights_of
from kai_solver.units import MILLI, ResourceSchema
from tests.support import builders

GIB = 2**30


@pytest.fixture(scope="module")
def child() -> Iterator[SolverChild]:
    with SolverChild() as child:
        yield child


def a_node(number: int, rack: int) -> Node:
    return Node(
        f"n{number}",
        (64_000, 64 * GIB, 4 * MILLI, 20),
        gpus=4,
        gpu_memory_mib=100,
        labels={"block": f"b{rack // 2}", "rack": f"r{rack}"},
    )


def a_gang(number: int, sizes: list[int], level: str, origin: list[int] | None) -> Gang:
    """A gang of pods with so many GPUs each, under a required level (or none), waiting or at its ``origin``.

    Level ``segments``: pairs of pods, each pair in a rack of its own or of others.
    """
    in_pairs = level == "segments"
    names = [f"s{i // 2}" if in_pairs else "main" for i in range(len(sizes))]
    pods = tuple(
        Pod(
            "ns",
            f"g{number}-{i}",
            (500, GIB, 0, 1),
            GpuRequest(size),
            status=PodStatus.PENDING if origin is None else PodStatus.RUNNING,
            node="" if origin is None else f"n{origin[i]}",
            podset=names[i],
            order=(0, float(i), ""),
        )
        for i, size in enumerate(sizes)
    )
    asked = TopologyConstraint("dc", "rack" if in_pairs else level) if level else None
    leaves = tuple(PodSet(n, names.count(n), asked if in_pairs else None) for n in dict.fromkeys(names))
    root = SubGroup(children=leaves, topology=None if in_pairs else asked)
    return Gang("ns", f"g{number}", "a", root, pods, last_start_s=None if origin is None else 0.0)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to 6 nodes of 4 GPUs in up to 3 racks of 2 blocks; gangs that run, then up to three that wait."""
    nodes = [a_node(n, draw(st.integers(0, 2))) for n in range(draw(st.integers(2, 6)))]
    left = [4] * len(nodes)
    gangs: list[Gang] = []
    for _ in range(draw(st.integers(0, 4))):
        sizes, origin = [], []
        for size in draw(st.lists(st.sampled_from([1, 2]), min_size=1, max_size=3)):
            choices = [n for n in range(len(nodes)) if left[n] >= size]
            if choices:
                sizes.append(size)
                origin.append(draw(st.sampled_from(choices)))
                left[origin[-1]] -= size
        if origin:
            gangs.append(a_gang(len(gangs), sizes, draw(st.sampled_from(["", "rack", "block", "segments"])), origin))
    for _ in range(draw(st.integers(1, 3))):
        sizes = [draw(st.sampled_from([1, 2, 4]))] * draw(st.integers(1, 4))
        sizes += draw(st.lists(st.sampled_from([1, 2]), max_size=1))
        gangs.append(a_gang(len(gangs) + 10, sizes, draw(st.sampled_from(["", "rack", "segments", "block"])), None))
    topology = Topology("dc", (TopologyLevel("block"), TopologyLevel("rack")))
    return Snapshot(1000.0, ResourceSchema(), tuple(nodes), (Queue("a"),), seated(gangs), (topology,))


def seated(gangs: list[Gang]) -> tuple[Gang, ...]:
    """Devices for those who run, in order."""
    taken: dict[str, int] = {}

    def seat(pod: Pod) -> Pod:
        if not pod.node:
            return pod
        first = taken.get(pod.node, 0)
        taken[pod.node] = first + pod.gpu.devices
        return replace(pod, devices=tuple(range(first, taken[pod.node])))

    return tuple(replace(gang, pods=tuple(seat(pod) for pod in gang.pods)) for gang in gangs)


def question(snapshot: Snapshot, *, evict: bool = False) -> tuple[Outcome, Joint, list[tuple[AllocationUnit, Action]]]:
    """All that wait may come, and all that run may move; with ``evict`` all must come, and all may be evicted too."""
    problem = build_problem(snapshot)
    outcome = Outcome(State(problem))
    pool = outcome.pool = VictimPool.of_running(outcome.state)
    allocation_units = []
    for shape in problem.gangs:
        if shape.gang.pods[0].status is PodStatus.PENDING:
            allocation_unit = AllocationUnits(shape, outcome.state.gangs[shape.index]).next()
            assert allocation_unit is not None
            allocation_units.append((allocation_unit, Action.CONSOLIDATION))
    nobody: frozenset[int] = frozenset()
    units = frozenset(unit.index for unit in pool.units)
    evictable = units if evict else nobody
    joint = JointModelInput(outcome).join(
        allocation_units, units, evictable, nobody, (), may_move=True, optional=not evict
    )
    return outcome, joint, allocation_units


def best(child: SolverChild, joint: Joint) -> tuple[Formulation, int]:
    """As many GPUs as possible, then as few moves; the form, holding the solution as its hint."""
    form = formulate(joint, FAMILIES, ["disruption"])
    v = form.variables
    served = [(-100 * a.charge[2] // MILLI, var) for a, var in zip(joint.arrivals, v.admit, strict=True)]
    moves = next(o for o in form.objectives if o.name == "moved-pods")
    form.spec.minimize([*served, *moves.terms], moves.constant)
    answer = child.solve(form.spec, SolverParameters(workers=1, presolve="none"), math.inf)
    assert answer.status == "optimal"
    assert answer.objective is not None
    form.spec.hint(answer.values)
    return form, answer.objective


@pytest.mark.slow
@settings(max_examples=60)
@given(clusters())
def test_counting_by_domain_has_the_same_optimum_as_places_of_ones_own(child: SolverChild, snapshot: Snapshot) -> None:
    _, joint, _ = question(snapshot)
    _, with_flows = best(child, joint)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variables, "flows_of", lambda _owners: Flows({}, frozenset(), {}))
        form, alone = best(child, joint)
    assert not form.variables.flows.partition
    assert with_flows == alone


@pytest.mark.slow
@settings(max_examples=60)
@given(clusters())
def test_its_solution_can_be_put_into_effect_and_read_back(child: SolverChild, snapshot: Snapshot) -> None:
    outcome, joint, allocation_units = question(snapshot)
    form, objective = best(child, joint)
    values = form.spec.complete_hint
    assert values is not None
    decision = expand(form.variables, values)
    assert apply(
        outcome.state, outcome.pool, joint, decision, [allocation_units[number] for number in decision.admitted]
    )
    for number in decision.admitted:
        arrival = joint.arrivals[number]
        for index, scope in enumerate(arrival.scopes):
            pods = [pod for piece in arrival.pieces if index in piece.scopes for pod in piece.pods]
            domains = {int(scope.domain_of[decision.places[pod]]) for pod in pods}
            assert len(domains) == 1
            assert domains != {-1}
    main = hint_values(form.variables, decision.places, set(), set(), set(decision.moved))
    pinned = form.spec.pinned(main)
    assert pinned is not None
    again = child.solve(pinned, SolverParameters(workers=1, presolve="none"), math.inf)
    assert again.objective == objective


def test_gangs_of_one_kind_make_one_choice() -> None:
    nodes = tuple(a_node(n, n // 2) for n in range(6))
    gangs = [a_gang(n, [2, 2], "rack", None) for n in range(3)]
    topology = Topology("dc", (TopologyLevel("block"), TopologyLevel("rack")))
    _, joint, _ = question(Snapshot(1000.0, ResourceSchema(), nodes, (Queue("a"),), tuple(gangs), (topology,)))
    v = formulate(joint, FAMILIES, ()).variables
    assert [(choice.takers, sorted(choice.chosen)) for choice in v.choices] == [(((0, 0), (1, 0), (2, 0)), [0, 1, 2])]
    assert v.scoped == []


def test_segments_of_all_gangs_make_one_choice() -> None:
    nodes = tuple(a_node(n, n // 2) for n in range(6))
    gangs = [a_gang(n, [2, 2] * (n + 1), "segments", None) for n in range(2)]
    topology = Topology("dc", (TopologyLevel("block"), TopologyLevel("rack")))
    _, joint, _ = question(Snapshot(1000.0, ResourceSchema(), nodes, (Queue("a"),), tuple(gangs), (topology,)))
    v = formulate(joint, FAMILIES, ()).variables
    assert [choice.takers for choice in v.choices] == [((0, 0), (1, 0), (1, 1))]
    assert v.scoped == []


def least(child: SolverChild, spec: ModelSpec, objective: Objective) -> SpecAnswer:
    spec.minimize(objective.terms, objective.constant)
    return child.solve(spec, SolverParameters(workers=1, presolve="none"), math.inf)


def leavers_of(form: Formulation) -> VictimModel:
    victim_model = formulate_victim_model(form.variables, form.objectives)
    add_rows(form.variables, victim_model)
    return victim_model


@pytest.mark.slow
@settings(max_examples=60)
@given(clusters())
def test_without_nodes_no_more_must_leave(child: SolverChild, snapshot: Snapshot) -> None:
    _, joint, _ = question(snapshot, evict=True)
    form = formulate(joint, FAMILIES, ["disruption"])
    victim_model = leavers_of(form)
    for objective in victim_model.objectives:
        whole = next(o for o in form.objectives if o.name == objective.name)
        bound, best_of_all = least(child, victim_model.spec, objective), least(child, form.spec, whole)
        if best_of_all.objective is not None:
            assert bound.objective is not None
            assert bound.objective <= best_of_all.objective


@given(
    st.lists(st.tuples(st.integers(-(10**12), 10**12), st.integers(0, 9)), min_size=1, max_size=5),
    st.integers(-(10**13), 10**13),
)
def test_a_coarse_row_holds_for_all_that_the_row_allows(weighed: list[tuple[int, int]], most: int) -> None:
    terms, limit = coarse([(weight, var) for var, (weight, _) in enumerate(weighed)], most)
    assert all(abs(weight) <= LARGEST for weight, _ in terms)
    if sum(weight * value for weight, value in weighed) <= most:
        assert sum(weight * weighed[var][1] for weight, var in terms) <= limit


def test_a_row_of_small_numbers_keeps_what_it_says() -> None:
    assert coarse([(4 * GIB, 0), (6 * GIB, 1)], 11 * GIB) == ([(2, 0), (3, 1)], 5)
    assert coarse([], 7) == ([], 7)


def test_those_that_leave_without_nodes_leave_in_the_whole_model(child: SolverChild) -> None:
    """Two gangs of 2 + 2 GPUs fill a rack each; one of them goes for a gang of 4 + 4 that fits only then."""
    nodes = tuple(a_node(n, n // 2) for n in range(4))
    running = [a_gang(0, [2, 2], "rack", [0, 1]), a_gang(1, [2, 2, 2, 2], "rack", [2, 2, 3, 3])]
    waiting = a_gang(2, [4, 4], "rack", None)
    topology = Topology("dc", (TopologyLevel("block"), TopologyLevel("rack")))
    gangs = seated([*running, waiting])
    _, joint, _ = question(Snapshot(1000.0, ResourceSchema(), nodes, (Queue("a"),), gangs, (topology,)), evict=True)
    form = formulate(joint, FAMILIES, ["disruption"])
    victim_model = leavers_of(form)
    answer = least(child, victim_model.spec, victim_model.objectives[0])
    assert answer.values is not None
    pinned = form.spec.copy()
    pin(pinned, form.variables, {m.unit: Action.RECLAIM for m in victim_model.evicted(answer.values)})
    work = next(o for o in form.objectives if o.name == victim_model.objectives[0].name)
    found = least(child, pinned, work)
    assert found.objective == answer.objective == least(child, form.spec, work).objective
    assert found.values is not None
    assert len(expand(form.variables, found.values).reclaimed) == 1


def test_only_objectives_about_evictions_are_for_leavers() -> None:
    nodes = tuple(a_node(n, 0) for n in range(2))
    gangs = seated([a_gang(0, [2], "", [0]), a_gang(1, [4], "", None)])
    _, joint, _ = question(Snapshot(1000.0, ResourceSchema(), nodes, (Queue("a"),), gangs), evict=True)
    form = formulate(joint, FAMILIES, ["disruption", "preference", "victim-order"])
    assert [o.name for o in leavers_of(form).objectives] == ["evicted-work/50", "gangs-broken", "evicted-pods"]


def two_on_a_node(needed: int) -> Joint:
    """A gang that needs so many GPUs of the only node, on which two gangs of 2 GPUs run; all of queue 0."""
    gangs = seated([a_gang(0, [2], "", [0]), a_gang(1, [2], "", [0]), a_gang(2, [needed], "", None)])
    _, joint, _ = question(Snapshot(1000.0, ResourceSchema(), (a_node(0, 0),), (Queue("a"),), gangs), evict=True)
    return joint


@pytest.mark.parametrize(("payers", "possible"), [((1,), False), ((2001,), True), ((1, 1), True), ((1, 0), False)])
def test_a_unit_is_charged_to_one_of_the_queues_above_it(
    child: SolverChild, payers: tuple[int, ...], possible: bool
) -> None:
    """A queue that may lose 1 loses one last allocation unit; two queues, one above the other, one each."""
    surplus = tuple(QueueSurplus(queue, frozenset({0}), (0, 0, amount)) for queue, amount in enumerate(payers))
    form = formulate(replace(two_on_a_node(4), surplus=surplus), FAMILIES, ["disruption"])
    answer = child.solve(form.spec, SolverParameters(workers=1, presolve="none"), math.inf)
    assert answer.status == ("optimal" if possible else "infeasible")


@pytest.mark.parametrize("short", [{}, {0: (2, 1)}, {0: (2, 2001)}])
@pytest.mark.parametrize(("needed", "status"), [(2, "optimal"), (4, "infeasible")])
def test_less_is_taken_where_victims_find_no_taker(
    child: SolverChild, short: dict[int, tuple[int, int]], needed: int, status: str
) -> None:
    """Of two that could leave one finds no taker: one may still go."""
    victim_model = leavers_of(formulate(two_on_a_node(needed), FAMILIES, ["disruption"]))
    assert least(child, victim_model.spec, victim_model.objectives[0]).status == "optimal"
    _, high = victim_model.spec.domains
    evicted = victim_model.evicted(high)
    assert len(evicted) == 2
    victim_model.spare(sparing(victim_model.path, evicted, evicted, {evicted[0].unit}, short))
    assert least(child, victim_model.spec, victim_model.objectives[0]).status == status


def test_those_that_are_kept_do_not_leave(child: SolverChild) -> None:
    """One of two must leave: with either of them kept it is the other, with both kept there is none."""
    joint = two_on_a_node(2)
    units = [mover.unit for mover in joint.movers]
    for kept, status in [(units[:1], "optimal"), (units[1:], "optimal"), (units, "infeasible")]:
        victim_model = leavers_of(formulate(joint, FAMILIES, ["disruption"]))
        victim_model.keep(frozenset(kept))
        assert least(child, victim_model.spec, victim_model.objectives[0]).status == status


def test_of_an_elastic_gang_enough_stay_or_none(child: SolverChild) -> None:
    """A gang of six pods needs two. Whatever leaves for two GPUs, two stay at least, or none."""
    running = builders.a_gang("elastic", pods=6, need=2, on="n0", queue="a")
    waiting = builders.a_gang("taker", 1, 1, queue="b", created_s=1.0)
    queues = [builders.a_queue("a", 0), builders.a_queue("b", 8)]
    cluster = builders.a_cluster([builders.a_node("n0", 6)], [running, waiting], queues)
    outcome = Actions(build_problem(cluster), load_model("greedy-only").actions, SolverActions(None)).run()
    joint = joint_of(JointModelInput(outcome), rights_of(outcome))
    core = next(mover for mover in joint.movers if mover.bears)
    assert core.quorum == 2
    model = leavers_of(formulate(joint, FAMILIES, ["disruption"]))
    said = Counter[bool]()
    for chosen in product((0, 1), repeat=len(model.gone)):
        spec, gone = model.spec.copy(), {}
        for (item, var), value in zip(model.gone, chosen, strict=True):
            assert isinstance(item, variables.MoverUnit)
            gone[item.mover.unit] = value
            spec.add_le([(-1 if value else 1, var)], -value, family="chosen")
        stay = sum(not gone[unit] for unit in core.bears)
        allowed = sum(gone[m.unit] * len(m.origin) for m in joint.movers) >= 2 and (
            not gone[core.unit] or stay in (0, 2, 3, 4)
        )
        answer = child.solve(spec, SolverParameters(workers=1, presolve="none"), math.inf)
        assert (answer.status == "optimal") == allowed
        said[allowed] += 1
    assert said[True] > 8
    assert said[False] > 4
