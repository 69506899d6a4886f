"""The best packing of usual pods into one node: against trying all, and what its limit of steps means."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.leftover import Guest, pack
from kai_solver.leftover import packing as room


def guest(kind: int, cpu: int, devices: int, milli: int, worth: int) -> Guest:
    return Guest(kind, ((0, cpu),) if cpu else (), devices, milli if devices else 0, worth)


def seats(guests: Sequence[Guest], counts: Sequence[int], cpu: int, devices: Sequence[int]) -> bool:
    """Whether so many of each fit, by trying every device for every pod."""
    if sum(c * dict(g.asked).get(0, 0) for g, c in zip(guests, counts, strict=True)) > cpu:
        return False
    pods = [g for g, c in zip(guests, counts, strict=True) for _ in range(c) if g.devices]

    def rest(at: int, free: tuple[int, ...]) -> bool:
        if at == len(pods):
            return True
        fitting = [d for d, milli in enumerate(free) if milli >= pods[at].milli]
        return any(
            rest(at + 1, tuple(m - pods[at].milli * (d in chosen) for d, m in enumerate(free)))
            for chosen in itertools.combinations(fitting, pods[at].devices)
        )

    return rest(0, tuple(devices))


def exhaustive(guests: Sequence[Guest], cpu: int, devices: Sequence[int]) -> int:
    most = [range(1 + (cpu // dict(g.asked).get(0, cpu + 1) if g.asked else len(devices))) for g in guests]
    found = (c for c in itertools.product(*most) if seats(guests, c, cpu, devices))
    return max(sum(c * g.worth for g, c in zip(guests, counts, strict=True)) for counts in found)


kinds = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 3000)), min_size=1, max_size=3)


@pytest.mark.slow
@given(kinds, st.integers(0, 8), st.lists(st.sampled_from([0, 400, 1000]), max_size=3))
def test_whole_gpus_and_none_are_packed_best(sizes: list[tuple[int, int, int]], cpu: int, devices: list[int]) -> None:
    guests = [guest(kind, cores, gpus, 1000, worth) for kind, (cores, gpus, worth) in enumerate(sizes)]
    worth, counts = pack(guests, [cpu], devices)
    assert worth == exhaustive(guests, cpu, devices)
    assert worth == sum(c * g.worth for g, c in zip(guests, counts, strict=True))
    assert seats(guests, counts, cpu, devices)


shares = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([300, 500, 1000])), min_size=1, max_size=3)


@given(shares, st.integers(0, 6), st.lists(st.sampled_from([300, 600, 1000]), max_size=3))
def test_shares_are_packed_where_they_fit(sizes: list[tuple[int, int]], cpu: int, devices: list[int]) -> None:
    guests = [guest(kind, cores, 1, milli, milli) for kind, (cores, milli) in enumerate(sizes)]
    worth, counts = pack(guests, [cpu], devices)
    assert seats(guests, counts, cpu, devices)
    assert worth == sum(c * g.worth for g, c in zip(guests, counts, strict=True)) <= exhaustive(guests, cpu, devices)
    assert worth > 0 or exhaustive(guests, cpu, devices) == 0


def test_what_is_over_committed_takes_no_pod() -> None:
    assert pack([guest(0, 1, 1, 1000, 1000)], [-1], [1000]) == (0, (0,))
    assert pack([guest(0, 1, 1, 1000, 1000)], [4], [-500, 1000]) == (1000, (1,))


def test_after_its_steps_the_best_so_far_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    guests = [guest(0, 2, 2, 1000, 2000), guest(1, 1, 1, 1000, 1500)]
    assert pack(guests, [9], [1000] * 4) == (6000, (0, 4))
    monkeypatch.setattr(room, "STEPS", 3)
    assert pack(guests, [9], [1000] * 4) == (5000, (1, 2))
