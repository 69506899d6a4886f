"""What chains found, put into effect: places, for whom, and nothing where a rule forbids it."""

from collections.abc import Mapping

import numpy as np
import pytest

from kai_solver.actions import Actions
from kai_solver.chains.arrays import NONE, ChainResult, check_arrays
from kai_solver.chains.attribute import Charging
from kai_solver.chains.describe import Description, MovePrices, describe
from kai_solver.chains.effect import Effect, Effecting
from kai_solver.check import check_plan
from kai_solver.domain import Action, Gang, Node, Snapshot, flat_gang
from kai_solver.planning import assemble
from kai_solver.planstate.allocation_units import AllocationUnits, GangUnitsOf
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.search.oracle import UNKNOWN, SolverActions
from kai_solver.search.rights import rights_of
from tests.support.builders import RACK, a_cluster, a_gang, a_node, a_queue, only_on

OUT = ""


def nodes_of(*gpus: int) -> list[Node]:
    return [a_node(f"n{number}", count) for number, count in enumerate(gpus)]


class Case:
    """The greedy's outcome of a cluster, and its arrays."""

    def __init__(self, snapshot: Snapshot, actions: tuple[Action, ...] = (Action.ALLOCATE, Action.PREEMPT)) -> None:
        self.snapshot = snapshot
        self.outcome: Outcome = Actions(build_problem(snapshot), actions, SolverActions(None, UNKNOWN)).run()
        self.state = self.outcome.state
        self.problem = self.state.problem
        if self.outcome.pool is None:
            self.outcome.pool = VictimPool.of_running(self.state)
        self.pool: VictimPool = self.outcome.pool
        self.rights = rights_of(self.outcome)

    def described(self, *, may_evict: bool = True) -> Description:
        units = GangUnitsOf(self.state)
        turns = [unit for gang in self.outcome.waiting if (unit := units[gang].next()) is not None]
        prices = MovePrices(np.full(len(self.pool.units), 300, dtype=np.int64))
        found = describe(self.outcome, self.pool, self.rights, prices, turns, may_evict=may_evict)
        assert found is not None
        check_arrays(found.problem)
        return found

    def take_effect(
        self, places: Mapping[str, str], *, per_gang: int = -1, judge: bool = True, late: bool = False
    ) -> Effect:
        """Put pods on nodes, by name (`OUT`: the group of the pod is out), and leave the others where they are.

        ``n0/2``: on the devices of n0 from number 2 on.
        """
        description = self.described()
        result = self.result(description, places)
        charging = Charging(self.rights.takers, per_gang=per_gang)
        return Effecting(self.outcome, self.pool, description, charging, lambda _: judge, lambda: late).run(result)

    def result(self, description: Description, places: Mapping[str, str]) -> ChainResult:
        arrays = description.problem
        node, devices = arrays.start.copy(), arrays.start_devices.copy()
        is_in = node[arrays.first[:-1]] != NONE
        for number, pod in enumerate(description.pods.tolist()):
            name = self.problem.pods[pod].name
            if name in places:
                at, _, first = places[name].partition("/")
                node[number] = NONE if at == OUT else self.problem.node_index[at]
                width = self.problem.pods[pod].gpu.devices if at != OUT else 0
                named = range(int(first or 0), int(first or 0) + width)
                devices[number] = [*named, *([NONE] * (arrays.start_devices.shape[1] - width))]
                if node[number] == arrays.home[number] != NONE:
                    devices[number] = arrays.home_devices[number]
                is_in[int(np.searchsorted(arrays.first, number, side="right")) - 1] = at != OUT
        return ChainResult(node, devices, is_in, 0, 0)

    def admitted(self) -> dict[str, tuple[Action, set[str]]]:
        """By gang, how it was admitted, and whose units leave or move for it."""
        gangs = self.problem.gangs
        return {
            gangs[a.allocation_unit.gang].gang.name: (
                a.action,
                {gangs[self.pool.units[unit].gang].gang.name for unit in a.units},
            )
            for a in self.outcome.admissions
        }

    def where(self) -> dict[str, str]:
        """Nodes of the pods that have new places, and of those that left `OUT`."""
        pods, nodes = self.problem.pods, self.problem.nodes
        gone = {pods[pod].name: OUT for pod in self.state.gone}
        return gone | {pods[pod].name: nodes[place.node].name for pod, place in self.state.places.items()}

    def is_sound(self) -> bool:
        actions = (Action.ALLOCATE, Action.CONSOLIDATION, Action.RECLAIM, Action.PREEMPT)
        return not check_plan(self.snapshot, assemble(self.problem, self.outcome), actions=actions)


