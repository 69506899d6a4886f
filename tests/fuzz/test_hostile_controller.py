"""The controller meets hostile objects by the hundred, and bad answers; it lives, and binds honest gangs."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fuzz.amounts import SHOWN, TIMES
from tests.fuzz.hostile import Recipe
from tests.fuzz.world import World, built, crowd, smallest, world

CROWD = 250
ROUNDS = 4 * TIMES
SHRINK_LIMIT_S = 30.0


def seeds(first: int) -> range:
    """Of so many rounds; new ones where more than usual is drawn."""
    start = first if TIMES == 1 else random.SystemRandom().randrange(1 << 40)
    return range(start, start + ROUNDS)


@pytest.fixture(autouse=True)
def told(faults: list[Any]) -> Iterator[None]:
    """What barriers stopped ended nothing; where more than usual is drawn it is told, to be mended all the same."""
    yield
    assert TIMES == 1 or not faults, f"barriers stopped errors: {faults[:5]}"


@pytest.mark.slow
@pytest.mark.parametrize("mischief", [0.0, 0.1])
def test_the_controller_outlives_hostile_objects(mischief: float) -> None:
    """One controller for all rounds, so that what an object leaves behind meets the next ones."""
    rounds = seeds(int(mischief * 1000))
    with world(rounds.start, mischief) as found:
        for seed in rounds:
            _meet(found, seed, mischief, "greedy-only")


@pytest.mark.slow
def test_so_it_does_with_a_solver_and_begins_anew() -> None:
    """A controller of its own for each crowd, which lists what the others of these tests watch."""
    for seed in seeds(7)[::2]:
        with world(seed, 0.05, "fast") as found:
            _meet(found, seed, 0.05, "fast")


def _meet(found: World, seed: int, mischief: float, model: str) -> None:
    """A crowd; what ends the controller, or keeps the honest gang waiting, is told by the fewest objects that do."""
    recipes = crowd(random.Random(seed), CROWD)
    SHOWN["objects met by the controller"] += CROWD
    try:
        found.meet(built(recipes, seed))
    except AssertionError as error:
        few = smallest(recipes, lambda some: _fails(some, seed, mischief, model))
        raise AssertionError(f"seed {seed}, mischief {mischief}: {_shown(built(few, seed))}") from error


def _fails(recipes: list[Recipe], seed: int, mischief: float, model: str) -> bool:
    """Whether a controller of their own fails with these objects alone."""
    try:
        with world(seed, mischief, model) as found:
            found.meet(built(recipes, seed), SHRINK_LIMIT_S)
    except AssertionError:
        return True
    return False


def _shown(values: list[Any]) -> str:
    return json.dumps(values)[:20_000]
