"""A fleet where pods come and go: who gets which links; a small one, and each policy's rule alone."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.lab.experiments.fleet import MIX, FleetRun, FleetSpec, run_fleet
from kai_solver.lab.experiments.pickers import POLICIES, picker_of
from kai_solver.lab.runs import read_runs
from kai_solver.links import mask_of, product_named

CUBE = product_named("dgx1-v100-8")


def small(policy: str, **more: Any) -> FleetRun:
    run = run_fleet(CUBE, replace(FleetSpec(seed=1, policy=policy, nodes=100, lives=3.0), **more))
    assert run is not None
    return run


@pytest.fixture(scope="module")
def runs() -> dict[str, FleetRun]:
    return {policy: small(policy) for policy in POLICIES}


@pytest.mark.slow
def test_nothing_has_more_than_was_to_be_had(runs: dict[str, FleetRun]) -> None:
    for policy, run in runs.items():
        assert 0 < run.bandwidth <= run.possible <= 100, policy
        assert set(run.by_size) == {size for size in MIX if size > 1}


def test_our_choice_takes_the_best_set_of_its_node_and_the_joint_one_the_best_node(runs: dict[str, FleetRun]) -> None:
    assert runs["devices"].bandwidth == runs["devices"].possible
    assert runs["joint"].bandwidth >= runs["cycle"].bandwidth > runs["devices"].bandwidth > runs["lowest"].bandwidth
    assert runs["cycle"].bandwidth >= 98
    assert runs["devices"].bandwidth >= 93


def test_bin_pack_places_the_same_pods_whatever_gpus_they_get(runs: dict[str, FleetRun]) -> None:
    packed = [runs[policy] for policy in POLICIES if policy not in {"joint", "cycle"}]
    assert len({(run.used, run.failed, run.pods) for run in packed}) == 1
    assert runs["joint"].pods == packed[0].pods


def test_a_run_is_repeatable_and_seeds_differ() -> None:
    once, again, other = (small("lowest", nodes=20, seed=seed) for seed in (1, 1, 2))
    assert once.bandwidth == again.bandwidth != other.bandwidth


def test_an_overloaded_fleet_fails_pods() -> None:
    run = small("joint", nodes=20, load=1.5)
    assert 0 < run.failed < run.pods
    assert run.used > 90


def test_no_gpu_is_given_twice() -> None:
    """Every set is of free GPUs of a node that has enough, and of the size that was asked for."""
    random = np.random.default_rng(5)
    for policy in POLICIES:
        picker = picker_of(CUBE.graph, policy)
        for _ in range(50):
            free = random.integers(0, 256, 10).astype(np.uint64)
            size = int(random.choice([1, 2, 4, 8]))
            picked = picker.pick(free, size)
            has_room = bool((np.bitwise_count(free) >= size).any())
            assert (picked is not None) == has_room
            if picked is not None:
                node, mask = picked
                assert (mask & ~int(free[node]), mask.bit_count()) == (0, size)


def test_bin_pack_takes_the_fullest_node_that_has_room() -> None:
    free = np.array([255, 0b0111, 0b0011, 0b1100, 0b0001], dtype=np.uint64)
    assert picker_of(CUBE.graph, "lowest").pick(free, 2) == (2, 0b0011)
    assert picker_of(CUBE.graph, "lowest").pick(free, 3) == (1, 0b0111)


def pick_of(policy: str, free: list[int], size: int) -> set[int]:
    picked = picker_of(CUBE.graph, policy).pick(np.array([mask_of(free)], dtype=np.uint64), size)
    assert picked is not None
    return {gpu for gpu in range(8) if picked[1] >> gpu & 1}


def test_each_rule_takes_what_it_says() -> None:
    assert pick_of("lowest", [0, 1, 2, 5], 2) == {0, 1}
    assert pick_of("best-now", [0, 1, 2, 5], 2) == {1, 2}
    assert pick_of("mapa", [0, 1, 2, 5], 2) == {1, 5}
    assert pick_of("mapa", [0, 1, 2, 3, 6], 1) == {6}
    assert pick_of("devices", [0, 1, 2, 3, 4], 1) == {4}


def test_the_pattern_of_four_is_the_ring_with_the_largest_sum() -> None:
    links = {(one, other): int(CUBE.graph.gb_s[one, other]) for one, other in combinations(range(8), 2)}
    rings = [
        sum(links[min(a, b), max(a, b)] for a, b in ((w, x), (x, y), (y, z), (z, w)))
        for w, x, y, z in ((0, 3, 2, 1), (0, 2, 1, 3), (0, 1, 3, 2))
    ]
    assert max(rings) == 50 + 50 + 50 + 25
    assert pick_of("mapa", [0, 1, 2, 3, 6], 4) == {0, 1, 2, 3}


# -- the command -------------------------------------------------------------------------------------------------------


def call(*words: str) -> Any:
    return CliRunner().invoke(app, ["experiment", "nvlink", *words], env={"COLUMNS": "200"})


def test_the_command_prints_means_by_policy() -> None:
    words = ["--nodes", "10", "--lives", "1", "--seeds", "1,2", "--policies", "lowest,joint"]
    done = call(*words, "--quiet")
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["policy", "lowest", "joint"]
    found = json.loads(call(*words, "--json", "--quiet").stdout)["runs"]
    assert [(run["spec"]["policy"], run["spec"]["seed"]) for run in found] == [
        ("lowest", 1),
        ("lowest", 2),
        ("joint", 1),
        ("joint", 2),
    ]


def test_stored_runs_are_rows_with_what_they_took(tmp_path: Path) -> None:
    words = [
        "--nodes",
        "10",
        "--lives",
        "1",
        "--seeds",
        "1,2",
        "--policies",
        "lowest",
        "--save",
        str(tmp_path / "runs"),
    ]
    assert call(*words, "--save", str(tmp_path / "runs"), "--quiet").exit_code == 0
    records = list(read_runs(tmp_path / "runs", "").records.values())
    assert [(one.command, one.family, one.model, one.seed) for one in records] == [
        ("experiment", "nvlink", "lowest", 1),
        ("experiment", "nvlink", "lowest", 2),
    ]
    assert all(one.cpu_s and one.wall_s > 0 and one.peak_mib and one.peak_mib > 20 for one in records)


def test_each_run_is_kept_when_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kai_solver.lab.experiments import fleet

    run, calls = fleet.run_fleet, []

    def falls_later(*words: Any) -> Any:
        calls.append(words)
        if len(calls) > 1:
            raise OSError("gone")
        return run(*words)

    monkeypatch.setattr(fleet, "run_fleet", falls_later)
    words = ["--nodes", "10", "--lives", "1", "--seeds", "1,2", "--policies", "lowest"]
    assert call(*words, "--save", str(tmp_path / "runs"), "--quiet").exit_code != 0
    assert [one.seed for one in read_runs(tmp_path / "runs", "").records.values()] == [1]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--policies", "best"], "--policies: 'best' is not a policy"),
        (["--product", "dgx2-v100-16"], "--product: dgx2-v100-16 has 16 GPUs, more than 8"),
        (["--product", "none"], "unknown product 'none'"),
        (["--seeds", "x"], "--seeds: 'x' cannot be used"),
    ],
)
def test_bad_options_are_one_line(words: list[str], problem: str) -> None:
    done = call(*words)
    assert done.exit_code == 2
    assert problem in done.stderr