def halves(*more: Gang) -> Snapshot:
    """Two nodes of four GPUs, half full each."""
    gangs = [a_gang("a", 2, on="n0"), a_gang("b", 2, on="n1"), a_gang("wide", 4), *more]
    return a_cluster(nodes_of(4, 4), gangs)


def victims() -> Snapshot:
    """Urgent takes the node of one of two; the greedy takes the cheap one."""
    return a_cluster(
        nodes_of(4, 4),
        [
            a_gang("dear", 4, on="n0", last_start_s=0.0),
            a_gang("cheap", 4, on="n1", last_start_s=990.0),
            a_gang("urgent", 4, priority=60),
        ],
    )


def test_a_gang_comes_in_by_a_move() -> None:
    case = Case(halves())
    assert case.take_effect({"a-0": "n1", "wide-0": "n0"}, late=True) == Effect(admitted=1, changed=2, wanted=2)
    assert case.where() == {"a-0": "n1", "wide-0": "n0"}
    assert case.admitted() == {"wide": (Action.CONSOLIDATION, {"a"})}
    assert case.is_sound()


def test_evicted_work_comes_home_and_other_work_leaves() -> None:
    case = Case(victims())
    assert case.where() == {"cheap-0": OUT, "urgent-0": "n1"}
    assert case.take_effect({"cheap-0": "n1", "dear-0": OUT, "urgent-0": "n0"}).changed == 3
    assert case.where() == {"dear-0": OUT, "urgent-0": "n0"}
    assert case.admitted() == {"urgent": (Action.PREEMPT, {"dear"})}
    assert case.is_sound()


def test_a_gang_for_which_nothing_leaves_any_more_counts_as_consolidation() -> None:
    """It may then have moved what it has no right to preempt."""
    only = {"constraints": only_on("zone", "a")}
    gangs = [
        a_gang("peer", 2, on="n0", priority=60),
        a_gang("low", 2, on="n0", each=only, last_start_s=999.0),
        a_gang("urgent", 2, each=only, priority=60),
    ]
    case = Case(a_cluster([a_node("n0", 4, labels={"zone": "a"}), a_node("n1", 4)], gangs))
    assert case.admitted() == {"urgent": (Action.PREEMPT, {"low"})}
    assert case.take_effect({"low-0": "n0", "peer-0": "n1", "urgent-0": "n0/2"}).changed == 3
    assert case.admitted() == {"urgent": (Action.CONSOLIDATION, {"peer"})}
    assert case.is_sound()


def test_not_more_gangs_move_for_one_than_the_policy_allows() -> None:
    gangs = [a_gang("a", 2, on="n0"), a_gang("b", 2, on="n0"), a_gang("c", 2, on="n1"), a_gang("wide", 4)]
    case = Case(a_cluster(nodes_of(4, 4, 2), gangs))
    before = case.where()
    both = {"a-0": "n1", "b-0": "n2", "wide-0": "n0"}
    assert case.take_effect(both, per_gang=1) == Effect(admitted=0, changed=0, wanted=3)
    assert case.where() == before
    assert not case.admitted()
    assert case.take_effect(both, per_gang=2).admitted == 1


