"""Shares of GPUs by memory and by fraction: one arithmetic for greedy, model and bounds, against all ways to seat them.

What fits is counted here in fractions of a device, for every way to give pods distinct devices.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Plan
from kai_solver.engine import Engine
from kai_solver.instances_io import snapshot_from_native
from kai_solver.units.shares import LARGEST_MIB, WHOLE, charged_milli, parts_of
from tests.engine.conftest import Engines
from tests.support.clusters import some

MEMORY = st.sampled_from([7, 100, 16_000, 46_068, 80_000, 81_559])
PARTS = st.sampled_from([0.1, 0.125, 0.25, 0.3, 0.333, 0.5, 0.667, 0.75, 0.875])

Share = dict[str, Any]
"""A pod's request: ``gpus`` or ``gpuMemory``, and ``gpuDevices``."""


# -- the arithmetic ------------------------------------------------------------------------------------------------


def part(share: Share, memory: int) -> Fraction:
    """Of one device."""
    if "gpuMemory" in share:
        return Fraction(share["gpuMemory"], memory)
    return Fraction(round(share["gpus"] * 1000), 1000)


@pytest.mark.slow
@given(st.integers(1, LARGEST_MIB), st.data())
@settings(max_examples=500, deadline=None)
def test_shares_fit_a_device_exactly_where_they_fit_it_in_mib(memory: int, data: st.DataObject) -> None:
    """Also where they fill it to the last MiB, or ask for one more."""
    milli = data.draw(st.lists(st.integers(1, 999), max_size=5))
    room = Fraction(1) - sum(Fraction(m, 1000) for m in milli)
    mib: list[int] = []
    while room > 0 and int(room * memory) > 0 and data.draw(st.booleans()):
        mib.append(data.draw(st.integers(1, int(room * memory))))
        room -= Fraction(mib[-1], memory)
    if data.draw(st.booleans()) and room > -1:
        mib.append(max(int(room * memory) + data.draw(st.integers(0, 1)), 1))
    exact = sum(Fraction(m, 1000) for m in milli) + sum(Fraction(m, memory) for m in mib)
    parts = sum(parts_of(m, 0, memory) for m in milli) + sum(parts_of(0, m, memory) for m in mib)
    assert (parts <= WHOLE) == (exact <= 1)


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_devices_beyond_the_largest_never_hold_too_much(memory: int, mib: int) -> None:
    parts = parts_of(0, mib, memory)
    if memory > LARGEST_MIB:
        assert parts * memory >= mib * WHOLE
    assert (parts <= WHOLE) == (mib <= memory)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_charges_are_hundredths_rounded_up(memory: int, mib: int) -> None:
    charged = charged_milli(0, mib, memory)
    assert charged % 10 == 0
    assert Fraction(charged - 10, 1000) < Fraction(mib, memory) <= Fraction(charged, 1000)


# -- clusters ------------------------------------------------------------------------------------------------------


def fits(free: list[tuple[int, list[Fraction]]], shares: Sequence[Share]) -> bool:
    """Whether some way seats all ``shares`` on nodes of (memory, free parts by device)."""
    if not shares:
        return True
    share, rest = shares[0], shares[1:]
    for memory, devices in free:
        need = part(share, memory)
        able = [index for index, room in enumerate(devices) if room >= need]
        for chosen in combinations(able, share.get("gpuDevices", 1)):
            for index in chosen:
                devices[index] -= need
            found = fits(free, rest)
            for index in chosen:
                devices[index] += need
            if found:
                return True
    return False


@st.composite
def a_share(draw: st.DrawFn, memory: int, most: int) -> Share:
    if draw(st.booleans()):
        share: Share = {"gpus": draw(PARTS)}
    else:
        divisor = draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8]))
        share = {"gpuMemory": max(memory * draw(st.integers(1, divisor)) // divisor, 1)}
    if most > 1 and draw(st.integers(0, 3)) == 0:
        share["gpuDevices"] = 2
    return share


@st.composite
def a_small_cluster(draw: st.DrawFn) -> dict[str, Any]:
    """One or two nodes of one or two GPUs, some of them shared by pods that stay, and a gang of up to four pods."""
    nodes: list[dict[str, Any]] = []
    gangs: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 2))):
        memory, gpus = draw(MEMORY), draw(st.integers(1, 2))
        nodes.append({"name": f"n{number}", "gpus": gpus, "gpuMemory": memory})
        for device in range(gpus):
            room = Fraction(1)
            for _ in range(draw(st.integers(0, 2))):
                share = draw(a_share(memory, 1))
                if part(share, memory) < room or (part(share, memory) == room < 1):
                    room -= part(share, memory)
                    name = f"r{len(gangs)}"
                    seat = {
                        "status": "Running",
                        "node": f"n{number}",
                        "devices": [device],
                        "gpuGroups": [f"{number}-{device}"],
                    }
                    gangs.append({"name": name, "queue": "q", "preemptible": False, "pods": [share | seat]})
    memory = nodes[0]["gpuMemory"]
    most = max(int(node["gpus"]) for node in nodes)
    pods = [draw(a_share(memory, most)) | {"name": f"w-{i}"} for i in range(draw(st.integers(1, 4)))]
    gangs.append({"name": "w", "queue": "q", "pods": pods})
    return {"format": "kai-solver/v1", "nodes": nodes, "queues": [{"name": "q", "quota": 100}], "gangs": gangs}


