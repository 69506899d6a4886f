"""The lab with 100 GPUs: ten gangs get what training is owed, one cycle after their victims have left."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Action, Plan
from kai_solver.engine import cycle
from kai_solver.instances_io.importers import Loaded
from kai_solver.instances_io.native_schema import ExpectDoc
from kai_solver.lab.conformance.rounds import settle
from kai_solver.modelfiles import load_model

LAB = Path(__file__).parents[2] / "instances" / "ai-lab-100-gpus.yaml"


@pytest.fixture(scope="module")
def lab(read: Callable[[Path], Loaded]) -> Loaded:
    return read(LAB)


@pytest.fixture(scope="module")
def first(plan_of: Callable[..., Plan]) -> Plan:
    return plan_of(LAB, "deterministic")


def training(loaded: Loaded) -> list[str]:
    """The ten gangs that arrive."""
    return [gang.key for gang in loaded.snapshot.gangs if gang.queue == "training" and gang.name != "pretrain"]


def test_the_lab_is_as_described(lab: Loaded) -> None:
    snapshot = lab.snapshot
    services = [gang for gang in snapshot.gangs if gang.queue == "inference"]
    in_use = sum(pod.gpu.devices for gang in snapshot.gangs for pod in gang.pods if pod.status.is_active)
    assert sum(node.gpus for node in snapshot.nodes) == 100
    assert len(services) == 20
    assert all(gang.preemptible for gang in services)
    assert len(training(lab)) == 10
    assert in_use == 100


def test_all_ten_are_admitted_by_reclaim_as_expected(
    lab: Loaded, first: Plan, missed: Callable[[ExpectDoc, Plan], list[str]]
) -> None:
    assert lab.expect is not None
    assert missed(lab.expect, first) == []
    assert {action for _, action in first.admitted} == {Action.RECLAIM}
    assert check_plan(lab.snapshot, first) == ()


def test_no_victim_more_than_proven_necessary(first: Plan) -> None:
    stages = {stage.name: stage for stage in first.stages}
    assert all(stage.optimal for stage in first.stages)
    assert stages["gangs-broken"].value == 15
    assert stages["moved-pods"].value == 0


def test_each_runs_in_the_cycle_after_its_victims_left(lab: Loaded, first: Plan) -> None:
    """Evicted services wait again and may not take the room back: training goes before them."""
    arrivals = set(training(lab))
    assert all(bind.nominated for bind in first.binds)
    after = settle(lab.snapshot, first, delay_s=30.0)
    second = cycle(after, load_model("deterministic"))
    bound = [bind for bind in second.binds if not bind.nominated]
    pods = {pod.key for gang in after.gangs if gang.key in arrivals for pod in gang.pods}
    assert {bind.pod for bind in bound} == pods
    assert (second.evictions, second.moves) == ((), ())
    assert {pending.proof.state for pending in second.pending} == {"proven"}
    assert check_plan(after, second) == ()


def test_the_greedy_alone_disturbs_more(
    first: Plan, plan_of: Callable[..., Plan], is_better: Callable[[Plan, Plan], bool]
) -> None:
    assert is_better(first, plan_of(LAB, "greedy-only"))