def test_no_reclaim_moves_work_of_a_queue_that_it_may_not_look_at_when_its_turn_comes() -> None:
    """Queue b is within its quota once `first` has taken from it; `second` takes the node where `b1` runs."""
    zones = {"n0": "a", "n1": "b", "n2": "c", "n3": "d"}
    nodes = [a_node(name, gpus, labels={"zone": zones[name]}) for name, gpus in zip(zones, (2, 2, 1, 2), strict=True)]
    only = {name: {"constraints": only_on("zone", zone)} for name, zone in zones.items()}
    gangs = [
        a_gang("b0", 2, on="n3", queue="b", each=only["n3"]),
        a_gang("b1", 1, on="n0", queue="b"),
        a_gang("c0", 1, on="n0", queue="c", each=only["n0"]),
        a_gang("c1", 1, 1, on="n1", queue="c", each=only["n1"]),
        a_gang("first", 2, queue="a", each=only["n3"], created_s=1.0),
        a_gang("second", 1, queue="d", each=only["n0"], created_s=2.0),
        a_gang("wide", 1, queue="w", each=only["n0"], created_s=3.0),
    ]
    quotas = {"a": 2.0, "b": 2.0, "c": 2.0, "d": 1.0, "w": 0.0}
    queues = [a_queue(name, quota, weight=0.0, priority=100 + (name == "a")) for name, quota in quotas.items()]
    case = Case(a_cluster(nodes, gangs, queues), (Action.ALLOCATE, Action.RECLAIM))
    taken = {"first": (Action.RECLAIM, {"b0"}), "second": (Action.RECLAIM, {"c0"})}
    assert case.admitted() == taken
    assert case.take_effect({"b1-0": "n2", "wide-0": "n0"}).admitted == 1
    assert case.admitted() == taken | {"wide": (Action.CONSOLIDATION, {"b1"})}
    assert case.is_sound()


def test_what_moved_by_a_chain_and_leaves_later_leaves_for_the_later_gang_alone() -> None:
    case = Case(halves(a_gang("late", 4, priority=60)), (Action.ALLOCATE,))
    assert case.take_effect({"a-0": "n1", "wide-0": "n0"}).admitted == 1
    moved = case.admitted()["wide"]
    assert moved == (Action.CONSOLIDATION, {"a"})
    (wide,) = [admission for admission in case.outcome.admissions if admission.units]
    case.pool.leave(wide.units[0])
    (shape,) = [gang for gang in case.problem.gangs if gang.gang.name == "late"]
    late = AllocationUnits(shape, case.state.gangs[shape.index], case.problem.pod_shape).next()
    assert late is not None
    case.outcome.admit(Admission(late, Action.PREEMPT, wide.units))
    assert case.admitted()["wide"][1] == set()
    assert case.admitted()["late"][1] == {"a"}


def test_what_cannot_be_had_does_not_lose_the_rest() -> None:
    gangs = [
        a_gang("a", 2, on="n0"),
        a_gang("b", 2, on="n1"),
        a_gang("c", 2, on="n2"),
        a_gang("d", 2, on="n3"),
        a_gang("wide", 4),
        a_gang("broad", 4, queue="tight"),
    ]
    case = Case(a_cluster(nodes_of(4, 4, 4, 4), gangs, [a_queue("q"), a_queue("tight", limit=3)]))
    places = {"a-0": "n1", "wide-0": "n0", "c-0": "n3", "broad-0": "n2"}
    assert case.take_effect(places, late=True) == Effect(admitted=0, changed=0, wanted=4)
    assert case.take_effect(places) == Effect(admitted=1, changed=2, wanted=4)
    assert case.where() == {"a-0": "n1", "wide-0": "n0"}
    assert case.is_sound()


def test_what_is_judged_worse_is_undone() -> None:
    case = Case(victims())
    before, admissions = case.where(), case.outcome.admissions
    assert case.take_effect({"cheap-0": "n1", "dear-0": OUT, "urgent-0": "n0"}, judge=False).changed == 0
    assert case.where() == before
    assert case.outcome.admissions == admissions


@pytest.mark.parametrize("places", [{"a-0": "n1", "wide-0": "n1"}, {"wide-0": "n0"}])
def test_a_result_for_which_there_is_no_room_changes_nothing(places: dict[str, str]) -> None:
    case = Case(halves())
    assert case.take_effect(places).changed == 0
    assert not case.where()


def test_a_gang_stays_in_its_rack() -> None:
    nodes = [a_node(f"n{i}", 4, rack=f"r{i // 2}") for i in range(4)]
    pair = a_gang("pair", 2, 2, on="n0 n1", root=flat_gang(2, RACK))
    case = Case(a_cluster(nodes, [pair, a_gang("wide", 4), a_gang("full", 2, 2, on="n2 n3")]))
    assert (case.described().problem.level != NONE).sum() == 1
    assert case.take_effect({"pair-0": "n2", "wide-0": "n0"}).changed == 0
    assert case.take_effect({"pair-0": "n2", "pair-1": "n3", "wide-0": "n0"}).admitted == 1
    assert case.is_sound()