def truth(file: dict[str, Any]) -> bool:
    """Whether the waiting gang fits beside those that run."""
    free = {node["name"]: (node["gpuMemory"], [Fraction(1)] * node["gpus"]) for node in file["nodes"]}
    for gang in file["gangs"][:-1]:
        for pod in gang["pods"]:
            memory, devices = free[pod["node"]]
            devices[pod["devices"][0]] -= part(pod, memory)
    return fits(list(free.values()), file["gangs"][-1]["pods"])


def planned(engine: Engine, file: dict[str, Any]) -> Plan:
    snapshot = snapshot_from_native(file)
    plan = engine.cycle(snapshot, budget_s=20.0)
    assert check_plan(snapshot, plan) == ()
    assert not [note for note in plan.notes if "refused" in note]
    return plan


@pytest.mark.slow
@given(a_small_cluster())
@some(150)
def test_a_gang_of_shares_starts_exactly_where_some_way_seats_it(engines: Engines, file: dict[str, Any]) -> None:
    """Bounds refute nothing that fits, the model finds what greedy misses, and what starts fits."""
    assert bool(planned(engines["deterministic"], file).admitted) == truth(file)


@pytest.mark.slow
@given(a_small_cluster())
@some(100)
def test_greedy_starts_no_gang_of_shares_that_does_not_fit_and_proves_nothing_false(
    engines: Engines, file: dict[str, Any]
) -> None:
    plan, can = planned(engines["greedy-only"], file), truth(file)
    assert can or not plan.admitted
    assert not can or not [p for p in plan.pending if p.proof.state == "proven"]


def device(*shares: Share) -> list[dict[str, Any]]:
    seat = {"status": "Running", "node": "n", "devices": [0], "gpuGroups": ["g"]}
    return [{"name": f"r{i}", "queue": "q", "pods": [share | seat]} for i, share in enumerate(shares)]


@pytest.mark.parametrize("model", ["greedy-only", "deterministic"])
@pytest.mark.parametrize(
    ("mib", "memory", "count"), [(10_000, 80_000, 8), (1, 3, 3), (13_593, 81_559, 6), (13_594, 81_559, 5)]
)
def test_as_many_share_a_gpu_as_its_memory_holds(
    engines: Engines, model: str, mib: int, memory: int, count: int
) -> None:
    """In hundredths, eight eighths of a GPU would be 1.04 of it."""
    file = {
        "format": "kai-solver/v1",
        "nodes": [{"name": "n", "gpus": 1, "gpuMemory": memory}],
        "queues": [{"name": "q", "quota": 100}],
        "gangs": [{"name": "w", "queue": "q", "minMember": 1, "pods": [{"replicas": 9, "gpuMemory": mib}]}],
    }
    assert len(planned(engines[model], file).binds) == count


@pytest.mark.parametrize("model", ["greedy-only", "deterministic"])
def test_a_full_gpu_leaves_the_others_of_its_node(engines: Engines, model: str) -> None:
    """20000 + 10000 + 50000 of 80000 MiB are charged as 1.01 GPUs, and are one."""
    file = {
        "format": "kai-solver/v1",
        "nodes": [{"name": "n", "gpus": 2, "gpuMemory": 80_000}],
        "queues": [{"name": "q", "quota": 100}],
        "gangs": [
            *device({"gpuMemory": 20_000}, {"gpuMemory": 10_000}, {"gpuMemory": 50_000}),
            {"name": "w", "queue": "q", "pods": [{"gpus": 1}]},
        ],
    }
    assert [bind.devices[0].index for bind in planned(engines[model], file).binds] == [1]
